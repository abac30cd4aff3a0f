import math

import numpy as np
import pytest
from pydantic import TypeAdapter

from simulator.errors import InputError
from simulator.rates import arrival_times
from simulator.request_list import Row
from simulator.request_table import RequestTable
from simulator.workload import (
    ConcurrencyWorkload,
    RateWorkload,
    RequestsWorkload,
    TraceWorkload,
    Workload,
    table,
    traffic,
)


def times(n: int, rate: float, burstiness: float = 1.0, seed: int = 0):
    return arrival_times(n, rate, burstiness, np.random.default_rng(seed))


def test_the_first_request_waits_and_the_last_is_sent_at_n_over_rate():
    arrivals = times(200, 8.0)
    assert arrivals[0] > 0
    assert arrivals[-1] == pytest.approx(25.0, rel=1e-12)
    assert (np.diff(arrivals) >= 0).all()


@pytest.mark.parametrize(("burstiness", "variation"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5)])
def test_gaps_vary_as_a_gamma_of_that_shape(burstiness, variation):
    gaps = np.diff(times(100_000, 8.0, burstiness))
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.03)


def test_infinite_burstiness_is_a_metronome_and_infinite_rate_sends_all_at_once():
    assert times(4, 2.0, math.inf).tolist() == [0.5, 1.0, 1.5, 2.0]
    assert times(3, math.inf).tolist() == [0, 0, 0]


def test_the_seed_decides_and_lengths_do_not_move_arrivals():
    one = RateWorkload(rate=4, num_prompts=50, prompt_tokens="uniform:1:9")
    other = one.model_copy(update={"prompt_tokens": "7"})
    assert np.array_equal(table(one, 1).prompt_tokens, table(one, 1).prompt_tokens)
    assert not np.array_equal(table(one, 1).prompt_tokens, table(one, 2).prompt_tokens)
    assert np.array_equal(table(one, 1).arrival_s, table(other, 1).arrival_s)


def test_a_closed_loop_has_no_arrivals_but_a_limit():
    found = traffic(ConcurrencyWorkload(concurrency=32, num_prompts=5), seed=0)
    assert found.max_concurrency == 32
    assert found.table.arrival_s.tolist() == [0] * 5


def test_the_semaphore_of_the_bench_goes_with_every_open_loop():
    assert traffic(RateWorkload(rate=1, num_prompts=2, max_concurrency=3), 0).max_concurrency == 3
    assert traffic(RateWorkload(rate=1, num_prompts=2), 0).max_concurrency is None


def test_a_list_of_rows_is_a_workload():
    rows = (Row(arrival_s=1.0, prompt_tokens=5, output_tokens=6), Row(arrival_s=0.5, prompt_tokens=7, output_tokens=8))
    found = traffic(RequestsWorkload(rows=rows), 0)
    assert found.table.prompt_tokens.tolist() == [7, 5]
    assert "have been sorted" in found.notes[0]
    assert table(RequestsWorkload(rows=rows, limit=1), 0).prompt_tokens.tolist() == [7]


