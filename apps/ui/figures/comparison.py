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


#: Differences beyond this are read more easily as multiples.
_LARGE_PERCENT = 150


def differences(rows: Sequence[Mapping[str, Any]], *, noise_known: bool) -> go.Figure:
    """Return a dot a metric, in percent or multiples of A, whiskers for the interval; grey where it may be noise."""
    chosen = [row for key in DRAWN for row in rows if row["key"] == key and row["difference_percent"] is not None]
    times = any(abs(row["difference_percent"]) > _LARGE_PERCENT for row in chosen)
    figure = go.Figure()
    groups = {"real": (BLUE, "circle"), "noise": (GREY, "circle-open"), "equal": (GREY, "line-ns-open")}
    if not noise_known:
        groups = {"-": (ORANGE, "diamond")}
    for verdict, (colour, symbol) in groups.items():
        part = [row for row in chosen if row.get("verdict", "-") == verdict]
        if not part:
            continue
        shown = [_shown(row, noise_known, times) for row in part]
        values = [middle for middle, _low, _high in shown]
        figure.add_scatter(
            x=values, y=[row["metric"] for row in part], mode="markers",
            name={"real": "real difference", "noise": "may be noise", "-": "one run each"}.get(verdict, "equal"),
            marker={"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2, "color": colour}},
            error_x={
                "type": "data", "symmetric": False, "thickness": 2, "width": 4, "color": colour,
                "array": [high - middle for middle, _low, high in shown],
                "arrayminus": [middle - low for middle, low, _high in shown],
            },
            customdata=[row["difference_percent"] for row in part],
            hovertemplate="%{y}: %{customdata:+.1f} % in the run shown<extra></extra>",
        )  # fmt: skip
    figure.add_vline(x=1 if times else 0, line={"color": GREY, "width": 1.5})
    styled(figure, height=110 + 27 * len(chosen))
    figure.update_yaxes(
        categoryorder="array", categoryarray=[row["metric"] for row in reversed(chosen)], title_text=None
    )
    what = "mean of pairs with the same requests, 90 % interval" if noise_known else "one run each"
    if times:
        figure.update_xaxes(type="log", title_text=f"B as a multiple of A ({what})", ticksuffix=" ×")
    else:
        figure.update_xaxes(title_text=f"B against A, % of A ({what})", ticksuffix=" %")
    return figure


def _shown(row: Mapping[str, Any], noise_known: bool, times: bool) -> tuple[float, float, float]:
    """Return (middle, low, high) in percent of A, or as multiples of A."""
    if noise_known and row["low"] is not None:
        low, high = 100 * row["low"] / row["a"], 100 * row["high"] / row["a"]
        percents = ((low + high) / 2, low, high)
    else:
        percents = (row["difference_percent"],) * 3
    if not times:
        return percents
    middle, low, high = (max(0.01, 1 + percent / 100) for percent in percents)
    return middle, low, high
