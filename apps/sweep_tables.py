"""A sweep as tables for people: one line a configuration, or one metric over two axes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from apps.output import Table
from apps.planning.sweep import Sweep
from apps.planning.sweep_run import BETWEEN, OK, Row
from apps.planning.sweep_summary import NUMBERS, Average
from apps.planning.sweep_values import text_of
from simulator.errors import InputError

#: Shown unless --metric says otherwise; the first ones where two axes make one table a metric.
SHOWN = ("p50_ttft_ms", "p99_ttft_ms", "p99_tpot_ms", "p99_e2el_ms", "output_throughput", "preemptions")
SHOWN_OVER_TWO = ("p99_ttft_ms", "p99_tpot_ms", "output_throughput")
_SLO = "slo met"
_REASON = 240
_WHOLE = ("completed", "failed", "dropped", "preemptions", "steps", "num_gpu_blocks", "kv_tokens", "recomputed_tokens")
_SHARES = ("prefix_cache_hit_rate", "kv_cache_usage_max", "kv_cache_usage_mean")


def check_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Return *names*; `InputError` for one that is no metric."""
    for name in names:
        if name not in NUMBERS:
            near = difflib.get_close_matches(name, NUMBERS, n=1, cutoff=0.4)
            fix = f"did you mean {near[0]}?" if near else f"take one of {', '.join(NUMBERS[:5])} ..."
            raise InputError(f"--metric {name[:60]}: is not measured; {fix}")
    return tuple(names)


def tables(sweep: Sweep, found: Sequence[Average], metrics: Sequence[str]) -> list[Table | str]:
    """Return what is shown of a sweep: by configuration, or over two axes; then why some gave no answer."""
    width = [len(dict.fromkeys(average.values[axis] for average in found)) for axis in sweep.axes]
    if len(sweep.axes) == 2 == len(sweep.vary) and min(width, default=0) > 1:
        names = [*(metrics or SHOWN_OVER_TWO), *([] if sweep.slo is None else [_SLO])]
        parts: list[Table | str] = [over_two(sweep, found, name) for name in names]
    else:
        parts = [by_configuration(sweep, found, metrics or SHOWN)]
    missing = reasons(found)
    return [*parts, missing] if missing else parts


def headline(rows: Sequence[Row]) -> str:
    """Return one line that says how many answers there are and how far to trust them."""
    answered = [row for row in rows if row["status"] == OK]
    guessed = sum(not row["calibrated"] for row in answered)
    marked = (
        f"; {guessed:,} of them NOT CALIBRATED: first answers" if guessed else ", all calibrated" if answered else ""
    )
    counted = "1 simulation" if len(rows) == 1 else f"{len(rows):,} simulations"
    return f"{counted}, {len(answered):,} answered{marked}"


def by_configuration(sweep: Sweep, found: Sequence[Average], metrics: Sequence[str]) -> Table:
    """Return one line a configuration; with several seeds the mean and half its 90 % interval."""
    slo = [_SLO] if sweep.slo is not None else []
    columns = [*sweep.axes, *metrics, *slo]
    rows = []
    for average in found:
        cells = [text_of(average.values[axis]) for axis in sweep.axes]
        if average.status == OK:
            cells += [_cell(average, name) for name in metrics]
        else:
            cells += [average.status, *[""] * (len(metrics) - 1)]
        rows.append([*cells, *[_met(average) for _ in slo]])
    return Table(columns=columns, rows=rows, title=_title(sweep), right=range(len(columns)))


def over_two(sweep: Sweep, found: Sequence[Average], metric: str) -> Table:
    """Return *metric* with the first axis down and the second across."""
    down, across = sweep.axes
    cells = {(average.values[down], average.values[across]): average for average in found}
    columns = list(dict.fromkeys(average.values[across] for average in found))
    rows = []
    for value in dict.fromkeys(average.values[down] for average in found):
        line = [cells.get((value, column)) for column in columns]
        rows.append([text_of(value), *["" if each is None else _cell(each, metric) for each in line]])
    head = [f"{down} \\ {across}", *map(text_of, columns)]
    return Table(columns=head, rows=rows, title=f"{metric}{_title(sweep, ': ')}", right=range(len(head)))


def reasons(found: Iterable[Average]) -> str:
    """Return, a line each, why configurations gave no answer."""
    why: dict[str, list[str]] = {}
    for average in found:
        if average.reason is not None:
            where = ", ".join(f"{axis} {text_of(value)}" for axis, value in average.values.items())
            why.setdefault(average.reason, []).append(where)
    lines = [f"no answer at {places[0]}{_more(len(places))}: {_cut(reason)}" for reason, places in why.items()]
    return "\n".join(lines)


def warnings(rows: Iterable[Row]) -> list[str]:
    """Return each warning of *rows* once, with the number of simulations it came with."""
    counts: dict[str, int] = {}
    answered = [row for row in rows if row["status"] == OK]
    for row in answered:
        for text in dict.fromkeys((row["warnings"] or "").split(BETWEEN)):
            counts[text] = counts.get(text, 0) + 1
    counts.pop("", None)
    return [
        text if count == len(answered) else f"{text} ({count} of {len(answered)})" for text, count in counts.items()
    ]


def _cut(reason: str) -> str:
    """The rows hold the whole of it."""
    return reason if len(reason) <= _REASON else reason[: _REASON - 3].rsplit(" ", 1)[0] + "..."


def _more(places: int) -> str:
    return f" and {places - 1} more" if places > 1 else ""


def _title(sweep: Sweep, before: str = "") -> str:
    seeds = sweep.replications
    return f"{before}mean of {seeds} seeds ± half its 90 % interval" if seeds > 1 else ""


def _cell(average: Average, name: str) -> str:
    if name == _SLO and average.status == OK:
        return _met(average)
    if name not in average.means:
        return average.status if average.status != OK else "-"
    digits = 0 if name in _WHOLE else 3 if name in _SHARES else 1 if average.means[name] >= 100 else 2
    half = average.halves[name]
    return f"{average.means[name]:,.{digits}f}" + (f" ±{half:,.{digits}f}" if half else "")


def _met(average: Average) -> str:
    if average.slo_met is None:
        return "-"
    if average.seeds == 1:
        return "yes" if average.slo_met else "no"
    return f"{average.slo_met} of {average.seeds}"
