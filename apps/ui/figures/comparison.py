"""B against A: the difference of every metric in percent, with the interval that tells it from noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from apps.ui.figures.style import BLUE, GREY, ORANGE, styled

#: Metrics that are drawn, in this order.
DRAWN = (
    "mean_ttft_ms", "p50_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms", "p99_itl_ms", "mean_e2el_ms",
    "p99_e2el_ms", "request_throughput", "output_throughput",
)  # fmt: skip


def differences(rows: Sequence[Mapping[str, Any]], *, noise_known: bool) -> go.Figure:
    """Return a dot a metric: percent of A, whiskers from ``low`` to ``high``; grey where it may be noise."""
    chosen = [row for key in DRAWN for row in rows if row["key"] == key and row["difference_percent"] is not None]
    figure = go.Figure()
    groups = {"real": (BLUE, "circle"), "noise": (GREY, "circle-open"), "equal": (GREY, "line-ns-open")}
    if not noise_known:
        groups = {"-": (ORANGE, "diamond")}
    for verdict, (colour, symbol) in groups.items():
        part = [row for row in chosen if row.get("verdict", "-") == verdict]
        if not part:
            continue
        values = [row["difference_percent"] for row in part]
        figure.add_scatter(
            x=values, y=[row["metric"] for row in part], mode="markers",
            name={"real": "real difference", "noise": "may be noise", "-": "one run each"}.get(verdict, "equal"),
            marker={"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2, "color": colour}},
            error_x=_whiskers(part, values, colour) if noise_known else None,
            hovertemplate="%{y}: %{x:+.1f} %<extra></extra>",
        )  # fmt: skip
    figure.add_vline(x=0, line={"color": GREY, "width": 1.5})
    styled(figure, height=110 + 27 * len(chosen))
    figure.update_yaxes(
        categoryorder="array", categoryarray=[row["metric"] for row in reversed(chosen)], title_text=None
    )
    figure.update_xaxes(title_text="B against A (% of A); left is less", ticksuffix=" %")
    return figure


def _whiskers(rows: Sequence[Mapping[str, Any]], values: Sequence[float], colour: str) -> dict[str, Any]:
    """Intervals as distances in percent of A; they are those of the mean difference of pairs."""
    low = [100 * row["low"] / row["a"] for row in rows]
    high = [100 * row["high"] / row["a"] for row in rows]
    return {
        "type": "data", "symmetric": False, "thickness": 2, "width": 4, "color": colour,
        "array": [max(0.0, top - value) for top, value in zip(high, values, strict=True)],
        "arrayminus": [max(0.0, value - bottom) for bottom, value in zip(low, values, strict=True)],
    }  # fmt: skip
