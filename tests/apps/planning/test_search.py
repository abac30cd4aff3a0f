"""The search: what it may propose, what it leaves out, and that an interruption changes nothing."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.planning.evaluate import Question
from apps.planning.pareto import frontier
from apps.planning.search import best_of, changed, goal_of, search
from apps.planning.slo import Slo
from apps.planning.space import Space, default_space, parse_space
from simulator.errors import ConfigError, InputError
from simulator.scenario import Scenario
from simulator.workload import RateWorkload

SERVE = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 4096"
LOAD = RateWorkload(rate=20, num_prompts=60, prompt_tokens="64", output_tokens="8")


def question(mode="load", slo="ttft_p99=10s", latency="p99_e2el_ms", command=SERVE) -> Question:
    scenario = Scenario.from_command(command, profile="h200-llama-3.1-8b", workload=LOAD)
    return Question(
        scenario=scenario,
        mode=mode,
        axis="rate",
        load=20.0,
        slo=Slo.parse(slo) if slo else None,
        latency=latency,
        requests=60,
        prices={"H200": 3.6},
    )


def rows_of(asked, space, **rest):
    return list(search(asked, space, goal_of(asked, "throughput"), workers=1, **rest))


def test_axes_are_values_doublings_or_steps():
    space = parse_space(
        ["max_num_seqs=64,128", "max-num-batched-tokens=2048..16384", "gpu_memory_utilization=0.8..0.9",
         "replicas=1..3", "gpu=h100, A100", "enable_prefix_caching=true,false"]
    )  # fmt: skip
    assert space.axes == {
        "max_num_seqs": (64, 128),
        "max_num_batched_tokens": (2048, 4096, 8192, 16384),
        "gpu_memory_utilization": (0.8, 0.85, 0.9),
        "replicas": (1, 2, 3),
        "gpu": ("H100", "A100-80"),
        "enable_prefix_caching": (True, False),
    }
    assert len(space) == len(list(space.grid())) == 2 * 4 * 3 * 3 * 2 * 2


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("max_num_seqs", InputError, "NAME=VALUES"),
        ("max_num_seqs=", InputError, "no values"),
        ("max_num_sequences=3", ConfigError, "did you mean"),
        ("replicas=0,1", InputError, "whole numbers from 1"),
        ("gpu=H300", ConfigError, "not known"),
        ("max_num_seqs=8..4", InputError, "smaller end first"),
    ],
)
def test_what_is_no_axis_is_refused_in_one_line(text, error, message):
    with pytest.raises(error, match=message) as caught:
        parse_space([text])
    assert "\n" not in str(caught.value)


def test_the_default_space_is_around_the_server_and_holds_it():
    asked = question()
    space = default_space(asked.scenario)
    for name, values in space.axes.items():
        assert any(not changed({name: value}, asked) for value in values), name


def test_what_cannot_start_is_a_row_with_the_reason_and_never_simulated_and_a_failure_does_not_stop_the_rest():
    space = parse_space(
        ["tensor_parallel_size=1,3", "data_parallel_size=1,2", "gpu_memory_utilization=0.1,0.9", "replicas=1,2"]
    )
    rows = rows_of(question(), space)
    assert len(rows) == len(space)
    by = {tuple(row["config"].values()): row for row in rows}
    assert by[1, 1, 0.9, 1]["status"] == "ok"
    assert by[1, 1, 0.1, 1]["status"] == "does not fit"
    assert by[3, 1, 0.9, 1]["status"] == "refused"
    assert "attention heads" in by[3, 1, 0.9, 1]["reason"]
    assert by[1, 2, 0.9, 1]["status"] == "failed"
    assert all(row["runs"] is None for row in rows if row["status"] in ("does not fit", "refused"))
    one, two = by[1, 1, 0.9, 1], by[1, 1, 0.9, 2]
    assert (one["gpus"], two["gpus"]) == (1, 2)
    assert two["load_per_gpu"] == one["load_per_gpu"] / 2
    assert one["usd_per_million_output_tokens"] == pytest.approx(1000 / one["output_throughput"])


def test_more_slots_carry_more_and_the_capacity_of_each_is_within_the_slo():
    asked = question("capacity", "ttft_p99=200ms", "p99_ttft_ms")
    rows = sorted(rows_of(asked, parse_space(["max_num_seqs=1,4,16"])), key=lambda row: row["config"]["max_num_seqs"])
    loads = [row["load"] for row in rows]
    assert loads == sorted(loads)
    assert all(row["p99_ttft_ms"] <= 200 for row in rows)
    assert rows[0]["limit"] == "max_num_seqs"
    assert best_of(rows, goal_of(asked, "throughput"), asked)[0]["config"]["max_num_seqs"] == 16


def test_a_slo_that_nothing_meets_leaves_no_frontier():
    asked = question("capacity", "ttft_p99=1ms", "p99_ttft_ms")
    rows = rows_of(asked, parse_space(["max_num_seqs=4"]))
    assert [row["status"] for row in rows] == ["SLO missed"]
    assert best_of(rows, goal_of(asked, "throughput"), asked) == []


def test_of_configurations_that_do_alike_the_one_that_changes_least_is_shown():
    asked = question(command=f"{SERVE} --max-num-seqs 256")
    best = best_of(rows_of(asked, parse_space(["max_num_seqs=512,256,1024"])), goal_of(asked, "throughput"), asked)
    assert [row["config"] for row in best] == [{"max_num_seqs": 256}]


def test_a_large_space_is_searched_in_as_many_trials_as_allowed_and_goes_on_as_if_never_interrupted():
    space = parse_space(["max_num_seqs=1..256", "max_num_batched_tokens=256..16384", "gpu_memory_utilization=0.05,0.9"])
    asked = question()
    rows = rows_of(asked, space, trials=12)
    key = lambda row: tuple(row["config"].items())  # noqa: E731
    simulated = [row for row in rows if row["status"] == "ok"]
    assert len(simulated) == 12
    assert len({key(row) for row in rows}) == len(rows)
    half = {key(row): row for row in itertools.islice(rows, len(rows) // 2)}
    rest = rows_of(asked, space, trials=12, known=half)
    assert {key(row) for row in rest} | set(half) == {key(row) for row in rows}
    assert rows_of(asked, space, trials=12, known={key(row): row for row in rows}) == []


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 2), max_size=12))
def test_the_frontier_is_what_nothing_dominates(points):
    kept = frontier([(float(x), float(y)) for x, y in points])
    for (x, y), on in zip(points, kept, strict=True):
        dominated = any(a <= x and b <= y and (a, b) != (x, y) for a, b in points)
        assert on == (not dominated)


def test_a_row_without_a_number_is_never_on_the_frontier():
    assert frontier([(np.nan, 0.0), (1.0, 1.0)]).tolist() == [False, True]
    assert frontier([]).tolist() == []
    assert len(Space({})) == 1
