"""What all figures share: colours that colour-blind people tell apart on light and on dark pages, margins, axes.

The colours are those of Okabe and Ito (2008), moved to a middle lightness so that each has a contrast of at least 3 to
1 on white and on near-black.  Where two curves meet, their dashes differ as well.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

BLUE, ORANGE, GREEN, PINK, OCHRE, GREY = (
    "#2f7fc1", "#d9622b", "#16967a", "#b765a5", "#b98300", "#8a8f98",
)  # fmt: skip
#: A and B of a comparison, predicted and measured.
SIDES = (BLUE, ORANGE)
GRID = "rgba(128,128,128,0.22)"
#: Options of every chart: zoom stays, what nobody needs goes.
CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
    "scrollZoom": False,
    "responsive": True,
}


def styled(figure: go.Figure, *, height: int, title: str = "", legend: bool = True) -> go.Figure:
    """Return *figure* with the house's margins, grid and legend; the page's theme gives font and background."""
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 12, "t": 34 if title or legend else 10, "b": 8},
        title={"text": title, "font": {"size": 14}, "x": 0, "xanchor": "left", "y": 0.985, "yanchor": "top"},
        showlegend=legend,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1, "xanchor": "right", "font": {"size": 12}},
        hovermode="closest",
        bargap=0.25,
        uirevision="keep",  # a new answer does not throw away the zoom
    )
    figure.update_xaxes(gridcolor=GRID, zeroline=False, automargin=True, title_standoff=6)
    figure.update_yaxes(gridcolor=GRID, zeroline=False, automargin=True, title_standoff=6)
    return figure
