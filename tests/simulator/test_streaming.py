"""A streamed run answers what a run in memory answers, without keeping its facts."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.compiled import keeping
from simulator.compiled.jit import is_available
from simulator.errors import InputError, UnsupportedError
from simulator.request_list import Row
from simulator.simulate import simulate
from simulator.streaming import sources
from simulator.streaming.sketch import RELATIVE_ERROR, Sketch
from simulator.streaming.spilled import Spilled
from simulator.streaming.stream import stream
from simulator.workload import ConcurrencyWorkload, RateWorkload, RequestsWorkload, traffic
from tests.simulator.scenario_world import small_scenario

needs_numba = pytest.mark.skipif(not is_available(), reason="numba is not installed")

OPEN = RateWorkload(rate=30.0, num_prompts=700, prompt_tokens="lognormal:300:1.0:8:4000", output_tokens="uniform:1:80")
PREFIXES = RequestsWorkload(
    rows=tuple(
        Row(arrival_s=0.02 * i, prompt_tokens=300, output_tokens=1 + i % 40, prefix_id=f"p{i % 5}", prefix_tokens=280)
        for i in range(400)
    )
)
LOADS = {
    "open": OPEN,
    "closed": ConcurrencyWorkload(concurrency=9, num_prompts=300, output_tokens="uniform:1:80"),
    "limited": OPEN.model_copy(update={"max_concurrency": 12}),
    "prefixes": PREFIXES,
}
CLOSE = ("mean_", "std_", "kv_cache_usage_mean", "median_", "p50_", "p90_", "p95_", "p99_")


@needs_numba
@pytest.mark.parametrize("exact", [False, True], ids=["sketch", "exact"])
@pytest.mark.parametrize("name", LOADS)
def test_the_summary_is_that_of_a_run_in_memory(name, exact, monkeypatch):
    monkeypatch.setattr(sources, "PIECE", 64)
    scenario = small_scenario(workload=LOADS[name], over_length="drop")
    expected, got = simulate(scenario).summary(), stream(scenario, exact=exact).summary()
    assert got.pop("percentile_error") == (0.0 if exact else RELATIVE_ERROR)
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        if key.startswith(CLOSE):
            is_percentile = key.startswith(("median_", "p"))
            assert got[key] == pytest.approx(value, rel=RELATIVE_ERROR if is_percentile and not exact else 1e-9)
        else:
            assert got[key] == value, key


@pytest.mark.parametrize(
    "workload",
    [
        OPEN,
        OPEN.model_copy(
            update={"burstiness": 0.3, "prompt_tokens": "choice:10,20,1000", "output_tokens": "normal:50:9"}
        ),
        OPEN.model_copy(update={"rate": math.inf}),
        OPEN.model_copy(update={"burstiness": math.inf}),
        LOADS["closed"],
        PREFIXES,
    ],
    ids=str,
)
def test_the_pieces_are_the_whole_load(workload, monkeypatch):
    monkeypatch.setattr(sources, "PIECE", 33)
    whole, pieces = traffic(workload, 3).table, list(sources.source(workload, 3).tables)
    for name in ("arrival_s", "prompt_tokens", "output_tokens", "priority", "segment_id", "segment_end"):
        joined = np.concatenate([getattr(piece, name) for piece in pieces])
        np.testing.assert_array_equal(joined, getattr(whole, name), err_msg=name)


@needs_numba
def test_memory_does_not_grow_with_the_number_of_requests(monkeypatch):
    monkeypatch.setattr(sources, "PIECE", 500)
    keeping.prepare()

    def peak(num_prompts: int) -> int:
        tracemalloc.start()
        stream(small_scenario(workload=RateWorkload(rate=5.0, num_prompts=num_prompts, output_tokens="20")))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(500)
    assert peak(20_000) < 1.05 * peak(2_000)


@needs_numba
def test_what_streaming_does_not_cover_is_refused_by_name():
    with pytest.raises(UnsupportedError, match="streaming does not cover fleets yet"):
        stream(small_scenario(workload=OPEN, replicas=2, over_length="drop"))
    thinking = ConcurrencyWorkload(concurrency=2, num_prompts=9, think_time_s=1.0)
    with pytest.raises(UnsupportedError, match="no think times"):
        stream(small_scenario(workload=thinking))


@needs_numba
def test_requests_over_length_are_an_error_or_dropped():
    rows = (Row(arrival_s=0, prompt_tokens=9000, output_tokens=1), Row(arrival_s=1, prompt_tokens=9, output_tokens=1))
    scenario = small_scenario(workload=RequestsWorkload(rows=rows))
    with pytest.raises(InputError, match="1 of 2 requests need more than max_model_len"):
        stream(scenario)
    dropping = stream(scenario.model_copy(update={"over_length": "drop"})).summary()
    assert (dropping["completed"], dropping["dropped"]) == (1, 1)


values = st.lists(
    st.tuples(st.floats(0, 1e6).filter(lambda v: v == 0 or v > 1e-8), st.integers(0, 5)), min_size=1, max_size=60
)


@given(values, st.integers(1, 59))
def test_percentiles_of_a_sketch_are_off_by_at_most_the_stated_share_those_of_spilled_values_by_nothing(pairs, cut):
    numbers, counts = (np.array(column) for column in zip(*pairs, strict=True))
    expanded = np.repeat(numbers, counts)
    sketch, spilled = Sketch(), Spilled()
    for one in (sketch, spilled):
        one.add(numbers[:cut], counts[:cut])
        one.add(numbers[cut:], counts[cut:])
    percents = (0.0, 1.0, 50.0, 90.0, 99.0, 100.0)
    if not len(expanded):
        assert all(map(math.isnan, [sketch.mean(), sketch.std(), *sketch.percentiles(percents)]))
        return
    expected = np.percentile(expanded, percents)
    np.testing.assert_allclose(spilled.percentiles(percents), expected, rtol=1e-15)
    np.testing.assert_allclose(sketch.percentiles(percents), expected, rtol=RELATIVE_ERROR * 1.001, atol=1e-8)
    assert sketch.mean() == pytest.approx(expanded.mean())
    assert sketch.std() == pytest.approx(expanded.std(), abs=1e-9 * expanded.max())
