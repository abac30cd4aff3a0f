"""Recorded step compositions through the step costs and the two time lines: predicted against measured times.

A run begins with a plan made by an idle engine and ends before the next such plan.  Inside a run the loop is simulated:
plan, launch, again or wait, update (`simulator.pipeline`), with the recorded compositions in order and no randomness.
What is compared is what a client would feel: the time between two updates, and the duration of the run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibration.fit_gpu import Recording, summary
from calibration.recording import Floats
from simulator.errors import InputError
from simulator.pipeline import Pipeline
from simulator.profile import Profile, Residuals
from simulator.step_cost import StepCost


@dataclass(frozen=True, eq=False)
class Replay:
    """Errors of one recording: of runs (relative), of single intervals (seconds, and relative to their mean)."""

    run_errors: Floats
    run_durations_s: Floats
    predicted_s: Floats  # intervals between updates
    measured_s: Floats

    def summary(self) -> Residuals:
        """Return the errors of runs, weighted by nothing."""
        return summary(self.run_errors)

    def total_error(self) -> float:
        """Return the relative error of the time all runs took together."""
        return float((self.run_errors * self.run_durations_s).sum() / self.run_durations_s.sum())

    def interval_quantiles_ms(self, levels: tuple[int, ...] = (50, 90, 99)) -> list[tuple[float, float]]:
        """Return (predicted, measured) percentiles of the intervals between updates in ms."""
        return [
            (1e3 * float(np.percentile(self.predicted_s, level)), 1e3 * float(np.percentile(self.measured_s, level)))
            for level in levels
        ]


def replay(recording: Recording, profile: Profile, *, depth: int = 2, least_steps: int = 3) -> Replay:
    """Replay all runs of at least *least_steps* steps."""
    steps = recording.steps
    stretches = recording.stretches()
    starts = np.append(np.flatnonzero(stretches.idle), len(steps))
    cost = StepCost(profile, recording.model, recording.gpu, recording.engine)
    gpu_s = cost.gpu_s_array(**steps.composition()).tolist()
    errors, durations, predicted, measured = [], [], [], []
    for first, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        if end - first < least_steps:
            continue
        times = np.array(_run(cost, recording, gpu_s, first, end, depth))
        seen = steps.update_start_s[first:end]
        begin = steps.plan_start_s[first]
        errors.append((times[-1] - seen[-1]) / (seen[-1] - begin))
        durations.append(seen[-1] - begin)
        predicted.append(np.diff(times))
        measured.append(np.diff(seen))
    if not errors:
        raise InputError(f"{recording.name}: no run of at least {least_steps} steps to replay")
    return Replay(np.array(errors), np.array(durations), np.concatenate(predicted), np.concatenate(measured))


def _run(cost: StepCost, recording: Recording, gpu_s: list[float], first: int, end: int, depth: int) -> list[float]:
    """Return when the results of the steps ``first .. end - 1`` are seen, following the engine loop."""
    steps, pipeline = recording.steps, Pipeline(depth)
    modes, tokens, reqs = steps.mode.tolist(), steps.num_tokens.tolist(), steps.num_reqs.tolist()
    now_s, following, seen, results = float(steps.plan_start_s[first]), first, first, []
    while seen < end:
        if following < end and pipeline.in_flight < depth:
            mode, count = modes[following], reqs[following]
            idle = following == first
            launch_s = cost.launch_s(mode, tokens[following], count, idle)
            launch_end_s = pipeline.launch(
                now_s, cost.schedule_s(count), launch_s, cost.start_s(idle), gpu_s[following], cost.tail_s(mode)
            )
            following += 1
            if pipeline.in_flight < depth and following < end:
                now_s = launch_end_s
                continue
        ready_s = pipeline.result_ready_s()
        results.append(ready_s)
        now_s = ready_s + cost.update_s(reqs[seen])
        pipeline.pop(now_s)
        seen += 1
    return results
