"""One visitor's state: the question, kept in the session and in the link; widgets that show and change it.

A widget is *controlled*: before it is drawn it gets the question's value, and what a person does to it changes the
question, which then is what everybody else on the page sees.  So a link, a pasted log and a slider are one thing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from apps.ui.link import from_query, to_query
from apps.ui.question import Checked, Question, check
from apps.ui.work import Job, Lane, desk

_QUESTION, _LINK_PROBLEMS, _SESSION, _SAID = "question", "link_problems", "session", "said"


def begin() -> None:
    """Read the link, at the first run of a session."""
    if _QUESTION not in st.session_state:
        question, problems = from_query(st.query_params.to_dict())
        st.session_state[_QUESTION] = question
        st.session_state[_LINK_PROBLEMS] = problems
        st.session_state[_SESSION] = uuid.uuid4().hex
        st.session_state[_SAID] = {}


def publish() -> None:
    """Put the question into the address bar."""
    query = to_query(question())
    if query != st.query_params.to_dict():
        st.query_params.from_dict(query)


def session() -> str:
    """Return what tells this visitor from others."""
    found: str = st.session_state[_SESSION]
    return found


def question() -> Question:
    """Return the question of this session."""
    found: Question = st.session_state[_QUESTION]
    return found


def checked() -> Checked:
    """Return the question as understood."""
    return check(question())


def link_problems() -> list[str]:
    """Return what of the link could not be read."""
    return list(st.session_state[_LINK_PROBLEMS])


def change(**changes: Any) -> None:
    """Change some inputs; what was wrong about the link is no longer of interest."""
    st.session_state[_QUESTION] = question().with_(**changes)
    st.session_state[_LINK_PROBLEMS] = []


def reset() -> None:
    """Go back to the question of the first visit."""
    st.session_state[_QUESTION] = Question()
    st.session_state[_SAID] = {}


def say(name: str, text: str | None) -> None:
    """Remember (or, with None, forget) what is wrong with something that did not become part of the question."""
    if text is None:
        st.session_state[_SAID].pop(name, None)
    else:
        st.session_state[_SAID][name] = text


def said(name: str) -> str | None:
    """Return what `say` remembers."""
    found: str | None = st.session_state[_SAID].get(name)
    return found


def controlled(
    name: str,
    widget: Callable[..., Any],
    label: str,
    *arguments: Any,
    take: Callable[[Any], None] | None = None,
    value: Any = None,
    **settings: Any,
) -> None:
    """Draw *widget* for the input *name*; *take* is told what a person set, by default it becomes the input's value."""
    key = f"in_{name}"
    st.session_state[key] = getattr(question(), name) if value is None else value

    def taken() -> None:
        new = st.session_state[key]
        if take is not None:
            take(new)
        elif new is not None:
            change(**{name: new})

    widget(label, *arguments, key=key, on_change=taken, **settings)


def labelled(name: str, widget: Callable[..., Any], label: str, labels: Mapping[str, str], **settings: Any) -> None:
    """Draw *widget* for one of a few values, each with its label; the present value is added if it is another."""
    present = getattr(question(), name)
    shown = {**labels} if present in labels else {present: present, **labels}
    values = {text: value for value, text in shown.items()}

    def take(text: str | None) -> None:
        if text is not None:
            change(**{name: values[text]})

    controlled(name, widget, label, list(values), take=take, value=shown[present], **settings)


def ask(place: str, function: Callable[..., Any], *arguments: Any, lane: Lane = "quick") -> Job:
    """Ask the desk on behalf of this visitor; what the same *place* had asked before is taken back."""
    return desk().ask(function, *arguments, owner=(session(), place), lane=lane)


def take_back(place: str) -> None:
    """End what *place* of this visitor's page had asked."""
    desk().take_back((session(), place))


def keep(place: str, what: Any) -> None:
    """Keep the last good answer of *place*, to be shown while an input is half typed."""
    st.session_state[f"last_{place}"] = what


def kept(place: str) -> Any:
    """Return what `keep` kept; None for nothing."""
    return st.session_state.get(f"last_{place}")
