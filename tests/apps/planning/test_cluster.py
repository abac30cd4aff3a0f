"""The same simulations on a real Dask cluster of this machine."""

import os

import pytest

from apps.planning.capacity import Effort, capacity
from apps.planning.runs import Failure, run_all, run_many
from simulator.errors import InputError
from simulator.scenario import Scenario
from simulator.simulate import simulate
from simulator.workload import RateWorkload


@pytest.fixture(scope="module")
def cluster():
    import dask
    from distributed import LocalCluster

    fewer_deaths = dask.config.set({"distributed.scheduler.allowed-failures": 1})  # a worker takes a second to start
    with (
        fewer_deaths,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL") as running,
    ):
        yield running.scheduler_address


def scenario(rate: float) -> Scenario:
    load = RateWorkload(rate=rate, num_prompts=20, prompt_tokens="64", output_tokens="8")
    return Scenario.from_command("vllm serve meta-llama/Llama-3.1-8B", profile="h200-llama-3.1-8b", workload=load)


def ttft(asked: Scenario) -> float:
    if asked.workload.rate == 3:
        raise ValueError("three")
    return simulate(asked).summary()["mean_ttft_ms"]


def die(number: int) -> int:
    if number == 1:
        os._exit(9)
    return number


def test_a_cluster_gives_the_numbers_of_this_machine_and_failures_alike(cluster):
    questions = [scenario(rate) for rate in (1, 2, 3, 4)]
    there = run_all(ttft, questions, workers=cluster)
    assert there == run_all(ttft, questions, workers=1)
    assert there[2] == Failure("ValueError", "three")


def test_a_capacity_is_the_same_from_a_cluster(cluster):
    effort = Effort(draws=0, replications=2, most_replications=2, requests=100, tolerance=0.2, confirm=False)
    there, here = (capacity(scenario(1), "ttft_p99=100ms", effort=effort, workers=who) for who in (cluster, 1))
    assert there.as_dict() == here.as_dict()


def where(_: int) -> int:
    return os.getpid()


def test_a_cluster_of_one_core_computes_too():
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL") as small:
        assert os.getpid() not in run_all(where, range(3), workers=small.scheduler_address)


def test_a_task_that_kills_its_workers_is_one_failure(cluster):
    found = dict(run_many(die, range(6), workers=cluster))
    assert found.pop(1) == Failure("LostTask", "the workers that ran it died; give them more memory")
    assert found == {number: number for number in (0, 2, 3, 4, 5)}  # also those that waited at the same workers


def test_a_cluster_that_does_not_answer_is_one_line(monkeypatch):
    monkeypatch.setattr("apps.planning.cluster.TIMEOUT_S", 0.5)
    with pytest.raises(InputError, match=r"no Dask cluster answers at tcp://127\.0\.0\.1:9 \(.*start it, or correct"):
        run_all(ttft, [scenario(1), scenario(2)], workers="tcp://127.0.0.1:9")


def test_workers_with_another_servecast_are_refused(cluster, monkeypatch):
    monkeypatch.setattr("apps.planning.cluster._here", lambda: "0.0.0")
    with pytest.raises(InputError, match="install the same on every worker"):
        run_all(ttft, [scenario(1), scenario(2)], workers=cluster)
