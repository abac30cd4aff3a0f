"""Small worlds for calibration: a model, a GPU, settings, and recordings made by the model of time itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from calibration.fit import engine_of
from calibration.fit_gpu import Recording
from calibration.priors import starting_profile
from calibration.recording import read_steps
from simulator import catalogue
from simulator.cuda_graphs import GraphDispatch
from simulator.pipeline import Pipeline
from simulator.profile import Profile, Provenance
from simulator.step_cost import StepCost

DATA = Path(__file__).parents[1] / "data" / "calib-8b"
GPU = catalogue.gpu("H200")
_found = catalogue.model("meta-llama/Llama-3.1-8B")
assert _found is not None
MODEL = _found
ENGINE = engine_of({"max_tok": 8192, "max_run": 1024}, MODEL, "0.24.0", enforce_eager=False)


def prior_profile() -> Profile:
    return starting_profile("test", Provenance(gpu="H200", vllm_version="0.24.0", model=MODEL.name))


def recorded_by(profile: Profile, bursts: list[tuple[int, int, int]], path: Path) -> Recording:
    """Write what a server with exactly these times would record for bursts of (requests, prompt, output), read it."""
    cost = StepCost(profile, MODEL, GPU, ENGINE)
    dispatch = GraphDispatch(ENGINE).dispatch
    lines: list[dict[str, object]] = [{"a": "h", "t": 0.0, "max_tok": 8192, "max_run": 1024}]
    now_s, step = 1.0, 0
    for requests, prompt, output in bursts:
        plans = _plans(requests, prompt, output)
        pipeline, flying, following = Pipeline(2), [], 0
        now_s += 0.05
        while following < len(plans) or flying:
            if following < len(plans) and pipeline.in_flight < 2:
                chunks, decodes, contexts, longest = plans[following]
                fresh = sum(n for n, _ in chunks)
                tokens, reqs = fresh + decodes, len(chunks) + decodes
                mode, padded = dispatch(tokens, reqs, tokens == reqs)
                attention = sum(n * (c + n / 2) for n, c in chunks)
                gpu_s = cost.gpu_s(mode, padded, tokens, reqs, reqs, decodes, contexts, longest, attention, fresh)
                idle = following == 0
                step += 1
                end_s = now_s + cost.schedule_s(reqs)
                lines.append(
                    {"a": "s", "n": step, "t0": now_s, "t1": end_s, "p": chunks, "d": decodes, "dc": contexts,
                     "dm": longest}
                )  # fmt: skip
                launch_s = cost.launch_s(mode, tokens, reqs, idle)
                now_s = pipeline.launch(
                    now_s, cost.schedule_s(reqs), launch_s, cost.start_s(idle), gpu_s, cost.tail_s(mode)
                )
                flying.append((step, reqs))
                following += 1
                if pipeline.in_flight < 2 and following < len(plans):
                    continue
            number, reqs = flying.pop(0)
            ready_s = pipeline.result_ready_s()
            now_s = ready_s + cost.update_s(reqs)
            pipeline.pop(now_s)
            lines.append({"a": "u", "n": number, "t0": ready_s, "t1": now_s})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Recording("synthetic", read_steps(path, dispatch), MODEL, GPU, ENGINE)


def _plans(requests: int, prompt: int, output: int) -> list[tuple[list[list[int]], int, int, int]]:
    """Prefill a burst in steps of at most 8192 tokens, whole prompts, then decode it."""
    plans: list[tuple[list[list[int]], int, int, int]] = []
    a_step = max(1, 8192 // prompt)
    contexts: list[int] = []
    for first in range(0, requests, a_step):
        count = min(a_step, requests - first)
        plans.append(([[prompt, 0]] * count, len(contexts), sum(contexts), max(contexts, default=0)))
        contexts = [context + 1 for context in contexts] + [prompt] * count
    for _ in range(output - 1):
        plans.append(([], len(contexts), sum(contexts), max(contexts)))
        contexts = [context + 1 for context in contexts]
    return plans


BURSTS = [
    *[(1, prompt, 6) for prompt in (64, 512, 1024, 2048, 4096, 8192) for _ in range(2)],
    *[(batch, prompt, 12) for batch in (1, 16, 64, 128, 192, 256) for prompt in (128, 512)],
    *[(batch, 2048, 12) for batch in (4, 16, 64)],
]


def true_values(rng: np.random.Generator, spread: float) -> dict[str, float]:
    """Return coefficients within *spread* of the priors' centres: those that every recording tells."""
    base = prior_profile()
    names = ["bandwidth_efficiency", "kv_bandwidth_efficiency", "attention_efficiency"]
    found = {f"gpu_time.{name}": getattr(base.gpu_time, name) for name in names}
    found |= {f"gpu_time.compute_efficiency.{k}": base.gpu_time.compute_efficiency[k] for k in (3, 4, 5, 6)}
    return {path: value * float(np.exp(rng.uniform(-spread, spread))) for path, value in found.items()}
