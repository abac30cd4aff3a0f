"""What counts of a run: the warm-up goes, the end goes, a growing queue shows."""

import numpy as np
import pytest

from apps.planning.measure import Ask, measure
from apps.planning.slo import Slo
from apps.planning.steady import SAMPLES, mser5
from simulator.workload import ConcurrencyWorkload, RateWorkload
from tests.apps.planning.queue_world import STEP_S, queue, scenario  # noqa: F401

SLO = Slo.parse("ttft_mean=1s")


def test_mser_cuts_a_ramp_and_nothing_of_what_is_steady():
    noise = np.random.default_rng(0).normal(0, 0.01, SAMPLES)
    ramp = np.minimum(np.arange(SAMPLES) / 50, 1.0) + noise
    cut, settled = mser5(ramp)
    assert 40 <= cut <= 60
    assert settled
    assert mser5(np.ones(SAMPLES) + noise)[0] <= 20
    assert not mser5(np.arange(SAMPLES, dtype=float))[1]


@pytest.mark.parametrize(("load", "keeps_up"), [(5.0, True), (9.0, True), (11.0, False), (20.0, False)])
def test_a_queue_above_its_capacity_does_not_keep_up_however_loose_the_slo(queue, load, keeps_up):  # noqa: F811
    question = scenario(queue, RateWorkload(rate=1, prompt_tokens="16", output_tokens="1"))
    run = measure(Ask(question, Slo.parse("ttft_mean=1000s"), "rate", load, 2000))
    assert run.window.keeps_up is keeps_up
    assert run.met is keeps_up
    if not keeps_up:
        assert run.window.growth == pytest.approx(1 - 1 / (load * STEP_S), abs=0.05)


def test_requests_held_back_by_the_client_are_a_queue_too(queue):  # noqa: F811
    load = RateWorkload(rate=1, prompt_tokens="16", output_tokens="1", max_concurrency=2)
    assert not measure(Ask(scenario(queue, load), SLO, "rate", 20.0, 1000)).met


def test_a_closed_loop_is_cut_after_its_herd_and_always_keeps_up(queue):  # noqa: F811
    load = ConcurrencyWorkload(concurrency=1, prompt_tokens="16", output_tokens="1")
    run = measure(Ask(scenario(queue, load), SLO, "concurrency", 7, 500))
    assert run.window.start_s > 0
    assert run.metrics["mean_e2el_ms"] == pytest.approx(7 * STEP_S * 1e3, rel=1e-6)
    assert run.metrics["request_throughput"] == pytest.approx(1 / STEP_S, rel=0.01)
    assert run.scores[-1] < 0


def test_users_who_think_obey_littles_law(queue):  # noqa: F811
    load = ConcurrencyWorkload(concurrency=1, think_time_s="exponential:1", prompt_tokens="16", output_tokens="1")
    run = measure(Ask(scenario(queue, load), SLO, "users", 6, 3000))
    cycle_s = 1.0 + run.metrics["mean_e2el_ms"] / 1e3
    assert run.metrics["request_throughput"] * cycle_s == pytest.approx(6, rel=0.05)
