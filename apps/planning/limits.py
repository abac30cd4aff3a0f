"""What a server runs out of first, read from its simulated state while requests come in.

`State` holds the evidence of one run, all shares 0..1 of the time that counts (`apps.planning.steady`):

    running, waiting            requests in the running list and in the queue, means
    queueing                    share of time in which requests wait
    at_max_num_seqs             ... and the running list is full
    kv_full                     ... or the blocks are: less than `TIGHT` of them free while requests wait
    kv_usage                    used share of the KV blocks, mean and maximum
    preempted_per_request       how often a request is thrown out
    full_steps                  share of time in steps that use all of max_num_batched_tokens
    budget_gain                 share of the arithmetic's time that steps of any size could save against full ones
    gpu_busy                    share of the time with work in the engine in which the GPU computes
    compute, weights, kv        parts of the GPU's time: a step's matrices take as long as their arithmetic or as
                                reading the weights, whichever is longer, and the KV cache is read on top (peak rates
                                and the profile's efficiencies; a rough split that adds up to 1)
    api_in, api_out             how busy the front end is, requests in and tokens out
    api_s, queue_s, prefill_s   parts of the mean TTFT: before the engine's queue, in it, from there to the first token

`binding` turns them into a name, a sentence and the numbers that speak for it.  It reads what is, and does not try what
would help: that is `apps.planning.marginal`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apps.planning.steady import Window
from simulator.engine_state import StepFunction, running, usage, waiting
from simulator.profile import Profile
from simulator.records import Records, Status
from simulator.scenario import Scenario
from simulator.step_cost import bytes_per_weight

Floats = NDArray[np.float64]
Name = Literal["kv_blocks", "max_num_seqs", "max_num_batched_tokens", "gpu_compute", "gpu_memory", "host", "api_server"]

#: A pool with less than this share free, while requests wait, is what they wait for.
TIGHT = 0.05
#: What counts as often, as saturated, and as an idle GPU.
OFTEN, SATURATED, IDLE_GPU = 0.2, 0.9, 0.3
#: Arithmetic that is most of the GPU's time, a gain that is not worth while.
_MOSTLY, _LITTLE = 0.6, 0.1

TITLES: dict[Name, str] = {
    "kv_blocks": "KV blocks (GPU memory)",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens (prefill waits for room in the steps)",
    "gpu_compute": "GPU compute",
    "gpu_memory": "GPU memory bandwidth",
    "host": "host (launching steps leaves the GPU idle)",
    "api_server": "API server",
}


@dataclass(frozen=True)
class State:
    """Evidence of one run (module text); requests, shares 0..1, seconds."""

    running: float
    waiting: float
    queueing: float
    at_max_num_seqs: float
    kv_full: float
    kv_usage_mean: float
    kv_usage_max: float
    preempted_per_request: float
    full_steps: float
    budget_gain: float
    gpu_busy: float
    compute: float
    weights: float
    kv: float
    api_in: float
    api_out: float
    api_s: float
    queue_s: float
    prefill_s: float


@dataclass(frozen=True)
class Limit:
    """What binds: a *name*, a sentence for people, and the numbers behind it."""

    name: Name
    why: str
    evidence: dict[str, float]

    @property
    def title(self) -> str:
        """The name in words."""
        return TITLES[self.name]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "title": self.title}


def state(scenario: Scenario, records: Records, profile: Profile, when: Window) -> State:
    """Return the evidence of a run in the part of it that counts."""
    engine = scenario.engine
    queue, batch, level = waiting(records), running(records), usage(records)
    queued = queue.values > 0
    busy = max(1e-9, _share(batch, (batch.values > 0) | queued, when))
    steps = _Steps(records, when)
    sent = np.asarray(records.sent_s, dtype=np.float64)
    counts = when.holds(sent) & (np.asarray(records.status) == Status.FINISHED)
    arrived, begun, first = (
        np.asarray(getattr(records, name), dtype=np.float64)[counts]
        for name in ("engine_arrival_s", "first_scheduled_s", "first_token_s")
    )
    api_in, api_out = _front_end(profile, records, steps, counts, when)
    compute, weights, kv = _gpu_time(scenario, profile, steps)
    return State(
        running=batch.mean(when.start_s, when.end_s),
        waiting=queue.mean(when.start_s, when.end_s),
        queueing=_share(queue, queued, when),
        at_max_num_seqs=_share(queue, queued & (batch.values >= engine.max_num_seqs), when),
        kv_full=_share(queue, queued & (level.values > 1 - TIGHT), when),
        kv_usage_mean=level.mean(when.start_s, when.end_s),
        kv_usage_max=level.maximum(),
        preempted_per_request=float(steps.preempted.sum()) / max(1, int(counts.sum())),
        full_steps=steps.share(steps.tokens >= engine.max_num_batched_tokens, when),
        budget_gain=_budget_gain(profile, engine.max_num_batched_tokens),
        gpu_busy=min(1.0, float(steps.gpu_s.sum()) / (busy * when.length_s)),
        compute=compute,
        weights=weights,
        kv=kv,
        api_in=api_in,
        api_out=api_out,
        api_s=_mean(arrived - sent[counts]),
        queue_s=_mean(begun - arrived),
        prefill_s=_mean(first - begun),
    )


def binding(state: State, target: str) -> Limit:
    """Return what keeps the SLO's *target* (its name; ``stability`` for a queue that grows) from being met."""
    target = target.rpartition("/")[2]  # whichever class it is of
    late_start = target.startswith(("ttft", "e2el")) or target in ("stability", "goodput")
    waits = late_start and state.queue_s > max(state.prefill_s, state.api_s)
    for name, holds, words, keys in _candidates(state, waits):
        if holds:
            return Limit(name, words, {key: float(getattr(state, key)) for key in keys})
    return _step_time(state)


