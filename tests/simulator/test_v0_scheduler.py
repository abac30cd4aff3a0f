"""V0's rules, one small world each (blocks of 4 tokens unless said otherwise)."""

from __future__ import annotations

import pytest

from simulator.engine_config import EngineConfig
from simulator.errors import ConfigError, EngineDiedError
from simulator.request import Status
from simulator.v0_rules import V0Rules
from tests.simulator.worlds_v0 import V0World

# -- the default policy -----------------------------------------------------------------------------------------------


def test_prompts_run_alone_and_decodes_wait_for_them():
    world = V0World()
    world.add(a=(10, 9))
    assert world.step() == {"a": 10}
    assert world.step() == {"a": 1}
    world.add(b=(20, 9), c=(30, 9))
    plan, grants = world.plan()
    assert grants == {"b": 20, "c": 30}
    assert plan.is_prompt_step
    assert plan.num_prefills == 2
    world.scheduler.update(plan)
    plan, grants = world.plan()
    assert grants == {"a": 1, "b": 1, "c": 1}
    assert not plan.is_prompt_step


def test_prompts_are_batched_up_to_the_token_budget_and_never_cut():
    world = V0World(max_num_batched_tokens=60, max_model_len=60)
    world.add(a=(30, 9), b=(30, 9), c=(1, 9))
    assert world.step() == {"a": 30, "b": 30}
    assert world.step() == {"c": 1}


def test_max_num_seqs_counts_those_that_run_already():
    world = V0World(max_num_seqs=2)
    world.add(a=(4, 3), b=(4, 9), c=(4, 9))
    assert world.step() == {"a": 4, "b": 4}
    assert world.step() == {"a": 1, "b": 1}
    assert world.step() == {"a": 1, "b": 1}  # a's last token
    assert world.step() == {"c": 4}


def test_admission_leaves_one_percent_of_the_blocks_free_and_decodes_may_use_them():
    world = V0World(gpu=200, max_num_batched_tokens=4000, max_model_len=900)
    world.add(a=(4 * 197, 50), b=(8, 9))
    assert world.step() == {"a": 788}
    assert world.free[0] == 3
    assert world.step() == {"a": 1}  # b needs 2 of 3, and 2 must stay
    assert world.free[0] == 2
    world.steps(8)
    assert world.free[0] == 0


def test_a_prompt_beyond_the_limit_or_beyond_the_pool_is_ignored():
    world = V0World(gpu=10, max_num_batched_tokens=100, max_model_len=50)
    world.add(a=(51, 9), b=(41, 9), c=(40, 1))
    plan, grants = world.plan()
    assert grants == {"c": 40}
    assert world.names(plan.ignored) == ["a", "b"]
    assert world.requests["a"].status is Status.FINISHED
    assert not world.scheduler.can_ever_run(world.requests["a"])
    assert not world.scheduler.can_ever_run(world.requests["b"])
    assert world.scheduler.can_ever_run(world.requests["c"])


def test_a_request_ends_when_it_is_longer_than_max_model_len():
    world = V0World(max_model_len=8)
    world.add(a=(6, 99))
    world.steps(3)
    assert world.requests["a"].num_tokens == 9
    assert not world.scheduler.has_requests


def test_an_eos_token_ends_a_request():
    world = V0World()
    world.add_request("a", 6, 99, eos_at=2)
    world.step()
    plan, _ = world.plan()
    assert world.scheduler.update(plan)[1] == [world.requests["a"]]
    assert world.free == (90, 90)


def test_preemption_starts_when_no_block_is_free_even_if_the_last_block_has_room():
    world = V0World(gpu=6)
    world.add(a=(9, 9), b=(9, 9))  # 3 blocks each: room for 3 more tokens, but no block is free
    assert world.step() == {"a": 9, "b": 9}
    plan, grants = world.plan()
    assert grants == {"a": 1}
    assert world.names(plan.preempted) == ["b"]
    assert world.free[0] == 3


