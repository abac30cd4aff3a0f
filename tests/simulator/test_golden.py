"""The golden traces of the real scheduler classes, event by event, and the command that replays them."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path

import pytest

from simulator.cohort import CohortScheduler
from simulator.scheduler import V1Scheduler
from tests.golden.__main__ import load, main
from tests.golden.replay import first_mismatch

FILE = Path(__file__).parents[1] / "data" / "golden" / "vllm-0.24.0.json.gz"
GOLDEN = load(FILE)


@pytest.mark.parametrize("kind", [V1Scheduler, CohortScheduler])
@pytest.mark.parametrize("scenario", GOLDEN["scenarios"], ids=lambda scenario: scenario["name"])
def test_our_events_equal_those_of_the_real_scheduler(scenario, kind):
    assert first_mismatch(scenario, GOLDEN["vllm"], kind) is None


def test_a_wrong_event_is_reported_with_its_number_and_both_sides(tmp_path, capsys):
    golden = copy.deepcopy(GOLDEN)
    golden["scenarios"] = golden["scenarios"][:2]
    golden["scenarios"][1]["events"][1][-1] += 1
    path = tmp_path / "wrong.json.gz"
    path.write_bytes(gzip.compress(json.dumps(golden).encode()))
    assert main([str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok plenty_sync"
    assert lines[1].startswith("MISMATCH seqlimit_sync event 1: expected ['plan',")


def test_all_scenarios_right_exits_with_zero(capsys):
    assert main([str(FILE)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 16
