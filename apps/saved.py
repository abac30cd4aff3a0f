"""A saved scenario, or a result that holds its scenario: back to the question, so that it can be simulated again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simulator.errors import InputError
from simulator.request_list import read_text
from simulator.scenario import Scenario


def saved_scenario(path: Path) -> Scenario:
    """Return the scenario in *path*; `InputError` of one line if it holds none.

    The same scenario gives the same result, so a result need not hold what can be simulated again.
    """
    text = read_text(path)
    try:
        data: Any = json.loads(text)
    except json.JSONDecodeError:
        data = None
    if isinstance(data, dict) and isinstance(data.get("provenance"), dict):
        if not isinstance(data.get("scenario"), dict):
            raise InputError(
                f"{path}: is a result without its scenario (an older servecast, or Result.to_json); "
                "simulate again with -o, or give the scenario (--save-scenario)"
            )
        text = json.dumps(data["scenario"])
    return Scenario.from_json(text, str(path))