def _candidates(state: State, waits: bool) -> tuple[tuple[Name, bool, str, tuple[str, ...]], ...]:
    """Return (name, whether it binds, sentence, numbers) in the order in which they are asked."""
    before_engine = state.api_s > max(state.queue_s, state.prefill_s) and state.api_in > OFTEN
    return (
        ("api_server", max(state.api_in, state.api_out) > SATURATED or before_engine,
         f"the front end is busy {max(state.api_in, state.api_out):.0%} of the time: requests and tokens queue in it",
         ("api_in", "api_out", "api_s")),
        ("kv_blocks", state.kv_full > OFTEN or state.preempted_per_request > OFTEN / 2,
         f"requests wait with less than {TIGHT:.0%} of the blocks free {state.kv_full:.0%} of the time, and "
         f"{state.preempted_per_request:.2f} preemptions come on a request",
         ("kv_full", "kv_usage_mean", "kv_usage_max", "preempted_per_request")),
        ("max_num_seqs", state.at_max_num_seqs > (OFTEN / 2 if waits else OFTEN),
         f"the running list is full, with requests waiting, {state.at_max_num_seqs:.0%} of the time",
         ("at_max_num_seqs", "running", "waiting", "queue_s")),
        ("max_num_batched_tokens", state.full_steps > OFTEN and not (waits and _computes_all_it_can(state)),
         f"steps use the whole token budget {state.full_steps:.0%} of the time",
         ("full_steps", "queueing", "queue_s", "compute", "budget_gain")),
    )  # fmt: skip


def _computes_all_it_can(state: State) -> bool:
    """Whether larger steps would only be longer: the GPU is busy with arithmetic, about as efficient as it gets."""
    return state.gpu_busy > SATURATED and state.compute > _MOSTLY and state.budget_gain < _LITTLE


def _step_time(state: State) -> Limit:
    """No limit is reached: the steps take too long."""
    if state.gpu_busy < 1 - IDLE_GPU:
        words = f"steps are as long as their launches: the GPU computes {state.gpu_busy:.0%} of the time with work"
        return Limit("host", words, {"gpu_busy": state.gpu_busy, "running": state.running})
    parts = f"{state.compute:.0%} arithmetic, {state.weights:.0%} reading weights, {state.kv:.0%} reading the KV cache"
    words = f"no limit of the scheduler is reached, the steps take too long; of the GPU's time {parts}"
    evidence = {key: float(getattr(state, key)) for key in ("gpu_busy", "compute", "weights", "kv", "running")}
    return Limit("gpu_compute" if state.compute >= 0.5 else "gpu_memory", words, evidence)


