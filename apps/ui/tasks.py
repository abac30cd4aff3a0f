"""What the worker processes do: the command line's own calls, scenario text in, plain small answers out.

Each function is at the top of this module so that it can be pickled, takes scenarios as JSON text (which is also the
key of the cache), and returns values that do not hold on to the whole simulation.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from apps.planning.limits import Limit, binding, state
from apps.planning.measure import STABILITY
from apps.planning.steady import Window, closed_window, open_window, whole
from simulator.scenario import Scenario
from simulator.simulate import profile_of, simulate
from simulator.workload import ConcurrencyWorkload, RateWorkload

if TYPE_CHECKING:
    import pandas as pd

    from apps.planning.capacity import Capacity
    from apps.planning.marginal import Marginal
    from simulator.result import Result

#: Rows of a timeline that a picture shows, and that a file holds.
_PICTURE_ROWS, _FILE_ROWS = 400, 100_000
#: Steps that a picture can be zoomed into.
_STEPS = 400_000
_STEP_COLUMNS = ("plan_s", "emit_s", "tokens", "decode_reqs", "running", "waiting", "preempted", "gpu_s", "mode")
#: Probabilities at which a distribution is drawn.
LEVELS = tuple(float(level) for level in np.unique(np.concatenate((np.linspace(0, 100, 201), [99.9, 99.99]))))
#: Intervals that read well on an axis, in seconds.
_NICE_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


@dataclass(frozen=True)
class Run:
    """One simulated run as the pages need it.

    Attributes
    ----------
    summary: `simulator.result.Result.summary`, to the last digit what ``servecast simulate --format json`` prints.
    requests: `simulator.result.Result.requests`.
    timeline: a row every ``interval_s`` seconds, for pictures; columns as in `simulator.timeline`.
    seconds: a row a second, as ``--timeline`` writes it; None for very long runs.
    steps: one row per engine step: seconds, tokens, requests; None for very many.
    keeps_up: whether an open loop's queue stays finite (`apps.planning.steady`).
    limit: what the server runs out of first (`apps.planning.limits`); None where nothing can be said.
    itl_ms: gaps between tokens in ms at the percentages `LEVELS`.
    limit_tokens: max_num_batched_tokens, for the axis of steps.
    """

    summary: dict[str, Any]
    requests: pd.DataFrame
    timeline: pd.DataFrame
    interval_s: float
    seconds: pd.DataFrame | None
    steps: pd.DataFrame | None
    itl_ms: np.ndarray[Any, np.dtype[np.float64]]
    limit_tokens: int
    max_num_seqs: int
    keeps_up: bool
    limit: Limit | None


def run(scenario: str) -> Run:
    """Return the plain answer to the scenario in this JSON text."""
    question = Scenario.from_json(scenario)
    result = simulate(question)
    when = _window(result, question)
    length_s = max(result.records.end_s - result.records.start_s, 1e-6)
    interval_s = next((each for each in _NICE_S if length_s / each <= _PICTURE_ROWS), length_s / _PICTURE_ROWS)
    return Run(
        summary=result.summary(),
        requests=result.requests,
        timeline=result.timeline_every(interval_s),
        interval_s=interval_s,
        seconds=result.timeline if length_s <= _FILE_ROWS else None,
        steps=_steps(result),
        itl_ms=1e3 * np.array(result.latencies.itl_s.percentiles(LEVELS)),
        limit_tokens=question.engine.max_num_batched_tokens,
        max_num_seqs=question.engine.max_num_seqs,
        keeps_up=when.keeps_up,
        limit=binding(state(question, result.records, profile_of(question), when), STABILITY),
    )


def _window(result: Result, question: Scenario) -> Window:
    """Return the part of the run that tells whether the server keeps up; a closed loop always does."""
    load = question.workload
    if isinstance(load, RateWorkload) and len(result.table):
        return open_window(result.records, result.table.arrival_s)
    if isinstance(load, ConcurrencyWorkload):
        return closed_window(result.records, load.concurrency)
    return whole(result.records)


def _steps(result: Result) -> pd.DataFrame | None:
    if result.records.num_steps > _STEPS:
        return None
    steps = result.steps
    return steps[[name for name in _STEP_COLUMNS if name in steps]]


def intervals(scenario: str, replications: int) -> dict[str, Any]:
    """Return the intervals of every metric, as ``servecast simulate --intervals`` has them."""
    from calibration.intervals import predict_with_intervals

    found = predict_with_intervals(Scenario.from_json(scenario), replications=replications).intervals
    return dict(found or {})


def summary(scenario: str, seed_offset: int) -> dict[str, Any]:
    """Return the summary of the scenario with another seed: one side of a pair of `apps.compare_command`."""
    question = Scenario.from_json(scenario)
    return simulate(question.model_copy(update={"seed": question.seed + seed_offset})).summary()


def measured(name: str, profile: str) -> dict[str, Any]:
    """Return one measured run beside its prediction, as ``servecast accuracy`` has it."""
    from calibration.accuracy import COMPARED, compare
    from simulator.measured import load_measured

    found = compare(load_measured(name), profile)
    return {
        "run": found.run.name,
        "workload": found.run.workload_text,
        "provenance": dict(found.run.provenance),
        "rows": [
            {
                "metric": title,
                "measured": found.measured[key],
                "predicted": found.predicted[key],
                "error_percent": found.error_percent(key),
            }
            for title, key in COMPARED
        ],
    }


def capacity(scenario: str, slo: str, draws: int, *, tell: Callable[[Any], None]) -> Capacity:
    """Return the highest load within the SLO, as ``servecast capacity`` finds it; progress is told after every run."""
    from apps.planning.capacity import Effort
    from apps.planning.capacity import capacity as search

    return search(Scenario.from_json(scenario), slo, effort=Effort(draws=draws), workers=1, watch=tell)


def changes(found: bytes) -> list[Marginal]:
    """Return what the nearest changes of flags would do to a capacity (pickled), as ``servecast capacity`` has them."""
    from apps.planning.marginal import marginals

    return marginals(pickle.loads(found), workers=1)


def explained(scenario: str) -> dict[str, Any]:
    """Return why requests waited, as ``servecast explain`` has it: ``words`` and ``ttft_parts_ms``."""
    from apps.explanation import explain

    return explain(Scenario.from_json(scenario), check=False).data()


def exported(scenario: str, name: str) -> str:
    """Return the file *name* of a simulated scenario, as ``servecast report`` writes it."""
    from apps.explanation import explain
    from apps.exports.bench_json import bench_json
    from apps.exports.chrome_trace import chrome_trace
    from apps.exports.prometheus import prometheus_text
    from apps.exports.report import as_html, as_markdown

    question = Scenario.from_json(scenario)
    result = simulate(question)
    writers: dict[str, Callable[[], str]] = {
        "report.html": lambda: as_html(result, explain(question, check=False)),
        "report.md": lambda: as_markdown(result, explain(question, check=False), None),
        "trace.json": lambda: json.dumps(chrome_trace(result), allow_nan=False) + "\n",
        "bench.json": lambda: json.dumps(bench_json(result), allow_nan=False) + "\n",
        "metrics.prom": lambda: prometheus_text(result),
    }
    return writers[name]()


def json_text(data: Any) -> str:
    """Return *data* as the command line writes it."""
    return json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def warm() -> None:
    """Import what the answers need, so that the first one does not wait for it."""
    import pandas  # noqa: F401
    import scipy.stats  # noqa: F401

    import calibration.intervals  # noqa: F401
