"""V1's rules, one small world each; numbers follow hand-checked traces of the real classes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.request import Status
from tests.simulator.worlds import World


def test_decodes_come_first_and_the_budget_fills_with_prompts_in_order():
    world = World(block_size=16)
    world.add(a=(20, 9), b=(30, 9), c=(100, 9))
    assert world.step() == {"a": 20, "b": 30, "c": 14}
    assert world.step() == {"a": 1, "b": 1, "c": 62}
    world.add(d=(10, 9))
    assert world.step() == {"a": 1, "b": 1, "c": 24, "d": 10}
    assert world.step() == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_async_newcomers_join_two_steps_later_and_no_step_is_wasted_on_a_length_end():
    world = World(block_size=16, async_scheduling=True)
    world.add(a=(20, 6))
    plan1, grants = world.plan()
    assert grants == {"a": 20}
    plan2, grants = world.plan()
    assert grants == {"a": 1}
    world.add(b=(30, 3))
    world.scheduler.update(plan1)
    plan3, grants = world.plan()
    assert grants == {"a": 1, "b": 30}
    world.scheduler.update(plan2)
    plan4, grants = world.plan()
    assert grants == {"a": 1, "b": 1}
    world.scheduler.update(plan3)
    plan5, grants = world.plan()
    assert grants == {"a": 1, "b": 1}
    world.scheduler.update(plan4)
    plan6, grants = world.plan()
    assert grants == {"a": 1}  # b's last token is in step 5; it still stands in running
    _yielded, ended = world.scheduler.update(plan5)
    assert [world.name(request) for request in ended] == ["b"]
    assert world.plan()[1] == {}
    _yielded, ended = world.scheduler.update(plan6)
    assert [world.name(request) for request in ended] == ["a"]


def test_async_eos_wastes_one_planned_token():
    world = World(async_scheduling=True)
    world.add_request("a", 20, 10, eos_at=2)
    first, _ = world.plan()
    second, _ = world.plan()
    world.scheduler.update(first)
    third, grants = world.plan()
    assert grants == {"a": 1}
    assert world.scheduler.update(second)[1] == [world.requests["a"]]
    assert world.scheduler.update(third) == ([], [])
    assert not world.scheduler.has_requests


def test_the_newest_admission_is_the_victim_and_waits_at_the_head():
    world = World(usable_blocks=12)
    world.add(a=(12, 14), b=(12, 14), c=(12, 14))
    for _ in range(5):
        world.step()
    plan, grants = world.plan()
    assert grants == {"a": 1, "b": 1}
    assert [world.name(request) for request in plan.preempted] == ["c"]
    assert world.requests["c"].status is Status.PREEMPTED
    assert world.blocks.num_free == 2


def test_a_step_that_preempts_admits_nobody():
    world = World(usable_blocks=6)
    world.add(a=(8, 8), b=(12, 9))
    world.step()
    world.add(z=(1, 1))
    plan, grants = world.plan()
    assert [world.name(request) for request in plan.preempted] == ["b"]
    assert grants == {"a": 1}


def test_a_whole_sequence_must_fit_before_its_first_chunk_is_admitted():
    world = World(usable_blocks=16, max_num_batched_tokens=16)
    world.add(a=(10, 3), b=(40, 3), c=(30, 3))
    assert [world.step() for _ in range(4)] == [{"a": 10, "b": 6}, {"a": 1, "b": 15}, {"a": 1, "b": 15}, {"b": 4}]


def test_without_the_whole_sequence_check_a_chunk_is_enough():
    world = World(usable_blocks=16, max_num_batched_tokens=16, scheduler_reserve_full_isl=False)
    world.add(a=(10, 3), b=(40, 3), c=(30, 3))
    assert [world.step() for _ in range(4)][3] == {"b": 4, "c": 12}


def test_the_threshold_caps_every_chunk_and_several_prompts_are_partial_at_once():
    world = World(long_prefill_token_threshold=16)
    world.add(a=(50, 2), b=(40, 2), c=(10, 3))
    assert [world.step() for _ in range(4)] == [
        {"a": 16, "b": 16, "c": 10},
        {"a": 16, "b": 16, "c": 1},
        {"a": 16, "b": 8, "c": 1},
        {"a": 2, "b": 1},
    ]


def test_priority_orders_the_queue_and_picks_the_victim_but_never_preempts_for_admission():
    world = World(usable_blocks=12, priority_policy=True)
    for name, priority in (("a", 5), ("b", 0), ("c", 1)):
        world.add_request(name, 12, 14, priority=priority)
    assert list(world.step()) == ["b", "c", "a"]
    world.add_request("d", 4, 4, priority=-1)
    for _ in range(4):
        assert "d" not in world.step()
    plan, _grants = world.plan()
    assert [world.name(request) for request in plan.preempted] == ["a"]


def test_at_the_sequence_limit_an_async_end_leaves_its_slot_empty_for_one_step():
    lengths = {"a": (10, 2), "b": (10, 3), "c": (10, 2), "d": (10, 1)}
    sync = World(max_num_seqs=2)
    sync.add(**lengths)
    assert [list(sync.step()) for _ in range(4)] == [["a", "b"], ["a", "b"], ["b", "c"], ["c", "d"]]
    world = World(max_num_seqs=2, async_scheduling=True)
    world.add(**lengths)
    plans, seen = [world.plan()], []
    while plans:
        plan, grants = plans.pop(0)
        seen.append(list(grants))
        nxt = world.plan()
        plans += [nxt] if nxt[1] else []
        world.scheduler.update(plan)
        if not plans and world.scheduler.has_requests:
            plans.append(world.plan())
    assert seen == [["a", "b"], ["a", "b"], ["b"], ["c"], ["c", "d"]]


def test_with_chunking_off_a_prompt_that_does_not_fit_blocks_those_behind_it():
    world = World(enable_chunked_prefill=False)
    world.add(a=(40, 5), b=(30, 5), c=(10, 5))
    assert world.step() == {"a": 40}
    assert world.step() == {"a": 1, "b": 30, "c": 10}
    older = World(enable_chunked_prefill=False, unfit_prompt_blocks_queue=False)
    older.add(a=(40, 5), b=(30, 5), c=(10, 5))
    assert older.step() == {"a": 40, "c": 10}


def test_requests_of_one_step_share_the_prefix_that_was_planned_just_before():
    world = World(caching=True)
    world.add_request("a", 14, 2, shared_keys=[1, 2, 3])
    world.add_request("b", 15, 2, shared_keys=[1, 2, 3])
    assert world.step() == {"a": 14, "b": 3}


def test_a_full_hit_computes_the_last_block_again():
    world = World(caching=True)
    keys = [1, 2, 3, 4]
    world.add_request("seed", 16, 1, shared_keys=keys)
    world.step()
    for prompt, computed in ((8, 4), (11, 3), (12, 4), (13, 1), (16, 4)):
        world.add_request(f"p{prompt}", prompt, 1, shared_keys=keys[: prompt // 4])
        assert world.step() == {f"p{prompt}": computed}


def test_every_attempt_of_a_blocked_request_counts_as_a_query():
    world = World(caching=True, usable_blocks=8)
    world.add(a=(20, 3), b=(20, 3))
    for _ in range(5):
        world.step()
    assert world.scheduler.prefix_queries_tokens == 20 + 4 * 20


def test_a_request_larger_than_the_pool_is_known_in_advance():
    world = World(usable_blocks=4)
    world.add(fits=(12, 4), grows_too_large=(12, 6), too_long=(20, 1))
    ask = world.scheduler.can_ever_run
    assert [ask(request) for request in world.requests.values()] == [True, False, False]


SIZES = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12)), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    sizes=SIZES,
    blocks=st.integers(11, 40),
    is_async=st.booleans(),
    caching=st.booleans(),
    priority=st.booleans(),
    budget=st.integers(4, 40),
    data=st.data(),
)
def test_blocks_are_conserved_and_every_request_ends(sizes, blocks, is_async, caching, priority, budget, data):
    world = World(usable_blocks=blocks, caching=caching, async_scheduling=is_async, priority_policy=priority,
                  max_num_batched_tokens=budget, max_num_seqs=4)  # fmt: skip
    for index, (prompt, outputs) in enumerate(sizes):
        shared = data.draw(st.integers(0, prompt // 4))
        world.add_request(f"r{index}", prompt, outputs, priority=index % 3, shared_keys=list(range(1, shared + 1)))
    in_flight = []
    for _ in range(2000):
        plan = world.scheduler.schedule()
        in_flight.append(plan)
        if len(in_flight) > int(is_async) or not plan.num_tokens:
            world.scheduler.update(in_flight.pop(0))
        held = [block for request in world.requests.values() for block in request.blocks]
        free = world.blocks.free_order()
        assert len(free) == world.blocks.num_free == len(set(free))
        assert set(free).isdisjoint(held)
        assert set(free) | set(held) == set(range(1, blocks + 1))
        if not world.scheduler.has_requests:
            break
    assert all(request.status is Status.FINISHED for request in world.requests.values())
    assert world.blocks.num_free == blocks
