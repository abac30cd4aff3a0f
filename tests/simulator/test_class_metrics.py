"""Each class of a mix has its metrics; together they are those of the whole."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.routing import Routing
from simulator.simulate import simulate
from simulator.workload import MixWorkload, RateWorkload
from tests.simulator.scenario_world import small_scenario

MIX = MixWorkload(
    rate=200,
    num_prompts=300,
    classes=(
        {"name": "chat", "weight": 3, "turns": 2, "prompt_tokens": 100, "output_tokens": "uniform:2:40"},
        {"name": "batch", "prompt_tokens": 900, "output_tokens": 20, "priority": 1},
    ),
)


@pytest.mark.parametrize("replicas", [1, 3])
def test_classes_have_the_metrics_of_their_own_requests(replicas):
    result = simulate(small_scenario(workload=MIX, replicas=replicas, router=Routing(policy="least-outstanding")))
    summary, rows = result.summary(), result.requests
    assert list(summary["classes"]) == ["chat", "batch"]
    for name, told in summary["classes"].items():
        mine = rows[rows["class"] == name]
        assert told["requests"] == told["completed"] == len(mine)
        assert told["mean_ttft_ms"] == pytest.approx(1e3 * mine["ttft_s"].mean())
        assert told["p99_e2el_ms"] == pytest.approx(1e3 * np.percentile(mine["e2el_s"], 99))
        assert told["total_output_tokens"] == mine["output_tokens"].sum()
    whole = sum(
        one["mean_itl_ms"] * (one["total_output_tokens"] - one["requests"]) for one in summary["classes"].values()
    )
    assert whole / (summary["total_output_tokens"] - 300) == pytest.approx(summary["mean_itl_ms"])
    assert sum(one["output_throughput"] for one in summary["classes"].values()) == pytest.approx(
        summary["output_throughput"]
    )


def test_without_classes_nothing_is_added():
    result = simulate(small_scenario(workload=RateWorkload(rate=9, num_prompts=5)))
    assert "classes" not in result.summary()
    assert "class" not in result.requests
