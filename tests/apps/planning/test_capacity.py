"""Capacity against queueing theory, and what the answer promises."""

import math
import pickle

import pytest

from apps.planning.capacity import Effort, capacity, requests_for
from apps.planning.cost import fleet_for, growing, parse_growth, token_prices
from apps.planning.limits import binding
from apps.planning.marginal import marginals
from apps.planning.measure import Ask, measure
from apps.planning.prices import list_price, own_price
from apps.planning.slo import Slo
from simulator.errors import InputError
from simulator.mixes import MixWorkload, SessionsWorkload, TrafficClass
from simulator.request_list import Row
from simulator.scenario import Scenario
from simulator.workload import ConcurrencyWorkload, RateWorkload, RequestsWorkload
from tests.apps.planning.queue_world import SERVE, STEP_S, queue, scenario, write_profile  # noqa: F401

POISSON = RateWorkload(rate=1, prompt_tokens="16", output_tokens="1")
QUICK = Effort(draws=0)


def found(question, slo, effort=QUICK, **rest):
    return capacity(question, slo, effort=effort, workers=1, **rest)


def test_mean_wait_of_md1_gives_its_capacity(queue):  # noqa: F811
    """TTFT = D + D rho / (2 (1 - rho)); with a limit of 2 D, rho is 2/3."""
    answer = found(scenario(queue, POISSON), f"ttft_mean={2 * STEP_S}s")
    assert answer.load == pytest.approx(2 / 3 / STEP_S, rel=0.05)
    assert answer.load < answer.next_load <= answer.load * 1.021
    assert answer.target == "ttft_mean"
    assert answer.limit.name == "max_num_seqs"
    assert [point.load for point in answer.points] == sorted(point.load for point in answer.points)


def test_a_loose_slo_ends_where_the_queue_grows(queue):  # noqa: F811
    answer = found(scenario(queue, POISSON), "ttft_mean=1000s")
    assert answer.load == pytest.approx(1 / STEP_S, rel=0.07)
    assert answer.target == "stability"


def test_runs_that_end_before_a_queue_can_grow_are_told_so(queue):  # noqa: F811
    """Five requests meet any loose SLO at any rate; that says nothing of the rate."""
    few = found(scenario(queue, POISSON), "ttft_mean=1000s", Effort(draws=0, requests=5))
    assert few.load > 2 / STEP_S
    assert any("too short to tell" in note for note in few.notes)
    assert not any("too short" in note for note in found(scenario(queue, POISSON), "ttft_mean=1000s").notes)


def test_a_closed_loop_ends_at_the_exact_number_of_clients(queue):  # noqa: F811
    question = scenario(queue, ConcurrencyWorkload(concurrency=1, prompt_tokens="16", output_tokens="1"))
    answer = found(question, f"e2el_p99={7.5 * STEP_S}s", Effort(draws=0, requests=400))
    assert (answer.load, answer.next_load, answer.axis) == (7, 8, "concurrency")
    assert answer.decided


def test_the_interval_holds_the_answer_of_other_seeds_and_is_as_wide_as_the_hosts_differ(queue):  # noqa: F811
    effort = Effort(draws=8, replications=2, most_replications=2, requests=3000, confirm=False)
    answers = [found(scenario(queue, POISSON, seed=seed), "ttft_mean=400ms", effort) for seed in (0, 1, 2)]
    for one in answers:
        low, high = one.interval
        assert all(low <= other.load <= high for other in answers)
        assert 1.3 < high / low < 3.0  # CPU times differ by 16 % (one sd) from run to run; 8 draws
        assert len(one.draws) == 8


def test_no_load_meets_what_a_single_request_misses(queue):  # noqa: F811
    answer = found(scenario(queue, POISSON), f"ttft_p50={0.9 * STEP_S}s", Effort(draws=0, requests=200))
    assert (answer.load, answer.interval, answer.target) == (None, None, "ttft_p50")
    assert answer.as_dict()["at_load"] is None


