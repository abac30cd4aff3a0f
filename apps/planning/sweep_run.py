"""A sweep, simulated: one row for each configuration and seed, also for those that give no answer.

A row is flat: what was asked (`Sweep.question`), ``status``, ``reason``, then `METRICS` under the names of
``docs/schemas.md``.  The status of an answer is ``ok``; else it says why there is none, and metrics are None:

    does not fit    vLLM would not start: memory
    refused         vLLM would refuse the settings
    not covered     valid, but not simulated
    no answer       no request was completed, or the engine died
    out of time     took longer than the limit
    bad input       a value, a name or a file that is not what it should be
    error           a worker was lost, or a bug
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from apps.planning.progress import Progress
from apps.planning.runs import Failure, Workers, run_many
from apps.planning.sweep import Point, Sweep
from apps.planning.time_limit import time_limit

if TYPE_CHECKING:
    from simulator.result import Result

Row = dict[str, Any]

OK = "ok"
DOES_NOT_FIT = "does not fit"
OUT_OF_TIME = "out of time"
#: What may go better another time: worth another attempt when a sweep goes on.
PASSING = (OUT_OF_TIME, "error")
_STATUS = {
    "DoesNotFitError": DOES_NOT_FIT,
    "ConfigError": "refused",
    "UnsupportedError": "not covered",
    "EngineDiedError": "no answer",
    "InputError": "bad input",
    "OutOfTimeError": OUT_OF_TIME,
}

_LATENCY_METRICS = tuple(
    f"{statistic}_{latency}_ms"
    for latency in ("ttft", "tpot", "itl", "e2el")
    for statistic in ("mean", "p50", "p90", "p95", "p99")
)
_TOTALS = (
    "request_throughput", "output_throughput", "total_token_throughput", "duration_s", "completed", "failed", "dropped",
    "total_input_tokens", "total_output_tokens", "preemptions", "recomputed_tokens", "prefix_cache_hit_rate",
    "kv_cache_usage_max", "kv_cache_usage_mean", "steps",
)  # fmt: skip
_MEMORY = ("num_gpu_blocks", "kv_tokens")

METRICS = (*_LATENCY_METRICS, *_TOTALS, *_MEMORY, "slo_met", "calibrated", "warnings")

#: Stands between two warnings of a row; none holds it.
BETWEEN = " | "


@dataclass(frozen=True)
class _Task:
    sweep: Sweep
    point: Point
    limit_s: float | None


def run_sweep(
    sweep: Sweep,
    *,
    skip: frozenset[int] = frozenset(),
    time_limit_s: float | None = None,
    workers: Workers = None,
    progress: Progress = None,
) -> Iterator[tuple[Point, Row]]:
    """Yield (point, row) as they come, of all points whose index is not in *skip*.

    *time_limit_s* is the wall time one simulation may take; the rest as for `apps.planning.runs.run_many`.
    """
    points = [point for point in sweep.points() if point.index not in skip]
    tasks = [_Task(sweep, point, time_limit_s) for point in points]
    found = run_many(_metrics, tasks, workers=workers, progress=progress)
    for index, answer in found:
        if isinstance(answer, Failure):
            answer = _failed(answer, time_limit_s)
        yield points[index], row_of(sweep, points[index], answer)


def row_of(sweep: Sweep, point: Point, answer: Mapping[str, Any]) -> Row:
    """Return the row of *point*: every column is there, in one order."""
    return sweep.question(point) | dict.fromkeys(("status", "reason", *METRICS)) | dict(answer)


def _failed(failure: Failure, limit_s: float | None) -> Row:
    status = _STATUS.get(failure.kind, "error")
    reason = f"not done in {limit_s:g} s; allow more with --time-limit" if status == OUT_OF_TIME else str(failure)
    return {"status": status, "reason": reason}


def _metrics(task: _Task) -> Row:
    from simulator.simulate import simulate

    scenario = task.sweep.scenario(task.point)
    with time_limit(task.limit_s):
        result = simulate(scenario)
        summary = result.summary()
    if summary["engine_died"] or not summary["completed"]:
        return {"status": "no answer", "reason": summary["engine_died"] or _why_none(summary["warnings"])}
    row = {name: summary[name] for name in (*_LATENCY_METRICS, *_TOTALS)}
    row |= {name: summary["memory"][name] for name in _MEMORY}
    row["slo_met"] = _slo_met(task.sweep.slo, result)
    row["calibrated"] = summary["provenance"]["calibrated"]
    row["warnings"] = BETWEEN.join(summary["warnings"]) or None
    return {"status": OK, **row}


def _why_none(warnings: list[str]) -> str:
    return "; ".join(warnings) or "no request was completed"


def _slo_met(slo: str | None, result: Result) -> bool | None:
    if slo is None:
        return None
    from apps.planning.slo import Slo

    wanted, summary = Slo.parse(slo), result.summary()
    values = wanted.values(result.latencies, summary["failed"])
    return max(wanted.scores(values, summary["completed"] + summary["failed"])) <= 0
