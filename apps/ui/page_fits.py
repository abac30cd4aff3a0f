"""Fits?  Does the model fit on this GPU, and how many tokens of KV cache are left?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from apps.ui import words
from apps.ui.figures.memory import Part, memory_bar
from apps.ui.look import answer, badges, chart, problem, table
from apps.ui.pasted import logged
from apps.ui.question import Question, engine_of, server_of
from apps.ui.state import keep, kept, question
from simulator import catalogue
from simulator.errors import ServecastError
from simulator.logged_memory import LoggedMemory, memory_from_log
from simulator.memory import MemoryPlan, plan_memory

if TYPE_CHECKING:
    from simulator.startup_log import StartupLog


@st.cache_data(max_entries=64, show_spinner=False)
def plan_of(asked: str) -> MemoryPlan:
    """Return the plan for a question in JSON, as ``servecast memory`` makes it."""
    from apps.ui.question import check

    parsed = Question.model_validate_json(asked)
    if parsed.scenario_json:
        scenario = check(parsed).scenario
        assert scenario is not None
        return plan_memory(scenario.engine, scenario.model, scenario.gpu, gpus=_gpus())
    model, gpu = server_of(parsed)
    return plan_memory(engine_of(parsed), model, gpu, gpus=_gpus())


def _gpus() -> list:  # type: ignore[type-arg]
    return [catalogue.gpu(name) for name in catalogue.gpu_names()]


def page() -> None:
    """Draw the page."""
    asked = question()
    try:
        plan = plan_of(_server_part(asked).model_dump_json())
        keep("fits", plan)
    except (ServecastError, AssertionError) as error:
        plan = kept("fits")
        if plan is None:
            answer("plain", "Give a server on the left: paste a `vllm serve` line or a start-up log, or pick a model.")
            problem(str(error))
            return
        problem(f"{error} Below: the last server that could be read.")
    found = logged(asked.log)
    sentence, more = words.fits(plan)
    answer("yes" if plan.fits else "no", sentence, more)
    _badges(plan)
    _picture(plan, found)
    if not plan.fits:
        _fixes(plan)
    _numbers(plan)
    if found is not None:
        _log_table(plan, found)


def _server_part(asked: Question) -> Question:
    """Return the question without its load, which the memory does not depend on."""
    names = ("server", "gpu", "profile", "vllm_version", "config_json", "scenario_json")
    return Question(**{name: getattr(asked, name) for name in names})


def _badges(plan: MemoryPlan) -> None:
    ranks = f"TP {plan.tensor_parallel_size}" if plan.tensor_parallel_size > 1 else ""
    notes = [(note, True) for note in plan.notes]
    badges(f"vLLM {plan.vllm_version}", plan.gpu, ranks, f"gpu_memory_utilization {plan.gpu_memory_utilization:g}",
           *notes)  # fmt: skip


def _picture(plan: MemoryPlan, log: StartupLog | None) -> None:
    bars = {"predicted": [Part(term.name, term.bytes, term.inside_budget, term.source) for term in plan.terms]}
    if plan.num_gpu_blocks and not any(part.name == "kv_cache" for part in bars["predicted"]):
        bars["predicted"].append(Part("kv_cache", max(0, plan.available_kv_bytes), True, f"{plan.kv_tokens:,} tokens"))
    missing = 0.0
    if not plan.fits:
        blocks = -(-plan.max_model_len // plan.block_size)
        missing = max(0.0, blocks * plan.bytes_per_block - plan.available_kv_bytes)
    if log is not None:
        terms = memory_from_log(log).terms
        if terms:
            bars["logged"] = [Part(term.name, term.bytes, term.inside_budget, "from your log") for term in terms]
    chart(memory_bar(bars, visible=plan.visible_bytes, requested=plan.requested_bytes, missing=missing), "memory")


def _fixes(plan: MemoryPlan) -> None:
    st.markdown("##### What would help, cheapest first")
    if not plan.fixes:
        st.caption("No single change was found that makes it start: take a larger GPU, or more of them.")
        return
    rows = [
        [fix.flags, fix.cost, f"{fix.kv_tokens:,}", f"{fix.max_concurrency:.2f}x of {fix.max_model_len:,}"]
        for fix in plan.fixes
    ]
    table(("change", "costs", "KV tokens", "concurrency"), rows, right=(2, 3), wrap=(1,))


def _numbers(plan: MemoryPlan) -> None:
    left, right = st.columns([3, 2])
    with left:
        st.markdown("##### Where the memory goes")
        rows = [
            [term.label, f"{term.bytes / 2**30:.2f}", "inside" if term.inside_budget else "outside", term.source]
            for term in plan.terms
        ]
        share = f"{plan.visible_bytes / 2**30:.2f} GiB x {plan.gpu_memory_utilization:g}"
        rows.insert(0, ["requested", f"{plan.requested_bytes / 2**30:.2f}", "", share])
        table(("memory", "GiB", "budget", "from"), rows, right=(1,), wrap=(3,))
    with right:
        st.markdown("##### What is left")
        table(("", ""), [list(pair) for pair in words.fits_numbers(plan)], right=(1,))


def _log_table(plan: MemoryPlan, log: StartupLog) -> None:
    seen: LoggedMemory = memory_from_log(log)
    st.markdown("##### Predicted beside your log")
    predicted = {term.name: term.bytes / 2**30 for term in plan.terms}
    rows = []
    for term in seen.terms:
        size, guess = term.bytes / 2**30, predicted.get(term.name)
        rows.append([
            term.label, f"{size:.2f}", "" if guess is None else f"{guess:.2f}",
            "" if not guess or not size else f"{100 * (guess / size - 1):+.1f}",
        ])  # fmt: skip
    if seen.kv_tokens:
        error = f"{100 * (plan.kv_tokens / seen.kv_tokens - 1):+.1f}"
        rows.append(["KV cache (tokens)", f"{seen.kv_tokens:,}", f"{plan.kv_tokens:,}", error])
    table(("memory (GiB)", "logged", "predicted", "error %"), rows, right=(1, 2, 3))
    if seen.refusal:
        problem(f"vLLM did not start: {seen.refusal}")
