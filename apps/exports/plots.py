"""A simulated run as pictures, by matplotlib: PNG bytes and SVG text, the same for the same result.

    latencies   distributions of TTFT, TPOT and E2E latency over requests, p50 and p99 marked
    timeline    requests running and waiting, KV cache in use, tokens/s, by vLLM's metrics; preemptions marked
    requests    TTFT of each request by when it was sent
    ttft        the parts of TTFT: mean, slowest 1 %, one request (from an `apps.explanation.Explanation`)

Figures are made without pyplot, so nothing global is touched.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from apps.explanation import Explanation

BLUE, ORANGE, GREEN, GREY = "#0b6fb8", "#d1580a", "#2e8540", "#888888"
_STYLE: Any = {
    "font.family": "sans-serif", "font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "servecast",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
}  # fmt: skip
#: Points of a scatter; more make the file large and say nothing.
MAX_POINTS = 5000


def pictures(result: Result, explained: Explanation | None = None) -> dict[str, Callable[[], Figure]]:
    """Return what can be drawn, by name; *explained* adds the parts of TTFT.  Nothing is drawn before it is called."""
    found: dict[str, Callable[[], Figure]] = {
        "latencies": lambda: latencies(result),
        "timeline": lambda: timeline(result),
        "requests": lambda: requests(result),
    }
    if explained is not None:
        found["ttft"] = lambda: ttft_parts(explained.ttft_rows())
    return found


def svg(draw: Callable[[], Figure]) -> str:
    """Return the picture as an ``<svg>`` element, without an XML head."""
    text = io.StringIO()
    _save(draw, text, "svg")
    return re.sub(r"\A.*?(?=<svg )", "", text.getvalue(), flags=re.DOTALL)


def png(draw: Callable[[], Figure]) -> bytes:
    """Return the picture as PNG."""
    data = io.BytesIO()
    _save(draw, data, "png")
    return data.getvalue()


def _save(draw: Callable[[], Figure], target: io.StringIO | io.BytesIO, kind: str) -> None:
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        metadata = {"Date": None, "Creator": "servecast"} if kind == "svg" else {"Software": "servecast"}
        draw().savefig(target, format=kind, dpi=150, metadata=metadata)


def _figure(height: float, rows: int = 1, columns: int = 1, share_x: bool = False) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure as New

    figure = New(figsize=(9.6, height), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=share_x, squeeze=False)
    return figure, list(axes.ravel())


def latencies(result: Result) -> Figure:
    """Return the distributions over completed requests, in ms."""
    figure, axes = _figure(2.8, columns=3)
    seen = result.latencies
    named = (("TTFT", seen.ttft_s), ("TPOT", seen.tpot_s), ("E2E latency", seen.e2el_s))
    for axis, (name, seconds) in zip(axes, named, strict=True):
        values = np.sort(1e3 * seconds[~np.isnan(seconds)])
        axis.set(title=name, xlabel="ms", ylabel="% of requests below", ylim=(0, 101))
        if not len(values):
            continue
        shares = 100 * np.arange(1, len(values) + 1) / len(values)
        axis.plot(*_thinned(values, shares), color=BLUE, drawstyle="steps-post")
        for percent, style in ((50, ":"), (99, "--")):
            at = float(np.percentile(values, percent))
            axis.axvline(at, color=ORANGE, linestyle=style, linewidth=1, label=f"p{percent} {at:,.1f}")
        axis.legend(loc="lower right", fontsize=8, frameon=False)
        axis.set_xlim(left=0)
    return figure


def timeline(result: Result) -> Figure:
    """Return the state of the engine over time, one point a second (coarser for long runs, finer for short ones)."""
    records = result.records
    length_s = records.end_s - records.start_s
    table = result.timeline_every(max(length_s / 400, 1e-3))
    figure, axes = _figure(5.6, rows=3, share_x=True)
    time_s = table["time_s"]
    axes[0].plot(time_s, table["vllm:num_requests_running"], color=BLUE, label="running")
    axes[0].plot(time_s, table["vllm:num_requests_waiting"], color=ORANGE, label="waiting")
    axes[0].set(ylabel="requests")
    axes[1].plot(time_s, 100 * table["vllm:kv_cache_usage_perc"], color=GREEN, label="KV cache in use")
    axes[1].set(ylabel="%", ylim=(0, 101))
    steps = result.steps
    thrown_out = steps["plan_s"][steps["preempted"] > 0].to_numpy()
    if len(thrown_out):
        axes[1].plot(_thinned(thrown_out)[0], np.full(min(len(thrown_out), MAX_POINTS), 98), "|", color=ORANGE,
                     label=f"preemptions ({int(steps['preempted'].sum()):,})")  # fmt: skip
    rates = result.timeline_every(max(length_s / 400, min(1.0, length_s / 10), 1e-3))  # single prompts would be spikes
    axes[2].plot(rates["time_s"], rates["generation_tokens_per_s"], color=BLUE, label="generated")
    axes[2].plot(rates["time_s"], rates["prompt_tokens_per_s"], color=GREY, label="prompt")
    axes[2].set(ylabel="tokens/s", xlabel="s")
    for axis in axes:
        axis.legend(loc="upper right", fontsize=8, frameon=False)
        axis.set_xlim(left=0)
    for axis in (axes[0], axes[2]):
        axis.set_ylim(bottom=0)
    return figure


def requests(result: Result) -> Figure:
    """Return TTFT by time of sending; the colour is the length of the prompt."""
    figure, (axis,) = _figure(2.8)
    table = result.requests.dropna(subset=["ttft_s"])
    sent, ttft, prompt = (table[name].to_numpy() for name in ("sent_s", "ttft_s", "prompt_tokens"))
    at, values, colours = _thinned(sent, 1e3 * ttft, prompt)
    dots = axis.scatter(at, values, c=colours, s=8, cmap="viridis")
    figure.colorbar(dots, ax=axis, label="prompt tokens")
    axis.set(title="TTFT of each request", xlabel="sent at (s)", ylabel="ms")
    axis.set_ylim(bottom=0)
    return figure


def ttft_parts(rows: Mapping[str, Mapping[str, float]]) -> Figure:
    """Return stacked bars: ms by part, one bar a view; *rows* as `apps.explanation.Explanation.ttft_rows`."""
    figure, (axis,) = _figure(2.6)
    views = list(rows["TTFT"])
    left = np.zeros(len(views))
    for part, values in rows.items():
        widths = np.array([values[view] for view in views])
        if part == "TTFT" or not widths.any():
            continue
        axis.barh(views, widths, left=left, label=part.removesuffix(", so it admitted nobody"), height=0.6)
        left += widths
    axis.set(title="What TTFT is made of", xlabel="ms")
    axis.invert_yaxis()
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
    return figure


def _thinned(*columns: np.ndarray) -> list[np.ndarray]:
    """Return at most `MAX_POINTS` rows, evenly spread, the first and the last among them."""
    n = len(columns[0])
    kept = np.unique(np.linspace(0, n - 1, min(n, MAX_POINTS)).astype(np.int64)) if n else np.zeros(0, dtype=np.int64)
    return [column[kept] for column in columns]
