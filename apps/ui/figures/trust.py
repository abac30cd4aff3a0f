"""How far to trust a profile: residuals by kind of step, the calibrated range with this question in it, errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from apps.ui.figures.style import BLUE, GREEN, GREY, OCHRE, ORANGE, styled

_CELLS = 3000


def residuals(kinds: Mapping[str, Any]) -> go.Figure:
    """Return median and 95th percentile of the absolute error of predicted step times, by kind of stretch."""
    names = list(kinds)
    figure = go.Figure()
    for title, field, colour in (
        ("median error", "median_percent", BLUE),
        ("95 % are within", "p95_percent", OCHRE),
        ("bias (signed)", "bias_percent", GREY),
    ):
        values = [getattr(kinds[name], field) for name in names]
        figure.add_bar(
            y=names, x=values, name=title, orientation="h", marker={"color": colour},
            hovertemplate="%{y}: %{x:.2f} %<extra>" + title + "</extra>",
        )  # fmt: skip
    styled(figure, height=90 + 62 * len(names))
    figure.update_xaxes(title_text="error of predicted GPU time (%)", ticksuffix=" %")
    figure.update_yaxes(autorange="reversed")
    return figure


def hull(steps: pd.DataFrame | None, tokens: int, decode_reqs: int) -> go.Figure:
    """Return the calibrated range as a rectangle of (tokens, decodes) a step, and this question's steps as dots."""
    figure = go.Figure()
    figure.add_shape(
        type="rect", x0=0.8, x1=max(tokens, 1), y0=0, y1=decode_reqs, line={"color": GREEN, "width": 2},
        fillcolor="rgba(22,150,122,0.13)", layer="below",
    )  # fmt: skip
    figure.add_scatter(
        x=[None], y=[None], mode="markers", name="calibrated",
        marker={"symbol": "square", "size": 12, "color": "rgba(22,150,122,0.35)"},
    )  # fmt: skip
    if steps is not None and len(steps):
        counted = steps.groupby(["tokens", "decode_reqs"], as_index=False).size().nlargest(_CELLS, "size")
        inside = (counted["tokens"] <= tokens) & (counted["decode_reqs"] <= decode_reqs)
        for name, chosen, colour in (("steps of this question", inside, BLUE), ("outside", ~inside, ORANGE)):
            part = counted[chosen]
            if part.empty:
                continue
            figure.add_scattergl(
                x=part["tokens"], y=part["decode_reqs"], mode="markers", name=name,
                marker={
                    "color": colour, "opacity": 0.6, "size": 3 + 2.2 * np.log10(part["size"]), "line": {"width": 0},
                },
                customdata=part["size"],
                hovertemplate="%{x:,} tokens, %{y} decodes: %{customdata:,} steps<extra></extra>",
            )  # fmt: skip
    styled(figure, height=330)
    figure.update_xaxes(type="log", title_text="tokens in a step")
    figure.update_yaxes(title_text="requests that decode", rangemode="tozero")
    return figure


def predicted_against_measured(rows: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Return signed errors in percent, a row a metric, a dot a measured run; the band is 10 %."""
    figure = go.Figure()
    figure.add_vrect(x0=-10, x1=10, fillcolor="rgba(22,150,122,0.13)", line_width=0, layer="below")
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    figure.add_scatter(
        x=[row["error_percent"] for row in rows], y=[row["metric"] for row in rows], mode="markers",
        marker={"color": BLUE, "size": 9, "opacity": 0.75}, customdata=[row["run"] for row in rows],
        hovertemplate="%{customdata}: %{y} %{x:+.1f} %<extra></extra>",
    )  # fmt: skip
    figure.add_vline(x=0, line={"color": GREY, "width": 1.5})
    styled(figure, height=110 + 26 * len(metrics), legend=False)
    figure.update_xaxes(title_text="predicted against measured (%)", ticksuffix=" %")
    figure.update_yaxes(categoryorder="array", categoryarray=metrics[::-1])
    return figure