def test_a_list_without_arrivals_needs_a_limit(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("prompt_tokens,output_tokens\n5,6\n7,8\n")
    assert traffic(RequestsWorkload(path=str(path), max_concurrency=2), 0).max_concurrency == 2
    with pytest.raises(InputError, match=r"no request has an arrival_s.*--concurrency"):
        table(RequestsWorkload(path=str(path)), 0)


def test_a_list_of_zero_arrivals_is_a_burst_and_says_so():
    rows = (Row(arrival_s=0, prompt_tokens=5, output_tokens=6),) * 2
    assert "all requests are sent at once" in traffic(RequestsWorkload(rows=rows), 0).notes[0]
    assert traffic(RequestsWorkload(rows=rows, max_concurrency=1), 0).notes == ()


def test_a_trace_can_be_cut_and_sped_up():
    plain = table(TraceWorkload(name="azure-conv-2023", limit=3), 0)
    fast = table(TraceWorkload(name="azure-conv-2023", limit=3, rate_scale=2), 0)
    assert plain.arrival_s[1] == 4.314579
    assert np.array_equal(fast.arrival_s, plain.arrival_s / 2)


def test_a_list_can_be_sped_up():
    rows = tuple(Row(arrival_s=float(n), prompt_tokens=9, output_tokens=1) for n in range(3))
    assert table(RequestsWorkload(rows=rows, rate_scale=4), 0).arrival_s.tolist() == [0.0, 0.25, 0.5]


@pytest.mark.parametrize(
    "workload",
    [
        RateWorkload(rate=math.inf, burstiness=0.5, prompt_tokens="lognormal:300:1.0:8:4000", output_tokens=7),
        ConcurrencyWorkload(concurrency=8),
        RequestsWorkload(
            rows=(Row(prompt_tokens=5, output_tokens=6, prefix_id="a", prefix_tokens=2),), max_concurrency=1
        ),
        RequestsWorkload(path="x.csv"),
        TraceWorkload(name="mooncake-synthetic", rate_scale=0.5, limit=9),
    ],
    ids=lambda workload: workload.kind,
)
def test_json_and_back_is_the_same_workload(workload):
    adapter: TypeAdapter[Workload] = TypeAdapter(Workload)
    assert adapter.validate_json(adapter.dump_json(workload)) == workload


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (RateWorkload, {"rate": math.nan}, "rate: .*greater than 0, got nan"),
        (RateWorkload, {"rate": 0}, "rate: .*greater than 0, got 0"),
        (RateWorkload, {"rate": -1}, "rate: .*got -1"),
        (RateWorkload, {"rate": "fast"}, "rate: .*got 'fast'"),
        (RateWorkload, {"rate": 1, "burstiness": math.nan}, "burstiness: .*got nan"),
        (RateWorkload, {"rate": 1, "num_prompts": 0}, "num_prompts: .*got 0"),
        (RateWorkload, {"rate": 1, "prompt_tokens": "-5"}, "length '-5'"),
        (RateWorkload, {"rate": 1, "max_concurrency": 0}, "max_concurrency: .*got 0"),
        (ConcurrencyWorkload, {"concurrency": 0}, "concurrency: .*got 0"),
        (ConcurrencyWorkload, {}, "concurrency: Field required"),
        (RequestsWorkload, {}, "give exactly one"),
        (RequestsWorkload, {"rows": [{"prompt_tokens": 5, "output_tokens": 0}]}, "output_tokens must be from 1"),
        (TraceWorkload, {"name": "azure-conv"}, "did you mean azure-conv-2023"),
        (TraceWorkload, {"name": "azure-conv-2023", "rate_scale": math.inf}, "rate_scale"),
    ],
)
def test_bad_values_are_refused_in_one_line(kind, values, message):
    with pytest.raises(InputError, match=message) as caught:
        kind(**values)
    assert "\n" not in str(caught.value)


def test_users_who_think_have_times_of_their_own_and_the_requests_stay():
    quick = traffic(ConcurrencyWorkload(concurrency=50, num_prompts=100, prompt_tokens="uniform:1:99"), 3)
    slow = traffic(
        ConcurrencyWorkload(concurrency=50, num_prompts=100, prompt_tokens="uniform:1:99", think_time_s="20s"), 3
    )
    assert quick.user_start_s is None
    assert not quick.table.has_waits
    assert np.array_equal(quick.table.prompt_tokens, slow.table.prompt_tokens)
    assert slow.table.think_s.tolist() == [20.0] * 100
    assert len(slow.user_start_s) == 50
    assert 0 <= slow.user_start_s.min() < 5 < 15 < slow.user_start_s.max() <= 20


def test_think_time_is_read_back_from_json_as_it_was_written():
    for think in (0.0, 20.0, "exponential:20"):
        workload = ConcurrencyWorkload(concurrency=1, think_time_s=think)
        assert ConcurrencyWorkload.model_validate_json(workload.model_dump_json()) == workload
    with pytest.raises(InputError, match=r"'-1' is not a time"):
        ConcurrencyWorkload(concurrency=1, think_time_s=-1)


def test_rows_that_are_taken_keep_following_each_other_over_a_gap():
    lengths = np.ones(4, dtype=np.int64)
    chain = RequestTable.build(prompt_tokens=lengths, output_tokens=lengths, follows=np.array([-1, 0, 1, 2]))
    assert chain.take(np.array([0, 3])).follows.tolist() == [-1, 0]
    assert chain.take(np.array([1, 2])).follows.tolist() == [-1, 0]


def test_a_burstiness_that_leaves_no_time_is_refused():
    with pytest.raises(InputError, match="burstiness"):
        times(3, 1.0, 1e-300)
