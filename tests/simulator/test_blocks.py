"""The free queue: which block is used next, and what can still be hit."""

from __future__ import annotations

import pytest

from simulator.blocks import BlockPool
from simulator.request import Request


def test_unhashed_blocks_go_to_the_head_and_hashed_ones_to_the_tail_deepest_first():
    pool = BlockPool(17, 4, caching=True)
    a = Request(0, 10, 3, shared_keys=[70, 71])
    pool.grow(a, 3)
    pool.register(a, 12)
    pool.free(a)
    assert pool.free_order() == [*range(4, 17), 3, 2, 1]
    b = Request(1, 8, 2)
    pool.grow(b, 3)
    pool.register(b, 9)
    pool.free(b)
    assert pool.free_order() == [6, *range(7, 17), 3, 2, 1, 5, 4]
    again = Request(2, 10, 2, shared_keys=[70, 71])
    hits = pool.find_hits(again)
    assert hits == [1, 2]
    pool.take_hits(again, hits)
    pool.grow(again, 1)
    pool.free(again)
    assert pool.free_order() == [6, *range(7, 17), 3, 5, 4, 2, 1]


def test_what_only_its_own_request_can_ask_for_is_found_after_a_preemption():
    pool = BlockPool(17, 4, caching=True)
    a = Request(0, 10, 3)
    pool.grow(a, 3)
    pool.register(a, 10)
    pool.free(a, comes_back=True)
    assert pool.find_hits(a) == [1, 2]


def test_without_caching_the_freed_blocks_are_used_again_first():
    pool = BlockPool(17, 4, caching=False)
    a = Request(0, 10, 3)
    pool.grow(a, 3)
    pool.free(a)
    assert pool.free_order() == [3, 2, 1, *range(4, 17)]


def test_before_0_23_everything_goes_to_the_tail():
    pool = BlockPool(9, 4, caching=True, unhashed_to_head=False)
    a = Request(0, 6, 3)
    pool.grow(a, 2)
    pool.register(a, 6)
    pool.free(a)
    assert pool.free_order() == [3, 4, 5, 6, 7, 8, 2, 1]


def test_the_copy_of_an_evicted_block_can_still_be_hit():
    pool = BlockPool(4, 4, caching=True)
    first, second = Request(0, 4, 1, shared_keys=[7]), Request(1, 4, 1, shared_keys=[7])
    for request in (first, second):
        pool.grow(request, 1)
        pool.register(request, 4)
    pool.free(first)
    other = Request(2, 8, 1)
    pool.grow(other, 2)  # takes the fresh block 3, then evicts block 1
    assert pool.find_hits(Request(3, 5, 1, shared_keys=[7])) == [2]


def test_usage_counts_cached_but_unused_blocks_as_free():
    pool = BlockPool(11, 4, caching=True)
    a = Request(0, 8, 1)
    pool.grow(a, 2)
    assert pool.usage == pytest.approx(0.2)
    pool.register(a, 8)
    pool.free(a)
    assert pool.usage == 0.0


def test_a_pool_of_a_million_blocks_starts_at_no_cost():
    pool = BlockPool(1_000_001, 16, caching=True)
    a = Request(0, 64, 1)
    pool.grow(a, 4)
    assert a.blocks == [1, 2, 3, 4]
    assert pool.num_free == 999_996
