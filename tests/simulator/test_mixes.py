"""Mixes: shares, own rates, priorities."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.errors import InputError
from simulator.workload import MixWorkload, traffic

CHAT = {"name": "chat", "weight": 3, "turns": "uniform:1:5", "output_tokens": 100, "think_time_s": "exponential:5"}
BATCH = {"name": "batch", "prompt_tokens": 4000, "output_tokens": 50, "priority": 5}


def test_weights_are_shares_of_the_chats_and_columns_carry_the_class():
    table = traffic(MixWorkload(rate=5, classes=(CHAT, BATCH), num_prompts=20_000), 0).table
    heads = table.class_id[table.follows < 0]
    assert table.class_names == ("chat", "batch")
    assert np.mean(heads == 0) == pytest.approx(0.75, abs=0.02)
    assert set(table.output_tokens[table.class_id == 1].tolist()) == {50}
    assert set(table.priority[table.class_id == 1].tolist()) == {5}
    assert len(table) == 20_000


def test_classes_with_rates_of_their_own_are_sent_at_these_rates():
    night = BATCH | {"rate": 2, "rate_shape": "steps:0=0,100=1"}
    table = traffic(MixWorkload(classes=(CHAT | {"rate": 4, "turns": 1}, night), num_prompts=2000), 0).table
    batch = table.arrival_s[table.class_id == 1]
    assert (np.diff(table.arrival_s) >= 0).all()
    assert batch.min() > 100
    assert len(batch) / (table.arrival_s[-1] - 100) == pytest.approx(2, rel=0.1)
    assert (table.class_id == 0).sum() / table.arrival_s[-1] == pytest.approx(4, rel=0.1)


def test_a_class_leaves_the_lengths_of_the_other_alone():
    one = traffic(MixWorkload(rate=5, classes=(CHAT, BATCH), num_prompts=400), 0).table
    other = traffic(
        MixWorkload(rate=5, classes=(CHAT, BATCH | {"prompt_tokens": "uniform:1:9"}), num_prompts=400), 0
    ).table
    chats = one.class_id == 0
    assert np.array_equal(one.class_id, other.class_id)
    assert np.array_equal(one.prompt_tokens[chats], other.prompt_tokens[chats])
    assert np.array_equal(one.arrival_s, other.arrival_s)


def test_users_have_chats_of_every_class():
    sent = traffic(MixWorkload(users=40, classes=(CHAT, BATCH), num_prompts=400), 0)
    assert sent.max_concurrency == 40
    assert len(sent.user_start_s) == 40
    assert set(sent.table.class_id.tolist()) == {0, 1}


def test_system_prompts_of_classes_differ():
    classes = (CHAT | {"system_prompt_tokens": 64}, BATCH | {"system_prompt_tokens": 64})
    table = traffic(MixWorkload(rate=5, classes=classes, num_prompts=100), 0).table
    first = table.segment_id[table.segment_start[:-1]]
    assert np.array_equal(first, table.class_id)


def test_a_mix_is_read_back_as_it_was_written():
    workload = MixWorkload(rate=5, classes=(CHAT | {"slo": "ttft_p99=500ms"}, BATCH))
    assert MixWorkload.model_validate_json(workload.model_dump_json()) == workload


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"rate": 1, "classes": (CHAT, CHAT)}, "called alike"),
        ({"classes": (CHAT, BATCH)}, "class chat has no rate"),
        ({"classes": (CHAT | {"rate": 1}, BATCH)}, "class batch has no rate"),
        ({"rate": 1, "classes": (CHAT | {"rate": 1}, BATCH)}, "keep one"),
        ({"rate": 1, "classes": (CHAT | {"rate_shape": "diurnal:1"},)}, "give the mix one"),
        ({"rate": 1, "classes": ()}, "classes"),
        ({"rate": 1, "classes": (CHAT | {"name": "a b"},)}, "must be a word"),
        ({"rate": 1, "classes": (CHAT | {"weight": 0},)}, "weight"),
    ],
)
def test_what_contradicts_itself_is_refused_in_one_line(told, message):
    with pytest.raises(InputError, match=message) as caught:
        MixWorkload(**told)
    assert "\n" not in str(caught.value)
