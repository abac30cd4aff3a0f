"""Several replicas: exact times of small worlds, queueing theory, and equality with servers alone."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from simulator.autoscaler import Autoscaler
from simulator.engine_config import EngineConfig
from simulator.errors import InputError
from simulator.fleet import Part, run_fleet
from simulator.replica import Machine
from simulator.request_table import RequestTable
from simulator.routing import Routing
from simulator.server import Load
from simulator.simulate import simulate
from simulator.workload import ConcurrencyWorkload, RateWorkload, SessionsWorkload
from tests.simulator.scenario_world import small_scenario
from tests.simulator.second_world import Costs


def machine(**engine) -> Machine:
    limits = {"max_model_len": 1000, "max_num_batched_tokens": 64, "max_num_seqs": 1, "async_scheduling": False}
    return Machine(engine=EngineConfig(model="m", **(limits | engine)), num_gpu_blocks=10_000, cost=Costs())


def requests(arrivals, outputs=1) -> RequestTable:
    n = len(arrivals)
    return RequestTable.build(
        prompt_tokens=np.ones(n, dtype=np.int64),
        output_tokens=np.broadcast_to(np.asarray(outputs), n),
        arrival_s=np.asarray(arrivals, float),
    )


def column(parts: list[Part], name: str, n: int) -> np.ndarray:
    """Return a request column of all *parts*, in the order of the workload."""
    values = np.full(n, np.nan)
    for part in parts:
        if part.served is not None:
            values[part.rows] = np.asarray(getattr(part.served.records, name))
    return values


def run(table, text="round-robin", replicas=2, autoscale=None, load=None, **engine) -> list[Part]:
    scaler = None if autoscale is None else Autoscaler.parse(autoscale)
    sent = load or Load(table=table)
    return run_fleet(machine(**engine), sent, Routing.parse(text), replicas=replicas, autoscaler=scaler, seed=None)


def waits(parts: list[Part], n: int) -> np.ndarray:
    return column(parts, "first_scheduled_s", n) - column(parts, "engine_arrival_s", n)


# -- exact times --------------------------------------------------------------------------------------------------


def test_round_robin_of_d_d_n_is_exact():
    """A request a second, three seconds each, three servers: nobody waits; with two the queue grows by the rule."""
    arrivals = np.arange(30) + 0.5
    three = run(requests(arrivals, 3), replicas=3)
    assert column(three, "last_token_s", 30) == pytest.approx(arrivals + 3)
    two = run(requests(arrivals, 3), replicas=2)
    # The k-th of a replica comes 2 s after the one before it and waits k seconds.
    assert waits(two, 30) == pytest.approx(np.arange(30) // 2)


def test_least_outstanding_finds_the_idle_replica():
    parts = run(requests([0, 0.1, 1.15, 2.2], [9, 1, 1, 1]), "least-outstanding")
    assert [part.rows.tolist() for part in parts] == [[0], [1, 2, 3]]
    assert column(parts, "sent_s", 4).tolist() == [0, 0.1, 1.15, 2.2]


def test_the_router_counts_a_request_until_its_response_is_complete():
    # The second is done at 1.1; the third comes a moment later, when only the first replica has one.
    parts = run(requests([0, 0.1, 1.1 + 1e-6], [9, 1, 1]), "least-outstanding")
    assert [part.rows.tolist() for part in parts] == [[0], [1, 2]]
    parts = run(requests([0, 0.1, 1.1 - 1e-6], [9, 1, 1]), "least-outstanding")
    assert [part.rows.tolist() for part in parts] == [[0, 2], [1]]


def test_a_closed_loop_over_replicas_keeps_its_users():
    load = Load(table=requests(np.zeros(6), 2), max_concurrency=2)
    parts = run(None, "least-outstanding", load=load)
    assert column(parts, "sent_s", 6).tolist() == [0, 0, 2, 2, 4, 4]


# -- theory -------------------------------------------------------------------------------------------------------


def m_d_c(arrivals, servers: int) -> np.ndarray:
    """Return the waits of a queue of *servers* servers of a second each: Kiefer and Wolfowitz' recursion."""
    free, found = [0.0] * servers, []
    for now in arrivals:
        begin = max(now, heapq.heappop(free))
        heapq.heappush(free, begin + 1.0)
        found.append(begin - now)
    return np.array(found)


def test_one_request_at_a_time_on_each_of_c_servers_with_a_shared_queue_is_m_d_c():
    """A closed door in front: at most c in the fleet, sent to the idle one; the wait is in the client."""
    n, c = 4000, 3
    arrivals = np.cumsum(np.random.default_rng(3).exponential(1 / 2.4, n))
    parts = run(None, "least-outstanding", c, load=Load(table=requests(arrivals), max_concurrency=c))
    found = column(parts, "sent_s", n) - arrivals
    assert found == pytest.approx(m_d_c(arrivals, c), abs=1e-6)
    # Cosmetatos' approximation of the mean: (1 + (1-rho)(c-1)(sqrt(4+5c)-2)/(16 rho c)) / 2 of M/M/c's.
    rho = 2.4 / c
    erlang = 0.6472  # M/M/3 at rho 0.8: probability to wait
    m_m_c = erlang / (c - 2.4)
    factor = 1 + (1 - rho) * (c - 1) * (np.sqrt(4 + 5 * c) - 2) / (16 * rho * c)
    assert found.mean() == pytest.approx(m_m_c * factor / 2, rel=0.12)