def test_the_answer_does_not_depend_on_the_workers_and_can_be_pickled(queue):  # noqa: F811
    effort = Effort(draws=0, requests=200, replications=2, most_replications=2, confirm=False)
    question = scenario(queue, POISSON)
    one, two = (capacity(question, "ttft_mean=200ms", effort=effort, workers=workers) for workers in (1, 2))
    assert one.as_dict() == two.as_dict()
    assert pickle.loads(pickle.dumps(one)).as_dict() == one.as_dict()


def test_whoever_watches_is_told_of_every_run_and_may_stop(queue):  # noqa: F811
    class Stop(Exception):
        pass

    heard = []

    def watch(progress):
        heard.append(progress)
        if progress.stage == "refining":
            raise Stop

    with pytest.raises(Stop):
        found(scenario(queue, POISSON), "ttft_mean=200ms", Effort(draws=0, requests=100), watch=watch)
    assert [progress.done for progress in heard] == list(range(1, len(heard) + 1))
    assert heard[-1].points
    assert all(progress.done <= progress.expected for progress in heard)


def test_a_list_is_sent_faster_and_judged_whole(queue):  # noqa: F811
    """One request a second, evenly: it can be sent 1 / STEP_S times as fast, and not much faster."""
    rows = tuple(Row(arrival_s=float(n), prompt_tokens=16, output_tokens=1) for n in range(300))
    answer = found(scenario(queue, RequestsWorkload(rows=rows)), f"ttft_p99={1.5 * STEP_S}s", QUICK)
    assert answer.load == pytest.approx(1 / STEP_S, rel=0.05)
    assert answer.requests is None


def test_the_stricter_class_of_a_mix_decides(queue):  # noqa: F811
    """Both classes wait in one queue: a mean of 2 D for one of them is that of all."""
    classes = tuple(
        TrafficClass(name=name, prompt_tokens="16", output_tokens="1", slo=slo)
        for name, slo in (("chat", f"ttft_mean={2 * STEP_S}s"), ("batch", "ttft_mean=100s"))
    )
    answer = found(scenario(queue, MixWorkload(rate=1, classes=classes)), None)
    assert answer.load == pytest.approx(2 / 3 / STEP_S, rel=0.07)
    assert (answer.target, answer.unit) == ("chat/ttft_mean", "chats/s")


def test_chats_are_counted_not_their_turns(queue):  # noqa: F811
    chats = SessionsWorkload(rate=1, turns="4", prompt_tokens="16", output_tokens="1", think_time_s="exponential:1")
    answer = found(scenario(queue, chats), "ttft_mean=100s", Effort(draws=0, requests=3000, confirm=False))
    assert answer.load == pytest.approx(1 / STEP_S / 4, rel=0.1)


def test_scores_rise_with_the_load(queue):  # noqa: F811
    slo = Slo.parse("ttft_p99=500ms,goodput=99%:ttft=300ms")
    runs = [measure(Ask(scenario(queue, POISSON), slo, "rate", load, 500)) for load in (2, 4, 6, 8, 9.5)]
    for scores in zip(*(run.scores[:2] for run in runs), strict=True):
        assert list(scores) == sorted(scores)


LLAMA = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 4096"


@pytest.mark.parametrize(
    ("flags", "load", "target", "name"),
    [
        ("--num-gpu-blocks-override 600", {"rate": 40, "prompt_tokens": "512", "output_tokens": "128"}, "ttft_p99",
         "kv_blocks"),
        ("--max-num-seqs 4", {"rate": 20, "prompt_tokens": "64", "output_tokens": "128"}, "ttft_p99", "max_num_seqs"),
        ("--max-num-batched-tokens 128", {"rate": 40, "prompt_tokens": "2000", "output_tokens": "4"}, "ttft_p99",
         "max_num_batched_tokens"),
        ("", {"rate": 5, "prompt_tokens": "64", "output_tokens": "128"}, "tpot_p99", "gpu_memory"),
        ("", {"rate": 20, "prompt_tokens": "1000", "output_tokens": "8"}, "tpot_p99", "gpu_compute"),
    ],
)  # fmt: skip
def test_the_binding_limit_is_named_with_its_evidence(flags, load, target, name):
    question = Scenario.from_command(f"{LLAMA} {flags}", profile="h200-llama-3.1-8b", workload=RateWorkload(**load))
    run = measure(Ask(question, Slo.parse("ttft_p99=10ms"), "rate", load["rate"], 300))
    limit = binding(run.state, target)
    assert limit.name == name, (limit, run.state)
    assert set(limit.evidence) <= set(vars(run.state))


