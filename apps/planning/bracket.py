"""Where the SLO breaks: a bracket of loads, closed step by step.

The worst score (`apps.planning.points`) rises with the load.  A bracket holds the highest load that holds below the
lowest one that does not.  The next load to look at is where the line through both scores, over log(load), crosses 0,
but not closer to either end than a fifth of the way: scores have knees, and each look must be worth it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from apps.planning.points import Point, crossing

#: How close to an end of the bracket the next look may be.
_MARGIN = 0.2
#: How far up to look if there is no higher end left.
_STEP_UP = 1.15
_MOST_LOOKS = 40


@dataclass(frozen=True)
class Bracket:
    """*low* holds, *high* does not; None where there is no such load."""

    low: float | None
    high: float | None

    @classmethod
    def of(cls, points: Mapping[float, Point]) -> Bracket:
        """Return the bracket at the lowest load that does not hold; loads above it that hold again are chance."""
        high = min((load for load, point in points.items() if not point.holds), default=None)
        low = max(
            (load for load, point in points.items() if point.holds and (high is None or load < high)), default=None
        )
        return cls(low, high)


def refine(
    start: Bracket,
    look: Callable[[float], Point],
    points: Mapping[float, Point],
    *,
    tolerance: float,
    whole: bool,
) -> Bracket:
    """Return a bracket no wider than *tolerance* (a share; 1 for *whole* loads) whose ends were both looked at.

    *look* gives the replicated point at a load and puts it into *points*, which holds the ends of *start* already.  The
    result has no ``low`` if even the lowest load of *points* does not hold on a second look.
    """
    low, high = start.low, start.high
    looked: set[float] = set()
    for _ in range(_MOST_LOOKS):
        if low is None:
            break
        if high is None:  # the end that did not hold by one run holds by more
            load = float(max(low + 1, round(low * _STEP_UP))) if whole else low * _STEP_UP
        elif high - low > (max(1.0, tolerance * low) if whole else tolerance * low):
            load = _between(points[low], points[high], whole)
        else:
            unseen = [end for end in (low, high) if end not in looked]
            if not unseen:
                break
            load = unseen[0]
        point = look(load)
        looked.add(load)
        if point.holds:
            low = max(low, load)
            if high is not None and load >= high:
                high = min((x for x, each in points.items() if x > load and not each.holds), default=None)
        else:
            high = load if high is None else min(high, load)
            if load <= low:
                low = max((x for x, each in points.items() if x < load and each.holds), default=None)
    return Bracket(low, high)


def _between(low: Point, high: Point, whole: bool) -> float:
    guess = math.log(crossing((low.load, min(low.score, -1e-9)), (high.load, max(high.score, 1e-9))))
    left, right = math.log(low.load), math.log(high.load)
    inside = math.exp(min(max(guess, left + _MARGIN * (right - left)), right - _MARGIN * (right - left)))
    return float(min(max(round(inside), low.load + 1), high.load - 1)) if whole else inside
