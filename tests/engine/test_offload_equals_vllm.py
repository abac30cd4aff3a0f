"""KV offload, plan by plan: the real scheduler with the real connector, and ours, in random worlds.

    SERVECAST_ENGINE_TESTS=1 VLLM_PYTHON=.../python pytest tests/engine/test_offload_equals_vllm.py

``python -m tests.engine.test_offload_equals_vllm FIRST LAST FILE`` records scenarios for `tests.simulator`.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.offload_scenarios import Loop, OurSide, scenario

DRIVER = Path(__file__).with_name("drive_offload.py")


def record(seeds: range) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return the scenarios of *seeds* with what the real engine plans."""
    worlds = [scenario(seed) for seed in seeds]
    python = os.environ.get("VLLM_PYTHON", sys.executable)
    done = subprocess.run([python, str(DRIVER)], input=json.dumps(worlds), capture_output=True, text=True, check=True)
    answer = next(line for line in done.stdout.splitlines() if line.startswith("ANSWER "))
    return list(zip(worlds, json.loads(answer.removeprefix("ANSWER ")), strict=True))


@pytest.mark.parametrize("first", [1000, 1100])
def test_every_plan_is_the_same(first):
    for world, expected in record(range(first, first + 50)):
        assert Loop(OurSide(world), world).run() == expected, world["seed"]


if __name__ == "__main__":
    first, last, target = sys.argv[1:]
    rows = [{"seed": world["seed"], "plans": plans} for world, plans in record(range(int(first), int(last)))]
    with gzip.GzipFile(target, "wb", mtime=0) as file:
        file.write(json.dumps({"vllm": "0.24.0", "scenarios": rows}).encode())
