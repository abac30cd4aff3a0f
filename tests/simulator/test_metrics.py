import math
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.metrics import Latencies, Sample, aggregate, engine_totals, goodput, itl_sample, latencies, tpot_s
from simulator.records import Records, Status
from tests.simulator.records_world import add_run, add_step, small_world


def test_token_times_replace_the_first_one_and_join_runs():
    assert small_world().token_times(0).tolist() == [1.2, 2.1, 3.1]
    assert small_world().token_times(1).tolist() == [2.2, 5.1]


def test_latencies_count_from_sending():
    seen = latencies(small_world())
    assert seen.ttft_s == pytest.approx([1.2, 1.7])
    assert seen.e2el_s == pytest.approx([3.1, 4.6])
    assert seen.tpot_s == pytest.approx([0.95, 2.9])
    assert sorted(seen.itl_s.expanded()) == pytest.approx([0.9, 1.0, 2.9])


def test_aggregates_of_the_small_world():
    numbers = aggregate(latencies(small_world()))
    assert numbers["completed"] == 2
    assert numbers["duration_s"] == 5.1
    assert numbers["request_throughput"] == 2 / 5.1
    assert numbers["output_throughput"] == 5 / 5.1
    assert numbers["total_token_throughput"] == 29 / 5.1
    assert numbers["mean_ttft_ms"] == pytest.approx(1450)
    assert numbers["p90_ttft_ms"] == pytest.approx(1650)
    assert numbers["std_e2el_ms"] == pytest.approx(750)
    assert numbers["median_itl_ms"] == numbers["p50_itl_ms"] == pytest.approx(1000)


def test_a_single_token_has_no_tpot():
    assert tpot_s(np.array([1.0, 1.0]), np.array([1.0, 3.0]), np.array([1, 3])).tolist() == pytest.approx(
        [math.nan, 1.0], nan_ok=True
    )
    seen = Latencies(np.ones(1), np.ones(1), Sample.of([]), np.ones(1, np.int64), np.ones(1, np.int64), 1.0)
    numbers = aggregate(seen)
    assert math.isnan(numbers["mean_tpot_ms"])
    assert math.isnan(numbers["p99_itl_ms"])


def test_requests_that_did_not_finish_are_in_no_latency():
    records = small_world()
    records.status = array("B", [Status.FINISHED, Status.REJECTED])
    assert len(latencies(records).ttft_s) == 1
    assert sorted(itl_sample(records).expanded()) == pytest.approx([0.9, 1.0])


def test_goodput_needs_every_limit_and_counts_a_single_token_as_fast():
    seen = latencies(small_world())
    assert goodput(seen, {"ttft": 1700.0001}) == 2 / 5.1
    assert goodput(seen, {"ttft": 1700.0001, "tpot": 1000}) == 1 / 5.1
    assert goodput(seen, {"e2el": 1}) == 0
    one = Latencies(np.ones(1), np.ones(1), Sample.of([]), np.ones(1, np.int64), np.ones(1, np.int64), 2.0)
    assert goodput(one, {"tpot": 1}) == 0.5


def test_engine_totals():
    totals = engine_totals(small_world())
    assert totals["preemptions"] == 1
    assert totals["recomputed_tokens"] == 9
    assert totals["prefix_cache_hit_rate"] == 0.25
    assert totals["kv_cache_usage_max"] == 0.5
    # 0.2, 0.4 for a second each, 0.5 for two (request 1 still waits), 0.1 for one, then nothing.
    assert totals["kv_cache_usage_mean"] == pytest.approx((0.2 + 0.4 + 2 * 0.5 + 0.1) / 5.1)


def test_no_steps_and_no_requests_done_is_no_error():
    records = Records.for_requests(np.array([5]), num_gpu_blocks=11, block_size=16)
    numbers = aggregate(latencies(records)) | engine_totals(records)
    assert numbers["completed"] == 0
    assert numbers["kv_cache_usage_max"] == 0
    assert math.isnan(numbers["request_throughput"])


values = st.floats(0, 10, allow_nan=False)


@given(st.lists(st.tuples(values, st.integers(1, 5)), min_size=1, max_size=30))
def test_weighted_percentiles_are_those_of_numpy_on_the_expanded_list_to_the_last_bit(pairs):
    sample = Sample(np.array([value for value, _ in pairs]), np.array([count for _, count in pairs]))
    percents = (0, 1, 50, 90, 95, 99, 99.9, 100)
    assert sample.percentiles(percents) == np.percentile(sample.expanded(), percents).tolist()
    assert sample.mean() == pytest.approx(sample.expanded().mean())
    assert sample.std() == pytest.approx(sample.expanded().std(), abs=1e-6)


@st.composite
def random_records(draw):
    """Requests that get tokens in arbitrary steps; a first token may come late, even after later steps' tokens."""
    steps = draw(st.integers(1, 12))
    n = draw(st.integers(1, 5))
    records = Records.for_requests(np.ones(n, dtype=np.int64), num_gpu_blocks=2, block_size=16)
    deliver = np.cumsum(draw(st.lists(st.integers(0, 5), min_size=steps, max_size=steps)))
    for step in range(steps):
        add_step(records, step, step + 1, float(deliver[step]))
    for request in range(n):
        mine = sorted(draw(st.sets(st.integers(0, steps - 1))))
        if not mine:
            continue
        records.status[request] = Status.FINISHED
        records.first_token_s[request] = float(deliver[mine[0]]) + draw(st.integers(0, 9))
        for step in mine:
            if step - 1 in mine:
                records.run_steps[-1] += 1
            else:
                add_run(records, request, step, 1)
    return records


@given(random_records())
def test_pooled_itl_is_the_brute_force_over_every_token(records):
    gaps = [np.diff(records.token_times(r)) for r in range(records.num_requests)]
    assert sorted(itl_sample(records).expanded()) == sorted(np.concatenate(gaps))
