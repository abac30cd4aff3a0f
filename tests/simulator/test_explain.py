"""Explanations on small worlds with exact times, and on random ones: parts add up, chunks are the scheduler's."""

import numpy as np
import pytest

from simulator.explain_preemption import onset
from simulator.explain_token import late_token, token_steps, worst_gap
from simulator.explain_ttft import PARTS, Reason, first_tokens
from simulator.records import Records, Status
from simulator.request_list import Row
from simulator.scenario import Scenario
from simulator.simulate import simulate
from simulator.watch import Chunks, watch
from simulator.workload import RateWorkload, RequestsWorkload
from tests.simulator.records_world import add_run, add_step, small_world

SERVER = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192"


def scenario(flags="", rows=None, **load):
    workload = RequestsWorkload(rows=tuple(rows)) if rows else RateWorkload(**load)
    return Scenario.from_command(f"{SERVER} {flags}", profile="h200-llama-3.1-8b", workload=workload)


def engine(flags=""):
    return scenario(flags, rate=1).engine


def parts_of(found, request):
    row = found.row(request)
    return {name: pytest.approx(float(found.parts_s[name][row])) for name in PARTS if found.parts_s[name][row]}


# TTFT


def test_the_parts_of_the_small_world_have_their_exact_times():
    found = first_tokens(small_world(), engine())
    assert parts_of(found, 0) == {"own last step": 1.0, "delivery": 0.2}
    assert parts_of(found, 1) == {"front end": 0.1, "step in progress": 0.4, "own last step": 1.0, "delivery": 0.2}


def waiting_world(**third) -> Records:
    """Request 1 comes at 0.5, is passed over by the plans at 1 and 2 and admitted at 3; steps last a second."""
    records = Records.for_requests(np.array([16, 8]), num_gpu_blocks=11, block_size=16)
    for second in range(5):
        add_step(records, second, second + 1, second + 1.1, **(third if second == 2 else {"waiting": 1, "tokens": 512}))
    add_run(records, 0, 0, 5)
    add_run(records, 1, 3, 1)
    records.sent_s[:] = type(records.sent_s)("d", [0.0, 0.4])
    records.engine_arrival_s[:] = type(records.sent_s)("d", [0.0, 0.5])
    records.first_scheduled_s[:] = type(records.sent_s)("d", [0.0, 3.0])
    records.first_token_s[:] = type(records.sent_s)("d", [1.1, 4.3])
    records.last_token_s[:] = type(records.sent_s)("d", [5.1, 4.3])
    records.status[:] = type(records.status)("B", [Status.FINISHED, Status.FINISHED])
    records.end_s = 5.1
    return records


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"preempted": 1}, Reason.preempting),
        ({"running": 4}, Reason.seqs),
        ({"tokens": 512}, Reason.budget),
        ({}, Reason.blocks),
    ],
)
def test_waiting_is_told_by_what_the_plan_ran_out_of(state, reason):
    found = first_tokens(waiting_world(**state), engine("--max-num-seqs 4 --max-num-batched-tokens 512"))
    expected = {"front end": 0.1, "step in progress": 0.5, "own last step": 1.0, "delivery": 0.3}
    expected[Reason.budget.value] = 1.0  # the plan at 1
    expected[reason.value] = expected.get(reason.value, 0.0) + 1.0  # the plan at 2
    assert parts_of(found, 1) == expected


WORLDS = {
    "idle": ("", {"rate": 2, "num_prompts": 30}),
    "seqs": ("--max-num-seqs 3", {"rate": 15, "num_prompts": 60}),
    "budget": ("--max-num-batched-tokens 512 --no-async-scheduling", {"rate": 30, "num_prompts": 60}),
    "blocks": ("--num-gpu-blocks-override 520 --max-model-len 4096", {"rate": 40, "num_prompts": 80}),
    "threshold": ("--long-prefill-token-threshold 200 --max-num-batched-tokens 600", {"rate": 20, "num_prompts": 50}),
    "eager": ("--enforce-eager --scheduling-policy priority", {"rate": 20, "num_prompts": 50}),
}


@pytest.fixture(scope="module", params=WORLDS)
def world(request):
    flags, load = WORLDS[request.param]
    lengths = {"prompt_tokens": "lognormal:500:0.8:8:3000", "output_tokens": "uniform:2:120"}
    return watch(scenario(flags, **load, **lengths))


def test_the_parts_add_up_to_ttft_and_none_is_negative(world):
    found = first_tokens(world.result.records, world.result.scenario.engine)
    assert np.abs(sum(found.parts_s.values()) - found.ttft_s).max() < 1e-12 * max(1.0, found.ttft_s.max())
    assert min(values.min() for values in found.parts_s.values()) > -1e-12


def test_the_watched_run_is_the_run(world):
    again = simulate(world.result.scenario).summary()
    for key, value in world.result.summary().items():
        if isinstance(value, float):
            assert value == pytest.approx(again[key], rel=1e-9), key


