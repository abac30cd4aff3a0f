"""The part of the sidebar that says who asks for what: sliders, a trace, a file; and uploads, seed, the link."""

from __future__ import annotations

import functools
import math
from typing import Any

import streamlit as st

from apps.ui import choices
from apps.ui.link import left_out
from apps.ui.look import problem
from apps.ui.question import LARGEST, MAX_REQUESTS, MAX_UPLOAD
from apps.ui.state import change, checked, controlled, labelled, link_problems, question, reset, said, say
from apps.ui.work import LIMIT_S, MEMORY_BYTES
from simulator.errors import InputError, ServecastError
from simulator.traces import NAMES

_LOADS = {"rate": "Rate", "concurrency": "Clients", "trace": "Trace", "file": "File"}
_LENGTH_HELP = "512, uniform:50:300, lognormal:MEDIAN:SIGMA[:MIN:MAX], normal:MEAN:STD[:MIN:MAX] or choice:A,B,C"


def load_inputs() -> None:
    """Draw them."""
    asked = question()
    if not asked.scenario_json:
        st.markdown("##### Load")
        labelled("load", st.segmented_control, "Load", _LOADS, label_visibility="collapsed", width="stretch")
        {"rate": _rate, "concurrency": _clients, "trace": _trace, "file": _file}[asked.load]()
        controlled(
            "num_prompts", st.select_slider, "Requests", choices.among(choices.REQUESTS, asked.num_prompts),
            help=f"How many are sent; {MAX_REQUESTS:,} at most on a shared page.",
        )  # fmt: skip
    _more()
    _foot()


def _rate() -> None:
    asked = question()
    problems = checked().problems
    controlled(
        "rate_slider", st.select_slider, "Rate (requests/s)", choices.among(choices.RATES, asked.rate),
        value=asked.rate, take=lambda new: change(rate=float(new)), format_func=_rate_label,
    )  # fmt: skip
    if math.isfinite(asked.rate):
        controlled("rate", st.number_input, "Rate, exactly (requests/s)", step=1.0, format="%.4g",
                   label_visibility="collapsed")  # fmt: skip
    problem(problems.get("rate"))
    _lengths()


def _rate_label(value: float) -> str:
    return "at once" if math.isinf(value) else f"{value:g}"


def _clients() -> None:
    asked = question()
    controlled(
        "clients_slider", st.select_slider, "Clients, each sends again when answered",
        choices.among(choices.CLIENTS, asked.concurrency), value=asked.concurrency,
        take=lambda new: change(concurrency=int(new)),
    )  # fmt: skip
    controlled("concurrency", st.number_input, "Clients, exactly", step=1, label_visibility="collapsed")
    problem(checked().problems.get("concurrency"))
    _lengths()


def _lengths() -> None:
    problems = checked().problems
    for name, label in (("prompt_tokens", "Prompt"), ("output_tokens", "Output")):
        spec = getattr(question(), name)
        tokens = choices.middle(spec)
        if tokens is not None:
            controlled(
                f"{name}_slider", st.select_slider, f"{label} (tokens, middle)",
                choices.among(choices.TOKENS, tokens), value=tokens,
                take=functools.partial(_turned, name),
            )  # fmt: skip
        controlled(name, st.text_input, f"{label} lengths", help=_LENGTH_HELP, label_visibility="collapsed")
        problem(problems.get(name))


def _turned(name: str, tokens: int) -> None:
    change(**{name: choices.with_middle(getattr(question(), name), int(tokens))})


def _trace() -> None:
    controlled("trace", st.selectbox, "Trace of real traffic", list(NAMES), help="Sources and licences: NOTICE.")
    controlled("rate_scale", st.number_input, "Times faster", step=0.5, format="%.4g")
    controlled(
        "over_length", st.radio, "Requests above max_model_len", ["fail", "drop"], horizontal=True,
        help="fail: they are refused, as vLLM does; drop: they are left out.",
    )  # fmt: skip
    problem(checked().problems.get("trace"))


def _file() -> None:
    uploaded = st.file_uploader(
        "CSV: arrival_s, prompt_tokens, output_tokens, …", type=["csv"], key="up_requests_csv", max_upload_size=10,
        on_change=_took, args=("requests_csv",), help="Also prefix_id, prefix_tokens, priority; docs/schemas.md.",
    )  # fmt: skip
    if uploaded is None and question().requests_csv:
        st.caption("The file of the link, or of before, is used.")
    problem(said("requests_csv") or checked().problems.get("requests_csv"))
    controlled("concurrency", st.number_input, "Clients, if the file has no arrival times", step=1)


def _took(name: str) -> None:
    """Take an upload into the question, as text; say what is wrong with it instead, if anything is."""
    uploaded: Any = st.session_state.get(f"up_{name}")
    if uploaded is None:  # taken away again
        say(name, None)
        return
    try:
        text = _text(uploaded)
        new = question().with_(**{name: text})
        _refuse_bad(name, new)
    except ServecastError as error:
        say(name, " ".join(str(error).split()))
        return
    say(name, None)
    change(**{name: text})


def _text(uploaded: Any) -> str:
    if uploaded.size > MAX_UPLOAD:
        raise InputError(f"{uploaded.name} has {uploaded.size / 1e6:.1f} MB; at most {MAX_UPLOAD / 1e6:.0f} are read")
    try:
        text: str = uploaded.getvalue().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{uploaded.name}: byte {error.start} is not UTF-8 text; give a text file saved as UTF-8"
        ) from None
    if "\0" in text:
        raise InputError(f"{uploaded.name}: holds a zero byte, so it is not a text file")
    return text


def _refuse_bad(name: str, new: Any) -> None:
    from apps.ui.question import check, model_of, workload

    if name == "requests_csv":
        workload(new.with_(load="file"))
    elif name == "config_json":
        model_of(new, None)
    else:
        found = check(new).problems.get(name)
        if found:
            raise InputError(found)


def _more() -> None:
    with st.expander("More"):
        if not question().scenario_json:
            controlled(
                "seed", st.number_input, "Seed", step=1, min_value=0, max_value=LARGEST,
                help="The same seed gives the same requests.",
            )  # fmt: skip
            if question().load == "rate":
                controlled("burstiness", st.number_input, "Burstiness of arrivals", step=0.1, format="%.4g",
                           help="1 Poisson, below 1 bursty, as `vllm bench serve --burstiness`.")  # fmt: skip
        for name, label, why in (
            ("config_json", "config.json of another model", "Hugging Face's file; the model need not be known."),
            ("scenario_json", "A saved scenario", "As downloaded here or written by --save-scenario."),
        ):
            st.file_uploader(label, type=["json"], key=f"up_{name}", max_upload_size=10, on_change=_took, args=(name,),
                             help=why)  # fmt: skip
            problem(said(name) or checked().problems.get(name))
        if question().config_json:
            st.button("Forget config.json", key="forget_config", on_click=change, kwargs={"config_json": ""})


def _foot() -> None:
    st.button("Start again", key="reset", on_click=reset, help="Back to the first question.")
    for text in link_problems():
        problem(text)
    if missing := left_out(question()):
        st.caption(f"The address holds all but {' and '.join(missing)} (too long); download the scenario instead.")
    else:
        st.caption("The address holds the whole question: share it.")
    st.caption(f"Shared page: at most {MAX_REQUESTS:,} requests, {LIMIT_S} s and {MEMORY_BYTES >> 30} GiB an answer.")