def test_victims_of_recompute_stand_in_front_of_the_queue_and_come_back_as_prompts_with_their_outputs():
    world = V0World(gpu=9)
    world.add(a=(12, 6), b=(12, 12), c=(12, 12))
    assert world.step() == {"a": 12, "b": 12, "c": 12}
    plan, grants = world.plan()
    assert (grants, world.names(plan.preempted)) == ({"a": 1, "b": 1}, ["c"])
    world.scheduler.update(plan)
    world.add(d=(9, 1))
    world.steps(3)
    assert world.free[0] == 1  # c needs 4 blocks, and d behind it waits too
    plan, grants = world.plan()  # a takes the block, b is alone and goes itself
    assert (grants, world.names(plan.preempted)) == ({"a": 1}, ["b"])
    assert world.names(world.scheduler.waiting) == ["b", "c", "d"]
    world.scheduler.update(plan)  # a ends
    plan, grants = world.plan()
    assert grants == {"b": 17, "c": 13}
    assert plan.admitted == [(world.requests["b"], 0), (world.requests["c"], 0)]


def test_a_lone_request_throws_itself_out_and_the_calls_that_serve_nobody_are_added_to_the_next_plan():
    world = V0World(gpu=3)
    world.add(a=(8, 9))
    assert world.step() == {"a": 8}
    assert world.step() == {"a": 1}
    plan, grants = world.plan()  # 3 blocks, none free
    assert grants == {"a": 10}
    assert world.names(plan.preempted) == ["a"]
    assert plan.is_prompt_step


def test_a_request_that_has_grown_beyond_the_pool_is_ignored():
    world = V0World(gpu=3)
    world.add(a=(12, 9))
    assert world.step() == {"a": 12}
    plan, grants = world.plan()
    assert grants == {}
    assert world.names(plan.ignored) == ["a"]
    assert not world.scheduler.has_requests
    assert world.free == (3, 90)


# -- swapping ---------------------------------------------------------------------------------------------------------


def test_a_swapped_request_goes_to_the_cpu_bars_prompts_and_comes_back_without_a_loss():
    world = V0World(gpu=6, preemption_mode="swap")
    world.add(a=(9, 5), b=(9, 5))
    world.step()
    plan, grants = world.plan()
    assert (grants, plan.swapped_out, plan.swapped_in) == ({"a": 1}, 3, 0)
    assert world.free == (3, 87)
    world.scheduler.update(plan)
    world.add(c=(1, 1))
    for _ in range(3):  # b needs 2 full blocks + 1 touched; a holds 3, later 4
        plan, grants = world.plan()
        if plan.swapped_in:
            break
        assert list(grants) == ["a"]
        world.scheduler.update(plan)
    assert (grants, plan.swapped_in) == ({"a": 1, "b": 1}, 3)
    assert world.free[1] == 90


def test_swapping_needs_the_full_blocks_and_one_more_on_the_cpu():
    world = V0World(gpu=6, cpu=2, preemption_mode="swap")
    world.add(a=(9, 5), b=(9, 5))
    world.step()
    with pytest.raises(
        EngineDiedError,
        match=r"^RuntimeError: Aborted due to the lack of CPU swap space. "
        r"Please increase the swap space to avoid this error.$",
    ):
        world.step()


@pytest.mark.parametrize("mode", [None, "recompute"])
def test_recompute_is_the_default_and_needs_no_cpu_blocks(mode):
    world = V0World(gpu=6, cpu=0, preemption_mode=mode)
    world.add(a=(9, 5), b=(9, 5))
    world.steps(40)
    assert not world.scheduler.has_requests


def test_a_swapped_request_too_long_for_the_gpu_is_ignored_and_its_cpu_blocks_are_lost():
    world = V0World(gpu=3, preemption_mode="swap")
    world.add(a=(12, 9))
    world.step()
    plan, grants = world.plan()  # 3 full blocks and 1 touched do not fit into 3
    assert (grants, plan.swapped_out) == ({}, 3)
    assert world.names(plan.ignored) == ["a"]
    assert world.free == (3, 87)
    assert world.scheduler.lost_cpu_blocks == 3


def test_a_swapped_request_that_only_the_watermark_keeps_out_hangs_the_engine_and_says_so():
    world = V0World(gpu=100, cpu=200, preemption_mode="swap", max_num_batched_tokens=4000, max_model_len=900)
    world.add(a=(396, 9))
    world.steps(2)
    plan, grants = world.plan()
    assert (grants, plan.swapped_out) == ({}, 100)
    assert world.scheduler.has_requests
    assert world.scheduler.stuck == "vLLM hangs: swapped request 0 never fits into the GPU's blocks again"


# -- delay factor and priorities --------------------------------------------------------------------------------------


