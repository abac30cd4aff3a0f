"""V0's clock: worlds of a second a step, and copies of a quarter of a second a block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.records import Status
from simulator.timeline import timeline
from simulator.v0_rules import NO_SWAP_SPACE
from tests.simulator.host_world import Costs, ScheduleCosts, v0
from tests.simulator.test_engine import serve

CPU = Costs(launch=0.25, update=0.25)


def times(records, row: int) -> list[float]:
    return records.token_times(row).tolist()


def test_without_async_output_the_cpu_work_stands_in_the_step():
    assert times(v0([1], [3], [0], costs=CPU), 0) == [1.25, 2.5, 3.75]


def test_async_output_leaves_when_the_next_step_was_launched_and_costs_an_extra_decode():
    records = v0([1], [3], [0], costs=CPU, disable_async_output_proc=False)
    assert times(records, 0) == [1.5, 2.5, 3.5]
    assert list(records.step_tokens) == [1, 1, 1, 1]


def test_async_output_leaves_at_once_if_nothing_follows():
    # Longer than max_model_len: there is no extra decode, so the last token waits for no launch.
    records = v0([4], [50], [0], costs=CPU, disable_async_output_proc=False, max_model_len=6)
    assert times(records, 0) == [1.5, 2.5, 3.25]


def test_a_prompt_stops_all_decodes():
    records = v0([1, 60], [4, 1], [0, 1.5])
    assert times(records, 0) == [1, 2, 4, 5]
    assert times(records, 1) == [3]


def test_multi_step_asks_the_scheduler_once():
    steps = {"num_scheduler_steps": 3, "costs": ScheduleCosts()}
    assert times(v0([1], [4], [0], **steps), 0) == [1.5, 3, 4, 5]
    assert times(v0([1], [4], [0], **steps, multi_step_stream_outputs=False), 0) == [1.5, 5, 5, 5]


def test_a_newcomer_waits_for_the_end_of_a_multi_step_run():
    records = v0([1, 1], [4, 1], [0, 1.5], num_scheduler_steps=3)
    assert times(records, 1) == [5]


def test_a_swap_is_paid_before_the_step_and_loses_no_token():
    records = v0([8, 8], [3, 3], [0, 0], gpu=5, preemption_mode="swap")
    assert times(records, 0) == [1, 3.5, 4.5]  # the second request's prompt takes the step in between
    assert times(records, 1) == [2, 6, 7]
    assert list(records.swap.step_swapped_out) == [0, 0, 2, 0, 0, 0]
    assert list(records.swap.step_swapped_in) == [0, 0, 0, 0, 2, 0]
    assert list(records.swap.step_swapped) == [0, 0, 1, 1, 0, 0]
    assert list(records.swap.step_free_cpu_blocks) == [100, 100, 98, 98, 100, 100]
    assert list(records.swap.step_swap_s) == [0, 0, 0.5, 0, 0.5, 0]
    assert (records.recomputed_tokens[1], records.preemptions[1]) == (0, 1)


def test_recompute_is_paid_with_another_prompt():
    records = v0([8, 8], [3, 3], [0, 0], gpu=5)
    assert times(records, 0) == [1, 3, 4]
    assert times(records, 1) == [2, 5, 6]
    assert (records.recomputed_tokens[1], sum(records.swap.step_swapped_out)) == (9, 0)


def test_the_engine_dies_of_a_swap_that_does_not_fit():
    records = v0([8, 8, 8], [3, 3, 3], [0, 0, 20], gpu=5, cpu=0, preemption_mode="swap")
    assert records.died == NO_SWAP_SPACE
    assert records.died_s == 2
    assert list(records.status) == [Status.UNFINISHED] * 3
    assert records.num_steps == 2


def test_a_prompt_beyond_the_limit_is_ignored_and_its_client_goes_on():
    records = v0([65, 4], [3, 2], concurrency=1)
    assert list(records.status) == [Status.IGNORED, Status.FINISHED]
    assert records.output_tokens[0] == 0
    assert times(records, 1) == [1, 2]


def test_a_prompt_that_outgrew_the_pool_is_ignored_with_what_it_has():
    records = v0([8], [50], [0], gpu=3)
    assert list(records.status) == [Status.IGNORED]
    assert records.output_tokens[0] == 5  # 12 slots: 8 and 4 tokens, and one whose KV is not computed
    assert times(records, 0) == [1, 2, 3, 4, 5]


def test_prompts_run_without_graphs_and_so_do_long_contexts():
    modes = list(v0([5], [4], [0], max_seq_len_to_capture=7).step_mode)
    assert modes == [0, 2, 2, 0]


def test_only_v0_has_the_columns_of_swapping():
    records = v0([8, 8], [3, 3], [0, 0], gpu=5, preemption_mode="swap")
    shown = timeline(records, 1.0)
    assert shown["vllm:num_requests_swapped"].tolist() == [0, 1, 1, 1, 0, 0, 0]
    assert shown["vllm:cpu_cache_usage_perc"] == pytest.approx([0, 0.02, 0.02, 0.02, 0, 0, 0])
    assert shown["swapped_out_blocks"].tolist() == [0, 2, 2, 2, 2, 2, 2]
    assert "vllm:num_requests_swapped" not in timeline(serve([1], [3], [0]), 1.0)


def preemptions(run, blocks: int) -> int:
    return sum(run([10] * 6, [11] * 6, [0] * 6, blocks).step_preempted)


@pytest.mark.parametrize("engine", ["V0", "V1"])
def test_the_kv_cliff_is_at_the_block_where_it_is(engine):
    """Six requests end with 20 computed tokens, 5 blocks each.

    V1 keeps a null block: 31 blocks are enough.  V0 has none, but wants a free block for each decode, whether it needs
    it or not: the last of the six also finds one with 31, as nobody needs a sixth block.
    """

    def run(prompts, outputs, arrivals, blocks):
        if engine == "V0":
            return v0(prompts, outputs, arrivals, gpu=blocks)
        return serve(prompts, outputs, arrivals, blocks=blocks, block_size=4)

    assert preemptions(run, 31) == 0
    assert preemptions(run, 30) > 0


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_ten_percent_more_than_fits_costs_latency_not_requests(mode):
    fits, more = (v0([10] * n, [11] * n, [0] * n, gpu=100, max_num_seqs=40, preemption_mode=mode, max_model_len=40,
                     max_num_batched_tokens=400) for n in (19, 21))  # fmt: skip
    assert sum(fits.step_preempted) == 0
    assert sum(more.step_preempted) > 0
    assert list(more.status) == [Status.FINISHED] * 21
    assert more.end_s > fits.end_s


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20)), min_size=1, max_size=10),
    gpu=st.integers(3, 40),
    cpu=st.integers(0, 40),
    mode=st.sampled_from(["swap", "recompute"]),
    is_sync=st.booleans(),
    steps=st.sampled_from([1, 1, 4]),
    seed=st.integers(0, 1000),
)
def test_any_number_of_cpu_blocks_comes_to_an_end_that_is_named(lengths, gpu, cpu, mode, is_sync, steps, seed):
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1.0, len(lengths)))
    prompts, outputs = zip(*lengths, strict=True)
    records = v0(
        prompts, outputs, arrivals, gpu=gpu, cpu=cpu, preemption_mode=mode, disable_async_output_proc=is_sync,
        num_scheduler_steps=steps, max_model_len=64,
    )  # fmt: skip
    status = list(records.status)
    if not records.died:
        assert set(status) <= {Status.FINISHED, Status.IGNORED}
        assert records.num_steps == len(records.step_emit_s) == len(records.step_deliver_s)
    for row, (_prompt, wanted) in enumerate(lengths):
        if status[row] == Status.FINISHED:
            got = records.token_times(row)
            assert len(got) == records.output_tokens[row] == wanted
            assert (np.diff(got) >= -1e-9).all()
