"""V0's golden traces and random scenarios recorded from the real 0.6.3, event by event."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from tests.golden.__main__ import load, main
from tests.golden.replay_v0 import first_mismatch

FOLDER = Path(__file__).parents[1] / "data" / "golden"
SCENARIOS = [
    scenario
    for name in ("vllm-0.6.3.json.gz", "vllm-0.6.3-random.json.gz")
    for scenario in load(FOLDER / name)["scenarios"]
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_our_events_equal_those_of_the_real_v0_scheduler(scenario):
    assert first_mismatch(scenario) is None


def test_a_v0_file_is_replayed_by_the_command(capsys):
    assert main([str(FOLDER / "vllm-0.6.3.json.gz")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "ok v0_plenty"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("v0_pressure", {"blocks": 42}),
        ("v0_swap", {"cpu_blocks": 201}),
        ("v0_swap", {"mode": "recompute"}),
        ("v0_prefix_tight", {"pc": False}),
        ("v0_chunked", {"chunked": False}),
        ("v0_seqlimit", {"seqs": 5}),
    ],
)
def test_another_configuration_gives_other_events(name, changes):
    scenario = copy.deepcopy(next(scenario for scenario in SCENARIOS if scenario["name"] == name))
    scenario["config"].update(changes)
    assert first_mismatch(scenario) is not None
