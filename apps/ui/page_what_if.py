"""What if?  What will users feel under this load: waiting, reading speed, whole answers, and what the engine does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from apps.ui import tasks, words
from apps.ui.answers import complete_question, plain_text, run_of, trust_badges, warnings_of
from apps.ui.downloads import downloads
from apps.ui.figures.latency import PERCENTILES, distribution, shares_of
from apps.ui.figures.strip import most_telling_window, strip
from apps.ui.figures.timeline import timeline
from apps.ui.look import answer, badges, chart, table
from apps.ui.state import ask
from apps.ui.tasks import LEVELS, Run
from apps.ui.waiting import until_done
from apps.ui.work import Job
from simulator.errors import ServecastError

REPLICATIONS = 20
_SHORT = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E latency"}
_TITLES = {"ttft": "Time to first token", "tpot": "Time per output token", "itl": "Inter-token latency",
           "e2el": "End-to-end latency"}  # fmt: skip
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def page() -> None:
    """Draw the page: the plain answer at once, its intervals when they are there."""
    found = complete_question("what_if")
    if found is None:
        return
    asked, scenario = found
    run = run_of(scenario, "what_if")
    if run is None:
        return
    short_of = run.limit.why if run.limit else "nothing in particular"
    kind, sentence, more = words.what_if(run.summary, words.load_words(asked), run.keeps_up, short_of)
    answer(kind, sentence, more)
    trust_badges(run.summary)
    why = ask("why", tasks.explained, scenario.to_json(None), lane="slow")
    job = ask("intervals", tasks.intervals, scenario.to_json(None), REPLICATIONS, lane="slow")
    pending = [each for each in (why, job) if not each.done()]  # of now: what is drawn below may lack them
    try:
        bands: Mapping[str, Any] = job.result() if job not in pending else {}
        told = ""
    except ServecastError as error:
        bands, told = {}, str(error)
    _latencies(run, bands)
    _numbers(run, bands, told)
    _engine(run, None if why in pending else why)
    warnings_of(run.summary)
    downloads(asked, scenario, run)
    if pending:
        until_done(pending, f"Intervals from {REPLICATIONS} more simulations")


def _latencies(run: Run, bands: Mapping[str, Any]) -> None:
    done = run.requests[run.requests["status"] == "finished"]
    for row in (("ttft", "e2el"), ("tpot", "itl")):
        for name, column in zip(row, st.columns(2), strict=True):
            with column:
                curve = (run.itl_ms, LEVELS) if name == "itl" else shares_of(1e3 * done[f"{name}_s"])
                found = {percent: bands[f"p{percent}_{name}_ms"] for percent in PERCENTILES
                         if f"p{percent}_{name}_ms" in bands}  # fmt: skip
                chart(distribution(_TITLES[name], {"predicted": curve}, bands=found, of=_of(name)), f"cdf_{name}")


def _of(name: str) -> str:
    return "gaps" if name == "itl" else "requests"


def _numbers(run: Run, bands: Mapping[str, Any], told: str) -> None:
    left, right = st.columns([8, 3])
    with left:
        st.markdown("##### Latencies (ms)")
        rows = [[_SHORT[name], *(_cell(run.summary, bands, statistic, name) for statistic in _STATISTICS)]
                for name in _TITLES]  # fmt: skip
        table(("", *_STATISTICS), rows, right=range(1, 6))
        st.caption(told or _interval_words(bands))
    with right:
        st.markdown("##### Server")
        table(("", "", ""), _totals(run), right=(1,))


def _interval_words(bands: Mapping[str, Any]) -> str:
    if not bands:
        return "The 90 % intervals are being computed; the numbers above stay as they are."
    return (
        f"Below each number: {100 * bands['level']:.0f} % interval of {bands['replications']} runs with profiles "
        f"and seeds drawn anew. It contains {', '.join(bands['contains'])}."
        + (f" Too narrow: it does not contain {', '.join(bands['lacks'])}." if bands.get("lacks") else "")
    )


def _cell(summary: Mapping[str, Any], bands: Mapping[str, Any], statistic: str, name: str) -> str:
    key = f"{statistic}_{name}_ms"
    text = words.plain(summary[key])
    if key in bands:
        low, high = bands[key]
        text += f"\n{words.three(low)}–{words.three(high)}"
    return text


def _totals(run: Run) -> list[list[str]]:
    summary = run.summary
    return [
        ["requests", words.plain(summary["request_throughput"]), "per s"],
        ["output tokens", words.plain(summary["output_throughput"], 1), "per s"],
        ["all tokens", words.plain(summary["total_token_throughput"], 1), "per s"],
        ["completed", f"{summary['completed']:,}", ""],
        ["failed", f"{summary['failed']:,}", ""],
        ["preemptions", f"{summary['preemptions']:,}", ""],
        ["KV cache, max", words.plain(100 * summary["kv_cache_usage_max"], 1), "%"],
        ["prefix cache hits", words.plain(100 * summary["prefix_cache_hit_rate"], 1), "%"],
        ["duration", words.plain(summary["duration_s"]), "s"],
    ]


def _engine(run: Run, why: Job | None) -> None:
    st.markdown("##### What the engine does")
    if run.limit is not None:
        badges(f"would run out first: {run.limit.title}")
        st.caption(f"{run.limit.why[:1].upper()}{run.limit.why[1:]}.")
    lines, requests, causes = st.tabs(["Timeline", "Requests and steps", "Why some wait"])
    with lines:
        chart(timeline(run.timeline, run.interval_s, max_num_seqs=run.max_num_seqs), "timeline")
    with requests:
        _strip(run)
    with causes:
        _why(why)


def _why(job: Job | None) -> None:
    """Show the parts of TTFT and what the slowest ones waited for."""
    if job is None:
        st.caption("Being looked into; the rest of the page stays as it is.")
        return
    try:
        found = job.result()
    except ServecastError as error:
        st.caption(str(error))
        return
    parts = found["ttft_parts_ms"]
    views = list(next(iter(parts.values())))
    rows = [[part, *(words.plain(values[view]) for view in views)] for part, values in parts.items()]
    table(("TTFT (ms)", *views), rows, right=range(1, len(views) + 1))
    for paragraph in found["words"]:
        st.caption(plain_text(paragraph))


def _strip(run: Run) -> None:
    end = max(float(run.summary["duration_s"]), 0.1)
    length = min(end, 6.0)
    start, stop = most_telling_window(run.requests, length)
    start = min(start, max(0.0, end - length))
    chosen = st.slider(
        "Window (seconds since the start)", 0.0, float(end), (float(start), float(min(stop, end))), key="strip_window",
        help="At first: around the request that waits longest for its first token. Zoom with the mouse.",
    )  # fmt: skip
    figure, left_out = strip(run.requests, run.steps, chosen[0], max(chosen[1], chosen[0] + 0.01), run.limit_tokens)
    chart(figure, "strip")
    if left_out:
        st.caption(left_out)
