"""Predicted against measured, for runs that no profile was fitted on.

Each measured run is sent again to a simulated server that was started with the same command: same requests, same send
times (or the same number of closed-loop clients).  Errors are signed: 100 * (predicted / measured - 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.errors import InputError
from simulator.measured import MeasuredRun
from simulator.scenario import Scenario
from simulator.simulate import simulate

#: Title and key of what is compared: the metrics an accuracy statement is made of.
COMPARED = (
    ("TTFT mean", "mean_ttft_ms"),
    ("TTFT p50", "p50_ttft_ms"),
    ("TTFT p99", "p99_ttft_ms"),
    ("TPOT mean", "mean_tpot_ms"),
    ("ITL p99", "p99_itl_ms"),
    ("E2E mean", "mean_e2el_ms"),
    ("E2E p99", "p99_e2el_ms"),
    ("output tokens/s", "output_throughput"),
)


@dataclass(frozen=True)
class Comparison:
    """One run: what was measured, and what several seeds of the simulation predicted (mean over them)."""

    run: MeasuredRun
    measured: dict[str, float]
    predicted: dict[str, float]

    def error_percent(self, key: str) -> float:
        """Return the signed error of one metric in % of the measured value."""
        return 100 * (self.predicted[key] / self.measured[key] - 1)


def scenario_of(run: MeasuredRun, profile: str, seed: int = 0) -> Scenario:
    """Return the scenario of a measured run; `InputError` if it does not say how its server was started."""
    command = run.provenance.get("command")
    if command is None:
        raise InputError(f"{run.name}: does not say how its server was started (provenance.command); add it")
    return Scenario.from_command(command, profile=profile, workload=run.replay(), seed=seed)


def predict_again(run: MeasuredRun, profile: str, seed: int = 0) -> tuple[Scenario, dict[str, Any]]:
    """Return the scenario of a measured run and the summary of its simulation; `InputError` without its command."""
    scenario = scenario_of(run, profile, seed)
    return scenario, simulate(scenario).summary()


@dataclass(frozen=True)
class Coverage:
    """How many of a run's metrics lie in their intervals, and which do not."""

    inside: int
    outside: tuple[str, ...]

    @property
    def count(self) -> int:
        """Metrics looked at."""
        return self.inside + len(self.outside)


def coverage(run: MeasuredRun, profile: str, replications: int, workers: int = 1) -> Coverage:
    """Return which latencies (mean and percentiles) and request throughput of *run* lie in their 90 % interval."""
    from calibration.intervals import LEVEL, replicated, summarize

    intervals = summarize(replicated(scenario_of(run, profile, 0), replications, workers), LEVEL)
    measured = run.summary()
    asked = [key for key in intervals if key.endswith("_ms") or key == "request_throughput"]
    outside = tuple(key for key in asked if not intervals[key][0] <= measured[key] <= intervals[key][1])
    return Coverage(len(asked) - len(outside), outside)


def compare(run: MeasuredRun, profile: str, seeds: Iterable[int] = range(3)) -> Comparison:
    """Predict *run* with *profile* once per seed and average each metric."""
    predicted = [predict_again(run, profile, seed)[1] for seed in seeds]
    keys = [key for _title, key in COMPARED]
    return Comparison(
        run=run,
        measured={key: float(run.summary()[key]) for key in keys},
        predicted={key: float(np.mean([summary[key] for summary in predicted])) for key in keys},
    )
