"""Numbers and answers in words: what a page says before it draws.  Plain data in, sentences out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from simulator.memory import MemoryPlan, gib

#: What an answer is: it looks and sounds so.
Kind = Literal["yes", "no", "careful", "plain"]


def ms(value: float | None) -> str:
    """Return milliseconds as people say them: 6.3 ms, 115 ms, 1.56 s, 2 min 5 s."""
    if value is None or not math.isfinite(value):
        return "no value"
    if value < 9.95:
        return f"{value:.1f} ms"
    if value < 999.5:
        return f"{value:.0f} ms"
    if value < 99_950:
        return f"{value / 1e3:.3g} s"
    minutes, seconds = divmod(round(value / 1e3), 60)
    return f"{minutes} min {seconds} s"


def plain(value: float | None, digits: int = 2) -> str:
    """Return a number as the command line's tables print it; a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def three(value: float) -> str:
    """Return a number with three digits that count: the end of an interval is not known better."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{round(value, 2 - math.floor(math.log10(abs(value)))):,.{digits}f}"


def rate(value: float) -> str:
    """Return requests a second."""
    return "all at once" if math.isinf(value) else f"{value:.4g} requests/s"


def fits(plan: MemoryPlan) -> tuple[str, str]:
    """Return the answer to "does it fit?" and what to say beside it."""
    model = plan.model.rsplit("/", 1)[-1]
    cards = f"{plan.tensor_parallel_size} × {plan.gpu}" if plan.tensor_parallel_size > 1 else f"one {plan.gpu}"
    if plan.fits:
        return (
            f"**{model} fits on {cards}**: {plan.kv_tokens:,} tokens of KV cache are left, enough for "
            f"**{plan.max_concurrency:.1f} requests** of {plan.max_model_len:,} tokens at a time.",
            "",
        )
    first = plan.fixes[0] if plan.fixes else None
    fix = f" Cheapest fix: **{first.flags}** ({first.cost})." if first else " No single flag makes it fit."
    return f"**{model} does not fit on {cards}**: vLLM would refuse to start.{fix}", plan.refusal or ""


def fits_numbers(plan: MemoryPlan) -> list[tuple[str, str]]:
    """Return the numbers below the picture: title, value."""
    return [
        ("KV cache", f"{gib(max(0, plan.available_kv_bytes))} GiB"),
        ("KV tokens", f"{plan.kv_tokens:,}"),
        ("blocks", f"{plan.num_gpu_blocks:,} of {plan.block_size} tokens"),
        ("concurrency", f"{plan.max_concurrency:.2f}x of {plan.max_model_len:,}"),
        ("longest max_model_len", f"{plan.largest_max_model_len:,}" if plan.largest_max_model_len else "none starts"),
    ]


def what_if(summary: Mapping[str, Any], load: str, keeps_up: bool, why: str) -> tuple[Kind, str, str]:
    """Return (kind, answer, more) of "what will users feel?"."""
    if summary["engine_died"]:
        return "no", f"**The engine does not survive this load**: {summary['engine_died']}", ""
    if not summary["completed"]:
        return "no", f"**No request is answered** {load}.", "; ".join(summary["warnings"])
    speed = summary["mean_tpot_ms"]
    reads = f", then reads **{1e3 / speed:,.0f} tokens/s** ({ms(speed)} a token)" if speed else ""
    felt = (
        f"a user waits **{ms(summary['median_ttft_ms'])}** for the first token "
        f"(99 % less than {ms(summary['p99_ttft_ms'])}){reads}; "
        f"an answer is complete after {ms(summary['median_e2el_ms'])}."
    )
    if not keeps_up:
        return (
            "no",
            f"**The server does not keep up** {load}: the queue grows as long as requests come, so waiting times only "
            "show how long this run is.",
            f"It serves {summary['request_throughput']:.3g} requests/s. What it runs out of: {why}.",
        )
    if summary["preemptions"]:
        share = summary["preemptions"] / summary["completed"]
        return (
            "careful",
            f"{load.capitalize()} {felt}",
            f"The KV cache runs full: {summary['preemptions']:,} preemptions ({share:.2f} a request), "
            f"{summary['recomputed_tokens']:,} tokens computed again.",
        )
    return "yes", f"{load.capitalize()} {felt}", ""


def load_words(question: Any) -> str:
    """Return the load as it stands in a sentence: "at 12 requests/s"."""
    if question.scenario_json:
        return "under the load of your scenario"
    if question.load == "rate":
        return "with everything sent at once" if math.isinf(question.rate) else f"at {rate(question.rate)}"
    if question.load == "concurrency":
        return f"with {question.concurrency} clients"
    if question.load == "trace":
        times = "" if question.rate_scale == 1 else f", {question.rate_scale:g} times as fast"
        return f"under the trace {question.trace}{times}"
    return "under the requests of your file"


def _change(percent: float) -> str:
    """Return a change as people say it: percent, or how many times as much."""
    return f"{percent:+.1f} %" if percent < 300 else f"× {1 + percent / 100:.3g}"


def compared(rows: list[dict[str, Any]], noise_known: bool) -> tuple[Kind, str, str]:
    """Return (kind, answer, more) of "which is better, and is that real?"."""
    by_key = {row["key"]: row for row in rows}
    told, real = [], 0
    for key, name, less_is_better in (
        ("p50_ttft_ms", "TTFT p50", True),
        ("mean_tpot_ms", "TPOT", True),
        ("p99_e2el_ms", "E2E p99", True),
        ("output_throughput", "output tokens/s", False),
    ):
        row = by_key.get(key)
        if row is None or row["difference_percent"] is None:
            continue
        percent = row["difference_percent"]
        verdict = row.get("verdict", "-")
        if verdict == "equal" or abs(percent) < 0.05:
            told.append(f"{name} the same")
            continue
        better = (percent < 0) == less_is_better
        sure = {"real": "", "noise": ", may be noise"}.get(verdict, "")
        real += verdict == "real"
        told.append(f"{name} **{_change(percent)}** ({'better' if better else 'worse'}{sure})")
    if not told:
        return "plain", "There is nothing to compare: one side answered no request.", ""
    if not noise_known:
        return "plain", f"B against A: {', '.join(told)}.", "One run each: more seeds tell real differences from noise."
    if not real:
        return "plain", f"B against A: {', '.join(told)}.", "Nothing of this is more than noise between seeds."
    return "plain", f"B against A: {', '.join(told)}.", ""
