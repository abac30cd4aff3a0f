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
#: Rules of versions other than the default one that our scheduler does not follow yet; strict, so that none lingers.
MISSING = {
    "0.11.0": "async: the step after the last token is planned up to 0.11.0; length is checked before EOS",
    "0.11.2": "chunked prefill off: passed-over prompts return to the queue in reverse order, up to 0.11.2",
    "0.13.0": "chunked prefill off: a prompt that does not fit blocks the queue since 0.12.0, not 0.14",
    "0.23.0": "blocks without a hash go to the head of the free queue since 0.24.0, not 0.23",
    "0.32.0": "a lone request ignores long_prefill_token_threshold since 0.31.0",
}
FILES = [
    pytest.param(
        FOLDER / f"vllm-{version}-random.json.gz",
        id=version,
        marks=[pytest.mark.xfail(strict=True, reason=MISSING[version])] if version in MISSING else [],
    )
    for version in ("0.11.0", "0.11.2", "0.13.0", "0.18.0", "0.23.0", "0.24.0", "0.32.0")
]


@pytest.mark.parametrize("kind", [V1Scheduler, CohortScheduler])
@pytest.mark.parametrize("file", FILES)
def test_random_scenarios_of_the_real_scheduler_give_our_events(file, kind):
    golden = load(file)
    mismatches = {
        scenario["name"]: mismatch
        for scenario in golden["scenarios"]
        if (mismatch := first_mismatch(scenario, golden["vllm"], kind)) is not None
    }
    assert mismatches == {}
