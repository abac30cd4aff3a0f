"""How time grows, by ratios within one run: never an absolute time."""

from __future__ import annotations

import time

import pytest

from simulator.blocks import BlockPool
from simulator.cohort import CohortScheduler
from simulator.compiled import keeping
from simulator.compiled.jit import is_available
from simulator.request import Request
from simulator.scheduler import V1Scheduler
from simulator.simulate import simulate
from simulator.workload import RateWorkload
from tests.simulator.scenario_world import small_scenario

needs_numba = pytest.mark.skipif(not is_available(), reason="numba is not installed")


def cpu_s(
    num_prompts: int, scheduler: type[V1Scheduler] | None, *, blocks: int | None = None, rate: float = 40
) -> float:
    """CPU time of a run, the best of two."""
    scenario = small_scenario(workload=RateWorkload(rate=rate, num_prompts=num_prompts))
    if blocks is not None:
        engine = scenario.engine.model_copy(update={"num_gpu_blocks_override": blocks})
        scenario = scenario.model_copy(update={"engine": engine})
    times = []
    for _ in range(2):
        begin = time.process_time()
        simulate(scenario, scheduler=scheduler)
        times.append(time.process_time() - begin)
    return min(times)


def test_the_python_path_is_faster_than_the_plain_one():
    assert 1.3 * cpu_s(300, CohortScheduler, rate=5) < cpu_s(300, V1Scheduler, rate=5)


@needs_numba
def test_the_compiled_path_is_many_times_faster_than_the_plain_one():
    keeping.prepare()
    assert 5 * cpu_s(1000, None) < cpu_s(1000, V1Scheduler)


@needs_numba
def test_ten_times_the_requests_take_about_ten_times_the_time():
    keeping.prepare()
    assert cpu_s(40_000, None) < 20 * cpu_s(4_000, None)


@pytest.mark.parametrize("kind", [CohortScheduler, pytest.param(None, marks=needs_numba)], ids=["python", "compiled"])
def test_a_pool_of_a_million_blocks_costs_no_more_than_a_small_one(kind):
    keeping.prepare()
    small, large = (cpu_s(500, kind, blocks=blocks) for blocks in (5_000, 1_000_000))
    assert large < 2 * small + 0.05


def test_a_million_blocks_are_not_touched_to_give_out_ten():
    pool = BlockPool(1_000_000, 16, caching=True)
    request = Request(0, 160, 10)
    pool.grow(request, 10)
    assert request.blocks == list(range(1, 11))
    pool.free(request)
    assert pool.num_free == 999_999
