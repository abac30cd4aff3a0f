"""What a dashboard would show: requests running and waiting, KV cache, preemptions, tokens a second, over one axis."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from apps.ui.figures.style import BLUE, GREEN, OCHRE, ORANGE, PINK, styled

_PANELS = ("requests", "KV cache (%)", "preemptions / s", "tokens / s")


def timeline(rows: pd.DataFrame, interval_s: float, *, max_num_seqs: int | None = None) -> go.Figure:
    """Return four panels over seconds; *rows* as `simulator.timeline` names them, one every *interval_s* seconds."""
    figure = make_subplots(rows=4, cols=1, shared_xaxes=True, vertical_spacing=0.045, row_heights=[3, 2, 1.2, 2.2])
    time = rows["time_s"]
    preempted = np.diff(rows["vllm:num_preemptions"], prepend=0.0) / interval_s
    lines = (
        (1, "running", rows["vllm:num_requests_running"], BLUE, "solid", "%{y:,.0f} running"),
        (1, "waiting", rows["vllm:num_requests_waiting"], ORANGE, "dash", "%{y:,.0f} waiting"),
        (2, "KV cache in use", 100 * rows["vllm:kv_cache_usage_perc"], GREEN, "solid", "%{y:.1f} % of the KV cache"),
        (3, "preemptions", preempted, PINK, "solid", "%{y:.2f} preemptions a second"),
        (4, "generated", rows["generation_tokens_per_s"], BLUE, "solid", "%{y:,.0f} tokens generated a second"),
        (4, "prompt", rows["prompt_tokens_per_s"], OCHRE, "dot", "%{y:,.0f} prompt tokens a second"),
    )
    for row, name, values, colour, dash, hover in lines:
        figure.add_scatter(
            x=time, y=values, name=name, row=row, col=1, mode="lines",
            line={"color": colour, "width": 1.6, "dash": dash}, fill="tozeroy" if row in (2, 3) else None,
            hovertemplate=f"{hover} at %{{x:.4~g}} s<extra></extra>",
        )  # fmt: skip
    styled(figure, height=520)
    for row, title in enumerate(_PANELS, 1):
        figure.update_yaxes(title_text=title, rangemode="tozero", row=row, col=1, nticks=4)
    if max_num_seqs and float(rows["vllm:num_requests_running"].max()) > 0.6 * max_num_seqs:
        figure.add_hline(
            y=max_num_seqs, row=1, col=1, line={"color": ORANGE, "width": 1, "dash": "dot"},
            annotation_text=f"max_num_seqs {max_num_seqs}", annotation_position="top left",
        )  # fmt: skip
    figure.update_xaxes(title_text="seconds since the start", row=4, col=1)
    return figure
