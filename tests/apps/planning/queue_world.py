"""A server that is a queue of textbooks: every step takes `STEP_S`, whatever is in it, and nothing else takes time.

With one sequence at a time and answers of one token each request occupies the server for exactly `STEP_S`: M/D/1 under
Poisson arrivals.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.profile import Noise, Profile, load_profile
from simulator.scenario import Scenario

STEP_S = 0.1
SERVE = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 4096 --no-async-scheduling"


def write_profile(path: Path, **front_end: float) -> str:
    """Write the profile to *path* and return its name; *front_end* takes the time that is said."""
    base = load_profile("h200-llama-3.1-8b").model_dump(mode="json")
    mode = {"constant_s": STEP_S, "per_layer_s": 0.0, "per_request_s": 0.0, "idle_factor": 1.0, "tail_s": 0.0}
    data = {
        **base,
        "name": "queue",
        "launch": {"start_s": 0.0, **dict.fromkeys(("none", "piecewise", "full"), mode)},
        "cpu": dict.fromkeys(base["cpu"], 0.0),
        "front_end": dict.fromkeys(base["front_end"], 0.0) | front_end,
        "noise": Noise().model_dump(),
        "covariance": {"names": ["launch.none.constant_s"], "matrix": [[0.0]]},
        "residuals": {},
        "host": {"measured": "today"},
    }
    path.write_text(Profile.model_validate(data).model_dump_json(), encoding="utf-8")
    return str(path)


def scenario(profile: str, workload, command: str = SERVE, **rest) -> Scenario:
    """Return the question: *workload* for a server of one sequence at a time."""
    return Scenario.from_command(f"{command} --max-num-seqs 1", profile=profile, workload=workload, **rest)


@pytest.fixture(scope="module")
def queue(tmp_path_factory) -> str:
    """The name of the queue's profile."""
    return write_profile(tmp_path_factory.mktemp("queue") / "queue.json")
