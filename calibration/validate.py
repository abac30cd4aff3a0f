"""Predicted against measured on the same requests: errors with signs, bars, a verdict, and where the error arises.

    prediction = predict(scenario)                        first, before anything is measured
    runs = [...]                                          one recorded run, or several of the same requests
    report = judge(prediction, runs, bars)

A metric is predicted as the mean over the seeds of the simulation's noise, with the 90 % interval of one more run on a
host of this kind (`calibration.intervals`).  Measured: the mean over the runs; the spread is (largest - smallest) /
mean.  Error: 100 * (predicted / measured - 1).  The verdict is "pass" if every metric with a bar keeps it, "miss" if
one does not, and "not judged" if the client could not keep up (`calibration.client_lag`) or requests failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from calibration.bars import BARS, METRICS, NAMES, Judged, Verdict
from calibration.client_lag import Lag, client_lag
from calibration.explain import Explanation, explain
from calibration.host import measure_host
from calibration.intervals import LEAST_REPLICATIONS, LEVEL, replicated, summarize
from calibration.mechanisms import Mechanism, mechanisms
from calibration.phases import TOKEN, TTFT, Contribution, contributions
from calibration.recorded_run import RecordedRun
from calibration.trace import Trace, of_records
from simulator.errors import InputError
from simulator.profile import Host, Profile
from simulator.result import Result
from simulator.scenario import Scenario
from simulator.simulate import profile_of, simulate
from simulator.workload import Traffic

SEEDS = 3
#: A host whose CPU differs by more than this from what was expected has another speed.
OTHER_SPEED = 0.05


class RunsRequests(Protocol):
    """A real server with its client; a stand-in in tests.

    Starts the server that *command* describes, sends *traffic* once for each of *names*, stops the server, and leaves
    ``NAME.requests.json(.gz)``, ``NAME.steps.jsonl(.gz)`` and ``server.log`` in *folder*.
    """

    def __call__(self, command: str, traffic: Traffic, folder: Path, names: Sequence[str]) -> None:
        """Do it, or raise a `ServecastError`."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """What was said before the measurement: one simulation a seed, and the intervals (empty if not asked for)."""

    scenario: Scenario
    profile: Profile
    results: tuple[Result, ...]
    intervals: Mapping[str, list[float]] = field(default_factory=dict)

    def value(self, key: str) -> float | None:
        """Return the mean of a summary's number over the seeds; None if it does not exist."""
        found = [result.summary()[key] for result in self.results]
        return None if any(one is None for one in found) else float(np.mean(found))