def test_with_a_delay_factor_the_oldest_prompt_waits_for_a_multiple_of_the_last_prompt_step():
    world = V0World(scheduler_delay_factor=2.0)
    world.add_request("a", 4, 99, arrival=0.0)
    assert world.step(now_s=1.0) == {"a": 4}
    world.add_request("b", 4, 99, arrival=2.5)
    assert world.step(now_s=4.0) == {"a": 1}  # the prompt step took 3.0 s: b waits until 2.5 + 6.0
    assert world.step(now_s=8.5) == {"a": 1}  # longer, not as long
    world.add_request("c", 4, 99, arrival=8.4)
    assert world.step(now_s=8.6) == {"b": 4}  # then c is the first of those that wait


def test_with_nobody_running_a_delay_factor_does_not_hold_prompts_back():
    world = V0World(scheduler_delay_factor=1000.0)
    world.add_request("a", 4, 1, arrival=0.0)
    assert world.step(now_s=1.0) == {"a": 4}
    world.add_request("b", 4, 1, arrival=50.0)
    assert world.step(now_s=50.0) == {"b": 4}


def test_a_more_important_head_throws_out_the_least_important_and_is_admitted_by_the_next_call():
    world = V0World(gpu=6, priority_policy=True)
    world.add_request("a", 9, 20, priority=1, arrival=0.0)
    world.add_request("b", 9, 20, priority=2, arrival=1.0)
    world.step()
    world.add_request("c", 11, 20, priority=0, arrival=2.0)
    plan, grants = world.plan()
    assert world.names(plan.preempted) == ["b"]
    assert plan.forced == 1
    assert grants == {"a": 1}
    world.scheduler.update(plan)
    assert world.names(world.scheduler.waiting) == ["c", "b"]
    assert world.step() == {"c": 11}


def test_a_swapped_victim_of_a_priority_kills_the_engine_when_its_turn_comes():
    world = V0World(gpu=6, priority_policy=True, preemption_mode="swap")
    world.add_request("a", 9, 3, priority=1, arrival=0.0)
    world.add_request("b", 9, 3, priority=2, arrival=1.0)
    world.step()
    world.add_request("c", 11, 1, priority=0, arrival=2.0)
    assert world.step() == {"a": 1}
    assert world.free[1] == 90 - 3
    with pytest.raises(EngineDiedError, match="Waiting sequence group should have only one prompt sequence"):
        world.step()


# -- chunked prefill --------------------------------------------------------------------------------------------------


def test_chunks_fill_the_budget_beside_decodes_and_take_all_blocks_of_the_prompt_at_once():
    world = V0World(chunked=True, max_num_batched_tokens=16)
    world.add(a=(10, 9), b=(40, 9))
    assert world.step() == {"b": 6, "a": 10} == {"a": 10, "b": 6}
    assert world.free[0] == 90 - 3 - 10
    plan, grants = world.plan()
    assert list(grants.items()) == [("b", 15), ("a", 1)]  # prompts stand first in the batch, decodes first in line
    assert world.names(plan.samplers) == ["a"]
    assert world.names(world.scheduler.running) == ["a", "b"]


def test_whoever_was_not_served_for_want_of_budget_comes_first_next_time():
    world = V0World(chunked=True, max_num_batched_tokens=4, max_num_seqs=4, max_model_len=200)
    world.add(a=(1, 9), b=(2, 9), c=(9, 9))
    assert world.step() == {"a": 1, "b": 2, "c": 1}
    assert world.step() == {"c": 2, "a": 1, "b": 1}
    assert world.names(world.scheduler.running) == ["a", "b", "c"]


def test_a_swapped_part_of_a_prompt_is_not_cut_and_bars_the_queue_while_it_exceeds_the_budget():
    world = V0World(gpu=12, chunked=True, max_num_batched_tokens=8, max_num_seqs=8, preemption_mode="swap")
    world.add(a=(7, 9), b=(38, 9))
    world.step()
    assert world.free[0] == 0
    plan, grants = world.plan()
    assert (grants, plan.swapped_out) == ({"a": 1}, 10)
    world.scheduler.update(plan)
    world.steps(12)
    assert world.requests["a"].status is Status.FINISHED
    assert world.step() == {}  # 37 tokens are left, the budget is 8, and nobody else is there
    assert world.scheduler.stuck


def test_a_prompt_that_fills_the_pool_and_is_not_done_in_one_chunk_is_reported_as_a_hang():
    world = V0World(gpu=4, chunked=True, max_num_batched_tokens=8, max_num_seqs=8)
    world.add(a=(15, 9))
    with pytest.raises(EngineDiedError, match=r"^vLLM hangs: "):
        world.steps(1000)


