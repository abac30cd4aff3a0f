"""Chats: lengths that grow, prefixes that are re-used block by block, histories that are cut."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.block_keys import shared_keys
from simulator.errors import InputError
from simulator.server import Load
from simulator.workload import SessionsWorkload, traffic
from tests.simulator.second_world import serve_load


def chats(**changes) -> SessionsWorkload:
    told = {
        "rate": 0.01, "burstiness": "inf", "num_prompts": 3, "turns": 3, "system_prompt_tokens": 20,
        "prompt_tokens": 10, "output_tokens": 5,
    }  # fmt: skip
    return SessionsWorkload(**told | changes)


def test_a_prompt_is_the_system_prompt_the_history_and_the_new_tokens():
    table = traffic(chats(num_prompts=5, first_prompt_tokens=40), 0).table
    assert table.prompt_tokens.tolist() == [60, 75, 90, 60, 75]
    assert table.session_id.tolist() == [0, 0, 0, 1, 1]  # the last chat is cut
    assert table.follows.tolist() == [-1, 0, 1, -1, 3]
    assert table.arrival_s.tolist() == [100, 100, 100, 200, 200]


def test_each_turn_hits_all_full_blocks_of_the_turn_before_generated_ones_included():
    table = traffic(chats(num_prompts=6), 0).table
    records = serve_load(Load(table=table), block_size=4, max_num_batched_tokens=500)
    # Prompts of 30, 45, 60 tokens; after a turn the KV of all but its last token is there: 34 and 49 tokens.
    # The second chat finds the system prompt of 20 tokens and has the rest to itself.
    assert records.cached_tokens.tolist() == [0, 32, 48, 20, 32, 48]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("output", [4, 5, 6, 7, 40])
def test_hits_do_not_depend_on_how_steps_overlap(is_async, output):
    table = traffic(chats(num_prompts=3, output_tokens=output), 0).table
    records = serve_load(Load(table=table), block_size=4, max_num_batched_tokens=500, async_scheduling=is_async)
    expected = [0]
    for prompt in table.prompt_tokens[:2].tolist():
        expected.append((prompt + output - 1) // 4 * 4)
    assert records.cached_tokens.tolist() == expected


def test_a_block_that_begins_in_the_system_prompt_and_ends_behind_it_is_not_shared():
    table = traffic(chats(num_prompts=4, turns=2, system_prompt_tokens=22), 0).table
    keys = [shared_keys(table, row, 4) for row in range(4)]
    assert keys[0][:5] == keys[2][:5]
    assert not set(keys[0][5:]) & set(keys[2][5:])
    assert keys[1][: len(keys[0])] == keys[0]


def test_single_turns_share_the_system_prompt_only():
    table = traffic(chats(turns=1), 0).table
    assert [len(shared_keys(table, row, 4)) for row in range(3)] == [5, 5, 5]
    assert (table.follows < 0).all()


def test_a_full_context_loses_its_oldest_turns_and_with_them_the_prefix():
    table = traffic(chats(num_prompts=5, turns=5), 0, max_context=60).table
    # Turn 2 would need 20 + 2 * 15 + 15 = 65 tokens: the first turn goes, and so on.
    assert table.prompt_tokens.tolist() == [30, 45, 45, 45, 45]
    keys = [shared_keys(table, row, 4) for row in range(5)]
    assert all(keys[row][:5] == keys[0][:5] for row in range(5))  # the system prompt stays
    assert keys[1][: len(keys[0])] == keys[0]
    assert not set(keys[2][5:]) & set(keys[1][5:])
    assert not set(keys[3][5:]) & set(keys[2][5:])
    assert (traffic(chats(num_prompts=9, turns=9), 0, max_context=60).table.prompt_tokens + 5 <= 60).all()


def test_a_turn_that_does_not_fit_alone_is_left_as_it_is():
    table = traffic(chats(num_prompts=4, turns=4, first_prompt_tokens=70), 0, max_context=60).table
    assert table.prompt_tokens.tolist() == [90, 30, 45, 45]


def test_users_go_from_one_chat_to_the_next():
    told = {"rate": None, "users": 2, "num_prompts": 20, "turns": 2, "think_time_s": 3}
    sent = traffic(chats(**told), 1)
    records = serve_load(Load(table=sent.table, max_concurrency=2, user_start_s=sent.user_start_s), block_size=4)
    sent_s, ended_s = np.asarray(records.sent_s), np.asarray(records.last_token_s)
    assert sent_s[1::2] == pytest.approx(ended_s[0::2] + 3)
    begun = np.sort(sent_s[0::2])
    free = np.sort(np.concatenate((sent.user_start_s, ended_s[1::2] + 3)))
    assert begun == pytest.approx(free[: len(begun)])


def test_a_chat_is_read_back_as_it_was_written():
    workload = chats(think_time_s="exponential:8", rate_shape="diurnal:0.5")
    assert SessionsWorkload.model_validate_json(workload.model_dump_json()) == workload


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": None}, "need a rate"),
        ({"users": 3}, "give one of them"),
        ({"rate": None, "users": 3, "rate_shape": "diurnal:1"}, "rate_shape does not go with users"),
        ({"turns": 0}, "not between 1"),
        ({"think_time_s": "soon"}, "is not a time"),
        ({"system_prompt_tokens": -1}, "system_prompt_tokens"),
    ],
)
def test_what_contradicts_itself_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        chats(**changes)
