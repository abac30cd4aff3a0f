"""The highest load a server carries within an SLO, how sure that is, and what it stops at.

    from apps.planning.capacity import capacity

    found = capacity(scenario, "ttft_p99=500ms,tpot_p95=40ms")
    found.load, found.interval, found.limit.why

The load of *scenario* only says what is asked (its axis, lengths, arrival pattern); how much is searched for:

    1. scale       everything at once: the throughput nothing can exceed
    2. curve       loads up to beyond it, one run each: where the SLO breaks, roughly; the curve pages draw
    3. refining    between the highest load that holds and the lowest that does not, replications until they decide
    4. confirming  the answer in runs three times as long: overload that a short run hides shows, and is refined again
    5. uncertainty the same search with the profile drawn anew (`calibration.draws`) and other seeds: a 90 % interval

Every load is sent with the same seeds (`apps.planning.load`), judged by what counts of it (`apps.planning.steady`) and
decided as `apps.planning.points` says.  The answer does not depend on the number of workers.

Not contained in the interval: what `calibration.intervals` lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from apps.planning.answer import Capacity, Effort, Progress, Watcher
from apps.planning.bracket import Bracket, refine
from apps.planning.limits import State, binding
from apps.planning.load import Axis, axis_of, is_recorded, is_whole, requests_per_arrival, think_time_s
from apps.planning.local import check_draws, drawn_capacities, slope_between
from apps.planning.measure import Ask, Run, everything, measure
from apps.planning.points import Point
from apps.planning.runs import Failure, Workers, run_many
from apps.planning.slo import Slo
from apps.planning.steady import too_short
from simulator import errors
from simulator.scenario import Scenario

__all__ = ["Capacity", "Effort", "Progress", "Watcher", "capacity", "requests_for"]


def capacity(
    scenario: Scenario,
    slo: Slo | str | None = None,
    *,
    axis: Axis | None = None,
    effort: Effort | None = None,
    workers: Workers = None,
    watch: Watcher | None = None,
) -> Capacity:
    """Return the highest load on *axis* (default: the one of the scenario's workload) at which *slo* is met.

    Classes of a mix add their own targets; *slo* None leaves it at these.

    *workers* share the runs (`apps.planning.runs.Workers`: None for one process a core); *watch* is told after every
    run and may raise to stop.
    Everything passed and returned can be pickled.  Raises what `simulate` raises (`DoesNotFitError` ...), `InputError`
    for an SLO that cannot be read or an axis the workload does not have.
    """
    if scenario.is_fleet:
        raise errors.UnsupportedError(
            "the capacity of several replicas is not searched; search that of one, and simulate the fleet at its load"
        )
    if effort is not None:
        check_draws(effort.draws)
    wanted = Slo.of_mix(scenario, Slo.parse(slo) if isinstance(slo, str) else slo)
    return _Search(scenario, wanted, axis or axis_of(scenario), effort or Effort(), workers, watch).answer()


#: Loads of the curve as shares of the throughput of everything at once.
_CURVE = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.2)
#: Below the curve: how far down a load that holds is looked for; above: by which steps.
_LOWER = (0.03, 0.01, 0.003)
_STEP_UP, _STEPS_UP = 1.35, 12
#: Requests per run: so many for each request in the system at a time, between bounds.
_PER_REQUEST_IN_SYSTEM, _LEAST, _MOST = 50, 4000, 20_000
_PER_USER, _LONGER, _CONFIRMATIONS = 4, 3, 2


def requests_for(in_system: float) -> int:
    """Return how many requests a run needs: 50 generations of those in the system at once, from 4,000 to 20,000."""
    return int(min(max(_PER_REQUEST_IN_SYSTEM * in_system, _LEAST), _MOST))


class _Search:
    """One search: what is asked, and the points found so far."""

    def __init__(
        self, scenario: Scenario, slo: Slo, axis: Axis, effort: Effort, workers: Workers, watch: Watcher | None
    ) -> None:
        self.scenario, self.slo, self.axis, self.effort = scenario, slo, axis, effort
        self.workers, self.watch = workers, watch
        self.points: dict[float, Point] = {}
        self.stage, self.done, self.expected = "scale", 0, 1 + len(_CURVE) + 4 * effort.replications + 3 * effort.draws
        self.requests = effort.requests or _LEAST

    def answer(self) -> Capacity:
        """Run the stages of the module text."""
        scale = self._scale()
        found = self._curve(scale)
        if found.low is not None and found.high is not None:
            found = self._refine(found)
            if self.effort.confirm and self.axis == "rate" and not is_recorded(self.scenario):
                found = self._confirm(found)
        draws, interval = self._uncertainty(found)
        return self._capacity(found, draws, interval)

    # stages -----------------------------------------------------------------------------------------------------------

    def _scale(self) -> float:
        """Return a load nothing exceeds by much: the throughput of all at once, or the users that make it."""
        run = measure(everything(self.scenario, self.slo, self.axis, min(self.requests, 1000)))
        self._told()
        throughput = run.metrics["request_throughput"] or 1.0
        if self.axis == "rate":
            return throughput / requests_per_arrival(self.scenario)
        thinking = throughput * think_time_s(self.scenario)
        return max(8.0, thinking + min(self.scenario.engine.max_num_seqs, self.requests))

    def _curve(self, scale: float) -> Bracket:
        self.stage = "curve"
        shares = (1 / scale, *_CURVE) if is_whole(self.axis) else _CURVE
        self._points([self._round(scale * share) for share in shares])
        for share in _LOWER if not is_whole(self.axis) else ():
            if any(point.holds for point in self.points.values()):
                break
            self._points([scale * share])
        load = max(self.points)
        for _ in range(_STEPS_UP):
            if not self.points[load].holds:
                break
            load = self._round(load * _STEP_UP)
            self._points([load])
        return Bracket.of(self.points)

    def _refine(self, found: Bracket) -> Bracket:
        """Close the bracket with replications, in runs as long as the load needs."""
        self.stage = "refining"
        if self.effort.requests is None:
            about = [self.points[load].runs[0].in_system for load in (found.low, found.high) if load is not None]
            self.requests = max(self.requests, requests_for(min(about)))
        return refine(found, self._replicated, self.points, tolerance=self.effort.tolerance, whole=is_whole(self.axis))

    def _confirm(self, found: Bracket) -> Bracket:
        """Look at the answer in longer runs; if it does not hold there, refine below it in such runs."""
        self.stage = "confirming"
        short, self.requests = self.requests, min(_LONGER * self.requests, _LONGER * _MOST)
        assert found.low is not None
        if self._replicated(found.low, most=_CONFIRMATIONS).holds:
            self.requests = short
            return found
        below = {load: point for load, point in self.points.items() if load <= found.low}
        return refine(
            Bracket.of(below),
            self._replicated,
            self.points,
            tolerance=self.effort.tolerance,
            whole=is_whole(self.axis),
        )

    def _uncertainty(self, found: Bracket) -> tuple[tuple[float, ...], tuple[float, float] | None]:
        if not self.effort.draws or found.low is None or found.high is None:
            return (), None
        self.stage = "uncertainty"
        ask = Ask(self.scenario, self.slo, self.axis, found.low, self._requests(found.low))
        slope = slope_between(self.points[found.low], self.points[found.high])
        return drawn_capacities(ask, slope, self.effort.draws, workers=self.workers, told=self._told)

    def _capacity(self, found: Bracket, draws: tuple[float, ...], interval: tuple[float, float] | None) -> Capacity:
        ends = [self.points[load] for load in (found.high, found.low) if load is not None]
        worst = ends[0]
        target = worst.binding(self.slo)
        notes = list(dict.fromkeys(warning for point in ends for run in point.runs for warning in run.warnings))
        if not all(run.window.settled for run in ends[-1].runs):
            notes.append("some runs found no steady state in their first half; longer ones (--num-prompts) would tell")
        if found.low is not None and self.axis == "rate" and not is_recorded(self.scenario):
            notes += self._too_short(self.points[found.low])
        return Capacity(
            scenario=self.scenario,
            slo=self.slo,
            axis=self.axis,
            load=found.low,
            next_load=found.high,
            interval=interval,
            decided=all(point.decided for point in ends),
            target=target,
            limit=binding(_mean_state(worst.runs), target) if found.high is not None else None,
            points=tuple(self.points[load] for load in sorted(self.points)),
            runs=self.done,
            requests=None if found.low is None or is_recorded(self.scenario) else self._requests(found.low),
            draws=draws,
            notes=tuple(notes),
        )

    def _too_short(self, point: Point) -> list[str]:
        answered = sum(run.metrics["request_throughput"] or 0.0 for run in point.runs) / len(point.runs)
        found = too_short(point.load * requests_per_arrival(self.scenario), answered)
        return [] if found is None else [found]

    # runs -------------------------------------------------------------------------------------------------------------

    def _round(self, load: float) -> float:
        return float(max(1, round(load))) if is_whole(self.axis) else load

    def _points(self, loads: Sequence[float]) -> None:
        """Add points of one run each."""
        fresh = sorted(set(loads) - set(self.points))
        asks = [Ask(self.scenario, self.slo, self.axis, load, self._requests(load)) for load in fresh]
        for ask, run in zip(asks, self._runs(asks), strict=True):
            self.points[ask.load] = Point(ask.load, ask.requests, (run,))

    def _replicated(self, load: float, most: int | None = None) -> Point:
        """Return the point at *load*, with replications until they decide; it takes its place in the curve."""
        runs: list[Run] = []
        most = most or self.effort.most_replications
        requests = self._requests(load)
        while len(runs) < most:
            count = min(self.effort.replications, most - len(runs))
            numbers = range(len(runs), len(runs) + count)
            ask = Ask(self.scenario, self.slo, self.axis, load, requests)
            runs += self._runs([replace(ask, replication=number) for number in numbers])
            point = self.points[load] = Point(load, requests, tuple(runs))
            if point.decided or not point.would_decide(most):
                break
        return point

    def _requests(self, load: float) -> int | None:
        """Return how many requests a run at *load* has; few of them where one run only shows the way."""
        if self.effort.requests is not None or self.axis == "rate":
            return self.requests
        each = _PER_USER if self.axis == "users" else _PER_REQUEST_IN_SYSTEM
        least = _LEAST // 4 if self.stage == "curve" else self.requests
        return int(min(max(each * load, least), max(_MOST, 2 * load)))

    def _runs(self, asks: Sequence[Ask]) -> list[Run]:
        found: dict[int, Run] = {}
        with closing(run_many(measure, asks, workers=self.workers)) as results:  # type: ignore[type-var]
            for index, run in results:
                if isinstance(run, Failure):
                    raise getattr(errors, run.kind, errors.ServecastError)(str(run))
                found[index] = run
                self._told()
        return [found[index] for index in range(len(asks))]

    def _told(self, runs: int = 1) -> None:
        self.done += runs
        self.expected = max(self.expected, self.done)
        if self.watch is not None:
            points = tuple(self.points[load] for load in sorted(self.points))
            self.watch(Progress(self.stage, self.done, self.expected, points))


def _mean_state(runs: Sequence[Run]) -> State:
    names = vars(runs[0].state)
    return State(**{name: sum(getattr(run.state, name) for run in runs) / len(runs) for name in names})
