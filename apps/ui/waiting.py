"""Waiting for an answer without holding up the page: a line that tells the time, and a way out at every tick."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import streamlit as st

from apps.ui.work import Job

#: Nobody needs to be told of a shorter wait.
_SILENT_S = 0.35
_TICK_S = 0.05


def answer_of(job: Job, words: str) -> Any:
    """Return the job's answer when it is there; raises its error.

    Every change of the line is a point at which Streamlit leaves this run if an input has changed meanwhile.
    """
    line, begun, told = st.empty(), time.monotonic(), -1
    while not job.done():
        waited = time.monotonic() - begun
        if waited > _SILENT_S and int(4 * waited) != told:
            told = int(4 * waited)
            line.caption(f"{words} … {waited:.1f} s")
        time.sleep(_TICK_S)
    line.empty()
    return job.result()


def until_done(jobs: Sequence[Job], words: str) -> None:
    """Wait at the end of a page, everything else being drawn, then draw it again with the answers."""
    line, begun, told = st.empty(), time.monotonic(), -1
    while not all(job.done() for job in jobs):
        waited = time.monotonic() - begun
        if int(2 * waited) != told:
            told = int(2 * waited)
            line.caption(f"{words} … {waited:.0f} s")
        time.sleep(_TICK_S)
    st.rerun()
