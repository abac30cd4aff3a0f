"""The load curve: how close each target comes to its limit, where the knee is, and what the server yields."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from apps.ui.figures.style import BLUE, GREEN, GREY, OCHRE, ORANGE, PINK, styled

if TYPE_CHECKING:
    from apps.planning.points import Point
    from apps.planning.slo import Slo

#: Percents that are named.
_TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]
_DASHES = ("solid", "dash", "dot", "dashdot")


def load_curve(
    points: Sequence[Point],
    slo: Slo,
    unit: str,
    *,
    capacity: float | None = None,
    interval: tuple[float, float] | None = None,
    asked: float | None = None,
) -> go.Figure:
    """Return two panels over the load: targets in percent of their limits (100 is the SLO), and output tokens/s.

    *capacity* and its *interval* are drawn as a line and a band, the load that is *asked* about as a thin line.
    """
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06, row_heights=[3, 1.7])
    loads = [point.load for point in points]
    for number, target in enumerate(slo.targets):
        shares = [100 * math.exp(point.scores[number]) for point in points]
        figure.add_scatter(
            x=loads, y=shares, name=str(target), mode="lines+markers", row=1, col=1,
            line={"color": (BLUE, OCHRE, PINK, GREEN)[number % 4], "width": 2, "dash": _DASHES[number % 4]},
            marker={"size": 8, "symbol": [_symbol(point) for point in points]},
            customdata=[_words(point, number) for point in points],
            hovertemplate="%{x:.4~g} " + unit + ": %{customdata}<extra>" + str(target) + "</extra>",
        )  # fmt: skip
    figure.add_hline(y=100, row=1, col=1, line={"color": ORANGE, "width": 2})
    figure.add_annotation(  # a logarithmic axis counts in powers of ten
        text="the SLO", x=0, xref="x domain", y=2, yref="y", xanchor="left", yanchor="bottom", showarrow=False
    )
    figure.add_scatter(
        x=loads, y=[point.metrics.get("output_throughput") for point in points], name="output tokens/s",
        mode="lines+markers", line={"color": GREEN, "width": 2}, marker={"size": 6}, row=2, col=1,
        hovertemplate="%{x:.4~g} " + unit + ": %{y:,.0f} tokens/s<extra></extra>",
    )  # fmt: skip
    _marks(figure, capacity, interval, asked)
    styled(figure, height=500)
    figure.update_yaxes(type="log", title_text="% of the limit", tickvals=_TICKS, row=1, col=1)
    figure.update_yaxes(title_text="output tokens/s", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title_text=f"load ({unit}); crosses: the server does not keep up", row=2, col=1)
    figure.update_xaxes(rangemode="tozero")
    return figure


def _symbol(point: Point) -> str:
    return "x" if not point.keeps_up else "circle" if point.holds else "circle-open"


def _words(point: Point, number: int) -> str:
    value, runs = point.values[number], len(point.runs)
    shown = f"{1e3 * value:,.4g} ms" if value > 1.0000001 or value < 1 else f"{value:.1%}"
    return f"{shown} ({runs} run{'s' if runs > 1 else ''})"


def _marks(
    figure: go.Figure, capacity: float | None, interval: tuple[float, float] | None, asked: float | None
) -> None:
    if interval is not None:
        figure.add_vrect(x0=interval[0], x1=interval[1], fillcolor="rgba(22,150,122,.15)", line_width=0, layer="below")
    if capacity is not None:
        figure.add_vline(
            x=capacity,
            line={"color": GREEN, "width": 2},
            annotation_text="capacity",
            row=1,
            col=1,
            annotation_position="bottom right",
        )
    if asked:
        figure.add_vline(
            x=asked, line={"color": GREY, "width": 1.5, "dash": "dot"}, annotation_text="asked", row=1, col=1,
            annotation_position="bottom left",
        )  # fmt: skip
