"""The scenario of the page, or what to show in its place; its plain answer, asked of the workers."""

from __future__ import annotations

from typing import Any

import streamlit as st

from apps.ui import tasks
from apps.ui.look import answer, badges, problem
from apps.ui.question import Question
from apps.ui.state import ask, checked, keep, kept, question
from apps.ui.tasks import Run
from apps.ui.waiting import answer_of
from simulator.errors import DoesNotFitError, ServecastError
from simulator.scenario import Scenario


def complete_question(place: str) -> tuple[Question, Scenario] | None:
    """Return the question and its scenario; of before, with a word, while an input cannot be read; None for none."""
    found = checked()
    if found.scenario is not None:
        keep(f"question_{place}", (question(), found.scenario))
        return question(), found.scenario
    before: tuple[Question, Scenario] | None = kept(f"question_{place}")
    sentences = " ".join(f"{text}." for text in found.problems.values())
    if before is None:
        answer("plain", "One more input is needed before anything can be said.", sentences)
        return None
    problem(f"{sentences} Below: the answer to the last complete question.")
    return before


def run_of(scenario: Scenario, place: str) -> Run | None:
    """Return the simulated run, when it is there; None if there is none, which the page then says."""
    job = ask(place, tasks.run, scenario.to_json(None))
    try:
        found: Run = answer_of(job, "Simulating")
    except DoesNotFitError as error:
        answer("no", "**It does not fit**, so nothing can be served. Fits? has the fixes.", str(error))
        return None
    except ServecastError as error:
        answer("no", "**There is no answer to this question.**", str(error))
        return None
    return found


def trust_badges(summary: dict[str, Any]) -> None:
    """Show what the numbers rest on."""
    source = summary["provenance"]
    by = f"profile {source['profile']}" if source["profile"] else "data sheet"
    calibrated: Any = "calibrated" if source["calibrated"] else ("not calibrated: a first answer", True)
    badges(f"{source['model']} on {source['gpu']}", f"vLLM {source['vllm_version']}", by, calibrated)


def warnings_of(summary: dict[str, Any], shown: int = 4) -> None:
    """Show the warnings of a result, below the numbers."""
    if not summary["warnings"]:
        return
    st.markdown("##### Worth knowing")
    lines = summary["warnings"]
    st.markdown("\n".join(f"- {plain_text(line)}" for line in lines[:shown]))
    if len(lines) > shown:
        with st.expander(f"{len(lines) - shown} more"):
            st.markdown("\n".join(f"- {plain_text(line)}" for line in lines[shown:]))


def plain_text(text: str) -> str:
    """Keep text from being read as markup."""
    for sign in ("\\", "*", "_", "[", "]", "<", "$", "`", "~", "#"):
        text = text.replace(sign, "\\" + sign)
    return text
