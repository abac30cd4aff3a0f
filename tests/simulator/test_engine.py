"""The clock: worlds with round numbers and exact times, and what queueing theory says about them."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.metrics import latencies
from simulator.records import Status
from tests.simulator.second_world import INSTANT, Costs, serve


def test_a_lone_request_gets_a_token_a_step():
    assert serve([1], [3], [0]).token_times(0).tolist() == [1, 2, 3]


def test_a_long_prompt_is_chunked_beside_a_decode_that_never_waits():
    records = serve([1, 150], [6, 1], [0, 0.5])
    assert records.token_times(0).tolist() == [1, 2, 3, 4, 5, 6]
    assert records.token_times(1).tolist() == [4]  # 63 + 63 + 24 tokens in the steps that begin at 1, 2 and 3


def test_async_a_newcomer_joins_the_step_after_the_next_and_tokens_come_as_soon():
    sync = serve([1, 1], [6, 1], [0, 0.5])
    overlapped = serve([1, 1], [6, 1], [0, 0.5], async_scheduling=True)
    assert sync.token_times(1).tolist() == [2]
    assert overlapped.token_times(1).tolist() == [3]
    assert overlapped.token_times(0).tolist() == sync.token_times(0).tolist()


def test_sync_pays_the_cpu_between_steps_and_async_hides_it():
    costs = {"costs": Costs(launch=0.25, update=0.25)}
    assert serve([1], [3], [0], **costs).token_times(0).tolist() == [1.25, 2.5, 3.75]
    assert serve([1], [3], [0], async_scheduling=True, **costs).token_times(0).tolist() == [1.25, 2.25, 3.25]


def test_a_launch_longer_than_the_step_sets_the_pace_and_holds_back_the_tokens_before_it():
    records = serve([1], [3], [0], async_scheduling=True, costs=Costs(launch=3.0))
    # Step 1 is done at 1, but the host launches step 2 until 6.
    assert records.token_times(0).tolist() == [6, 9, 9]


def test_the_front_end_shares_its_processor_and_delivers_through_one_queue():
    front_end = INSTANT.model_copy(update={"request_demand_s": 1.0, "request_latency_s": 0.5, "token_s": 0.25})
    records = serve([1, 1], [1, 1], [0, 0], costs=Costs(front_end=front_end))
    assert records.engine_arrival_s.tolist() == [2.5, 2.5]
    assert records.first_token_s.tolist() == [3.75, 3.75]


def test_requests_sent_at_once_reach_the_engine_in_the_order_of_sending_whatever_their_lengths():
    front_end = INSTANT.model_copy(update={"request_demand_per_token_s": 0.125, "request_demand_s": 0.5})
    records = serve([4, 24, 8], [1, 1, 1], [0, 0, 0], costs=Costs(front_end=front_end))
    # They need 1, 3.5 and 1.5 s.  The first is served by a third of the processor, then the others by a half each; the
    # last one waits for the second.
    assert records.engine_arrival_s.tolist() == [3, 8, 8]


def test_a_closed_loop_sends_the_next_request_when_the_response_is_complete():
    records = serve([1] * 3, [2] * 3, concurrency=1)
    assert records.sent_s.tolist() == [0, 2, 4]
    assert records.end_s == 6


def test_a_request_that_can_never_be_scheduled_is_reported_and_the_others_go_on():
    records = serve([500, 1], [1, 2], [0, 0], blocks=10)
    assert list(records.status) == [Status.REJECTED, Status.FINISHED]
    assert records.token_times(1).tolist() == [1, 2]


def test_waiting_times_are_those_of_an_m_d_1_queue():
    """One request at a time, a second each, arrivals at random: mean wait = rho / (2 (1 - rho))."""
    rho, n = 0.6, 40_000
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / rho, n))
    records = serve([1] * n, [1] * n, arrivals, max_num_seqs=1)
    waits = np.asarray(records.first_scheduled_s) - np.asarray(records.engine_arrival_s)
    assert waits.mean() == pytest.approx(rho / (2 * (1 - rho)), rel=0.05)


def test_littles_law_holds():
    """Mean number inside = arrival rate * mean time inside, whatever happens in between."""
    rng = np.random.default_rng(2)
    n = 3000
    arrivals = np.cumsum(rng.exponential(3.0, n))
    records = serve(rng.integers(1, 200, n), rng.integers(1, 30, n), arrivals, blocks=60)
    inside = np.asarray(records.last_token_s) - np.asarray(records.engine_arrival_s)
    duration = records.end_s - records.engine_arrival_s[0]
    begins, ends = np.asarray(records.step_plan_s), np.asarray(records.step_emit_s)
    in_steps = ((ends - begins) * (np.asarray(records.step_running) + np.asarray(records.step_waiting))).sum()
    # Requests that arrive during a step are inside before the next plan counts them: half a step each on average.
    assert in_steps / duration == pytest.approx(n / duration * (inside.mean() - 0.5), rel=0.02)


@pytest.mark.parametrize("concurrency", [4, 8])
def test_more_blocks_never_make_a_closed_loop_slower(concurrency):
    rng = np.random.default_rng(3)
    prompts, outputs = rng.integers(10, 120, 100), rng.integers(20, 80, 100)
    durations = [
        serve(prompts, outputs, concurrency=concurrency, blocks=blocks).end_s for blocks in (16, 24, 36, 54, 81, 1000)
    ]
    assert durations == sorted(durations, reverse=True)


def test_latencies_count_from_the_send_at_the_client():
    records = serve([1], [3], [2])
    seen = latencies(records)
    assert (seen.ttft_s.tolist(), seen.e2el_s.tolist(), seen.tpot_s.tolist()) == ([1], [3], [1])
