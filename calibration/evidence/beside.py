"""Predicted beside measured, for evidence of any tool: the same load through the simulated server, metric by metric.

Definitions are ours on both sides where the evidence holds requests, else the tool's own (its notes say so).  Metrics
the evidence does not hold are left out.  A validation with causes and a verdict is `calibration.validate`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibration.bars import METRICS, Judged
from calibration.evidence.evidence import Evidence
from simulator.errors import InputError
from simulator.result import Result
from simulator.scenario import Scenario
from simulator.simulate import simulate

SEEDS = 3


@dataclass(frozen=True, eq=False)
class Beside:
    """*rows*: what both sides know, in the order of `calibration.bars.METRICS`; *results*: one a seed."""

    evidence: Evidence
    results: tuple[Result, ...]
    rows: tuple[Judged, ...]


def beside(evidence: Evidence, scenario: Scenario, *, seeds: int = SEEDS) -> Beside:
    """Return *scenario*, whose workload is the evidence's, beside what was measured; mean of *seeds* simulations.

    Raises `InputError` if the evidence holds no load or no measurement.
    """
    if evidence.workload is None:
        raise InputError(f"{evidence.name}: holds no load that can be simulated: {evidence.no_workload}")
    if not any(key in evidence.metrics for _name, _title, key, _unit in METRICS):
        raise InputError(f"{evidence.name}: is a load without a measurement; use it with `servecast simulate`")
    asked = scenario.model_copy(update={"workload": evidence.workload})
    results = tuple(simulate(asked.model_copy(update={"seed": asked.seed + k})) for k in range(seeds))
    summaries = [result.summary() for result in results]
    rows = []
    for name, title, key, unit in METRICS:
        found = [summary[key] for summary in summaries]
        predicted = None if any(value is None for value in found) else float(np.mean(found))
        if key in evidence.metrics:
            rows.append(Judged(name, title, unit, predicted, evidence.metrics[key], None, None, None, None))
    return Beside(evidence, results, tuple(rows))
