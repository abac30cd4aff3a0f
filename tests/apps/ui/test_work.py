"""Workers: the same question once, a superseded one ended, limits that are kept, and nobody held up for long."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from apps.ui import tasks, work
from apps.ui.question import Question, check
from apps.ui.work import Desk
from simulator.errors import DoesNotFitError, InputError, ServecastError
from simulator.simulate import simulate


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    found = Desk()
    yield found
    found.close()


def question(**changes: Any) -> str:
    scenario = check(Question(num_prompts=60).with_(**changes)).scenario
    assert scenario is not None
    return scenario.to_json(None)


def test_the_same_question_is_answered_once_for_everybody(desk: Desk) -> None:
    text = question()
    first = desk.ask(tasks.run, text, owner="one")
    assert desk.ask(tasks.run, text, owner="two") is first
    assert first.result().summary["completed"] == 60
    assert desk.ask(tasks.run, text, owner="three") is first


def test_a_superseded_question_is_ended_and_the_next_one_answered(desk: Desk) -> None:
    long = desk.ask(subprocess.run, ("sleep", "60"), owner="one")
    begun = time.monotonic()
    assert desk.ask(tasks.run, question(seed=1), owner="one").result().summary["completed"] == 60
    assert time.monotonic() - begun < 30
    with pytest.raises(InputError, match="ended before it was done"):
        long.result()


def test_a_question_two_wait_for_is_not_ended_by_one(desk: Desk) -> None:
    job = desk.ask(tasks.run, question(seed=2), owner="one")
    desk.ask(tasks.run, question(seed=2), owner="two")
    desk.take_back("one")
    assert job.result().summary["completed"] == 60


def test_a_long_question_does_not_hold_up_a_short_one(desk: Desk) -> None:
    desk.ask(subprocess.run, ("sleep", "50"), owner="slow", lane="slow")
    begun = time.monotonic()
    desk.ask(tasks.run, question(seed=3), owner="quick").result()
    assert time.monotonic() - begun < 20
    desk.take_back("slow")


def test_the_limit_of_time_is_a_sentence(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "LIMIT_S", 1)
    with pytest.raises(InputError, match="more than 1 s, the limit"):
        desk.ask(subprocess.run, ("sleep", "40"), owner="one").result()


def test_the_limit_of_memory_is_a_sentence(desk: Desk) -> None:
    with pytest.raises(InputError, match="more than 4 GiB"):
        desk.ask(np.ones, 2**30, owner="one").result()


def test_refusals_arrive_as_they_are(desk: Desk) -> None:
    text = question(server="vllm serve meta-llama/Llama-3.1-8B --gpu-memory-utilization 0.1")
    job = desk.ask(tasks.run, text, owner="one")
    with pytest.raises(DoesNotFitError, match="does not fit"):
        job.result()
    assert job.usable()  # it would come again


def test_a_worker_tells_how_far_it_is(desk: Desk) -> None:
    job = desk.ask(tasks.capacity, question(), "ttft_p99=1us", 0, owner="one", lane="slow")
    found = job.result()
    assert found.load is None
    assert job.progress().done == found.runs


def test_ten_at_once_get_their_own_answers(desk: Desk) -> None:
    answers: dict[int, Any] = {}

    def visit(number: int) -> None:
        for rate in (5.0 + number, 20.0 + number):
            job = desk.ask(tasks.run, question(rate=rate), owner=f"visitor {number}")
            try:
                answers[number] = job.result().summary
            except ServecastError as error:  # pragma: no cover
                answers[number] = error

    visitors = [threading.Thread(target=visit, args=(number,)) for number in range(10)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    for number in range(10):
        scenario = check(Question(num_prompts=60, rate=20.0 + number)).scenario
        assert scenario is not None
        assert answers[number] == simulate(scenario).summary()


def test_answers_that_nobody_asked_for_lately_are_forgotten(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "KEPT", 3)
    for seed in range(10, 16):
        desk.ask(tasks.summary, question(num_prompts=5), seed, owner="one").result()
    desk.ask(tasks.summary, question(num_prompts=5), 15, owner="one")
    assert len(desk._jobs) <= 3
