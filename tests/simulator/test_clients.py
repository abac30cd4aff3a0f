"""Users who think, and chats: who sends when, in a world of a second a step."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from simulator import durations
from simulator.request_table import RequestTable
from simulator.server import Load
from tests.simulator.second_world import serve_load


def requests(n: int, **columns) -> RequestTable:
    """Return *n* requests of two seconds each."""
    return RequestTable.build(
        prompt_tokens=np.ones(n, dtype=np.int64), output_tokens=np.full(n, 2, dtype=np.int64), **columns
    )


def test_a_user_thinks_after_the_response_is_complete():
    table = requests(3, think_s=np.array([5.0, 0.5, 9.0]))
    records = serve_load(Load(table=table, max_concurrency=1))
    assert records.sent_s.tolist() == [0, 7, 9.5]  # answers at 2 and 9
    assert records.end_s == 11.5  # nobody waits for the last thought


def test_users_begin_at_their_times_and_take_the_next_request_in_turn():
    table = requests(4, think_s=np.full(4, 3.0))
    records = serve_load(Load(table=table, max_concurrency=2, user_start_s=np.array([6.0, 1.0])))
    assert records.sent_s.tolist() == [1, 6, 6, 11]


def test_a_follower_is_sent_after_its_predecessor_whatever_the_others_do():
    table = requests(
        4,
        arrival_s=np.array([0.0, 0.0, 0.5, 0.5]),
        follows=np.array([-1, 0, -1, 2]),
        think_s=np.array([1.0, 0, 4.0, 0]),
    )
    records = serve_load(Load(table=table))
    assert records.sent_s.tolist() == [0, 3, 0.5, 7]


def test_a_chat_keeps_its_place_while_its_user_thinks():
    table = requests(3, follows=np.array([-1, 0, -1]), think_s=np.array([5.0, 2.0, 0.0]))
    records = serve_load(Load(table=table, max_concurrency=1))
    assert records.sent_s.tolist() == [0, 7, 11]  # the second turn, and after another thought the next chat


def test_a_refused_turn_does_not_end_the_chat():
    table = RequestTable.build(
        prompt_tokens=np.array([900, 1]), output_tokens=np.array([1, 1]), follows=np.array([-1, 0]),
        think_s=np.array([2.0, 0.0]),
    )  # fmt: skip
    records = serve_load(Load(table=table), blocks=10)
    assert records.sent_s.tolist() == [0, 2]


def machine_repair(start_s, think_s, service_s: float, n: int) -> list[float]:
    """Return when each of *n* jobs of a closed queue with one server is sent: a recursion of its own."""
    ready, free_s, sent = [(t, i) for i, t in enumerate(start_s)], 0.0, []
    heapq.heapify(ready)
    for row in range(n):
        now, user = heapq.heappop(ready)
        sent.append(now)
        free_s = max(free_s, now) + service_s
        heapq.heappush(ready, (free_s + think_s[row], user))
    return sent


def test_a_closed_queue_with_think_time_is_the_machine_repair_model():
    n, users, rng = 2000, 6, np.random.default_rng(4)
    think = durations.parse("exponential:8")
    table = requests(n, think_s=think.sample(n, rng))
    starts = think.residual(users, rng)
    records = serve_load(Load(table=table, max_concurrency=users, user_start_s=starts), max_num_seqs=1)
    sent = np.asarray(records.sent_s)
    assert sent == pytest.approx(machine_repair(starts, table.think_s, 2.0, n))
    # The interactive response time law: N = X (R + Z).
    response = np.asarray(records.last_token_s) - sent
    throughput = n / records.end_s
    assert throughput * (response.mean() + table.think_s.mean()) == pytest.approx(users, rel=0.01)
