"""The part of the sidebar that says which server: a line that can be pasted, lists and sliders that rewrite it."""

from __future__ import annotations

from typing import Any

import streamlit as st

from apps.ui import choices
from apps.ui.line import with_flag, with_model
from apps.ui.look import problem
from apps.ui.pasted import read_pasted
from apps.ui.question import engine_of, gpu_name, profile_names
from apps.ui.state import change, checked, controlled, labelled, question, said, say
from simulator import catalogue
from simulator.engine_config import EngineConfig
from simulator.errors import ServecastError

_HELP = (
    "A `vllm serve …`, `docker run …` or `python -m vllm…` line, Kubernetes args, `LLM(…)`, or a start-up log. "
    "It is read, never run."
)


def server_inputs() -> None:
    """Draw them."""
    asked = question()
    st.markdown("##### Server")
    controlled(
        "server", st.text_area, "Start line, args or log", height=110, take=_pasted,
        help=_HELP, placeholder="vllm serve meta-llama/Llama-3.1-8B", disabled=bool(asked.scenario_json),
    )  # fmt: skip
    problem(said("server") or (None if asked.scenario_json else checked().problems.get("server")))
    if asked.log:
        st.caption("Memory as logged by a real server is shown on *Fits?*.")
        st.button("Forget the log", key="forget_log", on_click=change, kwargs={"log": ""})
    if asked.scenario_json:
        st.info("A saved scenario is loaded; server and load are its own.")
        st.button("Leave the scenario", key="forget_scenario", on_click=change, kwargs={"scenario_json": ""})
        return
    _notes()
    _where()
    _knobs()


def _pasted(text: str) -> None:
    try:
        changes = read_pasted(text)
    except ServecastError as error:
        say("server", " ".join(str(error).split()))
        return
    say("server", None)
    change(**changes)


def _notes() -> None:
    scenario = checked().scenario
    if scenario is not None and scenario.notes:
        shown = scenario.notes[:3]
        more = f" · and {len(scenario.notes) - 3} more" if len(scenario.notes) > 3 else ""
        st.caption("Read with notes: " + " · ".join(shown) + more)


def _where() -> None:
    asked = question()
    controlled(
        "model", _listed, "Model", [_model(asked.server), *catalogue.model_names()], take=_take_model,
        value=_model(asked.server), help="Rewrites the start line.",
    )  # fmt: skip
    labelled(
        "profile", st.selectbox, "Profile", {name: name for name in profile_names()} | {"": "none: data sheet"},
        help="Measured step times. Without one the answer is a roofline from the data sheet.",
    )  # fmt: skip
    left, right = st.columns([3, 2])
    with left:
        labelled(
            "gpu", st.selectbox, "GPU", {"": _profile_gpu()} | {name: name for name in catalogue.gpu_names()},
            help="Default: the GPU the profile was measured on.",
        )  # fmt: skip
    with right:
        controlled("vllm_version", st.text_input, "vLLM", placeholder="0.24.0", help="The version whose rules apply.")


def _listed(label: str, options: list[str], **settings: Any) -> None:
    """Draw a list of names, each once, with the present one among them."""
    present = st.session_state[settings["key"]]
    st.selectbox(label, list(dict.fromkeys(options if present in options else [present, *options])), **settings)


def _profile_gpu() -> str:
    try:
        return f"{gpu_name(question().with_(gpu=''))}, the profile's"
    except ServecastError:
        return "choose one"


def _model(text: str) -> str:
    from simulator.command_line import parse

    try:
        return parse(text).model or ""
    except ServecastError:
        return ""


def _take_model(name: str) -> None:
    if name:
        say("server", None)
        change(server=with_model(question().server, name), config_json="")


def _knobs() -> None:
    try:
        engine = engine_of(question())
    except ServecastError:
        return
    with st.expander("Turn the knobs", expanded=False):
        st.caption("Each writes its flag into the start line.")
        _flag("gpu_memory_utilization", st.slider, engine.gpu_memory_utilization, 0.3, 0.99, step=0.01)
        _flag("max_model_len", st.select_slider, engine.max_model_len, options=choices.MODEL_LENS)
        _flag("max_num_seqs", st.select_slider, engine.max_num_seqs, options=choices.SEQS)
        _flag("max_num_batched_tokens", st.select_slider, engine.max_num_batched_tokens, options=choices.BUDGETS)
        _flag("tensor_parallel_size", st.select_slider, engine.tensor_parallel_size, options=choices.RANKS)
        for name in ("enable_prefix_caching", "enable_chunked_prefill", "enforce_eager"):
            _flag(name, st.toggle, getattr(engine, name))
    _unsimulated(engine)


def _flag(name: str, widget: Any, value: Any, *limits: Any, **settings: Any) -> None:
    if "options" in settings:
        settings["options"] = choices.among(settings["options"], value)
    if limits:
        limits = (min(limits[0], value), max(limits[1], value))
    controlled(f"flag_{name}", widget, name, *limits, take=lambda new: _turned(name, new), value=value, **settings)


def _turned(name: str, value: Any) -> None:
    try:
        line = with_flag(question().server, name, round(value, 4) if isinstance(value, float) else value)
    except ServecastError as error:
        say("server", str(error))
        return
    say("server", None)
    change(server=line)


def _unsimulated(engine: EngineConfig) -> None:
    if engine.unsimulated:
        problem(f"{' and '.join(engine.unsimulated)}: the memory is answered, latencies are not simulated yet")
