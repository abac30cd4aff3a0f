"""The fast paths (cohort and stretches; the compiled loop) and the plain one write the same records, bit by bit."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cohort import CohortScheduler
from simulator.compiled.jit import is_available
from simulator.compiled.server import simulate_load
from simulator.engine_config import EngineConfig
from simulator.records import REQUEST_COUNTS, REQUEST_TIMES, STEP_COLUMNS, Records
from simulator.request_table import RequestTable
from simulator.scheduler import V1Scheduler
from simulator.server import Load, Server
from tests.simulator.timed_world import step_cost


def random_world(seed: int) -> tuple[EngineConfig, int, Load]:
    """An engine, a pool and a load, every switch drawn at random."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    n, rate = draw.choice([20, 100]), draw.choice([0.5, 5, 24, 80])
    prompts = rng.integers(1, draw.choice([50, 600, 3000]), n)
    outputs = rng.integers(1, draw.choice([3, 50, 300]), n)
    engine = EngineConfig(
        model="random",
        max_model_len=4096,
        max_num_batched_tokens=draw.choice([256, 2048, 8192]),
        max_num_seqs=draw.choice([2, 8, 64, 256]),
        async_scheduling=draw.random() < 0.6,
        enable_prefix_caching=draw.random() < 0.7,
        long_prefill_token_threshold=draw.choice([0, 0, 0, 100]),
        scheduling_policy=draw.choice(["fcfs", "fcfs", "priority"]),
        watermark=draw.choice([0, 0, 0.05]),
        enable_chunked_prefill=draw.random() < 0.85,
        scheduler_reserve_full_isl=draw.random() < 0.7,
        vllm_version=draw.choice(["0.24.0", "0.24.0", "0.10.2", "0.11.0", "0.14.0", "0.32.0"]),
        cudagraph_capture_sizes=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    )
    shared = (np.arange(n + 1), rng.integers(0, 4, n), np.minimum(prompts, rng.integers(1, 2000, n)))
    concurrency = draw.choice([None, None, 1, 4, 40])
    table = RequestTable.build(
        prompt_tokens=prompts,
        output_tokens=outputs,
        arrival_s=np.cumsum(rng.exponential(1 / rate, n)) if concurrency is None or draw.random() < 0.3 else None,
        segments=shared if draw.random() < 0.5 else None,
        priority=rng.integers(0, 3, n),
    )
    return engine, draw.choice([300, 600, 5000]), Load(table=table, max_concurrency=concurrency)


def run(seed: int, scheduler: type[V1Scheduler]) -> Records:
    engine, blocks, load = random_world(seed)
    return Server(engine, blocks, step_cost(engine), load, seed=seed, scheduler=scheduler).run()


def run_compiled(seed: int) -> Records:
    engine, blocks, load = random_world(seed)
    return simulate_load(engine, blocks, step_cost(engine), load, seed=seed)[0]


def assert_same_records(got: Records, expected: Records) -> None:
    for name in (*STEP_COLUMNS, *REQUEST_TIMES, *REQUEST_COUNTS, "status"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name), err_msg=name)
    runs = [sorted(zip(r.run_request, r.run_first_step, r.run_steps, strict=True)) for r in (got, expected)]
    assert runs[0] == runs[1]
    for name in ("prefix_queries_tokens", "prefix_hits_tokens", "end_s"):
        assert getattr(got, name) == getattr(expected, name)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_every_column_of_cohort_and_stretches_is_that_of_the_plain_path(seed):
    assert_same_records(run(seed, CohortScheduler), run(seed, V1Scheduler))


@pytest.mark.skipif(not is_available(), reason="numba is not installed")
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_every_column_of_the_compiled_loop_is_that_of_the_plain_path(seed):
    assert_same_records(run_compiled(seed), run(seed, V1Scheduler))


def test_the_same_seed_gives_the_same_bytes():
    first, second = run(7, CohortScheduler), run(7, CohortScheduler)
    assert all(getattr(first, name) == getattr(second, name) for name in STEP_COLUMNS)