def test_random_routing_makes_m_d_1_queues_and_turns_make_a_shared_one():
    """Where all take equally long, taking turns is as good as a shared queue (M/D/c), to the last request."""
    n, c, rho = 20_000, 4, 0.8
    arrivals = np.cumsum(np.random.default_rng(5).exponential(1 / (rho * c), n))
    table, shared = requests(arrivals), m_d_c(arrivals, c)
    assert waits(run(table, "round-robin", c), n) == pytest.approx(shared, abs=1e-6)
    assert waits(run(table, "least-outstanding", c), n) == pytest.approx(shared, abs=1e-6)
    apart, two = (waits(run(table, policy, c), n).mean() for policy in ("random", "power-of-two"))
    assert apart == pytest.approx(rho / (2 * (1 - rho)), rel=0.08)
    assert shared.mean() < two < 0.5 * apart


def test_littles_law_holds_over_the_fleet():
    n = 3000
    arrivals = np.cumsum(np.random.default_rng(2).exponential(0.9, n))
    parts = run(requests(arrivals, 2), "power-of-two", 3)
    sent, done = column(parts, "sent_s", n), column(parts, "last_token_s", n)
    end = done.max()
    grid = np.linspace(0, end, 200_001)
    inside = np.searchsorted(np.sort(sent), grid) - np.searchsorted(np.sort(done), grid)
    assert inside.mean() == pytest.approx(n / end * (done - sent).mean(), rel=0.01)


# -- equality -----------------------------------------------------------------------------------------------------

LENGTHS = {"prompt_tokens": "lognormal:200:1:1:2000", "output_tokens": "lognormal:60:1:1:500"}


@pytest.mark.parametrize("policy", ["least-outstanding", "prefix-match"])
@pytest.mark.parametrize(
    "workload",
    [
        RateWorkload(rate=400, num_prompts=150, **LENGTHS),
        ConcurrencyWorkload(concurrency=20, num_prompts=150, think_time_s=0.05, **LENGTHS),
    ],
)
def test_a_fleet_of_one_is_the_server_alone(policy, workload):
    alone = small_scenario(workload=workload, seed=4)
    scaler = Autoscaler(min=1, max=1, target=1e9)  # is there, and looks, but has nothing to decide
    one = simulate(alone.model_copy(update={"autoscaler": scaler, "router": Routing(policy=policy)}))
    plain = simulate(alone)
    told, summary = plain.summary(), one.summary()
    assert {key: summary[key] for key in told} == told
    assert one.requests.drop(columns="replica").equals(plain.requests)
    assert one.steps.drop(columns="replica").equals(plain.steps)
    assert one.timeline.drop(columns="replicas").equals(plain.timeline)


@pytest.mark.parametrize("policy", ["round-robin", "random"])
def test_replicas_apart_are_the_same_as_together(policy):
    question = small_scenario(workload=RateWorkload(rate=900, num_prompts=300, **LENGTHS), replicas=3, seed=2)
    question = question.model_copy(update={"router": Routing(policy=policy)})
    apart = simulate(question)
    together = simulate(question.model_copy(update={"autoscaler": Autoscaler(min=3, max=3, target=1e9)}))
    assert apart.summary() == together.summary()
    assert apart.steps.equals(together.steps)


def test_replicas_have_noise_of_their_own():
    question = small_scenario(workload=RateWorkload(rate="inf", num_prompts=2), replicas=2)
    first, second = (one.records.step_gpu_s for one in simulate(question).replicas)
    assert list(first) != list(second) or len(set(first)) == 1


# -- what it tells ------------------------------------------------------------------------------------------------


def test_prefix_aware_routing_raises_the_hit_rate_of_chats():
    chats = SessionsWorkload(
        rate=40, num_prompts=600, turns=6, prompt_tokens=200, output_tokens=50, think_time_s="exponential:0.3"
    )
    rate = {}
    for text in ("round-robin", "prefix-hash:prefix_tokens=192", "prefix-match"):
        rate[text] = simulate(
            small_scenario(workload=chats, replicas=4, router=Routing.parse(text))
        ).summary()["prefix_cache_hit_rate"]  # fmt: skip
    assert rate["prefix-hash:prefix_tokens=192"] > rate["round-robin"] + 0.2
    assert rate["prefix-match"] > rate["round-robin"] + 0.2


