"""The CPU tier: who may be read, who goes first, who stays."""

from simulator.offload_tier import CpuTier, Found


def stored(tier: CpuTier, *keys: int) -> None:
    tier.begin_store(list(keys))
    tier.end_store(keys)


def test_a_block_can_be_read_when_its_copy_is_done():
    tier = CpuTier(4)
    assert tier.find(1) is Found.MISS
    tier.begin_store([1])
    assert tier.find(1) is Found.LATER
    tier.end_store([1])
    assert tier.find(1) is Found.HIT


def test_only_what_is_not_there_is_stored():
    tier = CpuTier(4)
    stored(tier, 1, 2)
    assert tier.begin_store([1, 2, 3]) == [3]
    assert tier.begin_store([3]) == []


def test_the_oldest_goes_first_and_of_a_chain_the_deepest_block_counts_as_older():
    tier = CpuTier(4)
    stored(tier, 1, 2, 3, 4)
    tier.touch([1, 2])
    assert tier.order() == [3, 4, 2, 1]
    tier.begin_store([5, 6, 7])
    assert [key for key in range(1, 8) if key in tier] == [1, 5, 6, 7]


def test_blocks_in_transit_and_blocks_of_the_same_store_stay():
    tier = CpuTier(3)
    stored(tier, 1, 2)
    tier.begin_store([3])
    tier.begin_load([1])
    assert tier.begin_store([2, 4]) is None  # 1 is read, 3 is written, 2 belongs to this store
    assert tier.begin_store([4]) == [4]
    assert 2 not in tier


def test_a_load_counts_as_a_use_when_it_ends():
    tier = CpuTier(3)
    stored(tier, 1, 2, 3)
    tier.begin_load([1, 2])
    tier.begin_load([2])
    assert tier.order() == [3]
    tier.end_load([1, 2])
    assert tier.order() == [3, 1]
    tier.end_load([2])
    assert tier.order() == [3, 1, 2]


def test_a_tier_without_room_stores_nothing():
    assert CpuTier(0).begin_store([1]) is None
