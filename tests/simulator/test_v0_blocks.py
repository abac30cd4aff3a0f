"""V0's pools: what is counted, what is shared, what is evicted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import EngineDiedError
from simulator.request import Request, Status
from simulator.v0_blocks import Fit, V0Blocks
from simulator.v0_tier import BlockTier, Evictor


def evict_all(evictor):
    return [evictor.evict() for _ in range(len(evictor))]


def test_the_oldest_access_goes_first_and_of_equal_ones_the_deepest_block():
    evictor = Evictor()
    for key, tokens, accessed in [(1, 4, 7), (2, 8, 7), (3, 12, 7), (4, 4, 9), (5, 8, 9)]:
        evictor.add(key, tokens, accessed)
    assert evict_all(evictor) == [3, 2, 1, 5, 4]


def test_a_block_that_comes_late_with_an_old_access_does_not_overtake():
    evictor = Evictor()
    for key, tokens, accessed in [(1, 8, 5), (2, 4, -1), (3, 4, 6)]:
        evictor.add(key, tokens, accessed)
    assert evict_all(evictor) == [1, 2, 3]


def test_a_block_that_is_needed_leaves_the_evictor():
    evictor = Evictor()
    for key in (1, 2, 3):
        evictor.add(key, 4 * key, 0)
    evictor.remove(3)
    assert 3 not in evictor
    evictor.add(3, 12, 1)
    assert evict_all(evictor) == [2, 1, 3]


class PlainEvictor:
    """vLLM's evictor as it stands there: a table in order of addition, scanned from the front."""

    def __init__(self):
        self.table = {}

    def add(self, key, tokens, accessed):
        self.table[key] = (accessed, tokens)

    def evict(self):
        best = None
        for key, (accessed, tokens) in self.table.items():
            if best is None:
                best = key
                continue
            if self.table[best][0] < accessed:
                break
            if self.table[best][1] < tokens:
                best = key
        del self.table[best]
        return best


@given(
    st.lists(st.one_of(st.tuples(st.integers(1, 5), st.integers(-1, 4)), st.none(), st.integers(0, 30)), max_size=80)
)
def test_the_evictor_equals_the_plain_scan(operations):
    ours, plain = Evictor(), PlainEvictor()
    for key, operation in enumerate(operations):
        if isinstance(operation, tuple):
            ours.add(key, *operation)
            plain.add(key, *operation)
        elif operation is None:
            if plain.table:
                assert ours.evict() == plain.evict()
        elif operation in plain.table:
            ours.remove(operation)
            del plain.table[operation]
        assert len(ours) == len(plain.table)


def test_blocks_without_content_are_used_before_cached_ones_lose_theirs():
    tier = BlockTier(4, caching=True)
    tier.take_full(1)
    tier.take_full(2)
    tier.release_full(2, 8)
    tier.release_full(1, 4)
    assert tier.num_free == 4
    tier.take(2)
    assert tier.num_free == 2
    tier.take_full(1)
    assert tier.hits == 1
    tier.take(1)
    tier.release_full(1, 4)
    tier.take_full(2)  # was evicted
    assert (tier.queries, tier.hits, tier.num_free) == (4, 1, 0)


def test_a_block_filled_with_content_that_exists_is_freed():
    tier = BlockTier(4, caching=True)
    tier.take_full(1)
    tier.take(1)
    tier.fill(1)
    assert tier.num_free == 3


def test_more_than_there_is_kills_the_engine():
    tier = BlockTier(2, caching=False)
    with pytest.raises(EngineDiedError, match=r"^NoFreeBlocksError$"):
        tier.take(3)


@pytest.mark.parametrize(
    ("table", "new", "lookahead", "touched"),
    [(8, 1, 0, 1), (9, 1, 0, 1), (11, 1, 0, 1), (8, 0, 0, 0), (9, 0, 0, 1), (9, 1, 3, 2), (9, 1, 2, 1), (8, 4, 4, 2)],
)
def test_touched_blocks(table, new, lookahead, touched):
    request = Request(0, table + new, 9)
    request.table_tokens = table
    assert V0Blocks(9, 9, 4).touched(request, lookahead) == touched


def test_fits_leave_the_watermark_free_and_swapping_in_needs_the_touched_block_too():
    blocks = V0Blocks(200, 9, 4)
    first, second, third = Request(0, 4 * 190, 9), Request(1, 33, 9), Request(2, 4 * 199, 9)
    assert blocks.can_allocate(first) is Fit.OK
    blocks.allocate(first)
    assert blocks.can_allocate(second) is Fit.LATER  # 9 of 10, and 2 must stay
    assert blocks.can_allocate(third) is Fit.NEVER
    first.num_tokens += 1
    assert not blocks.can_swap_out(first)


def test_a_swap_moves_every_block_and_keeps_the_table():
    blocks = V0Blocks(20, 20, 4)
    request = Request(0, 9, 9)
    blocks.allocate(request)
    request.num_tokens += 1
    assert blocks.swap_out(request) == 3
    assert (blocks.gpu.num_free, blocks.cpu.num_free) == (20, 17)
    assert blocks.cpu.usage == pytest.approx(0.15)
    assert blocks.can_swap_in(request, 0) is Fit.OK
    assert blocks.swap_in(request) == 3
    assert (request.table_tokens, request.capacity) == (9, 12)
    assert (blocks.gpu.num_free, blocks.cpu.num_free) == (17, 20)


def test_the_cpu_pool_shares_prefixes_as_well():
    blocks = V0Blocks(20, 2, 4, caching=True)
    pair = [Request(row, 9, 9, shared_keys=[1, 2]) for row in range(2)]
    for request in pair:
        blocks.allocate(request)
        request.num_tokens += 1
    assert blocks.gpu.num_free == 16
    assert not blocks.can_swap_out(pair[0])  # 2 full blocks and 1 touched
    blocks.cpu = BlockTier(4, caching=True)
    assert [blocks.swap_out(request) for request in pair] == [3, 3]
    assert blocks.cpu.num_free == 0


def test_freeing_a_swapped_request_with_a_prefix_cache_is_vllms_key_error():
    blocks = V0Blocks(20, 20, 4, caching=True)
    request = Request(0, 8, 9, shared_keys=[1, 2])
    blocks.allocate(request)
    blocks.swap_out(request)
    request.status = Status.SWAPPED
    with pytest.raises(EngineDiedError, match=r"^KeyError$"):
        blocks.free(request)


def test_an_empty_cpu_pool_is_not_in_use():
    assert V0Blocks(20, 0, 4).cpu.usage == 0.0
