"""Where a GPU's memory goes: one stacked bar, the budget drawn as a line, what lies outside of it hatched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from apps.ui.figures.style import BLUE, GREEN, GREY, OCHRE, ORANGE, PINK, styled

GIB = 2**30
_STRIPES = "rgba(255,255,255,.6)"
_COLOURS = {
    "weights": BLUE, "activation": OCHRE, "non_torch": GREY, "cuda_graphs": PINK, "kv_cache": GREEN,
}  # fmt: skip
_NAMES = {
    "weights": "weights", "activation": "activation", "non_torch": "non-torch", "cuda_graphs": "CUDA graphs",
    "kv_cache": "KV cache",
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One piece of a bar: bytes, and whether it counts against gpu_memory_utilization."""

    name: str
    bytes: float
    inside: bool
    note: str = ""


def memory_bar(
    bars: Mapping[str, Sequence[Part]], *, visible: float, requested: float | None, missing: float = 0.0
) -> go.Figure:
    """Return the figure: a bar a source ("predicted", "logged"), sizes in GiB; *missing* bytes are drawn in red."""
    figure = go.Figure()
    shown: set[str] = set()
    for row, parts in bars.items():
        ordered = [part for part in parts if part.inside] + [part for part in parts if not part.inside]
        for part in ordered:
            _add(figure, row, part, shown)
    if missing > 0:
        first = next(iter(bars))
        figure.add_bar(
            y=[first], x=[missing / GIB], orientation="h", name="missing",
            marker={"color": ORANGE, "pattern": {"shape": "x", "fillmode": "overlay", "fgcolor": _STRIPES}},
            hovertemplate="missing for one request: %{x:.2f} GiB<extra></extra>",
        )  # fmt: skip
    _line(figure, visible / GIB, f"the GPU's {visible / GIB:.1f} GiB", "dot", "right", 16)
    if requested is not None:
        _line(figure, requested / GIB, f"budget {requested / GIB:.1f} GiB", "solid", "right", 1)
    figure.update_layout(barmode="stack")
    styled(figure, height=165 + 56 * len(bars))
    figure.update_layout(
        margin={"t": 42, "b": 70},
        legend={"y": -0.42, "yanchor": "top", "x": 0, "xanchor": "left", "traceorder": "normal"},
    )
    figure.update_xaxes(title_text="memory of one GPU (GiB)", rangemode="tozero")
    figure.update_yaxes(showgrid=False, autorange="reversed", showticklabels=len(bars) > 1)
    return figure


def _add(figure: go.Figure, row: str, part: Part, shown: set[str]) -> None:
    name = _NAMES.get(part.name, part.name) + ("" if part.inside else " (outside the budget)")
    size = part.bytes / GIB
    if size <= 0:
        return
    marker = {"color": _COLOURS.get(part.name, GREY), "line": {"width": 0.5, "color": "rgba(255,255,255,.7)"}}
    if not part.inside:
        marker["pattern"] = {"shape": "/", "fillmode": "overlay", "fgcolor": _STRIPES, "size": 6}
    note = f"<br>{part.note}" if part.note else ""
    figure.add_bar(
        y=[row], x=[size], orientation="h", name=name, legendgroup=name, showlegend=name not in shown, marker=marker,
        text=f"{size:.1f}", textposition="inside", insidetextanchor="middle", textfont={"color": "white"},
        hovertemplate=f"{name}: {size:.2f} GiB{note}<extra></extra>",
    )  # fmt: skip
    shown.add(name)


def _line(figure: go.Figure, x: float, text: str, dash: str, anchor: str, up: int) -> None:
    figure.add_vline(x=x, line={"color": GREY, "width": 2, "dash": dash})
    figure.add_annotation(
        x=x, y=1, yref="paper", text=text, showarrow=False, xanchor=anchor, yanchor="bottom", yshift=up,
        xshift=-3 if anchor == "right" else 3, font={"size": 12},
    )  # fmt: skip
