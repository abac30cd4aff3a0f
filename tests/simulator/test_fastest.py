"""Which way a load is run changes nothing but the time it takes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from simulator.cohort import CohortScheduler
from simulator.compiled import keeping
from simulator.compiled.covered import covers
from simulator.compiled.jit import digest_of_sources, is_available
from simulator.scheduler import V1Scheduler
from simulator.server import Load
from simulator.simulate import simulate
from simulator.workload import ConcurrencyWorkload, RateWorkload, table
from tests.simulator.scenario_world import small_scenario
from tests.simulator.second_world import Costs
from tests.simulator.timed_world import step_cost

needs_numba = pytest.mark.skipif(not is_available(), reason="numba is not installed")
LOADS = [
    RateWorkload(rate=20.0, num_prompts=100, prompt_tokens="uniform:10:3000", output_tokens="40"),
    ConcurrencyWorkload(concurrency=7, num_prompts=50, output_tokens="uniform:1:60"),
]


@needs_numba
@pytest.mark.parametrize("workload", LOADS, ids=["open", "closed"])
def test_the_summary_is_the_same_byte_for_byte(workload):
    keeping.prepare()
    scenario = small_scenario(workload=workload)
    assert keeping.is_ready(1)  # so that the first of the three is compiled
    summaries = {simulate(scenario, scheduler=kind).to_json() for kind in (None, CohortScheduler, V1Scheduler)}
    assert len(summaries) == 1


def test_the_functions_of_the_compiled_loop_are_plain_python_too():
    program = (
        "from tests.simulator.test_fast_forward import run_compiled, run, assert_same_records\n"
        "from simulator.scheduler import V1Scheduler\n"
        "for seed in (1, 2, 3): assert_same_records(run_compiled(seed), run(seed, V1Scheduler))\n"
    )
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, env=environment)


def test_other_costs_and_waits_between_requests_are_not_covered():
    scenario = small_scenario()
    engine, requests = scenario.engine, table(scenario.workload, 0)
    plain = Load(table=requests)
    assert covers(engine, step_cost(engine), plain, 1000)
    assert not covers(engine, Costs(), plain, 1000)
    waiting = Load(table=requests, max_concurrency=2, user_start_s=requests.arrival_s[:2])
    assert not covers(engine, step_cost(engine), waiting, 1000)


def test_without_numba_nothing_is_loaded(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert not keeping.is_ready(10**6)


def test_a_change_of_a_source_is_a_change_of_the_key(monkeypatch, tmp_path):
    from simulator.compiled import jit

    (tmp_path / "compiled").mkdir()
    (tmp_path / "compiled" / "pool.py").write_text("x = 1\n")
    (tmp_path / "step_formula.py").write_text("y = 1\n")
    monkeypatch.setattr(jit, "HERE", tmp_path / "compiled")
    before = digest_of_sources()
    (tmp_path / "compiled" / "pool.py").write_text("x = 2\n")
    assert digest_of_sources() != before
