"""Predictions with intervals: in which range would a run like this, on a host of this kind, be measured?

The scenario is simulated once per replication, each with a profile drawn anew (`calibration.draws`: coefficients, run
to run, residuals) and a seed of its own (noise of the steps; arrivals and lengths where the workload draws them, not
where it lists its requests).  For a metric with the values x_1 .. x_n the interval of level L is that of one more
value, taken as log-normal (Student):

    exp( mean(log x) -+ t(n - 1, (1 + L) / 2) * sd(log x) * sqrt(1 + 1/n) )

and for metrics that can be 0 the same without logarithms, cut at 0 (shares also at 1).  The prediction itself stays the
one of the plain simulation: one run like that, so that it can lie outside of the interval.

Not contained: another machine, slow spells of a host, and what the model does not know.  Near saturation TTFT is not
log-normal; read the interval as an order of magnitude there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from calibration.draws import RunToRun, draw
from simulator.errors import InputError
from simulator.metrics import LATENCIES
from simulator.profile import Profile
from simulator.result import Result
from simulator.scenario import Scenario
from simulator.simulate import profile_of, simulate

LEVEL = 0.90
REPLICATIONS = 20
LEAST_REPLICATIONS = 5

#: Metrics of the summary that get an interval.
THROUGHPUTS = ("request_throughput", "output_throughput", "total_token_throughput")
SHARES = ("kv_cache_usage_max", "kv_cache_usage_mean")
KEYS = (
    *(f"{statistic}_{name}_ms" for name in LATENCIES for statistic in ("mean", "p50", "p90", "p95", "p99")),
    *THROUGHPUTS,
    "duration_s",
    *SHARES,
    "preemptions",
)

CONTAINS = (
    "uncertainty of the fitted coefficients",
    "run-to-run spread of hosts of this kind",
    "step-to-step noise, and arrivals and lengths where the workload draws them",
    "residual errors of the step times",
)

#: What an interval lacks where the answer is not calibrated: it is then narrower than the truth.
NOT_CONTAINED = "how far an answer that is not calibrated is off"

Interval = tuple[float, float]


def predict_with_intervals(
    scenario: Scenario,
    *,
    replications: int = REPLICATIONS,
    level: float = LEVEL,
    workers: int = 1,
    spread: RunToRun | None = None,
) -> Result:
    """Return the plain result of *scenario* with its ``intervals`` filled in.

    *workers* processes share the replications; the numbers do not depend on how many.  *spread* replaces the measured
    run-to-run spread.  Raises `InputError` for fewer than 5 replications or a level outside (0, 1).
    """
    if replications < LEAST_REPLICATIONS:
        raise InputError(f"intervals need at least {LEAST_REPLICATIONS} replications, got {replications}")
    if not 0 < level < 1:
        raise InputError(f"the level of an interval must lie between 0 and 1, got {level}")
    result = simulate(scenario)
    values = summarize(replicated(scenario, replications, workers, spread), level)
    about: dict[str, Any] = {"level": level, "replications": replications, "contains": list(CONTAINS)}
    if not result.provenance.calibrated:
        about["lacks"] = [NOT_CONTAINED]
    return replace(result, intervals={**about, **values})


def replicated(
    scenario: Scenario,
    replications: int,
    workers: int = 1,
    spread: RunToRun | None = None,
    timed_by: Profile | None = None,
) -> list[dict[str, float]]:
    """Return the metrics of each replication, in order; *timed_by* stands in for the scenario's profile."""
    task = partial(_replication, scenario, spread, timed_by or profile_of(scenario))
    if workers <= 1:
        return [task(number) for number in range(1, replications + 1)]
    with ProcessPoolExecutor(max_workers=workers) as pool:
        return list(pool.map(task, range(1, replications + 1)))


def _replication(scenario: Scenario, spread: RunToRun | None, profile: Profile, number: int) -> dict[str, float]:
    drawn = draw(profile, scenario.seed, number, spread)
    again = scenario.model_copy(update={"seed": scenario.seed + number})
    summary = simulate(again, timed_by=drawn).summary()
    return {key: float(summary[key]) for key in KEYS if summary[key] is not None}


def summarize(values: Iterable[Mapping[str, float]], level: float) -> dict[str, list[float]]:
    """Return [low, high] of every metric that all replications have."""
    rows = list(values)
    shared = [key for key in KEYS if all(key in row for row in rows)]
    return {key: list(interval(np.array([row[key] for row in rows]), level, key)) for key in shared}


def interval(values: Any, level: float, key: str = "") -> Interval:
    """Return the interval of one more value like *values* (module text); *key* tells a share from other numbers."""
    count = len(values)
    factor = float(stats.t.ppf((1 + level) / 2, count - 1)) * math.sqrt(1 + 1 / count)
    if (values > 0).all() and key not in SHARES:
        logs = np.log(values)
        centre, half = float(logs.mean()), factor * float(logs.std(ddof=1))
        return math.exp(centre - half), math.exp(centre + half)
    centre, half = float(values.mean()), factor * float(values.std(ddof=1))
    return max(0.0, centre - half), min(centre + half, 1.0 if key in SHARES else math.inf)
