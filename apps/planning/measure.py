"""One run of a planned load: simulated, cut to the part that counts, judged against the SLO, with its evidence.

`measure` is the task that goes to other processes: an `Ask` in, a small `Run` out, both picklable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apps.planning.limits import State, state
from apps.planning.load import Axis, at_load, is_recorded, saturating, think_time_s
from apps.planning.slo import Slo
from apps.planning.steady import GROWTH_SHARE, Window, closed_window, open_window, whole
from calibration.draws import draw
from simulator import metrics
from simulator.records import Records, Status
from simulator.result import Result
from simulator.scenario import Scenario
from simulator.simulate import profile_of, simulate
from simulator.workload import traffic

#: The name under which not keeping up stands beside the SLO's targets.
STABILITY = "stability"


@dataclass(frozen=True)
class Ask:
    """One run: *scenario* at *load* on *axis*, with *requests* drawn, seed and draw of the profile (0: as it is).

    *as_a_whole* lets every request count, from the first one sent to the last answer.
    """

    scenario: Scenario
    slo: Slo
    axis: Axis
    load: float
    requests: int | None = None
    replication: int = 0
    draw: int = 0
    as_a_whole: bool = False

    def question(self) -> Scenario:
        """Return the scenario that is simulated."""
        seeded = self.scenario.model_copy(update={"seed": self.scenario.seed + self.replication})
        return at_load(seeded, self.axis, self.load, self.requests)


#: A rate, and a number of clients, at which nobody waits to send.
_ALL_AT_ONCE, _ALL_CLIENTS = 1e9, 1e6


def everything(scenario: Scenario, slo: Slo, axis: Axis, requests: int) -> Ask:
    """Return the run that sends *requests* at once, without think times: its throughput is about the highest."""
    if axis == "rate" or not is_recorded(scenario):
        return Ask(saturating(scenario), slo, "rate", _ALL_AT_ONCE, requests, as_a_whole=True)
    return Ask(scenario, slo, "concurrency", _ALL_CLIENTS, requests, as_a_whole=True)


@dataclass(frozen=True)
class Run:
    """What came of an `Ask`.

    Attributes
    ----------
    values: of each target: seconds, or the share of good requests.
    scores: log(value / limit) of each target, at most 0 if met; the last one is that of stability.
    metrics: of the requests that count, keys and units as in a summary (``p99_ttft_ms``, ``output_throughput`` ...).
    state: what the engine was busy with.
    in_system: requests sent and not answered, mean.
    """

    load: float
    replication: int
    draw: int
    values: tuple[float, ...]
    scores: tuple[float, ...]
    metrics: dict[str, float | None]
    state: State
    in_system: float
    window: Window
    kv_tokens: int
    calibrated: bool
    warnings: tuple[str, ...]

    @property
    def score(self) -> float:
        """How far the worst target is off: a logarithm, at most 0 if all are met."""
        return max(self.scores)

    @property
    def met(self) -> bool:
        """Whether every target is met and the server keeps up."""
        return self.score <= 0


def measure(ask: Ask) -> Run:
    """Simulate and judge; raises what `simulator.simulate.simulate` raises."""
    question = ask.question()
    profile = profile_of(question)
    if ask.draw:
        profile = draw(profile, question.seed, ask.draw)
    result = simulate(question, timed_by=profile if ask.draw else None)
    records = result.records
    when = whole(records) if ask.as_a_whole else _window(result, question, ask.axis)
    inside = when.holds(np.asarray(records.sent_s, dtype=np.float64))
    status = np.asarray(records.status)
    answered = inside & (status == Status.FINISHED)
    # Requests never sent (the engine died) failed as well.
    lost = int((inside & ~answered).sum() + (~np.isfinite(np.asarray(records.sent_s))).sum())
    seen = _seen(records, answered, when)
    values = ask.slo.values(seen, lost, _classes(result, inside, when))
    scores = (*ask.slo.scores(values, len(seen.ttft_s) + lost), _stability(when, records))
    return Run(
        load=ask.load,
        replication=ask.replication,
        draw=ask.draw,
        values=values,
        scores=scores,
        metrics=_metrics(seen, lost, result.dropped),
        state=state(question, records, profile, when),
        in_system=float(seen.e2el_s.sum()) / when.length_s,
        window=when,
        kv_tokens=int(result.memory.get("kv_tokens", 0)),
        calibrated=result.provenance.calibrated,
        warnings=result.warnings,
    )


def _window(result: Result, question: Scenario, axis: Axis) -> Window:
    if axis == "rate":
        if is_recorded(question) or getattr(question.workload, "rate_shape", None) is not None:
            return whole(result.records)
        chats = bool((result.table.follows >= 0).any())  # later turns come when the answers are there
        return open_window(result.records, np.asarray(result.records.sent_s) if chats else result.table.arrival_s)
    clients = traffic(question.workload, question.seed).max_concurrency if not think_time_s(question) else 0
    return closed_window(result.records, clients or 0)


def _seen(records: Records, answered: Any, when: Window) -> metrics.Latencies:
    """Return what the clients of the requests that count saw; the duration is that of the window."""
    status = np.where(answered, np.uint8(Status.FINISHED), np.uint8(Status.UNFINISHED))
    return replace(metrics.latencies(replace(records, status=status)), duration_s=when.length_s)  # type: ignore[arg-type]


def _classes(result: Result, inside: Any, when: Window) -> dict[str, tuple[metrics.Latencies, int]]:
    """Return what each class of a mix saw, and how many of its requests got no answer; empty without classes."""
    table, finished = result.table, np.asarray(result.records.status) == Status.FINISHED
    found = {}
    for number, name in enumerate(table.class_names):
        mine = inside & (table.class_id == number)
        found[name] = _seen(result.records, mine & finished, when), int((mine & ~finished).sum())
    return found


def _stability(when: Window, records: Records) -> float:
    if records.died:
        return 1.0
    score = min(max((when.growth - GROWTH_SHARE) / GROWTH_SHARE, -1.0), 1.0)
    return min(score, -0.05) if when.keeps_up else max(score, 0.05)


def _metrics(seen: metrics.Latencies, failed: int, dropped: int) -> dict[str, float | None]:
    found = {**metrics.aggregate(seen), "failed": failed, "dropped": dropped}
    return {key: float(value) if math.isfinite(value) else None for key, value in found.items()}