class _Steps:
    """The columns of the steps planned in the window."""

    def __init__(self, records: Records, when: Window) -> None:
        plan = np.asarray(records.step_plan_s, dtype=np.float64)
        inside = (plan >= when.start_s) & (plan < when.end_s)
        ends = np.append(plan[1:], records.end_s) if len(plan) else plan
        self.length_s: Floats = (np.minimum(ends, when.end_s) - plan)[inside]
        self.tokens, self.padded, self.gpu_s, self.preempted, self.free, self.running = (
            np.asarray(getattr(records, f"step_{name}"), dtype=np.float64)[: len(plan)][inside]
            for name in ("tokens", "padded_tokens", "gpu_s", "preempted", "free_blocks", "running")
        )
        self.used_tokens: Floats = (records.usable_blocks - self.free) * records.block_size

    def share(self, chosen: NDArray[np.bool_], when: Window) -> float:
        """Return the share of the window spent in *chosen* steps; the idle time after a step is not the step's."""
        lasted = np.minimum(self.length_s, 4 * np.maximum(self.gpu_s, 1e-3))
        return float(lasted[chosen].sum()) / when.length_s


def _share(function: StepFunction, when_true: NDArray[np.bool_], when: Window) -> float:
    return StepFunction(function.times_s, when_true.astype(np.float64)).mean(when.start_s, when.end_s)


def _gpu_time(scenario: Scenario, profile: Profile, steps: _Steps) -> tuple[float, float, float]:
    """Return the parts of the GPU's time: arithmetic, reading weights, reading the KV cache; they add up to 1."""
    model, gpu, engine, times = scenario.model, scenario.gpu, scenario.engine, profile.gpu_time
    ranks = engine.tensor_parallel_size
    size, knots = np.log(np.maximum(steps.padded, 1.0)), np.log(times.compute_tokens)
    efficiency = np.interp(size, knots, times.compute_efficiency)
    arithmetic_s = steps.padded * 2 * model.linear_weights / ranks / (gpu.bf16_flops_per_s * efficiency)
    weight_bytes = model.linear_weights * bytes_per_weight(model, engine) / ranks
    weights_s = weight_bytes / (gpu.memory_bandwidth_bytes_per_s * times.bandwidth_efficiency)
    value_bytes = 1.0 if engine.kv_cache_dtype.startswith("fp8") else 2.0
    per_token = 2 * model.num_hidden_layers * model.num_key_value_heads * model.head_dim * value_bytes / ranks
    kv_s = steps.used_tokens * per_token / (gpu.memory_bandwidth_bytes_per_s * times.kv_bandwidth_efficiency)
    bound = arithmetic_s > weights_s
    parts = np.array([arithmetic_s[bound].sum(), weights_s * (~bound).sum(), kv_s.sum()])
    compute, weights, kv = parts / max(float(parts.sum()), 1e-12)
    return float(compute), float(weights), float(kv)


def _budget_gain(profile: Profile, budget: int) -> float:
    times = profile.gpu_time
    efficiency = np.interp(np.log(budget), np.log(times.compute_tokens), times.compute_efficiency)
    return max(0.0, 1 - float(efficiency) / max(times.compute_efficiency))


def _front_end(
    profile: Profile, records: Records, steps: _Steps, counts: NDArray[np.bool_], when: Window
) -> tuple[float, float]:
    """Return how busy the request path and the output queue of the API server are."""
    times, number = profile.front_end, int(counts.sum())
    prompts = float(np.asarray(records.prompt_tokens, dtype=np.float64)[counts].sum())
    demand = number * times.request_demand_s + prompts * times.request_demand_per_token_s
    thread = number * times.input_s + prompts * times.input_per_token_s
    out = len(steps.tokens) * times.token_s + float(steps.running.sum()) * times.token_per_stream_s
    out += number * (times.first_token_s + times.finish_s) + prompts * times.first_token_per_prompt_token_s
    return max(demand, thread) / when.length_s, out / when.length_s


def _mean(values: Floats) -> float:
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else 0.0