def test_chunks_with_prefix_caching_need_a_budget_of_whole_blocks():
    with pytest.raises(ConfigError, match=r"max_num_batched_tokens must be a multiple of the block size 4.*got 30"):
        V0World(chunked=True, caching=True, max_num_batched_tokens=30)


def test_at_least_one_scheduler_step():
    with pytest.raises(ConfigError, match="num_scheduler_steps must be at least 1, got 0"):
        V0World(num_scheduler_steps=0)


# -- lookahead, multi-step, async output processing -------------------------------------------------------------------


def test_lookahead_slots_are_held_by_decodes_only():
    world = V0World(num_lookahead_slots=5)
    world.add(a=(8, 9))
    world.step()
    assert world.free[0] == 90 - 2
    world.step()
    assert world.free[0] == 90 - 4  # 8 + 1 + 5 tokens


def test_the_lookahead_counts_as_touched():
    world = V0World(gpu=6, num_lookahead_slots=4)
    world.add(a=(8, 9), b=(8, 9))
    world.step()  # 2 blocks are free; 1 + 4 slots touch 2
    plan, grants = world.plan()
    assert grants == {"a": 1}
    assert world.names(plan.preempted) == ["b"]


def test_a_multi_step_run_is_decided_once_and_gives_one_token_a_step():
    world = V0World(num_scheduler_steps=4)
    world.add(a=(8, 9))
    assert world.step() == {"a": 8}  # prompts are single steps
    plan, grants = world.plan()
    assert (grants, plan.is_continuation, world.free[0]) == ({"a": 1}, False, 90 - 3)
    world.scheduler.update(plan)
    world.add(b=(8, 9))
    contexts = []
    for _ in range(3):
        plan, grants = world.plan()
        assert (grants, plan.is_continuation) == ({"a": 1}, True)
        contexts.append(plan.decode_context_max)
        world.scheduler.update(plan)
    assert contexts == [9, 10, 11]
    assert world.step() == {"b": 8}


def test_whoever_ends_inside_a_multi_step_run_keeps_its_slot_and_blocks_until_the_boundary():
    world = V0World(num_scheduler_steps=4)
    world.add(a=(8, 3), b=(8, 9))
    world.step()
    world.step()
    plan, _ = world.plan()
    yielded, ended = world.scheduler.update(plan)
    assert (world.names(yielded), world.names(ended)) == (["a", "b"], ["a"])
    assert world.free[0] == 90 - 6
    plan, grants = world.plan()
    assert grants == {"a": 1, "b": 1}
    assert world.names(world.scheduler.update(plan)[0]) == ["b"]
    assert world.free[0] == 90 - 6
    world.step()
    assert world.free[0] == 90 - 3


def test_multi_step_with_chunks_prompts_go_on_to_decode_in_the_same_run_and_are_not_cut():
    world = V0World(chunked=True, num_scheduler_steps=3, max_num_batched_tokens=16, max_num_seqs=4)
    world.add(a=(10, 9), b=(10, 9), c=(17, 9))
    assert world.step() == {"a": 10}
    assert world.free[0] == 90 - 4  # 10 + 3 slots
    assert world.step() == {"a": 1}
    assert world.step() == {"a": 1}
    assert world.requests["a"].num_tokens == 13
    plan, grants = world.plan()
    assert grants == {"b": 10, "a": 1}
    assert world.names(plan.ignored) == ["c"]  # 17 > 16, and nobody cuts it


def test_async_output_every_end_costs_one_more_decode_and_keeps_its_blocks_for_it():
    world = V0World(async_output_processing=True)
    world.add(a=(4, 2), b=(4, 9))
    world.step()
    plan, _ = world.plan()
    yielded, ended = world.scheduler.update(plan)
    assert (world.names(yielded), world.names(ended)) == (["a", "b"], ["a"])
    assert world.free[0] == 90 - 4
    plan, grants = world.plan()
    assert grants == {"a": 1, "b": 1}
    yielded, ended = world.scheduler.update(plan)
    assert (world.names(yielded), ended) == (["b"], [])
    assert world.free[0] == 90 - 2


def test_async_output_the_last_request_runs_one_more_step_alone():
    world = V0World(async_output_processing=True)
    world.add(a=(4, 1))
    assert world.step() == {"a": 4}
    assert world.scheduler.has_requests
    assert world.step() == {"a": 1}
    assert not world.scheduler.has_requests
    assert world.free == (90, 90)


