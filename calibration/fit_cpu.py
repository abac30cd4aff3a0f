"""Fit the engine loop's CPU work: schedule(), update_from_output(), blocking launches, and how launches vary.

Launches are seen where something follows them at once (`calibration.stretches`).  Requests that arrive during a launch
prolong it (the engine's input thread takes its share of the interpreter), so launches near several arrivals are left
out here; the front end's ``input_s`` stands for that.  A launch is constant + per layer, and one model cannot separate
the two: the constant is the prior's.  Few observations are mixed with the prior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.least_squares import least_squares
from calibration.recording import Floats, Sent, Steps
from calibration.stretches import Stretches
from simulator.profile import Cpu, Launch, ModeLaunch, ModeNoise, Noise

#: Requests sent within this time before a plan, up to the end of its launch, count as near.
NEAR_S = 0.3
#: A result seen so much later than the GPU had it waited for a launch.
HELD_S = 1.5e-3
#: More than so many near requests disturb a launch.
FEW = 5
#: The prior counts as so many launches.
PRIOR_LAUNCHES = 3
#: Launch after idle against busy, and how many launches this prior counts for.
IDLE_FACTOR, PRIOR_IDLE = 1.15, 10
#: Quantiles (0, 10 %, ... 100 %) of launches under load, relative to the typical launch of an idle server.  A host has
#: slow spells of seconds, which the bursts of a calibration miss (mean 14.1 ms, under load 16.7 ms on the 8B).  Source:
#: Llama-3.1-8B on an H200, vLLM 0.24.0, 2026-12-01: fixed lengths at 8/s, log-normal at 16/s, long prompts at 4/s; 312
#: launches without a graph, 297 PIECEWISE.  The prior counts as so many:
PRIOR_QUANTILES = {
    "none": (0.89, 0.93, 0.96, 0.98, 1.01, 1.05, 1.14, 1.22, 1.48, 1.71, 2.16),
    "piecewise": (0.61, 0.80, 0.82, 0.84, 0.86, 0.89, 0.95, 1.10, 1.26, 1.38, 2.0),
}
PRIOR_RATIOS = 300
#: A longer launch than this many typical ones is a disturbance, not variation.
LARGEST_RATIO = 2.2
MODES = ("none", "piecewise")


def linear_in_requests(seconds: Floats, num_reqs: NDArray[np.int64]) -> tuple[float, float]:
    """Return (constant, per request) of a robust fit, neither negative."""

    def errors(x: Floats) -> Floats:
        return np.asarray((x[0] + x[1] * num_reqs - seconds) / 20e-6)

    found = least_squares(errors, [60e-6, 5e-6], bounds=(0, np.inf), x_scale=[1e-5, 1e-6])
    return float(found.x[0]), float(found.x[1])


def fit_cpu(steps: Steps) -> Cpu:
    """Return the CPU section from steps of decodes alone (admissions cost more, and bursts disturb)."""
    decodes = steps.prefill_tokens == 0
    if decodes.sum() < PRIOR_LAUNCHES:
        decodes = np.ones(len(steps), dtype=bool)
    reqs = steps.num_reqs[decodes]
    schedule = linear_in_requests((steps.plan_end_s - steps.plan_start_s)[decodes], reqs)
    update = linear_in_requests((steps.update_end_s - steps.update_start_s)[decodes], reqs)
    return Cpu(
        schedule_s=schedule[0], schedule_per_request_s=schedule[1], update_s=update[0], update_per_request_s=update[1]
    )


@dataclass(frozen=True, eq=False)
class Launches:
    """Launches that were seen: mode, seconds, whether after idle, how many requests arrived around them."""

    mode: NDArray[np.int64]
    seconds: Floats
    idle: NDArray[np.bool_]
    near: NDArray[np.int64]

    @classmethod
    def of(cls, steps: Steps, stretches: Stretches, sent: Sent | None, step_end_s: Floats) -> Launches:
        """Find the launches in a recording.

        *step_end_s*: when steps ended on the GPU according to the fitted GPU times.  A result seen much later than that
        had waited for the launch of the next step; otherwise the CPU waited for the GPU, and the launch is not known.
        """
        results = np.append(-np.inf, steps.update_start_s[:-1])
        waited = results > np.append(np.nan, step_end_s[:-1]) + HELD_S
        seen = np.flatnonzero(~np.isnan(stretches.launch_end_s) & (stretches.idle | waited))
        ends = stretches.launch_end_s[seen]
        near = np.zeros(len(seen), dtype=np.int64)
        if sent is not None:
            begins = steps.plan_start_s[seen] - NEAR_S
            near = np.searchsorted(sent.sent_s, ends) - np.searchsorted(sent.sent_s, begins)
            # Bursts in which the client was late are not in `sent`: who was near their launches is not known.
            near = np.where(_in_bursts(sent, steps.plan_start_s[seen]), near, FEW + 1)
        return cls(steps.mode[seen], ends - steps.plan_end_s[seen], stretches.idle[seen], near)

    def undisturbed(self, mode: int, *, idle: bool) -> Floats:
        """Return the launches of one mode with few requests near."""
        return np.asarray(self.seconds[(self.mode == mode) & (self.idle == idle) & (self.near <= FEW)])


def _in_bursts(sent: Sent, times_s: Floats) -> NDArray[np.bool_]:
    """Whether each time lies between the first request and the last token of a burst."""
    bursts = np.unique(sent.burst)
    begins = np.array([sent.sent_s[sent.burst == burst].min() for burst in bursts])
    ends = np.array([sent.last_token_s[sent.burst == burst].max() for burst in bursts])
    order = np.argsort(begins)
    index = np.searchsorted(begins[order], times_s, side="right") - 1
    return np.asarray((index >= 0) & (times_s <= ends[order][index]))


def fit_launch(launches: Launches, layers: int, start: Launch) -> tuple[Launch, Noise]:
    """Return the launch section and how launches vary (all modes pooled, each against its median).

    FULL graphs hide behind the GPU: the prior's.
    """
    fitted: dict[str, ModeLaunch] = {}
    noise: dict[str, ModeNoise] = {}
    for mode, name in enumerate(MODES):
        prior: ModeLaunch = getattr(start, name)
        expected_s = prior.constant_s + prior.per_layer_s * layers
        busy, idle = launches.undisturbed(mode, idle=False), launches.undisturbed(mode, idle=True)
        typical_s = _mixed_with_prior(busy, expected_s, PRIOR_LAUNCHES)
        idle_factor = _mixed_with_prior(idle / typical_s, IDLE_FACTOR, PRIOR_IDLE)
        fitted[name] = prior.model_copy(
            update={
                "per_layer_s": max(0.0, typical_s - prior.constant_s) / layers,
                "idle_factor": float(np.clip(idle_factor, 1.0, 1.5)),
            }
        )
        ratios = [seen / np.median(seen) for seen in (busy, idle) if len(seen) >= PRIOR_LAUNCHES]
        quantiles = launch_quantiles(np.concatenate(ratios) if ratios else np.zeros(0), name)
        noise[name] = ModeNoise(launch_quantiles=quantiles)
    return start.model_copy(update=fitted), Noise(**noise)


def launch_quantiles(ratios: Floats, mode: str) -> tuple[float, ...]:
    """Return quantiles of launches relative to the typical one, mixed with the prior's of that mode."""
    prior = np.asarray(PRIOR_QUANTILES[mode])
    if not len(ratios):
        return PRIOR_QUANTILES[mode]
    seen = np.quantile(np.minimum(ratios, LARGEST_RATIO), np.linspace(0, 1, len(prior)))
    mixed = (len(ratios) * seen + PRIOR_RATIOS * prior) / (len(ratios) + PRIOR_RATIOS)
    return tuple(round(float(level), 4) for level in mixed)


def _mixed_with_prior(values: Floats, prior: float, count: int) -> float:
    """Return the median of *values*, mixed with *prior* as if that were *count* more of them."""
    if not len(values):
        return prior
    return float((len(values) * np.median(values) + count * prior) / (len(values) + count))
