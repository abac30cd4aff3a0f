"""What a search found, in words and tables: counts, why some were left out, the Pareto frontier, the command to run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from apps.output import Table, emit, say

if TYPE_CHECKING:
    from apps.planning.evaluate import Question, Row
    from apps.planning.search import Goal
    from apps.planning.space import Space

#: Rows of the frontier in the table; all are in JSON and CSV.
_SHOWN = 12


def show(rows: list[Row], question: Question, space: Space, goal: Goal, format: Any) -> bool:
    """Write the answer; return whether anything holds."""
    from apps.planning.search import best_of

    best = best_of(rows, goal, question)
    counts = Counter(row["status"] for row in rows)
    wrong = [row for row in rows if row["slo_met"] is False and row["status"] == "ok"]
    lines = [f"{len(rows):,} of {len(space):,} configurations: " + ", ".join(f"{n:,} {s}" for s, n in counts.items())]
    if wrong:
        lines.append(f"{len(wrong):,} of the simulated ones miss {question.slo}")
    for status in ("does not fit", "refused", "failed"):
        first = next((row for row in rows if row["status"] == status), None)
        if first is not None:
            lines.append(f"{status}, e.g. {_words(first['config'])}: {first['reason']}")
    parts: list[Table | str] = ["\n".join(lines)]
    if best:
        praise = "Cheapest" if goal.objective == "cost" else "Most per GPU"
        parts += [_table(best[:_SHOWN], question, space, goal), f"{praise}:  {_next(question, best[0])}"]
    else:
        parts.append("Nothing holds" + (f" {question.slo}" if question.slo else ""))
    frontier = [row["config"] for row in best]
    flat = [
        {**row["config"], **{k: v for k, v in row.items() if k != "config"}, "frontier": row in best} for row in rows
    ]
    data = {"rows": rows, "frontier": frontier, "counts": dict(counts), "objective": goal.objective}
    emit(format, table=parts, data=data, rows=flat)
    if any(row["calibrated"] is False for row in best):
        say("warning: some of these are not calibrated (another GPU, model or way of running than the profile's)")
    for text in dict.fromkeys(_too_short(row, question) for row in best[:_SHOWN]):
        if text is not None:
            say(f"warning: {text}")
    return bool(best)


def _too_short(row: Row, question: Question) -> str | None:
    from apps.planning.load import is_recorded, requests_per_arrival
    from apps.planning.steady import too_short

    if question.mode != "capacity" or question.axis != "rate" or is_recorded(question.scenario):
        return None
    return too_short(row["load"] * requests_per_arrival(question.scenario), row["request_throughput"] or 0.0)


def _numbers(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "config"}


def _words(config: dict[str, Any]) -> str:
    from apps.planning.sweep_values import text_of

    return " ".join(f"{name}={text_of(value)}" for name, value in config.items())


def _table(best: list[Row], question: Question, space: Space, goal: Goal) -> Table:
    """Return the frontier: what varies, then the numbers."""
    from apps.planning.limits import TITLES
    from apps.planning.sweep_values import text_of

    varied = [name for name, values in space.axes.items() if len(values) > 1]
    latency = "worst target, share of its limit" if question.latency == "slo" else question.latency
    numbers: list[tuple[str, str, int]] = [("GPUs", "gpus", 0)]
    if question.mode == "capacity":
        numbers += [(f"capacity ({_unit(question)})", "load", 2), ("per GPU", "load_per_gpu", 2)]
    numbers += [("output tokens/s/GPU", "output_throughput_per_gpu", 0), (latency, "latency", 3 if question.slo else 1)]
    if question.prices:
        numbers.append(("US $/M output", "usd_per_million_output_tokens", 3))
    rows = [
        [
            *(text_of(row["config"][name]) for name in varied),
            *("-" if row[key] is None else f"{row[key]:,.{digits}f}" for _, key, digits in numbers),
            TITLES[row["limit"]] if row["limit"] else "",
        ]
        for row in best
    ]
    columns = [*varied, *(title for title, _, _ in numbers), "limit"]
    by = "cost" if goal.objective == "cost" else "throughput per GPU"
    return Table(columns, rows, title=f"Pareto frontier of {by} and {latency}", right=range(len(columns) - 1))


def _unit(question: Question) -> str:
    from apps.planning.load import unit_of

    return unit_of(question.scenario, question.axis)


def _next(question: Question, row: Row) -> str:
    """Return the command that starts the servers of *row*."""
    from apps.exports.commands import serve_command
    from apps.planning.evaluate import Task, prepared
    from apps.planning.variants import args_of

    ready = prepared(question, tuple(row["config"].items()), args_of(question.scenario))
    replicas, gpu = row["config"].get("replicas", 1), row["config"].get("gpu")
    line = serve_command(ready.server) if isinstance(ready, Task) else ""
    where = [f"on {gpu}"] * (gpu is not None) + [f"{replicas} of them"] * (replicas != 1)
    return f"{line}  ({', '.join(where)})" if where else line
