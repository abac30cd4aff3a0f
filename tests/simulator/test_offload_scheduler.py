"""V1's KV offload, statement by statement: small worlds, copies reported by hand."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.offload_plan import OffloadPlan, Transfer, WatchedPool
from simulator.offload_scheduler import OffloadScheduler
from simulator.offload_tier import CpuTier
from simulator.request import Request, Status
from simulator.rules import SchedulerRules

SHARED = list(range(1000, 1100))


class World:
    """Requests that begin with the same tokens, over blocks of 4."""

    def __init__(self, *, gpu: int = 41, cpu: int = 100, factor: int = 1, **rules: Any) -> None:
        limits = {"max_num_seqs": 8, "max_num_batched_tokens": 64, "max_model_len": 200} | rules
        self.pool = WatchedPool(gpu, 4, caching=True)
        self.tier = CpuTier(cpu)
        self.scheduler = OffloadScheduler(SchedulerRules(**limits), self.pool, self.tier, factor=factor)
        self.rows = 0

    def add(self, prompt: int, outputs: int = 1, shared: int = 0, **more: Any) -> Request:
        request = Request(self.rows, prompt, outputs, shared_keys=SHARED[: shared // 4], **more)
        self.rows += 1
        self.scheduler.add([request])
        return request

    def step(self) -> OffloadPlan:
        """A step without copies reported."""
        plan = self.scheduler.schedule()
        self.scheduler.update(plan)
        return plan

    def done(self, *transfers: Transfer) -> None:
        self.scheduler.transfers_done(transfers)

    def serve(self, prompt: int, outputs: int = 1, shared: int = 0) -> None:
        """Serve a request to its end, copies included."""
        request = self.add(prompt, outputs, shared)
        while request.status is not Status.FINISHED:
            plan = self.step()
            self.done(*plan.stores, *plan.loads)

    def forget_gpu(self) -> None:
        """Fill the GPU's blocks with something else."""
        tier = self.scheduler.tier
        self.scheduler.tier = CpuTier(0)
        self.serve((self.pool.num_blocks - 1) * 4)
        self.scheduler.tier = tier
        assert not any(key in self.pool.cached for key in SHARED)


def warm(**settings: Any) -> World:
    """A world whose tier, not its GPU, holds 16 shared tokens (4 blocks)."""
    world = World(**settings)
    world.serve(16, shared=16)
    world.forget_gpu()
    return world


def test_full_blocks_of_the_prompt_are_stored_and_generated_ones_are_not():
    world = World()
    world.add(10, 10)
    plan = world.step()
    assert [(store.num_blocks, store.is_store) for store in plan.stores] == [(2, True)]
    assert not any(world.step().stores for _ in range(9))
    assert len(world.tier) == 2


def test_a_chunked_prompt_is_stored_as_it_fills():
    world = World(max_num_batched_tokens=10)
    world.add(24)
    assert [[store.num_blocks for store in world.step().stores] for _ in range(3)] == [[2], [3], [1]]


def test_what_is_there_already_is_not_stored_again():
    world = World()
    world.serve(16, shared=16)
    request = world.add(20, shared=16)
    assert [store.keys for store in world.step().stores] == [[request.block_key(4)]]


def test_a_store_without_room_is_skipped_and_tried_again():
    world = World(cpu=2)
    first, second = world.add(8, 3), world.add(8, 3)
    plan = world.step()
    assert [store.request for store in plan.stores] == [first]
    assert world.scheduler.skipped_stores == 1
    world.done(*plan.stores)
    assert [store.request for store in world.step().stores] == [second]


def test_a_load_waits_outside_running_holds_blocks_and_counts_for_no_limit():
    world = warm(max_num_seqs=1)
    loading, other = world.add(20, 5, shared=16), world.add(4, 5)
    plan = world.step()
    assert [load.num_blocks for load in plan.loads] == [4]
    assert loading.status is Status.WAITING_FOR_REMOTE_KVS
    assert world.scheduler.running == [other]
    assert world.scheduler.counts()[1] == 1
    assert len(loading.blocks) == 4


def test_when_the_copy_is_done_the_request_is_admitted_behind_it():
    world = warm()
    request = world.add(20, 5, shared=16)
    plan = world.step()
    assert not plan.num_tokens
    assert not world.step().num_tokens  # nothing was reported yet
    world.done(*plan.loads)
    plan = world.step()
    assert (plan.requests, plan.tokens, plan.admitted) == ([request], [4], [(request, 16)])
    assert all(key in world.pool.cached for key in SHARED[:4])


