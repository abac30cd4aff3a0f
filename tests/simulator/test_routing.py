"""Who gets the next request: small worlds with exact answers."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from simulator.errors import InputError
from simulator.request_table import RequestTable
from simulator.routing import Routing, router


def prompts(ids, tokens=64, shared=48) -> RequestTable:
    """Return requests of *tokens* tokens; equal *ids* share the first *shared* ones."""
    n = len(ids)
    lengths = np.full(n, tokens)
    return RequestTable.build(
        prompt_tokens=lengths, output_tokens=lengths, segments=(np.arange(n + 1), np.array(ids), np.full(n, shared))
    )


def choices(text: str, table: RequestTable, ready, in_flight=None, seed=0) -> list[int]:
    chooser = router(Routing.parse(text), table, 16, seed)
    return [chooser.choose(row, ready, in_flight or dict.fromkeys(ready, 0)) for row in range(len(table))]


def test_round_robin_goes_on_where_it_was_when_replicas_come_and_go():
    chooser = router(Routing(), prompts(range(9)), 16, 0)
    assert [chooser.choose(row, [0, 1, 2], {}) for row in range(4)] == [0, 1, 2, 0]
    assert [chooser.choose(row, [0, 2, 5], {}) for row in range(4)] == [2, 5, 0, 2]


def test_least_outstanding_takes_turns_among_equals():
    chooser = router(Routing(policy="least-outstanding"), prompts(range(9)), 16, 0)
    assert chooser.choose(0, [0, 1, 2], {0: 1, 1: 0, 2: 0}) == 1
    assert chooser.choose(1, [0, 1, 2], {0: 1, 1: 1, 2: 1}) == 2
    assert chooser.choose(2, [0, 1, 2], {0: 1, 1: 1, 2: 1}) == 0


def test_power_of_two_never_takes_the_busiest_of_all():
    picked = Counter(choices("power-of-two", prompts(range(3000)), [0, 1, 2], {0: 5, 1: 3, 2: 1}))
    assert picked[0] == 0
    assert picked[2] / 3000 == pytest.approx(2 / 3, abs=0.04)  # it is in two of the three pairs


def test_a_random_choice_depends_on_the_row_and_the_seed_only():
    table = prompts(range(500))
    assert choices("random", table, [0, 1]) == choices("random", table, [0, 1])
    assert choices("random", table, [0, 1]) != choices("random", table, [0, 1], seed=1)


def test_the_same_prefix_goes_to_the_same_replica():
    ids = np.random.default_rng(0).integers(0, 200, 2000)
    found = choices("prefix-hash:prefix_tokens=48,load_bound=none", prompts(ids), [0, 1, 2, 3])
    owner = dict(zip(ids.tolist(), found, strict=True))
    assert [owner[i] for i in ids.tolist()] == found
    assert min(Counter(owner.values()).values()) > 25  # of 50


def test_a_replica_more_moves_only_its_own_share_of_the_prefixes():
    table = prompts(range(2000))
    before = np.array(choices("prefix-hash:prefix_tokens=48,load_bound=none", table, [0, 1, 2, 3]))
    after = np.array(choices("prefix-hash:prefix_tokens=48,load_bound=none", table, [0, 1, 2, 3, 4]))
    moved = before != after
    assert set(after[moved].tolist()) == {4}
    assert moved.mean() == pytest.approx(0.2, abs=0.06)


def test_prompts_that_share_nothing_are_spread():
    """48 tokens are shared, the hash looks at 64."""
    found = choices("prefix-hash:prefix_tokens=64,load_bound=none", prompts([7] * 2000), [0, 1, 2, 3])
    assert min(Counter(found).values()) > 350


def test_a_bounded_load_hands_on_to_the_next_of_the_ring():
    table = prompts([7, 7])
    owner = choices("prefix-hash:prefix_tokens=48", table, [0, 1, 2])[0]
    busy = {0: 0, 1: 0, 2: 0} | {owner: 4}  # of ceil(1.25 * 5 / 3) = 3 at most
    assert choices("prefix-hash:prefix_tokens=48", table, [0, 1, 2], busy)[0] != owner
    assert choices("prefix-hash:prefix_tokens=48,load_bound=none", table, [0, 1, 2], busy)[0] == owner


def test_prefix_match_goes_back_to_where_the_longest_prefix_went():
    table = RequestTable.build(
        prompt_tokens=np.full(4, 65), output_tokens=np.full(4, 1),
        segments=(np.array([0, 1, 3, 5, 7]), np.array([0, 0, 1, 0, 2, 0, 1]), np.array([16, 16, 65, 16, 65, 16, 65])),
    )  # fmt: skip
    chooser = router(Routing(policy="prefix-match", load_bound=math.inf), table, 16, 0)
    nobody = {0: 0, 1: 0, 2: 0}
    assert chooser.choose(0, [0, 1, 2], nobody) == 0  # a system prompt
    assert chooser.choose(1, [1, 2], nobody | {2: 1}) == 1  # a chat behind it, while 0 is away
    assert chooser.choose(2, [0, 1, 2], nobody) == 1  # another chat: the system prompt was sent to 1 last
    assert chooser.choose(3, [0, 1, 2], nobody) == 1
    assert chooser.choose(3, [0, 2], nobody) == 2  # nobody there knows it: the least busy, in turn


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fastest", "router: policy: .*'round-robin'"),
        ("prefix-hash:load_bound=0.5", "load_bound"),
        ("prefix-hash:tokens=5", "tokens"),
    ],
)
def test_an_unknown_policy_is_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message) as caught:
        Routing.parse(text)
    assert "\n" not in str(caught.value)
