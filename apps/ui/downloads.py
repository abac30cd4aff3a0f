"""Everything to take away: the scenario, the results, the report, and what to run next.  Made when clicked."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import streamlit as st

from apps.ui import tasks
from apps.ui.command import command
from apps.ui.question import Question
from apps.ui.state import session
from apps.ui.tasks import Run
from apps.ui.work import desk
from simulator.errors import ServecastError
from simulator.scenario import Scenario

_EXPORTS = (
    ("Report", "report.html", "text/html"),
    ("Report (Markdown)", "report.md", "text/markdown"),
    ("Perfetto trace", "trace.json", "application/json"),
    ("vLLM bench JSON", "bench.json", "application/json"),
    ("Prometheus", "metrics.prom", "text/plain"),
)


def downloads(asked: Question, scenario: Scenario, run: Run) -> None:
    """Draw the buttons, and the commands that do the same elsewhere."""
    st.markdown("##### Take away")
    text = scenario.to_json(None)
    with st.container(horizontal=True):
        _button("Scenario", scenario.to_json() + "\n", "scenario.json", "application/json")
        _button(
            "Results (JSON)",
            lambda: tasks.json_text({**run.summary, "scenario": scenario.model_dump(mode="json")}),
            "result.json",
            "application/json",
        )
        _button("Requests (CSV)", lambda: _csv(run.requests), "requests.csv", "text/csv")
        if run.seconds is not None:
            seconds = run.seconds
            _button("Timeline (CSV)", lambda: _csv(seconds), "timeline.csv", "text/csv")
        for label, name, kind in _EXPORTS:
            _button(label, functools.partial(_exported, text, name, session()), name, kind)
    with st.expander("The same on the command line, and what to run next"):
        st.code(command(asked), language="bash", wrap_lines=True)
        for step in _commands(text):
            st.caption(step.title + (f": {step.note}" if step.note else ""))
            st.code(step.text, language="yaml" if step.language == "yaml" else "bash", wrap_lines=True)


def _button(label: str, data: str | Callable[[], str], name: str, kind: str) -> None:
    st.download_button(label, data, file_name=name, mime=kind, key=f"get_{name}", on_click="ignore",
                       icon=":material/download:")  # fmt: skip


def _csv(rows: Any) -> str:
    text: str = rows.to_csv(index=False, float_format="%.10g")
    return text


def _exported(scenario: str, name: str, who: str) -> str:
    """Return a file made by a worker; why not, if it cannot be.  Runs outside of the page, when it is clicked."""
    try:
        text: str = desk().ask(tasks.exported, scenario, name, owner=(who, name)).result()
    except ServecastError as error:
        return f"{name} could not be made: {error}\n"
    return text


@st.cache_data(max_entries=64, show_spinner=False)
def _commands(scenario: str) -> Any:
    from apps.exports.commands import next_commands

    return next_commands(Scenario.from_json(scenario))
