"""Capacity: how much load does this server carry within an SLO, and what stops it?"""

from __future__ import annotations

from apps.ui.answers import complete_question


def page() -> None:
    """Draw the page."""
    complete_question("capacity")