def test_of_a_prompt_found_whole_exactly_the_last_token_is_computed():
    world = warm()
    world.add(16, 5, shared=16)
    world.done(*world.step().loads)
    assert world.step().tokens == [1]


def test_the_gpus_own_hit_comes_first():
    world = warm()
    world.serve(8, shared=8)  # loads two blocks, which are on the GPU now
    request = world.add(20, 5, shared=16)
    plan = world.step()
    assert [load.num_blocks for load in plan.loads] == [2]
    assert request.num_computed_tokens == 16


def test_a_request_is_passed_over_while_its_blocks_are_being_written():
    world = World()
    world.add(16, 1, shared=16)
    stores = world.step().stores
    world.pool.cached.clear()  # the GPU forgot them, the copy goes on
    waiting, other = world.add(20, 5, shared=16), world.add(4, 5)
    assert world.step().requests == [other]
    assert waiting.status is Status.WAITING
    world.done(*stores)
    assert [load.request for load in world.step().loads] == [waiting]


def test_a_request_is_passed_over_while_its_blocks_are_read_for_another():
    world = warm()
    world.add(20, 5, shared=16)
    second = world.add(20, 5, shared=16)
    plan = world.step()
    assert len(plan.loads) == 1
    world.done(*plan.loads)
    assert second in world.step().requests  # the first one's blocks are on the GPU now


def test_less_than_a_block_of_the_tier_is_not_loaded():
    world = warm(factor=4)
    world.serve(12, shared=12)  # three of the four GPU blocks that one of the tier holds
    assert not world.scheduler.external_hits_tokens
    world.add(20, 5, shared=16)
    assert not world.step().loads  # 12 are on the GPU: 4 of the 16 are too few


def test_blocks_of_a_load_must_be_free_beyond_what_prompts_in_progress_need():
    for gpu, may in ((15, True), (14, False)):  # usable: 14 and 13; the long prompt has 2 blocks and needs 8 more
        world = warm(gpu=gpu, scheduler_reserve_full_isl=False, long_prefill_token_threshold=8)
        world.add(40, 1)
        world.add(20, 1, shared=16)
        assert bool(world.step().loads) is may


def test_a_victim_that_comes_back_finds_its_prompt_in_the_tier():
    world = World(gpu=11)
    first, second = world.add(16, 20), world.add(16, 20)
    plan = world.step()
    world.done(*plan.stores)
    while not plan.preempted:
        plan = world.step()
    assert plan.preempted == [second]
    while first.status is not Status.FINISHED:
        plan = world.step()
    plan = world.step()
    assert [(load.request, load.num_blocks) for load in plan.loads] == [(second, 3)]  # one more is on the GPU still


def test_the_engine_waits_for_copies_out_of_blocks_it_needs_again():
    world = World(gpu=6)
    world.add(16, 1)
    stores = world.step().stores
    world.add(20, 1)  # needs all five blocks
    assert world.step().flush == stores


def test_the_engine_waits_for_the_copies_of_a_victim():
    world = World(gpu=9)
    world.add(15, 20), world.add(16, 20)
    stores = world.step().stores
    plan = world.step()
    while not plan.preempted:
        plan = world.step()
    assert plan.flush == [store for store in stores if store.request in plan.preempted]


def test_look_ups_are_counted_beyond_the_gpus_hit():
    world = warm()
    queries = world.scheduler.external_queries_tokens
    world.serve(8, shared=8)
    world.serve(20, shared=16)
    assert world.scheduler.external_queries_tokens - queries == 8 + 12
    assert world.scheduler.external_hits_tokens == 8 + 8


@pytest.mark.parametrize("policy", [False, True])
def test_requests_passed_over_stay_in_front(policy):
    world = warm(max_num_seqs=1, priority_policy=policy)
    loading = world.add(20, 5, shared=16)
    plan = world.step()
    later = world.add(4, 5, arrival=1.0)
    world.done(*plan.loads)
    assert world.step().requests == [loading]
    assert later.status is Status.WAITING


def test_async_blocks_of_a_victim_that_a_step_still_writes_to_come_back_when_it_is_over():
    world = World(gpu=9, async_scheduling=True)
    world.add(15, 20), world.add(16, 20)
    first = world.scheduler.schedule()
    second = world.scheduler.schedule()  # no block is free: the second request goes, its blocks do not yet
    assert len(second.preempted) == 1
    assert world.pool.num_free == 0
    world.scheduler.update(first)
    assert world.pool.num_free == 4
