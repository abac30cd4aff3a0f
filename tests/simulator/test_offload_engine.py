"""V1's KV offload on the clock: a second a step, a quarter of a second a block, and what must hold in any world."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator.metrics import engine_totals
from simulator.records import Status
from simulator.timeline import timeline
from tests.simulator.host_world import Copies, offload, server
from tests.simulator.test_engine import serve

#: A request of 16 tokens, one that takes all of the GPU's blocks, and one that begins like the first.
PROMPTS, OUTPUTS = [16, 60, 20], [1, 1, 2]


def world(third_s: float = 10.0, **more):
    ends = np.array([16, 1, 16])  # no whole block of the second is shared
    segments = (np.arange(4), np.zeros(3, dtype=np.int64), ends)
    return offload(PROMPTS, OUTPUTS, [0, 4, third_s], gpu=16, segments=segments, max_num_batched_tokens=64, **more)


def test_ttft_is_the_load_then_a_step():
    records = world()
    assert records.offload.external_tokens.tolist() == [0, 0, 16]
    # Four blocks take a second; an idle loop looks once a millisecond.
    assert records.first_token_s[2] == pytest.approx(12, abs=2.1e-3)
    assert records.first_token_s[2] >= 12


def test_a_job_has_its_own_cost_and_one_direction_is_a_queue():
    records = world(copies=Copies(job_s=0.5))
    assert records.first_token_s[2] == pytest.approx(12.5, abs=2.1e-3)
    # The first request's four blocks, after its step; the second's 15, after its own.
    assert records.offload.store_s == pytest.approx(0.5 + 1 + 0.5 + 3.75 + 0.5 + 0.25)
    assert (records.offload.stored_blocks, records.offload.loaded_blocks) == (20, 4)


@pytest.mark.parametrize(("is_async", "first_s"), [(False, 12.75), (True, 14.75)])
def test_a_load_beside_running_steps_is_admitted_at_a_step_boundary(is_async, first_s):
    segments = (np.arange(5), np.zeros(4, dtype=np.int64), np.array([16, 1, 1, 16]))
    records = offload(
        [16, 60, 4, 20], [1, 1, 30, 2], [0, 4, 8, 9.5], gpu=16, segments=segments, async_scheduling=is_async
    )
    # The third request waits for copies until 8.75, so steps end at 9.75, 10.75, ...  The load is ordered at 9.75 and
    # done at 10.75, which the launch at 10.75 reports.  Sync: with the result at 11.75, and the request joins then.
    # Async: that launch's result comes at 12.75, and the request joins the plan made then, which runs from 13.75.
    assert records.first_token_s[3] == first_s


def test_stores_begin_when_the_step_is_over_and_the_next_one_begins():
    records = offload([16, 4], [3, 1], [0, 0])
    assert records.step_plan_s.tolist() == [0, 1, 2]
    assert records.offload.step_stored_blocks.tolist()[:2] == [4, 1]


def test_the_engine_waits_for_copies_before_it_overwrites_their_blocks():
    slow = Copies(block_s=3.0)
    records = offload([16, 60], [1, 1], [0, 1.5], gpu=16, copies=slow)
    # Copies of 4 blocks begin at 1 (the loop turns on) and end at 13; the second request takes these blocks.
    assert records.offload.flush_s == pytest.approx(11.5, abs=2e-3)
    assert records.first_token_s[1] == pytest.approx(14, abs=2e-3)


def test_what_it_did_stands_in_timeline_and_totals():
    records = world()
    assert timeline(records, 1.0)["stored_blocks"][-1] == 20
    totals = engine_totals(records)
    assert totals["requests_loaded"] == 1
    assert totals["external_prefix_cache_hit_rate"] == pytest.approx(16 / (16 + 60 + 20))
    assert totals["mean_ttft_loaded_ms"] == pytest.approx(2000, abs=2.1)
    assert totals["mean_load_ms"] == pytest.approx(1000, abs=2.1)


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(1, 25),
    gpu=st.integers(14, 60),
    cpu=st.integers(0, 60),
    shared=st.integers(0, 40),
    is_async=st.booleans(),
    priority=st.booleans(),
    factor=st.sampled_from([1, 1, 2]),
    block_s=st.sampled_from([0.0, 0.01, 0.4, 5.0]),
    seed=st.integers(0, 10**6),
)
@example(n=23, gpu=14, cpu=14, shared=11, is_async=False, priority=False, factor=1, block_s=0.01, seed=0)
def test_every_token_arrives_and_no_block_is_lost(n, gpu, cpu, shared, is_async, priority, factor, block_s, seed):
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.integers(1, 40, n), rng.integers(1, 12, n)
    segments = (np.arange(n + 1), rng.integers(0, 3, n), np.minimum(prompts, rng.integers(0, 41, n) + shared))
    made = server(
        prompts, outputs, np.cumsum(rng.exponential(1.0, n)), gpu=gpu, cpu=cpu, segments=segments,
        kv_offloading_size=1.0, kv_offloading_block_factor=factor, async_scheduling=is_async,
        scheduling_policy="priority" if priority else "fcfs", copies=Copies(block_s), max_model_len=52,
        scheduler_reserve_full_isl=bool(seed % 2), long_prefill_token_threshold=[0, 8][seed % 3 == 0],
    )  # fmt: skip
    records = made.run()
    if Status.UNFINISHED in records.status:
        # vLLM's: a request that has loaded holds blocks, which one in front of it waits for: a more important one, or
        # one that was passed over while it was loading.
        assert any(len(request.blocks) for request in made.scheduler.skipped)
        return
    assert set(records.status) == {Status.FINISHED}
    for row in range(n):
        assert len(records.token_times(row)) == outputs[row]
    assert made.scheduler.blocks.num_free == gpu - 1
    assert not made.scheduler.has_requests
    assert len(made.scheduler.tier.order()) == len(made.scheduler.tier) <= cpu  # nothing in transit, nothing read


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 25), gpu=st.integers(14, 60), is_async=st.booleans(), seed=st.integers(0, 10**6))
def test_a_tier_without_blocks_changes_nothing(n, gpu, is_async, seed):
    rng = np.random.default_rng(seed)
    prompts, outputs, arrivals = rng.integers(1, 40, n), rng.integers(1, 12, n), np.cumsum(rng.exponential(1.0, n))
    # Before 0.24: from then on the blocks of victims come back a step later.
    limits = {"max_model_len": 52, "async_scheduling": is_async, "block_size": 4, "vllm_version": "0.23.0"}
    plain = serve(prompts, outputs, arrivals, blocks=gpu, **limits)
    tiered = offload(prompts, outputs, arrivals, gpu=gpu, cpu=0, **limits)
    for name in ("step_plan_s", "step_tokens", "step_free_blocks", "first_token_s", "last_token_s", "preemptions"):
        assert getattr(plain, name) == getattr(tiered, name), name
