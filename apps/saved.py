"""A saved scenario, or a result that holds its scenario: back to the question, so that it can be simulated again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulator.errors import InputError, UnsupportedError
from simulator.request_list import read_text
from simulator.result import Result
from simulator.scenario import Scenario
from simulator.simulate import simulate


def saved_scenario(path: Path) -> Scenario:
    """Return the scenario in *path*; `InputError` of one line if it holds none.

    The same scenario gives the same result, so a result need not hold what can be simulated again.
    """
    return _alone(_read(path)[0], path)


def saved_result(path: Path) -> Result:
    """Return the result of the scenario in *path*, with the intervals that the file holds, if it does."""
    scenario, data = _read(path)
    return replace(simulate(_alone(scenario, path)), intervals=data.get("intervals"))


def _alone(scenario: Scenario, path: Path) -> Scenario:
    """Return *scenario*, which must have one replica: steps of several are not told or exported yet."""
    if scenario.is_fleet:
        raise UnsupportedError(
            f"{path}: has several replicas; report and explain cover one server, so take one of them"
        )
    return scenario


def _read(path: Path) -> tuple[Scenario, dict[str, Any]]:
    """Return the scenario and the document it stands in."""
    text = read_text(path)
    try:
        data: Any = json.loads(text)
    except json.JSONDecodeError:
        data = None
    if not isinstance(data, dict) or not isinstance(data.get("provenance"), dict):
        return Scenario.from_text(text, str(path)), {}
    if not isinstance(data.get("scenario"), dict):
        raise InputError(
            f"{path}: is a result without its scenario (an older servecast, or Result.to_json); "
            "simulate again with -o, or give the scenario (--save-scenario)"
        )
    return Scenario.from_json(json.dumps(data["scenario"]), str(path)), data