def test_the_chunks_of_a_request_are_its_prompt_and_what_was_computed_again(world):
    records, chunks = world.result.records, world.chunks
    steps = np.bincount(chunks.step, weights=chunks.tokens, minlength=records.num_steps)
    ones = np.bincount(chunks.step, weights=chunks.tokens == 1, minlength=records.num_steps)
    prefill = np.asarray(records.step_tokens) - np.asarray(records.step_decode_reqs)
    assert (steps - ones == prefill).all()
    for request in range(records.num_requests):
        mine = chunks.of(request)
        first = mine[chunks.step[mine] <= token_steps(records, request)[0]]
        if not records.preemptions[request]:
            assert chunks.tokens[first].sum() == records.prompt_tokens[request] - records.cached_tokens[request]
        assert len(chunks.preempted_step[chunks.preempted_request == request]) == records.preemptions[request]


def test_v0_is_explained_without_chunks():
    old = Scenario.from_command(
        SERVER, gpu="H200", vllm_version="0.6.3", workload=RateWorkload(rate=5, num_prompts=20, output_tokens="20")
    )
    watched = watch(old)
    assert watched.chunks is None
    found = first_tokens(watched.result.records, old.engine)
    assert np.abs(sum(found.parts_s.values()) - found.ttft_s).max() < 1e-9
    assert late_token(watched.result.records, *worst_gap(watched.result.records), None).prefill == {}


# tokens


def test_the_gap_of_a_pause_is_a_preemption_with_what_was_computed_again():
    chunks = Chunks(*(np.array(column) for column in ([2, 3, 3], [0, 0, 1], [5, 7, 9], [0, 5, 0], [2], [1])))
    late = late_token(small_world(), 1, 2, chunks)
    assert (late.cause, late.preempted_step, late.recomputed_tokens) == ("preempted", 2, 9)
    assert late.prefill == {0: 12}
    assert (late.gap_s, late.engine_s) == (pytest.approx(5.1 - 2.2), pytest.approx(3.0))
    assert late_token(small_world(), 1, 2, None).cause == "left out"


def test_a_step_with_prompts_of_others_is_a_mixed_one():
    records = small_world()
    records.step_tokens[1] = 40
    late = late_token(records, 0, 2, None)
    assert (late.cause, late.step, late.tokens) == ("mixed step", 1, 40)
    assert late.engine_s + late.delivery_s == pytest.approx(late.gap_s)


def test_another_graph_mode_and_a_slow_delivery_are_named():
    records = small_world()
    records.step_mode[1] = 0
    assert late_token(records, 0, 2, None).cause == "graph"
    records = small_world()
    records.step_deliver_s[1], records.step_deliver_s[2] = 4.5, 4.5
    assert late_token(records, 0, 2, None).cause == "front end"
    assert late_token(small_world(), 0, 3, None).cause == "step"


def test_a_token_waits_while_the_cpu_launches_a_prompt_behind_it():
    """Step 1 is done after 0.2 s; the CPU is at the launch of step 2, 512 tokens without a graph, until 2.0."""
    records = small_world()
    records.step_gpu_s[1], records.step_plan_s[2] = 0.2, 1.1
    assert late_token(records, 0, 2, None).cause == "step"
    records.step_tokens[2], records.step_mode[2] = 512, 0
    late = late_token(records, 0, 2, None)
    assert (late.cause, late.step, late.next_tokens, late.next_mode) == ("next launch", 1, 512, 0)
    assert late_token(records, 0, 3, None).cause == "mixed step"


def test_the_worst_gap_is_the_longest_one(world):
    records = world.result.records
    request, token = worst_gap(records)
    longest = world.result.latencies.itl_s.values.max()
    assert late_token(records, request, token, world.chunks).gap_s == pytest.approx(longest)
    assert worst_gap(records, request) == (request, token)


@pytest.mark.parametrize("token", [1, 4])
def test_a_token_that_is_not_there_is_refused(token):
    with pytest.raises(ValueError, match="request 0 has 3 tokens; a gap lies before tokens 2 to 3"):
        late_token(small_world(), 0, token, None)


def test_a_long_prompt_is_named_as_what_delayed_a_token():
    rows = [
        Row(arrival_s=0, prompt_tokens=20, output_tokens=200),
        Row(arrival_s=0.5, prompt_tokens=6000, output_tokens=2),
    ]
    watched = watch(scenario("--max-num-batched-tokens 8192", rows=rows))
    late = late_token(watched.result.records, *worst_gap(watched.result.records), watched.chunks)
    assert (late.request, late.cause, late.prefill) == (0, "mixed step", {1: 6000})
    assert late.gap_s > 5 * late.usual_s


# preemption


def test_the_onset_counts_who_ran_and_what_they_need():
    begun = onset(small_world())
    assert (begun.step, begun.time_s, begun.running, begun.waiting) == (2, 2.0, 2, 0)
    # request 0: 16 + 3 tokens, request 1: 8 + 2 tokens, in blocks of 16
    assert (begun.needed_blocks, begun.usable_blocks, begun.missing_blocks) == (3, 10, 0)
    assert (begun.preemptions, begun.requests, begun.recomputed_tokens) == (1, 1, 9)
    assert (begun.fitting_seqs, begun.peak_running) == (6, 2)


def test_without_preemption_there_is_no_onset():
    assert onset(simulate(scenario(rate=1, num_prompts=3)).records) is None
