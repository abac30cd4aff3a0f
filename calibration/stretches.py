"""Stretches of steps between two results that were certainly on time: the only clean clock on the GPU.

The host sees the result of step n when the GPU has finished it *and* the CPU is free; a launch of step n+1 that takes
longer than step n holds the result back, and the next step then seems short.  So intervals between updates of single
steps are not step times.  A result was certainly on time if the CPU had been waiting for longer than any launch of the
mode of the step planned before takes (`LaunchBounds`), or if nothing was planned since.

A stretch begins at such a result, or at a plan made while nothing was in flight, and ends at the next such result.
Inside it the GPU time line is carried forward from step to step (`predicted_ends`):

    end(n) = max( max(end(n-1), plan_end(n) + start_s) + gpu(n), launch_end(n) + tail(mode) )

Plan ends are recorded.  The end of a launch is known where something followed it at once: the next plan, or a result
that was not certainly on time (it had waited for the launch); elsewhere the term is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.recording import Floats, Ints, Steps


@dataclass(frozen=True)
class LaunchBounds:
    """A time in seconds that a launch of each mode hardly ever exceeds, for a model of so many layers."""

    none_s: float
    piecewise_s: float
    full_s: float

    @classmethod
    def for_layers(cls, layers: int) -> LaunchBounds:
        """Return bounds for a model: about twice the usual launch on the slowest of three hosts."""
        return cls(none_s=3e-3 + 0.9e-3 * layers, piecewise_s=3e-3 + 0.25e-3 * layers, full_s=1.2e-3 + 0.05e-3 * layers)

    def by_mode(self) -> Floats:
        """Bounds indexed by mode (0 NONE, 1 PIECEWISE, 2 FULL)."""
        return np.array([self.none_s, self.piecewise_s, self.full_s])


@dataclass(frozen=True, eq=False)
class Stretches:
    """Index ranges into the steps: stretch k covers ``first[k] .. last[k]`` and starts at ``origin_s[k]``.

    ``from_idle``: it starts with a plan made while nothing was in flight (origin: the end of that plan), else at a
    result on time.  ``launch_end_s``: by step, NaN where unknown.  ``next_planned``: a plan was made before the result.
    """

    first: Ints
    last: Ints
    origin_s: Floats
    from_idle: NDArray[np.bool_]
    launch_end_s: Floats
    on_time: NDArray[np.bool_]
    idle: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.first)


def find(steps: Steps, bounds: LaunchBounds, longest: int = 64) -> Stretches:
    """Return all stretches of at most *longest* steps."""
    count = len(steps)
    planned, planned_end, seen = steps.plan_start_s, steps.plan_end_s, steps.update_start_s
    follows = np.append(steps.linked[1:], False)
    next_plan, next_plan_end = np.append(planned[1:], np.inf), np.append(planned_end[1:], np.inf)
    next_planned = follows & (next_plan < seen)
    waited = seen - next_plan_end
    next_mode = np.append(steps.mode[1:], 0)
    on_time = np.where(next_planned, waited > bounds.by_mode()[next_mode], True)
    idle = ~steps.linked | (np.append(-np.inf, seen[:-1]) < planned)

    launch_end = np.full(count, np.nan)
    direct = next_planned & idle  # nothing else in flight: the next plan follows the launch at once
    launch_end[direct] = next_plan[direct]
    held = np.flatnonzero(next_planned & ~on_time)  # result of i waited for the launch of i + 1
    blocked = held[~idle[held + 1]]
    launch_end[blocked + 1] = seen[blocked]

    first, last, origin, from_idle = [], [], [], []
    begin, start_s, is_idle = -1, 0.0, False
    for i in range(count):
        if idle[i]:
            begin, start_s, is_idle = i, planned_end[i], True
        elif not steps.linked[i]:
            begin = -1
        if begin >= 0 and on_time[i]:
            if i - begin < longest:
                first.append(begin)
                last.append(i)
                origin.append(start_s)
                from_idle.append(is_idle)
            begin, start_s, is_idle = i + 1, seen[i], False
    return Stretches(
        np.array(first, dtype=np.int64),
        np.array(last, dtype=np.int64),
        np.array(origin),
        np.array(from_idle, dtype=bool),
        launch_end,
        np.asarray(on_time, dtype=bool),
        np.asarray(idle, dtype=bool),
    )


def predicted_ends(
    stretches: Stretches, steps: Steps, gpu_s: Floats, start_s: tuple[float, float], tail_s: Floats
) -> tuple[Floats, Floats]:
    """Return when each stretch, and each step in one, ends according to GPU times *gpu_s* by step.

    *start_s* is for a busy and an idle engine; *tail_s* is indexed by mode; FULL has none.  Steps outside all stretches
    end at NaN.
    """
    at = np.where(stretches.from_idle, -np.inf, stretches.origin_s)
    launch_end = stretches.launch_end_s + tail_s[steps.mode]
    launch_end = np.where(np.isnan(launch_end) | (steps.mode == 2), -np.inf, launch_end)
    launched = steps.plan_end_s + np.where(stretches.idle, start_s[1], start_s[0])
    by_step = np.full(len(steps), np.nan)
    for offset in range(int((stretches.last - stretches.first).max(initial=0)) + 1):
        inside = np.flatnonzero(stretches.first + offset <= stretches.last)
        step = stretches.first[inside] + offset
        at[inside] = np.maximum(np.maximum(at[inside], launched[step]) + gpu_s[step], launch_end[step])
        by_step[step] = at[inside]
    return at, by_step
