"""A capacity in words and tables: the answer, the targets, what binds, what would move it, GPUs and dollars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from apps.output import Table

if TYPE_CHECKING:
    from apps.planning.capacity import Capacity
    from apps.planning.cost import Fleet, TokenPrices
    from apps.planning.marginal import Marginal
    from apps.planning.points import Point
    from apps.planning.prices import Price


def amount(found: Capacity, load: float) -> str:
    """Return *load* with the digits its axis deserves."""
    return f"{load:,.0f}" if found.axis != "rate" else f"{load:,.3g}" if load < 100 else f"{load:,.0f}"


def answer(found: Capacity) -> str:
    """Return the answer in a few lines: how much, how sure, what breaks first, and why."""
    marked = "" if found.is_calibrated else " (NOT CALIBRATED: a first answer)"
    if found.load is None:
        lowest = found.points[0]
        return (
            f"No load meets {found.slo}: {found.target} is missed even at {amount(found, lowest.load)} {found.unit}"
            + marked
            + (f"\nLimit:    {found.limit.title}: {found.limit.why}" if found.limit else "")
        )
    lines = [f"Capacity: {amount(found, found.load)} {found.unit} within {found.slo}"]
    if found.next_load is None:
        lines[0] = f"Capacity: at least {amount(found, found.load)} {found.unit}: nothing broke {found.slo} so far"
    lines[0] += marked
    if found.interval is not None:
        low, high = (amount(found, load) for load in found.interval)
        lacks = (
            "" if found.is_calibrated else "; TOO NARROW, how far an answer that is not calibrated is off is not in it"
        )
        lines.append(f"Interval: {low} to {high} (90 %: fitted times, hosts from run to run, chance{lacks})")
    between = found.undecided_between
    if between is not None and found.next_load is not None:
        low, high = (amount(found, load) for load in between)
        lines.append(f"Undecided: the replications do not tell whether loads between {low} and {high} hold")
    if found.next_load is not None:
        lines.append(f"Breaks:   {_title(found.target)}, at {amount(found, found.next_load)} {found.unit}")
    if found.limit is not None:
        lines.append(f"Limit:    {found.limit.title}: {found.limit.why}")
    return "\n".join(lines)


def _title(target: str) -> str:
    return "the server no longer keeps up (the queue grows)" if target == "stability" else target


def target_table(found: Capacity, point: Point) -> Table:
    """Return each target with its limit and what is predicted at the capacity, and the throughput there."""
    rows = []
    for target, value in zip(found.slo.targets, point.values, strict=True):
        limit, shown = (
            (f"{100 * target.share:g} %", f"{100 * value:,.1f} %")
            if target.kind == "goodput"
            else (f"{1e3 * target.limit_s:,.4g} ms", f"{1e3 * value:,.1f} ms")
        )
        rows.append([target.name, limit, shown])
    for title, key, digits in (
        ("requests/s", "request_throughput", 2),
        ("output tokens/s", "output_throughput", 0),
        ("total tokens/s", "total_token_throughput", 0),
    ):
        found_there = point.metrics[key]
        rows.append([title, "", "-" if found_there is None else f"{found_there:,.{digits}f}"])
    state = point.runs[0].state
    rows.append(["requests running, mean", "", f"{state.running:,.1f}"])
    rows.append(["KV cache usage, mean", "", f"{100 * state.kv_usage_mean:.1f} %"])
    title = f"at {amount(found, point.load)} {found.unit}"
    return Table(columns=[title, "limit", "predicted"], rows=rows, right=[1, 2])


def marginal_table(changes: Sequence[Marginal]) -> Table:
    """Return what each change of a flag would do."""
    return Table(columns=["change", "effect"], rows=[[each.change, each.effect] for each in changes])


def cost_table(price: Price, prices: TokenPrices) -> Table:
    """Return the price of tokens at the capacity."""
    rows = [
        ["GPU hour", f"{price.usd_per_gpu_hour:,.2f}"],
        ["million tokens, in and out alike", f"{prices.blended:,.3f}"],
        ["million output tokens, all cost on them", f"{prices.output_only:,.3f}"],
        [f"million input tokens (output {prices.output_to_input:g} times dearer)", f"{prices.input:,.3f}"],
        [f"million output tokens ({prices.output_to_input:g} times an input token)", f"{prices.output:,.3f}"],
    ]
    return Table(columns=[f"cost ({price.source})", "US $"], rows=rows, right=[1])


def fleet_table(found: Capacity, plan: Sequence[Fleet]) -> Table:
    """Return replicas, GPUs and dollars for the target load, by month if it grows."""
    rows = [
        [
            str(fleet.month),
            amount(found, fleet.load),
            f"{fleet.replicas:,}",
            f"{fleet.gpus:,}",
            f"{fleet.safe_gpus:,}",
            "-" if fleet.usd_per_month is None else f"{fleet.usd_per_month:,.0f}",
        ]
        for fleet in plan
    ]
    columns = ["month", found.unit, "replicas", "GPUs", "GPUs, safe", "US $ a month"]
    return Table(columns=columns, rows=rows, right=range(6))


def curve_rows(found: Capacity) -> list[dict[str, Any]]:
    """Return the load curve, one flat row a point."""
    rows = []
    for point in found.points:
        data = point.as_dict(found.slo)
        targets, metrics, state = (data.pop(name) for name in ("targets", "metrics", "state"))
        rows.append({**data, **{f"target_{name}": value for name, value in targets.items()}, **metrics, **state})
    return rows
