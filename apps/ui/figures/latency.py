"""Distributions of what users feel: the share of requests up to each latency, intervals at the percentiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from apps.ui.figures.style import GREY, ORANGE, SIDES, styled

PERCENTILES = (50, 90, 95, 99)


def distribution(
    title: str,
    curves: Mapping[str, tuple[Any, Any]],
    *,
    bands: Mapping[int, Sequence[float]] | None = None,
    limit_ms: float | None = None,
    of: str = "requests",
    height: int = 250,
) -> go.Figure:
    """Return cumulative shares.

    *curves*: by name, (latencies in ms, percent of requests up to them).  *bands*: by percentile, [low, high] in ms,
    the interval of a prediction, drawn as whiskers.  *limit_ms*: a target, drawn as a line.
    """
    figure = go.Figure()
    for number, (name, (values, shares)) in enumerate(curves.items()):
        figure.add_scatter(
            x=values, y=shares, mode="lines", name=name,
            line={"color": SIDES[number % 2], "width": 2, "dash": "solid" if number == 0 else "dash"},
            hovertemplate="%{y:.1f} % within %{x:.4~g} ms<extra>" + name + "</extra>",
        )  # fmt: skip
    if bands:
        _whiskers(figure, bands)
    if limit_ms:
        figure.add_vline(x=limit_ms, line={"color": ORANGE, "width": 1.5, "dash": "dot"})
    styled(figure, height=height, title=title, legend=len(curves) > 1)
    figure.update_xaxes(type="log", title_text="ms", **_ticks(curves))
    figure.update_yaxes(title_text=f"% of {of}", range=[0, 101], tickvals=[0, 25, 50, 75, 90, 99])
    return figure


def _whiskers(figure: go.Figure, bands: Mapping[int, Sequence[float]]) -> None:
    known = [(percent, low, high) for percent, (low, high) in sorted(bands.items())]
    middle = [float(np.sqrt(low * high)) if low > 0 else (low + high) / 2 for _percent, low, high in known]
    figure.add_scatter(
        x=middle, y=[percent for percent, _low, _high in known], mode="markers", name="90 % interval",
        marker={"color": GREY, "size": 1},
        error_x={
            "type": "data", "symmetric": False, "color": GREY, "thickness": 3, "width": 5,
            "array": [high - at for (_p, _l, high), at in zip(known, middle, strict=True)],
            "arrayminus": [at - low for (_p, low, _h), at in zip(known, middle, strict=True)],
        },
        hovertemplate=[f"p{percent}: {low:,.1f} to {high:,.1f} ms, 90 % interval<extra></extra>"
                       for percent, low, high in known],
    )  # fmt: skip


def _ticks(curves: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Return round numbers for a logarithmic axis: 1, 2, 5, ... of each decade, 1, 1.5, 2, 3, ... of a short one."""
    found = [np.asarray(values, dtype=np.float64) for values, _shares in curves.values()]
    values = np.concatenate([*found, np.zeros(0)])
    values = values[values > 0]
    if not len(values):
        return {}
    low, high = float(values.min()), float(values.max())
    steps = (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9) if high < 5 * low else (1, 2, 5) if high < 500 * low else (1,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return {"tickvals": ticks, "ticktext": [f"{tick:,.6g}" for tick in ticks]}


def shares_of(values_ms: Any) -> tuple[list[float], list[float]]:
    """Return (sorted latencies, percent of requests up to each), thinned to at most 400 points."""
    values = np.sort(np.asarray(values_ms, dtype=np.float64))
    values = values[np.isfinite(values)]
    if not len(values):
        return [], []
    shares = 100 * np.arange(1, len(values) + 1) / len(values)
    if len(values) > 400:
        spread, tail = np.linspace(0, len(values) - 1, 380).astype(int), np.arange(-20, 0) + len(values)
        kept = np.unique(np.concatenate((spread, tail)))
        values, shares = values[kept], shares[kept]
    return values.tolist(), shares.tolist()
