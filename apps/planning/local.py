"""A capacity from few runs: of a profile drawn anew, of a server with one flag changed, of one of many configurations.

The search starts from a load that is known or guessed: a look there, a step along the slope of the known curve, then on
by the secant until the load at which the score is 0 lies between two looks, or is known within `CLOSE`.  One run a
look.

The interval of a capacity is that of one more draw (`calibration.draws`: fitted coefficients, hosts from run to run,
residuals; seeds of its own): where the capacity of one more server of this kind would lie
(`calibration.intervals.interval`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from apps.planning.load import is_whole
from apps.planning.measure import Ask, Run, measure
from apps.planning.points import Point, crossing
from apps.planning.runs import Failure, Workers, run_many
from calibration.intervals import LEAST_REPLICATIONS, interval
from simulator import errors

LEVEL = 0.90
CLOSE = 0.01
#: The least d score / d log(load) that is believed.
_LEAST_SLOPE = 0.5


@dataclass(frozen=True)
class Near:
    """A search that starts at *ask*'s load; *slope* is d score / d log(load) of the known curve there.

    *known_score*: a first look with this very score is the known server over again: its load is the answer.  *looks*:
    runs at most; *longest_step*: the largest factor between two loads.
    """

    ask: Ask
    slope: float
    known_score: float | None = None
    looks: int = 6
    longest_step: float = 1.4


@dataclass(frozen=True)
class Found:
    """The load at which the score is 0, the runs (*looks*) that took, and the run at the highest load that held."""

    load: float
    looks: int
    best: Run | None


def slope_between(low: Point, high: Point) -> float:
    """Return d score / d log(load) between two points, believed from 0.5 on."""
    return max((high.score - low.score) / math.log(high.load / low.load), _LEAST_SLOPE)


def check_draws(draws: int) -> None:
    """Raise `InputError` for a number of draws that makes no interval; 0 asks for none."""
    if draws != 0 and draws < LEAST_REPLICATIONS:
        raise errors.InputError(f"an interval needs at least 5 draws, got {draws}; give 0 for none")


def drawn_capacities(
    ask: Ask,
    slope: float,
    draws: int,
    *,
    workers: Workers = None,
    told: Callable[[int], None] = lambda _: None,
) -> tuple[tuple[float, ...], tuple[float, float]]:
    """Return the capacity of each of *draws* (at least 5), near *ask*'s load, and their interval.

    *told* hears of the runs of each draw as it ends.
    """
    check_draws(draws)
    tasks = [Near(replace(ask, replication=number, draw=number), slope) for number in range(1, draws + 1)]
    loads = []
    for found in search_all(tasks, workers=workers, told=told):
        if isinstance(found, Failure):
            raise getattr(errors, found.kind, errors.ServecastError)(str(found))
        loads.append(found.load)
    if max(loads) <= min(loads):
        return tuple(loads), (loads[0], loads[0])
    return tuple(loads), interval(np.array(loads), LEVEL)


def search_all(
    tasks: Sequence[Near], *, workers: Workers = None, told: Callable[[int], None] = lambda _: None
) -> list[Found | Failure]:
    """Return the result of each task, in order; *told* hears of the runs of each as it ends."""
    found: dict[int, Found | Failure] = {}
    with closing(run_many(search, tasks, workers=workers)) as results:  # type: ignore[type-var]
        for index, outcome in results:
            found[index] = outcome
            told(outcome.looks if isinstance(outcome, Found) else 1)
    return [found[index] for index in range(len(tasks))]


def search(task: Near) -> Found:
    """Return the capacity near the known one (module text)."""
    whole = is_whole(task.ask.axis)
    seen: dict[float, float] = {}
    load, slope, answer = task.ask.load, task.slope, task.ask.load
    best, longest = None, math.log(task.longest_step)
    while len(seen) < task.looks:
        run = measure(replace(task.ask, load=load))
        seen[load] = run.score
        best = run if run.met and (best is None or load > best.load) else best
        if seen[load] == task.known_score:
            answer = load
            break
        low = max((x for x, score in seen.items() if score <= 0), default=None)
        high = min((x for x, score in seen.items() if score > 0 and (low is None or x > low)), default=None)
        if low is not None and high is not None:
            answer = crossing((low, seen[low]), (high, seen[high]))
            close = math.log(high / low) < 4 * CLOSE
        else:
            slope = _secant(seen, slope)
            step = min(max(-seen[load] / slope, -longest), longest)
            answer, close = load * math.exp(step), abs(step) < CLOSE
        load = float(max(1, round(answer))) if whole else answer
        if close or load in seen:
            break
    return Found(answer, len(seen), best)


def _secant(seen: dict[float, float], slope: float) -> float:
    """Return the slope through the last two looks, or *slope* if there is one look or they do not rise."""
    if len(seen) < 2:
        return slope
    (x0, y0), (x1, y1) = list(seen.items())[-2:]
    return max((y1 - y0) / math.log(x1 / x0), _LEAST_SLOPE) if (y1 - y0) * (x1 - x0) > 0 else slope