@dataclass(frozen=True, eq=False)
class Validation:
    """A comparison; what follows *lags* is empty without recorded steps."""

    prediction: Prediction
    runs: tuple[RecordedRun, ...]
    metrics: tuple[Judged, ...]
    lags: tuple[Lag, ...]
    contributions: tuple[Contribution, ...] = ()
    mechanisms: tuple[Mechanism, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    host: HostSeen | None = None

    @property
    def verdict(self) -> Verdict:
        """See the module text."""
        if self.obstacles:
            return Verdict.not_judged
        return Verdict.missed if self.misses else Verdict.passed

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Why nothing can be judged, in words."""
        return tuple(f"{run.name}: {reason}" for run in self.runs for reason in run.obstacles())

    @property
    def misses(self) -> tuple[Judged, ...]:
        """Metrics that break their bar."""
        return tuple(one for one in self.metrics if one.keeps_bar is False)

    def words(self) -> str:
        """Return the verdict as a sentence, and what broke it."""
        if self.verdict is Verdict.not_judged:
            return f"not judged: {'; '.join(self.obstacles)}"
        if self.verdict is Verdict.passed:
            return f"pass: {sum(one.keeps_bar is True for one in self.metrics)} metrics within their bars"
        missed = ", ".join(f"{one.title} {one.error_percent:+.1f} % (bar {one.bar_percent:g} %)" for one in self.misses)
        causes = [one.words() for one in self.explanations if self._is_about(one)]
        if self.host is not None and self.host.is_other:
            causes.append(self.host.words())
        return ". ".join([f"miss: {missed}", *causes])

    def _is_about(self, explanation: Explanation) -> bool:
        """Whether a metric that broke its bar is made of the explained one."""
        families = {"ttft": (TTFT,), "tpot": (TOKEN,), "itl": (TOKEN,)}
        return any(explanation.metric in families.get(one.name.split("_")[0], (TTFT, TOKEN)) for one in self.misses)


@dataclass(frozen=True, eq=False)
class HostSeen:
    """How fast the host was during the measured run, relative to the profile's: a cause, known only afterwards.

    *expected* and *seen* are scales (`calibration.host`); *prediction* is the one for a host of the seen speed.
    """

    expected: Host
    seen: Host
    prediction: Prediction

    @property
    def cpu_ratio(self) -> float:
        """Seconds of CPU work seen per second expected."""
        return self.seen.cpu_scale / self.expected.cpu_scale

    @property
    def is_other(self) -> bool:
        """Whether the CPU's speed was not the expected one."""
        return abs(self.cpu_ratio - 1) > OTHER_SPEED

    def words(self) -> str:
        """Return the sentence."""
        return (
            f"During the run the CPU work of the engine loop took {self.cpu_ratio:.2f} times what was expected of this "
            'host; the column "at the host\'s speed" predicts with that'
        )


def predict(
    scenario: Scenario,
    *,
    seeds: int = SEEDS,
    replications: int = 0,
    workers: int = 1,
    timed_by: Profile | None = None,
) -> Prediction:
    """Return the prediction for *scenario*: *seeds* simulations, and intervals of *replications* more if any.

    *timed_by* stands in for the scenario's profile: the same one with this host's speed, say.
    """
    if 0 < replications < LEAST_REPLICATIONS:
        raise InputError(f"an interval needs at least {LEAST_REPLICATIONS} replications, got {replications}; 0: none")
    question = with_fixed_requests(scenario)
    profile = timed_by or profile_of(question)
    results = tuple(
        simulate(question.model_copy(update={"seed": scenario.seed + k}), timed_by=profile) for k in range(seeds)
    )
    intervals = summarize(replicated(question, replications, workers, timed_by=profile), LEVEL) if replications else {}
    return Prediction(question, profile, results, intervals)


def with_fixed_requests(scenario: Scenario) -> Scenario:
    """Return *scenario* with the requests it draws written out, so that all seeds and the server see the same ones."""
    from simulator.request_list import rows_of
    from simulator.workload import RequestsWorkload, traffic

    if isinstance(scenario.workload, RequestsWorkload) and scenario.workload.rows:
        return scenario
    sent = traffic(scenario.workload, scenario.seed)
    table = sent.table
    if table.has_waits:
        raise InputError("validation sends no chats and waits for no think time; leave --think-time and turns out")
    workload = RequestsWorkload(rows=rows_of(table), max_concurrency=sent.max_concurrency)
    return scenario.model_copy(update={"workload": workload})


def judge(prediction: Prediction, runs: Sequence[RecordedRun], bars: Mapping[str, float] | None = None) -> Validation:
    """Return the comparison of *prediction* with one or several *runs* of the same requests.

    Raises `InputError` for a bar nobody knows, or for runs of other requests.
    """
    bars = BARS if bars is None else bars
    unknown = sorted(set(bars) - set(NAMES))
    if unknown:
        raise InputError(f"no metric is called {', '.join(unknown)}; known: {', '.join(NAMES)}")
    for run in (run for run in runs if not run.failed):
        _check_same_requests(prediction, run)
    summaries = [run.measured.summary() for run in runs]
    metrics = tuple(_judged(prediction, summaries, metric, bars) for metric in METRICS)
    lags = tuple(client_lag(run.measured) for run in runs)
    first = runs[0]
    if first.trace is None or first.recording is None:
        return Validation(prediction, tuple(runs), metrics, lags)
    traces = predicted_traces(prediction)
    parts = tuple(contributions(traces, first.trace))
    known = tuple(mechanisms(traces, first.trace, first.recording, first.sent, prediction.profile))
    causes = tuple(explain(parts, known))
    return Validation(prediction, tuple(runs), metrics, lags, parts, known, causes, host_seen(prediction, first))


def host_seen(prediction: Prediction, run: RecordedRun) -> HostSeen | None:
    """Return how fast the host was during *run*, and what that speed would have made of the prediction."""
    assert run.recording is not None
    seen = measure_host(prediction.profile, run.recording, run.sent)
    if seen is None:
        return None
    profile = prediction.profile.model_copy(update={"host": seen})
    again = predict(prediction.scenario, seeds=len(prediction.results), timed_by=profile)
    return HostSeen(prediction.profile.host, seen, again)


def predicted_traces(prediction: Prediction) -> list[Trace]:
    """Return one trace a seed."""
    return [of_records(result.records) for result in prediction.results]


def _judged(
    prediction: Prediction,
    summaries: Sequence[Mapping[str, Any]],
    metric: tuple[str, str, str, str],
    bars: Mapping[str, float],
) -> Judged:
    name, title, key, unit = metric
    seen = [summary[key] for summary in summaries]
    known = all(value is not None and np.isfinite(value) for value in seen)
    mean = float(np.mean(seen)) if known else None
    spread = 100 * (max(seen) - min(seen)) / mean if mean and len(seen) > 1 else None
    low, high = prediction.intervals.get(key, (None, None))
    return Judged(name, title, unit, prediction.value(key), mean, spread, low, high, bars.get(name))


def _check_same_requests(prediction: Prediction, run: RecordedRun) -> None:
    def lengths(table: Any) -> list[tuple[int, int]]:
        return sorted(zip(table.prompt_tokens.tolist(), table.output_tokens.tolist(), strict=True))

    if lengths(prediction.results[0].table) != lengths(run.measured.table):
        raise InputError(
            f"{run.name}: its requests are not the predicted ones ({len(run.measured.table)} against "
            f"{len(prediction.results[0].table)}, or other lengths); repeats must send the same requests"
        )