def test_slow_launches_are_the_hosts_fault(queue):  # noqa: F811
    question = Scenario.from_command(SERVE, profile=queue, workload=RateWorkload(rate=2, output_tokens="8"))
    assert binding(measure(Ask(question, Slo.parse("tpot_p50=1ms"), "rate", 2, 200)).state, "tpot_p50").name == "host"


def test_a_slow_front_end_is_the_api_servers_fault(tmp_path):
    slow = write_profile(tmp_path / "slow.json", request_demand_s=0.2)
    question = Scenario.from_command(SERVE, profile=slow, workload=POISSON)
    limit = binding(measure(Ask(question, Slo.parse("ttft_p99=1s"), "rate", 4.9, 500)).state, "ttft_p99")
    assert limit.name == "api_server"
    assert limit.evidence["api_in"] == pytest.approx(4.9 * 0.2, abs=0.1)


def test_flags_that_do_not_matter_are_unchanged_and_one_that_does_is_not(queue):  # noqa: F811
    answer = found(scenario(queue, POISSON), "ttft_mean=200ms", Effort(draws=0, requests=1000, confirm=False))
    changes = {each.change: each for each in marginals(answer, workers=1)}
    assert changes["-0.05 gpu_memory_utilization"].effect.endswith("KV tokens, capacity unchanged")
    assert changes["max_num_seqs x2"].share > 0.3
    assert all(each.effect for each in changes.values())
    assert [each.share for each in changes.values() if each.share is not None] == sorted(
        (each.share for each in changes.values() if each.share is not None), reverse=True
    )


def test_gpus_dollars_and_growth_follow_from_the_capacity(queue):  # noqa: F811
    question = scenario(queue, ConcurrencyWorkload(concurrency=1, prompt_tokens="16", output_tokens="1"))
    answer = found(question, f"e2el_p99={7.5 * STEP_S}s", Effort(draws=0, requests=400))
    price = own_price(3.6)
    prices = token_prices(answer, price)
    per_second = answer.point.metrics["request_throughput"]  # one token out, 16 in
    assert prices.output_only == pytest.approx(1e6 * 0.001 / per_second)
    assert prices.blended == pytest.approx(prices.output_only / 17)
    assert 16 * prices.input + prices.output == pytest.approx(prices.output_only)
    fleet = fleet_for(answer, 70, price)
    assert (fleet.replicas, fleet.gpus, fleet.safe_gpus) == (10, 10, 10)
    assert fleet_for(answer, 71).gpus == 11
    assert fleet.usd_per_month == pytest.approx(3.6 * 10 * 730)
    assert [each.gpus for each in growing(answer, 7, 1.0, 3)] == [1, 2, 4, 8]


def test_growth_and_prices_are_read_and_nonsense_is_refused():
    assert parse_growth("5%/month") == pytest.approx(0.05)
    assert (1 + parse_growth("60% per year")) ** 12 == pytest.approx(1.6)
    assert "assumption" in list_price("H200").source
    assert list_price("no such GPU") is None
    for bad in ("5%", "five/month", "-100%/month"):
        with pytest.raises(InputError, match="growth"):
            parse_growth(bad)
    with pytest.raises(InputError, match="price"):
        own_price(math.nan)


def test_a_run_is_long_enough_for_those_in_the_system():
    assert [requests_for(n) for n in (1, 200, 10_000)] == [4000, 10_000, 20_000]
