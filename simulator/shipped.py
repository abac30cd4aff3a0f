"""Where the shipped data lies: inside the package in an installed wheel, at the top of the checkout otherwise."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def path(*parts: str) -> Path:
    """Return the path of shipped data, e.g. ``path("profiles", "gpus.json")``; it need not exist."""
    inside = _PACKAGE / "_shipped"
    return (inside if inside.is_dir() else _PACKAGE.parent).joinpath(*parts)
