"""Random scenarios recorded from the real scheduler classes of several vLLM versions, replayed by both of ours.

Made by `tests.engine` (random_scenarios, drive_v1, keep), which compares thousands more where a vLLM is installed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.cohort import CohortScheduler
from simulator.scheduler import V1Scheduler
from tests.golden.__main__ import load
from tests.golden.replay import first_mismatch

FOLDER = Path(__file__).parents[1] / "data" / "golden"
VERSIONS = ("0.11.0", "0.11.2", "0.13.0", "0.18.0", "0.23.0", "0.24.0", "0.32.0")


@pytest.mark.parametrize("kind", [V1Scheduler, CohortScheduler])
@pytest.mark.parametrize("version", VERSIONS)
def test_random_scenarios_of_the_real_scheduler_give_our_events(version, kind):
    golden = load(FOLDER / f"vllm-{version}-random.json.gz")
    mismatches = {
        scenario["name"]: mismatch
        for scenario in golden["scenarios"]
        if (mismatch := first_mismatch(scenario, golden["vllm"], kind)) is not None
    }
    assert mismatches == {}
