"""The fast path (cohort, stretches) and the plain one, step by step, write the same records."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cohort import CohortScheduler
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


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_every_column_is_the_same_to_a_nanosecond(seed):
    plain, fast = run(seed, V1Scheduler), run(seed, CohortScheduler)
    for name in (*STEP_COLUMNS, *REQUEST_TIMES, *REQUEST_COUNTS, "status"):
        expected, got = np.asarray(getattr(plain, name), float), np.asarray(getattr(fast, name), float)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9, err_msg=name)
    runs = [sorted(zip(r.run_request, r.run_first_step, r.run_steps, strict=True)) for r in (plain, fast)]
    assert runs[0] == runs[1]
    assert (plain.prefix_queries_tokens, plain.prefix_hits_tokens) == (
        fast.prefix_queries_tokens,
        fast.prefix_hits_tokens,
    )


def test_the_same_seed_gives_the_same_bytes():
    first, second = run(7, CohortScheduler), run(7, CohortScheduler)
    assert all(getattr(first, name) == getattr(second, name) for name in STEP_COLUMNS)
