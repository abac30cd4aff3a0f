"""How far the capacity of servers of this kind spreads: the search repeated with profiles drawn anew.

Each draw (`calibration.draws`: fitted coefficients, hosts from run to run, residuals) has seeds of its own and starts
from the answer of the plain search: a look there, a step along the slope of the plain curve, then on by the secant
until the load at which the score is 0 lies between two looks, or is known within `CLOSE`.  The interval of the draws is
that of one more of them (`calibration.intervals.interval`): where the capacity of one more such server would lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from apps.planning.load import is_whole
from apps.planning.measure import Ask, measure
from apps.planning.points import Point, crossing
from apps.planning.runs import Failure, run_many
from calibration.intervals import interval
from simulator import errors

LEVEL = 0.90
CLOSE = 0.01
_MOST_LOOKS = 6
#: The longest step between two looks, and the least slope that is believed, both in logarithms.
_LONGEST_STEP, _LEAST_SLOPE = math.log(1.4), 0.5


@dataclass(frozen=True)
class DrawTask:
    """One draw's search: it starts at *ask*'s load; *slope* is d score / d log(load) of the plain curve there."""

    ask: Ask
    slope: float


def drawn_capacities(
    ask: Ask,
    near: tuple[Point, Point],
    draws: int,
    *,
    workers: int | None = None,
    told: Callable[[int], None] = lambda _: None,
) -> tuple[tuple[float, ...], tuple[float, float]]:
    """Return the capacity of each of *draws* (at least 5) and their interval; *near* is the bracket found before.

    *told* hears of the runs of each draw as it ends.
    """
    if draws < 5:
        raise errors.InputError(f"an interval needs at least 5 draws, got {draws}; give 0 for none")
    low, high = near
    slope = (high.score - low.score) / math.log(high.load / low.load)
    tasks = [
        DrawTask(replace(ask, replication=number, draw=number), max(slope, _LEAST_SLOPE))
        for number in range(1, draws + 1)
    ]
    found: dict[int, float] = {}
    for index, outcome in run_many(drawn_capacity, tasks, workers=workers):
        if isinstance(outcome, Failure):
            raise getattr(errors, outcome.kind, errors.ServecastError)(str(outcome))
        found[index], looks = outcome
        told(looks)
    loads = tuple(found[index] for index in range(draws))
    if max(loads) <= min(loads):
        return loads, (loads[0], loads[0])
    return loads, interval(np.array(loads), LEVEL)


def drawn_capacity(task: DrawTask) -> tuple[float, int]:
    """Return the load at which one draw's score is 0, and the runs that took."""
    whole = is_whole(task.ask.axis)
    seen: dict[float, float] = {}
    load, slope = task.ask.load, task.slope
    for _ in range(_MOST_LOOKS):
        seen[load] = measure(replace(task.ask, load=load)).score
        low = max((x for x, score in seen.items() if score <= 0), default=None)
        high = min((x for x, score in seen.items() if score > 0 and (low is None or x > low)), default=None)
        if low is not None and high is not None:
            following = crossing((low, seen[low]), (high, seen[high]))
            if math.log(high / low) < 4 * CLOSE or len(seen) >= _MOST_LOOKS - 1:
                return following, len(seen)
        else:
            if len(seen) > 1:
                slope = _secant(seen, slope)
            step = min(max(-seen[load] / slope, -_LONGEST_STEP), _LONGEST_STEP)
            if abs(step) < CLOSE:
                return load * math.exp(step), len(seen)
            following = load * math.exp(step)
        following = float(max(1, round(following))) if whole else following
        if following in seen:
            return following, len(seen)
        load = following
    return load, len(seen)


def _secant(seen: dict[float, float], slope: float) -> float:
    """Return the slope through the last two looks, or *slope* if they do not rise."""
    (x0, y0), (x1, y1) = list(seen.items())[-2:]
    return max((y1 - y0) / math.log(x1 / x0), _LEAST_SLOPE) if (y1 - y0) * (x1 - x0) > 0 else slope
