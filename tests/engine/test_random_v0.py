"""Our V0 scheduler against the real one on random scenarios.

Needs VLLM063 (the unpacked wheel) and VLLM063_PYTHON (an interpreter with what `drive_v0` needs; default: this one).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.random_scenarios_v0 import compare, make

DRIVER = Path(__file__).with_name("drive_v0.py")


@pytest.mark.skipif("VLLM063" not in os.environ, reason="VLLM063 does not name the unpacked wheel of vllm 0.6.3")
@pytest.mark.parametrize("seed", [100_000, 200_000])
def test_our_events_equal_those_of_the_real_engine_on_random_scenarios(tmp_path, seed):
    scenarios, recorded = tmp_path / "scenarios.json", tmp_path / "recorded.json"
    scenarios.write_text(json.dumps(make(500, seed)))
    python = os.environ.get("VLLM063_PYTHON", sys.executable)
    subprocess.run([python, str(DRIVER), str(scenarios), str(recorded)], check=True)
    assert compare(json.loads(recorded.read_text())) == []
