"""What the two sides do differently, by mechanism: launches, GPU time, engine loop, composition, queue, front end, KV.

Launches, GPU time and the CPU work of the engine loop are compared step by step at the *recorded* composition, so other
decisions of the scheduler do not matter: launches where the recording shows them (`calibration.fit_cpu.Launches`, few
requests arriving), GPU time as the median error of stretches by kind (`calibration.stretches`).  The queue is the mean
number of waiting requests times the duration, per request (Little): waits for a limit of the scheduler, not for the
loop.  The front end is read at the 5th percentile, where nothing else is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.fit_cpu import Launches
from calibration.fit_gpu import DISTURBED, Recording, kinds, relative_errors, step_ends
from calibration.phases import MODES
from calibration.recording import Floats, Sent
from calibration.trace import Trace
from simulator.profile import Profile
from simulator.step_cost import StepCost

#: Fewer launches or stretches than this say nothing.
LEAST = 5
AREAS = ("launch", "GPU time", "engine loop", "step composition", "queue", "front end", "KV blocks")


@dataclass(frozen=True)
class Mechanism:
    """One comparison; *count*: launches or stretches it rests on, 0 where that means nothing.

    *mode*, *idle*: of launches; *kind*: of stretches.
    """

    area: str
    what: str
    predicted: float
    measured: float
    unit: str
    count: int = 0
    mode: int | None = None
    idle: bool | None = None
    kind: str = ""

    @property
    def difference(self) -> float:
        """Predicted minus measured."""
        return self.predicted - self.measured


def mechanisms(
    predicted: Sequence[Trace], measured: Trace, recording: Recording, sent: Sent | None, profile: Profile
) -> list[Mechanism]:
    """Return all comparisons that the recording allows."""
    return [
        *_launches(recording, sent, profile),
        *_gpu_times(recording, profile),
        *_engine_loop(recording, profile),
        *_composition(predicted, measured),
        *_waits(predicted, measured),
        *_memory(predicted, measured),
    ]


def _launches(recording: Recording, sent: Sent | None, profile: Profile) -> list[Mechanism]:
    steps, stretches = recording.steps, recording.stretches()
    seen = Launches.of(steps, stretches, sent, step_ends(recording, stretches, profile))
    cost = StepCost(profile, recording.model, recording.gpu, recording.engine)
    levels = np.linspace(0, 1, 201)[:-1]
    found = []
    for mode, name in enumerate(MODES[:2]):
        for idle in (False, True):
            launches = 1e3 * seen.undisturbed(mode, idle=idle)
            if len(launches) >= LEAST:
                noise = float(np.mean(cost.launch_noise_array(mode, levels)))
                expected = 1e3 * noise * cost.launch_s(mode, 1, 1, idle)
                what = f"launch, {name}, {'after idle' if idle else 'busy'}"
                found.append(
                    Mechanism("launch", what, expected, float(launches.mean()), "ms", len(launches), mode, idle)
                )
    return found


def _gpu_times(recording: Recording, profile: Profile) -> list[Mechanism]:
    steps, stretches = recording.steps, recording.stretches()
    errors = relative_errors(recording, stretches, profile)
    names, lengths = kinds(stretches, steps), stretches.last - stretches.first + 1
    took = 1e3 * (steps.update_start_s[stretches.last] - stretches.origin_s) / lengths
    words = {"decode": "decodes alone", "mixed": "prompts beside decodes", "prefill": "prompts alone"}
    found = []
    for kind, name in words.items():
        chosen = (names == kind) & (np.abs(errors) <= DISTURBED)
        if chosen.sum() >= LEAST:
            measured = float(np.median(took[chosen]))
            expected = measured * (1 + float(np.median(errors[chosen])))
            what = f"step time, {name}"
            found.append(Mechanism("GPU time", what, expected, measured, "ms", int(chosen.sum()), kind=kind))
    return found


def _engine_loop(recording: Recording, profile: Profile) -> list[Mechanism]:
    """schedule() and update_from_output() of steps of decodes only: recorded as they are."""
    steps, cpu = recording.steps, profile.cpu.slower(profile.host.cpu_scale)
    alone = steps.prefill_tokens == 0
    if alone.sum() < LEAST:
        return []
    seconds = (steps.plan_end_s - steps.plan_start_s + steps.update_end_s - steps.update_start_s)[alone]
    per_request = cpu.schedule_per_request_s + cpu.update_per_request_s
    expected = cpu.schedule_s + cpu.update_s + per_request * float(steps.num_reqs[alone].mean())
    what = "schedule and update, decodes alone"
    return [Mechanism("engine loop", what, 1e3 * expected, 1e3 * float(seconds.mean()), "ms", int(alone.sum()))]


def _both(
    area: str, what: str, unit: str, predicted: Sequence[Trace], measured: Trace, measure: Callable[[Trace], float]
) -> Mechanism:
    return Mechanism(area, what, float(np.mean([measure(one) for one in predicted])), measure(measured), unit)


def _composition(predicted: Sequence[Trace], measured: Trace) -> list[Mechanism]:
    def prompts_share(trace: Trace) -> float:
        return 100 * float(trace.steps.has_prefill.mean())

    def prompt_tokens(trace: Trace) -> float:
        steps = trace.steps
        tokens = (steps.tokens - steps.decode_reqs)[steps.has_prefill]
        return float(tokens.mean()) if len(tokens) else 0.0

    def batch(trace: Trace) -> float:
        decodes = trace.steps.decode_reqs
        return float(decodes[decodes > 0].mean()) if (decodes > 0).any() else 0.0

    asked = (
        ("steps", "steps", lambda trace: float(len(trace.steps))),
        ("steps with prompts", "% of steps", prompts_share),
        ("prompt tokens of such a step", "tokens", prompt_tokens),
        ("decode batch", "requests", batch),
    )
    return [_both("step composition", what, unit, predicted, measured, measure) for what, unit, measure in asked]


def queue_s(trace: Trace) -> float:
    """Return the mean wait of a request for a limit of the scheduler (Little's law)."""
    steps, count = trace.steps, len(trace.requests)
    if not len(steps) or not count:
        return 0.0
    lasts = np.diff(steps.plan_s, append=max(trace.end_s, steps.plan_s[-1]))
    return float(np.dot(lasts, steps.waiting)) / count


def _waits(predicted: Sequence[Trace], measured: Trace) -> list[Mechanism]:
    def way_in(trace: Trace) -> float:
        known, requests = trace.matched, trace.requests
        return _fifth(requests.first_plan_s[known] - requests.sent_s[known])

    def way_out(trace: Trace) -> float:
        known, requests = trace.matched, trace.requests
        return _fifth(requests.first_token_s[known] - trace.steps.emit_s[requests.first_step[known]])

    return [
        _both("queue", "wait for a limit of the scheduler", "ms", predicted, measured, lambda t: 1e3 * queue_s(t)),
        _both("front end", "send to plan, 5th percentile", "ms", predicted, measured, way_in),
        _both("front end", "emit to client, 5th percentile", "ms", predicted, measured, way_out),
    ]


def _fifth(seconds: Floats) -> float:
    return 1e3 * float(np.percentile(seconds, 5)) if len(seconds) else 0.0


def _memory(predicted: Sequence[Trace], measured: Trace) -> list[Mechanism]:
    def used(trace: Trace) -> float:
        usable = max(trace.num_gpu_blocks - 1, 1)
        free = trace.steps.free_blocks.min(initial=usable)
        return 100 * float(usable - free) / usable

    return [
        _both("KV blocks", "blocks", "blocks", predicted, measured, lambda t: float(t.num_gpu_blocks)),
        _both("KV blocks", "largest use", "% of blocks", predicted, measured, used),
        _both("KV blocks", "preemptions", "requests", predicted, measured, lambda t: float(t.steps.preempted.sum())),
    ]
