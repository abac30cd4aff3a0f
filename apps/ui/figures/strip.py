"""A Gantt strip: what every request of a window did, and the engine steps below it, on one zoomable axis of seconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from apps.ui.figures.style import BLUE, GREY, OCHRE, ORANGE, PINK, styled

#: Rows and steps a browser draws without stutter.
MAX_REQUESTS, MAX_STEPS = 250, 4000


def most_telling_window(requests: pd.DataFrame, length_s: float) -> tuple[float, float]:
    """Return a window of about *length_s* seconds around the request that waited longest for its first token."""
    known = requests[np.isfinite(requests["ttft_s"])]
    if known.empty:
        return 0.0, length_s
    worst = known.loc[known["ttft_s"].idxmax()]
    start = max(0.0, float(worst["sent_s"]) - 0.25 * length_s)
    return start, start + length_s


def strip(
    requests: pd.DataFrame, steps: pd.DataFrame | None, start_s: float, end_s: float, limit_tokens: int
) -> tuple[go.Figure, str]:
    """Return the figure, and a sentence about what was left out (empty: nothing).

    *requests* and *steps* as `simulator.result.Result` has them; *limit_tokens* is max_num_batched_tokens.
    """
    inside = requests[(requests["sent_s"] < end_s) & (requests["last_token_s"].fillna(end_s) > start_s)]
    shown = inside.sort_values("sent_s").head(MAX_REQUESTS)
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.03, row_heights=[3, 1.3])
    rows = np.arange(len(shown))
    sent, scheduled, first, last = (
        shown[name].to_numpy(dtype=np.float64)
        for name in ("sent_s", "first_scheduled_s", "first_token_s", "last_token_s")
    )
    ends = np.where(np.isfinite(last), last, end_s)
    phases = (
        ("waits", sent, np.where(np.isfinite(scheduled), scheduled, ends), GREY),
        ("prefill", scheduled, np.where(np.isfinite(first), first, ends), ORANGE),
        ("decode", first, ends, BLUE),
    )
    words = _words(shown)
    for name, begin, end, colour in phases:
        _segments(figure, name, begin, end, rows, colour, words)
    thrown = shown["preemptions"].to_numpy() > 0
    if thrown.any():
        figure.add_scatter(
            x=first[thrown], y=rows[thrown], mode="markers", name="preempted", row=1, col=1,
            marker={"color": PINK, "symbol": "x", "size": 7}, text=[words[row] for row in rows[thrown]],
            hovertemplate="%{text}<extra>preempted</extra>",
        )  # fmt: skip
    left = len(inside) - len(shown)
    told = f"{left} more requests of this window are not drawn" if left else ""
    if steps is not None:
        told = _steps(figure, steps, start_s, end_s, limit_tokens) or told
    styled(figure, height=560)
    figure.update_yaxes(
        title_text="requests, by time sent", autorange="reversed", row=1, col=1, showgrid=False, nticks=5
    )
    figure.update_yaxes(title_text="tokens in a step", rangemode="tozero", row=2, col=1, nticks=4)
    figure.update_xaxes(range=[start_s, end_s], row=1, col=1)
    figure.update_xaxes(title_text="seconds since the start", range=[start_s, end_s], row=2, col=1)
    figure.update_layout(uirevision=f"{start_s}-{end_s}")
    return figure, told


def _words(shown: pd.DataFrame) -> list[str]:
    return [
        f"request {row['request']}: {row['prompt_tokens']:,} prompt, {row['output_tokens']:,} output tokens<br>"
        f"queue {1e3 * row['queue_s']:,.1f} ms, TTFT {1e3 * row['ttft_s']:,.1f} ms, "
        f"TPOT {1e3 * row['tpot_s']:,.2f} ms, E2E {row['e2el_s']:,.2f} s"
        + (f"<br>preempted {row['preemptions']} times" if row["preemptions"] else "")
        for row in shown.to_dict("records")
    ]


def _segments(
    figure: go.Figure, name: str, begin: np.ndarray, end: np.ndarray, rows: np.ndarray, colour: str,
    words: Sequence[str],
) -> None:  # fmt: skip
    """Draw one horizontal piece a row; a gap after each keeps them apart in a single, light trace."""
    known = np.isfinite(begin) & (end > begin)
    x = np.column_stack((begin[known], end[known], np.full(known.sum(), np.nan))).ravel()
    y = np.repeat(rows[known].astype(np.float64), 3)
    text = [word for row in rows[known] for word in (words[row],) * 3]
    figure.add_scattergl(
        x=x, y=y, mode="lines", name=name, line={"color": colour, "width": 4}, text=text, row=1, col=1,
        connectgaps=False, hovertemplate="%{text}<extra>" + name + "</extra>",
    )  # fmt: skip


def _steps(figure: go.Figure, steps: pd.DataFrame, start_s: float, end_s: float, limit_tokens: int) -> str:
    """Draw the tokens of each step as a staircase; return what was left out."""
    inside = steps[(steps["plan_s"] < end_s) & (steps["emit_s"] > start_s)]
    shown = inside.head(MAX_STEPS)
    prefill = (shown["tokens"] - shown["decode_reqs"]).to_numpy()
    length_ms = 1e3 * (shown["emit_s"] - shown["plan_s"]).to_numpy()
    for name, chosen, colour in (("decode step", prefill <= 0, BLUE), ("step with prefill", prefill > 0, OCHRE)):
        part = shown[chosen]
        x = np.column_stack((part["plan_s"], part["plan_s"], np.full(len(part), np.nan))).ravel()
        y = np.column_stack((np.zeros(len(part)), part["tokens"], np.full(len(part), np.nan))).ravel()
        text = [
            word
            for row, lasted in zip(part.itertuples(), length_ms[chosen], strict=True)
            for word in (f"{row.tokens:,} tokens, {row.decode_reqs} decodes, {lasted:.2f} ms",) * 3
        ]
        figure.add_scattergl(
            x=x, y=y, mode="lines", name=name, line={"color": colour, "width": 2}, text=text, row=2, col=1,
            connectgaps=False, hovertemplate="%{text}<extra>" + name + "</extra>",
        )  # fmt: skip
    if len(shown) and float(shown["tokens"].max()) > 0.5 * limit_tokens:
        figure.add_hline(
            y=limit_tokens, row=2, col=1, line={"color": PINK, "width": 1, "dash": "dot"},
            annotation_text=f"max_num_batched_tokens {limit_tokens:,}", annotation_position="top left",
        )  # fmt: skip
    left = len(inside) - len(shown)
    return f"{left:,} more steps of this window are not drawn; choose a shorter one" if left else ""