def test_async_output_a_prompt_step_after_the_end_saves_the_extra_decode():
    world = V0World(async_output_processing=True)
    world.add(a=(4, 1))
    world.step()
    world.add(b=(4, 9))
    assert world.step() == {"b": 4}
    assert world.step() == {"b": 1}


def test_async_output_no_extra_decode_beyond_max_model_len():
    world = V0World(async_output_processing=True, max_model_len=5)
    world.add(a=(4, 9), b=(3, 9))
    assert world.step() == {"a": 4, "b": 3}
    assert world.step() == {"a": 1, "b": 1}  # a has 6 tokens now
    assert world.step() == {"b": 1}
    assert world.step() == {}
    assert not world.scheduler.has_requests


def test_async_output_a_victim_that_has_ended_is_freed_and_not_thrown_out():
    world = V0World(gpu=4, async_output_processing=True)
    world.add(a=(8, 9), b=(8, 1))
    world.step()
    plan, grants = world.plan()
    assert (grants, plan.preempted) == ({"a": 1}, [])
    assert world.free[0] == 1


def test_async_output_a_call_that_only_finds_an_end_is_followed_by_another():
    world = V0World(gpu=1, async_output_processing=True)
    world.add(a=(1, 1), b=(1, 1))
    assert world.step() == {"a": 1}
    assert world.step() == {"b": 1}


def test_the_rules_of_a_configuration():
    engine = EngineConfig(
        model="m",
        max_model_len=100,
        max_num_batched_tokens=200,
        max_num_seqs=8,
        enable_chunked_prefill=False,
        preemption_mode="swap",
        num_scheduler_steps=8,
    )
    rules = V0Rules.of(engine)
    assert (rules.swaps, rules.lookahead, rules.prompt_limit) == (True, 7, 100)
    assert rules.async_output_processing
    assert not V0Rules.of(engine.model_copy(update={"enforce_eager": True})).async_output_processing


# -- prefix caching ---------------------------------------------------------------------------------------------------


def test_a_later_prompt_shares_blocks_and_computes_the_rest():
    world = V0World(caching=True)
    world.add_request("a", 12, 9, shared_keys=[1, 2, 3])
    world.step()
    world.add_request("b", 14, 9, shared_keys=[1, 2, 4])
    plan, grants = world.plan()
    assert grants == {"b": 6}
    assert plan.admitted == [(world.requests["b"], 8)]
    assert plan.prefill_attention == 6 * (8 + 3)
    assert world.free[0] == 90 - 3 - 2
    assert world.requests["b"].planned_tokens == 14  # the budget counts all


def test_a_complete_hit_computes_the_last_block():
    world = V0World(caching=True)
    world.add_request("a", 12, 9, shared_keys=[1, 2, 3])
    world.step()
    world.add_request("b", 12, 9, shared_keys=[1, 2, 3])
    assert world.step() == {"b": 4}


def test_prompts_of_one_step_share_memory_but_not_the_computing():
    world = V0World(caching=True)
    world.add_request("a", 12, 9, shared_keys=[1, 2, 3])
    world.add_request("b", 12, 9, shared_keys=[1, 2, 3])
    assert world.step() == {"a": 12, "b": 12}
    assert world.free[0] == 90 - 3


def test_admission_ignores_hits():
    world = V0World(gpu=5, caching=True)
    world.add_request("a", 12, 99, shared_keys=[1, 2, 3])
    world.step()
    world.add_request("b", 12, 9, shared_keys=[1, 2, 3])
    assert world.step() == {"a": 1}  # 2 blocks are free, b would need none


def test_a_chunk_that_lies_in_the_hits_computes_one_token():
    world = V0World(caching=True, chunked=True, max_num_batched_tokens=8, max_num_seqs=4)
    world.add_request("a", 20, 1, shared_keys=[1, 2, 3, 4, 5])
    world.steps(3)
    world.add_request("b", 20, 1, shared_keys=[1, 2, 3, 4, 5])
    assert world.step() == {"b": 1}
    assert world.step() == {"b": 1}
    assert world.step() == {"b": 4}


def test_the_victim_of_a_recompute_finds_its_own_blocks_again():
    world = V0World(gpu=6, caching=True)
    world.add(a=(9, 3), b=(9, 5))
    world.step()
    assert world.step() == {"a": 1}  # b goes
    assert world.step() == {"b": 2}  # 10 tokens, 8 of them in cached blocks
    assert world.requests["b"].num_preemptions == 1
    assert world.requests["b"].num_cached_tokens == 0
