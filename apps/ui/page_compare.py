"""Compare: server A against server B on the same requests; which differences are real, and which are noise?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from apps.compare_command import difference_table
from apps.ui import tasks, words
from apps.ui.answers import complete_question, trust_badges, warnings_of
from apps.ui.figures.comparison import differences
from apps.ui.figures.latency import distribution, shares_of
from apps.ui.line import with_flag
from apps.ui.look import answer, chart, problem, table
from apps.ui.question import Question, check, profile_names
from apps.ui.state import ask, change, controlled, keep, kept, labelled, question, said, say
from apps.ui.tasks import Run
from apps.ui.waiting import answer_of, until_done
from apps.ui.work import Job
from simulator import catalogue
from simulator.comparison import compare
from simulator.errors import ServecastError
from simulator.scenario import Scenario

_SEEDS = (0, 2, 4, 8, 16)


def page() -> None:
    """Draw the page: both plain answers first, the pairs that tell noise when they are there."""
    found = complete_question("compare")
    if found is None:
        return
    asked, a = found
    place = st.container()
    with st.expander("Server B", expanded=not asked.b_server, icon=":material/compare_arrows:"):
        _b_inputs(asked)
    with place:
        b = _b_scenario(asked, a)
        if b is not None:
            _compare(asked, a, b)


def _b_inputs(asked: Question) -> None:
    st.caption("A is the server on the left. B serves the same requests; what is left empty is as A's.")
    controlled("b_server", st.text_area, "Start line of B", height=80, take=_take_b, placeholder=asked.server)
    problem(said("b_server"))
    one, two, three, four = st.columns(4)
    with one:
        labelled("b_profile", st.selectbox, "Profile of B", _as_a(profile_names()))
    with two:
        labelled("b_gpu", st.selectbox, "GPU of B", _as_a(catalogue.gpu_names()))
    with three:
        controlled("b_vllm_version", st.text_input, "vLLM version of B", placeholder="as A")
    with four:
        controlled("replications", st.select_slider, "More seeds", sorted({*_SEEDS, asked.replications}),
                   help="Pairs of runs that tell a real difference from noise.")  # fmt: skip
    st.caption("Ideas")
    with st.container(horizontal=True):
        for label, name, value in (
            ("half the token budget", "max_num_batched_tokens", 4096),
            ("64 sequences", "max_num_seqs", 64),
            ("no chunked prefill", "enable_chunked_prefill", False),
            ("eager", "enforce_eager", True),
            ("synchronous scheduling", "async_scheduling", False),
        ):
            st.button(label, key=f"idea_{name}", on_click=_idea, args=(name, value))


def _as_a(names: Sequence[str]) -> dict[str, str]:
    return {"": "as A"} | {name: name for name in names}


def _take_b(text: str) -> None:
    from apps.ui.pasted import read_pasted

    if not text.strip():
        say("b_server", None)
        change(b_server="")
        return
    try:
        changes = read_pasted(text)
    except ServecastError as error:
        say("b_server", str(error))
        return
    say("b_server", None)
    change(b_server=changes["server"], b_vllm_version=changes.get("vllm_version", question().b_vllm_version))


def _idea(name: str, value: Any) -> None:
    try:
        line = with_flag(question().server, name, value)
    except ServecastError as error:
        say("b_server", str(error))
        return
    say("b_server", None)
    change(b_server=line)


def _b_scenario(asked: Question, a: Scenario) -> Scenario | None:
    """Return B's scenario; None, with what to do, where there is none to compare with."""
    if asked.scenario_json:
        answer("plain", "A saved scenario has no start line to vary: leave it on the left to compare two servers.")
        return None
    other = check(asked.b_side())
    if other.scenario is None:
        before: Scenario | None = kept("b_scenario")
        problem("B: " + " ".join(f"{text}." for text in other.problems.values()))
        return before
    if other.scenario == a:
        answer("plain", "B is the same as A so far. Change something about B below, or take one of the ideas.")
        return None
    keep("b_scenario", other.scenario)
    return other.scenario


def _compare(asked: Question, a: Scenario, b: Scenario) -> None:
    jobs = {side: ask(f"compare_{side}", tasks.run, scenario.to_json(None)) for side, scenario in (("A", a), ("B", b))}
    runs: dict[str, Run] = {}
    for side, job in jobs.items():
        try:
            runs[side] = answer_of(job, f"Simulating {side}")
        except ServecastError as error:
            answer("no", f"**{side} has no answer.**", str(error))
            return
    offsets = range(1, asked.replications + 1)
    pairs = [tuple(_pair_job(side, scenario, offset) for side, scenario in (("A", a), ("B", b))) for offset in offsets]
    pending = [job for pair in pairs for job in pair if not job.done()]  # of now: what is drawn below lacks them
    try:
        done = [(one.result(), two.result()) for one, two in pairs if one not in pending and two not in pending]
    except ServecastError as error:  # another seed draws what this one does not
        problem(f"No pairs: {error}")
        pairs, pending, done = [], [], []
    complete = bool(pairs) and len(done) == len(pairs)
    summaries = (runs["A"].summary, runs["B"].summary)
    rows = compare(*summaries, [summaries, *done] if complete else ())
    kind, sentence, more = words.compared(rows, complete)
    if pairs and not complete:
        more = f"{2 * len(pairs)} more runs tell real from noise …"
    answer(kind, sentence, more)
    _who(asked, runs)
    chart(differences(rows, noise_known=complete), "differences")
    _curves(runs)
    _table(rows, complete)
    for side in ("A", "B"):
        if runs[side].summary["warnings"] and (side == "A" or _warnings_differ(runs)):
            st.caption(f"Server {side}")
            warnings_of(runs[side].summary, 2)
    if pending:
        until_done(pending[:2], f"{2 * len(done)} of {2 * len(pairs)} more runs")


def _warnings_differ(runs: dict[str, Run]) -> bool:
    return bool(runs["A"].summary["warnings"] != runs["B"].summary["warnings"])


def _pair_job(side: str, scenario: Scenario, offset: int) -> Job:
    return ask(f"pair_{side}_{offset}", tasks.summary, scenario.to_json(None), offset, lane="slow")


def _who(asked: Question, runs: dict[str, Run]) -> None:
    for side, column in zip(("A", "B"), st.columns(2), strict=True):
        with column:
            line = asked.server if side == "A" else asked.b_side().server
            st.code(f"{side}: {line.strip()[:400]}", language=None, wrap_lines=True)
            trust_badges(runs[side].summary)


def _curves(runs: dict[str, Run]) -> None:
    for name, title, column in zip(
        ("ttft", "tpot", "e2el"), ("Time to first token", "Time per output token", "End-to-end latency"), st.columns(3),
        strict=True,
    ):  # fmt: skip
        with column:
            curves = {
                side: shares_of(1e3 * run.requests.loc[run.requests["status"] == "finished", f"{name}_s"])
                for side, run in runs.items()
            }
            chart(distribution(title, curves, height=270), f"compare_{name}")


def _table(rows: list[dict[str, Any]], with_noise: bool) -> None:
    numbers = difference_table(rows)
    table(numbers.columns, numbers.rows, right=tuple(numbers.right))
    if with_noise:
        st.caption(
            "Real: the 90 % interval of the mean difference of pairs with the same requests leaves out 0. "
            "It says nothing about errors both sides share, such as those of a profile."
        )