def test_the_summary_adds_up():
    question = small_scenario(workload=RateWorkload(rate=300, num_prompts=200, **LENGTHS), replicas=3)
    result = simulate(question.model_copy(update={"router": Routing(policy="power-of-two")}))
    summary = result.summary()
    assert sum(one["requests"] for one in summary["replicas"]) == summary["completed"] == 200
    assert summary["gpu_hours"] == pytest.approx(3 * summary["duration_s"] / 3600)
    assert summary["steps"] == len(result.steps) == sum(len(one.steps) for one in result.replicas)
    assert result.requests["replica"].value_counts().sort_index().tolist() == [
        one["requests"] for one in summary["replicas"]
    ]
    last = result.timeline.iloc[-1]
    assert last["vllm:generation_tokens"] == summary["total_output_tokens"]
    assert last["replicas"] == 3
    # Pooled gaps: as many as tokens that are not first ones.
    assert len(result.latencies.itl_s) == summary["total_output_tokens"] - 200
    token_gaps = np.concatenate(
        [np.diff(one.records.token_times(row)) for one in result.replicas for row in range(len(one.table))]
    )
    assert np.sort(result.latencies.itl_s.expanded()) == pytest.approx(np.sort(token_gaps), abs=1e-9)


def test_a_replica_that_gets_nothing_is_listed():
    result = simulate(small_scenario(workload=RateWorkload(rate=1, num_prompts=2), replicas=5))
    assert [one["requests"] for one in result.summary()["replicas"]] == [1, 1, 0, 0, 0]
    assert len(result.replicas) == 2


# -- coming and going ---------------------------------------------------------------------------------------------


def test_replicas_come_after_their_start_up_and_drain_before_they_go():
    """Ten requests of 4 s at once for one place: at 5 s nine are left, so 3 (the most) are wanted."""
    arrivals = np.concatenate((np.zeros(10), [60.0]))
    text = "min=1,max=3,signal=outstanding,target=2,interval=5s,startup=7s,cooldown=10s"
    parts = run(requests(arrivals, 4), "least-outstanding", 1, autoscale=text)
    assert [part.launched_s for part in parts] == [0, 5, 5]
    assert [part.ready_s for part in parts] == [0, 12, 12]
    # The burst went to the only replica there was; those that came were too late for it.
    assert parts[0].rows.tolist()[:10] == list(range(10))
    # At 40 s all are answered; nothing more was wanted since 30 s, so two go; they had nothing to drain.
    assert all(part.drained_s == part.stopped_s < 60 for part in parts[1:])
    assert parts[0].rows.tolist() == list(range(11))


def test_a_draining_replica_answers_what_it_has():
    n = 60
    arrivals = np.arange(n) * 1.0
    text = "min=1,max=2,signal=running,target=1.5,interval=10s,startup=0s,cooldown=0s,tolerance=0"
    parts = run(requests(arrivals, 30), "round-robin", 2, autoscale=text, max_num_seqs=99)
    assert np.isfinite(column(parts, "last_token_s", n)).all()
    for part in parts:
        if np.isfinite(part.drained_s) and part.served is not None:
            assert part.stopped_s == pytest.approx(np.nanmax(part.served.records.last_token_s))
            assert np.max(part.served.records.sent_s) <= part.drained_s


def test_a_replica_stopped_while_it_starts_never_opens():
    text = "min=1,max=4,signal=waiting,target=1,interval=2s,startup=100s,cooldown=0s"
    parts = run(requests(np.concatenate((np.zeros(6), [50.0])), 1), "round-robin", 1, autoscale=text)
    started = [part for part in parts if part.number > 0]
    assert started
    assert all(part.ready_s == np.inf and part.stopped_s < 50 for part in started)


def test_a_look_finds_the_state_of_its_time_however_far_an_engine_could_run_ahead():
    """A token a second, 16 a block, 100 blocks: more than 5.5 % are used from the 81st token on."""
    small = Machine(engine=machine().engine, num_gpu_blocks=101, cost=Costs())
    scaler = Autoscaler(min=1, max=2, signal="kv_cache_usage", target=0.05, interval_s=9)
    load = Load(table=requests([0.0], 200))
    parts = run_fleet(small, load, Routing(), replicas=1, autoscaler=scaler, seed=None)
    assert [part.launched_s for part in parts] == [0, 81]


def test_the_count_over_time_is_told():
    scaler = Autoscaler(min=1, max=3, target=5, interval_s=0.5, startup_s=0.3, cooldown_s=1)
    workload = RateWorkload(rate=200, num_prompts=600, rate_shape="steps:0=1,2=0.05,10=1", **LENGTHS)
    result = simulate(small_scenario(workload=workload, autoscaler=scaler, router=Routing(policy="least-outstanding")))
    count = result.replica_count
    assert (count[["ready", "starting", "draining"]] >= 0).all(axis=None)
    assert count["ready"].max() == result.summary()["replicas_max"] > 1
    alive = (count["ready"] + count["starting"] + count["draining"]).to_numpy()
    edges = np.append(count["time_s"].to_numpy(), result.records.end_s)
    assert result.summary()["gpu_hours"] == pytest.approx(float(alive @ np.diff(edges)) / 3600)


def test_a_start_outside_the_limits_is_refused():
    with pytest.raises(InputError, match="5 replicas at the start are not within autoscale min=1, max=3"):
        small_scenario(replicas=5, autoscaler=Autoscaler(min=1, max=3, target=5))
