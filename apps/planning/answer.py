"""What is asked of a capacity search, what it tells on the way, and its answer; all frozen, all can be pickled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from apps.planning.limits import Limit
from apps.planning.load import Axis, unit_of
from apps.planning.points import Point
from apps.planning.slo import Slo
from simulator.scenario import Scenario


@dataclass(frozen=True)
class Effort:
    """How much work goes into an answer.

    Attributes
    ----------
    tolerance: the search ends when the lowest load that fails is less than this share above the highest that holds.
    replications, most_replications: runs at each load while refining: so many at least, and at most, as long as more
        of them can decide.
    draws: searches the interval is made of; 0 for none, else at least 5.
    requests: per run, where they are drawn; None: as many as the load needs (`requests_for`).
    confirm: whether to confirm with longer runs.
    """

    tolerance: float = 0.02
    replications: int = 4
    most_replications: int = 8
    draws: int = 10
    requests: int | None = None
    confirm: bool = True


@dataclass(frozen=True)
class Progress:
    """How far a search is: its *stage*, runs *done* of about *expected*, and the points of the curve so far."""

    stage: str
    done: int
    expected: int
    points: tuple[Point, ...]


#: Told after every run; may raise, which ends the search and its workers and passes through to the caller.
Watcher = Callable[[Progress], None]


@dataclass(frozen=True)
class Capacity:
    """The answer.

    Attributes
    ----------
    load: the highest load that holds, in the unit of the axis; None if none does.
    next_load: the lowest load found not to hold, within the tolerance; None if every load holds.
    interval: 90 % interval of the capacity, of servers and hosts of this kind; None if it was not asked for.
    decided: whether the replications tell `load` and `next_load` apart from the SLO; if not, `undecided_between`.
    target: the SLO's target that breaks first (``stability``: the queue grows without end).
    limit: what the server runs out of there; None if it never does.
    points: the load curve, ascending, `load` and `next_load` among them.
    requests: of one run near `load`; None where the workload says how many.
    """

    scenario: Scenario
    slo: Slo
    axis: Axis
    load: float | None
    next_load: float | None
    interval: tuple[float, float] | None
    decided: bool
    target: str
    limit: Limit | None
    points: tuple[Point, ...]
    runs: int
    requests: int | None = None
    draws: tuple[float, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def unit(self) -> str:
        """The unit of the loads."""
        return unit_of(self.scenario, self.axis)

    @property
    def point(self) -> Point | None:
        """The point at `load`."""
        return next((point for point in self.points if point.load == self.load), None)

    @property
    def is_calibrated(self) -> bool:
        """Whether the step times were measured for this GPU, model and way of running."""
        return all(run.calibrated for point in self.points for run in point.runs)

    @property
    def undecided_between(self) -> tuple[float, float] | None:
        """The highest load that certainly holds and the lowest that certainly does not; None if decided."""
        if self.decided or self.load is None:
            return None
        holds = [point.load for point in self.points if point.holds and (point.decided or len(point.runs) == 1)]
        fails = [point.load for point in self.points if not point.holds and (point.decided or len(point.runs) == 1)]
        low = max((load for load in holds if load <= self.load), default=0.0)
        high = min((load for load in fails if load >= self.load), default=float("inf"))
        return low, high

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; the schema is in docs/schemas.md."""
        point = self.point
        return {
            "schema_version": 1,
            "slo": str(self.slo),
            "axis": self.axis,
            "unit": self.unit,
            "calibrated": self.is_calibrated,
            "load": self.load,
            "next_load": self.next_load,
            "interval": list(self.interval) if self.interval else None,
            "level": 0.90,
            "decided": self.decided,
            "undecided_between": _without_infinity(self.undecided_between),
            "binding_target": self.target,
            "binding_limit": self.limit.as_dict() if self.limit else None,
            "at_load": point.as_dict(self.slo) if point else None,
            "points": [each.as_dict(self.slo) for each in self.points],
            "draws": list(self.draws),
            "requests_per_run": self.requests,
            "runs": self.runs,
            "notes": list(self.notes),
            "scenario": self.scenario.model_dump(mode="json"),
        }


def _without_infinity(between: tuple[float, float] | None) -> list[float | None] | None:
    return None if between is None else [load if math.isfinite(load) else None for load in between]
