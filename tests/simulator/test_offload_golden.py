"""KV offload against plans recorded from vLLM 0.24.0's scheduler with its OffloadingConnector (tests/engine)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.engine.offload_scenarios import Loop, OurSide, scenario

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "offload-0.24.0.json.gz"
RECORDED = json.loads(gzip.decompress(GOLDEN.read_bytes()))["scenarios"]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: f"seed {recorded['seed']}")
def test_every_plan_load_store_and_flush_is_that_of_vllm(recorded):
    world = scenario(recorded["seed"])
    assert Loop(OurSide(world), world).run() == recorded["plans"]


def test_the_recorded_worlds_do_load_flush_and_preempt():
    plans = [plan for recorded in RECORDED for plan in recorded["plans"]]
    assert sum(len(plan["loads"]) for plan in plans) > 20
    assert sum(len(plan["flush"]) for plan in plans) > 10
    assert sum(len(plan["preempted"]) for plan in plans) > 20
