"""Servers that exist only here: a simulation, written down as a recorder and a client would have written it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from simulator.profile import Profile, load_profile
from simulator.scenario import Scenario
from simulator.scheduler import V1Scheduler
from simulator.simulate import profile_of, simulate
from simulator.workload import RateWorkload, RequestsWorkload

PROFILE = "h200-llama-3.1-8b"
MODEL = "meta-llama/Llama-3.1-8B"
COMMAND = f"vllm serve {MODEL} --max-model-len 16384"
LOG = (
    "(APIServer pid=1) INFO 11-30 23:13:37 [api_utils.py:273] non-default args: {'model_tag': 'models/llama-3.1-8b', "
    "'model': 'models/llama-3.1-8b', 'max_model_len': 16384}\n"
    "(EngineCore pid=2) INFO 11-30 23:14:15 [core.py:114] Initializing a V1 LLM engine (v0.24.0) with config: x\n"
)
BASE_S = 1000.0


def question(requests: int = 60, rate: float = 8.0, profile: str = PROFILE, **workload: Any) -> Scenario:
    """Prompts of 600 tokens: above the largest CUDA graph, so that steps with prompts are launched one by one."""
    fields = {"rate": rate, "num_prompts": requests, "prompt_tokens": "600", "output_tokens": "64", **workload}
    return Scenario.from_command(COMMAND, profile=profile, workload=RateWorkload(**fields))


def slower_launches(seconds: float) -> Profile:
    """The shipped profile, with *seconds* more for a launch without a CUDA graph."""
    profile = load_profile(PROFILE)
    none = profile.launch.none
    slow = none.model_copy(update={"constant_s": none.constant_s + seconds})
    return profile.model_copy(update={"launch": profile.launch.model_copy(update={"none": slow})})


def record(
    scenario: Scenario,
    folder: Path,
    name: str,
    *,
    timed_by: Profile | None = None,
    late_s: float = 0.0,
    failed: int = 0,
) -> None:
    """Write NAME.requests.json.gz, NAME.steps.jsonl.gz and server.log of a server timed by *timed_by*.

    *late_s*: how late the client sends; *failed*: how many requests it says were not answered.
    """
    plans: list[dict[str, Any]] = []

    class Recorder(V1Scheduler):
        def schedule(self) -> Any:
            plan = super().schedule()
            if plan.num_tokens:
                plans.append(_plan(plan))
            return plan

    profile = timed_by or profile_of(scenario)
    result = simulate(scenario, scheduler=Recorder, timed_by=profile)
    records, lines = result.records, [{"a": "h", "t": BASE_S, "blocks": result.records.num_gpu_blocks,
                                       "block_size": 16, "max_tok": 8192, "max_run": 1024}]  # fmt: skip
    cpu = profile.cpu.slower(profile.host.cpu_scale)
    for n, plan in enumerate(plans):
        reqs = len(plan["p"]) + plan["d"]
        begin, end = BASE_S + records.step_plan_s[n], BASE_S + records.step_emit_s[n]
        took = (cpu.schedule_s + cpu.schedule_per_request_s * reqs, cpu.update_s + cpu.update_per_request_s * reqs)
        state = {"w": records.step_waiting[n], "r": records.step_running[n], "f": records.step_free_blocks[n]}
        lines.append({"a": "s", "n": n + 1, "t0": begin, "t1": begin + took[0], **plan, **state})
        lines.append({"a": "u", "n": n + 1, "t0": end - took[1], "t1": end})
    _write(folder / f"{name}.steps.jsonl.gz", "".join(json.dumps(line) + "\n" for line in lines))
    rows = [_request(records, r, late_s) for r in range(records.num_requests)]
    data: dict[str, Any] = {"t_base": BASE_S, "duration": records.end_s, "conc": None, "requests": rows}
    if failed:
        data["failed"] = [{**row, "error": "connection closed"} for row in rows[-failed:]]
        data["requests"] = rows[:-failed]
    _write(folder / f"{name}.requests.json.gz", json.dumps(data))
    (folder / "server.log").write_text(LOG)


def _plan(plan: Any) -> dict[str, Any]:
    chunks = []
    for request, tokens in zip(plan.requests, plan.tokens, strict=True):
        context = request.num_computed_tokens - tokens
        if tokens > 1 or context < request.num_prompt_tokens:
            chunks.append([tokens, context])
    decoding = {"d": plan.decode_reqs, "dc": plan.decode_context_sum, "dm": plan.decode_context_max}
    return {"p": chunks, **decoding}


def _request(records: Any, r: int, late_s: float) -> dict[str, Any]:
    sent, times = records.sent_s[r], records.token_times(r)
    return {
        "i": r, "t": max(0.0, sent - late_s), "send": sent, "isl": records.prompt_tokens[r],
        "osl": records.output_tokens[r], "n": records.output_tokens[r], "ttft": float(times[0] - sent),
        "e2e": float(times[-1] - sent), "itl": (1e3 * np.diff(times)).tolist(),
    }  # fmt: skip


def _write(path: Path, text: str) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(text)


class PretendServer:
    """Stands for a server and its client: runs what it is given on a simulated server."""

    def __init__(self, scenario: Scenario, timed_by: Profile | None = None) -> None:
        self._scenario, self._timed_by = scenario, timed_by
        self.asked: list[str] = []

    def __call__(self, command: str, traffic: Any, folder: Path, names: Any) -> None:
        self.asked.append(command)
        table = traffic.table
        rows = [
            {"arrival_s": float(table.arrival_s[k]), "prompt_tokens": int(table.prompt_tokens[k]),
             "output_tokens": int(table.output_tokens[k])}
            for k in range(len(table))
        ]  # fmt: skip
        workload = RequestsWorkload(rows=rows, max_concurrency=traffic.max_concurrency)
        for number, name in enumerate(names):
            again = self._scenario.model_copy(update={"workload": workload, "seed": 100 + number})
            record(again, folder, name, timed_by=self._timed_by)
