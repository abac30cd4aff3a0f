"""The client against servers that behave and misbehave: what is recorded is what happened."""

import asyncio
import json
import time

import numpy as np
import pytest

from calibration.client import Target, replay
from calibration.client_lag import ClientLag, send_limit_s
from calibration.prompts import Prompts
from calibration.recording import read_requests
from calibration.server import free_port
from simulator import measured
from simulator.errors import InputError
from simulator.request_table import RequestTable
from tests.calibration.fake_server import Call, FakeServer, event, well


def table(count: int = 1, prompt: int = 8, output: int = 3, arrivals: list[float] | None = None) -> RequestTable:
    return RequestTable.build(
        prompt_tokens=np.full(count, prompt),
        output_tokens=np.full(count, output),
        arrival_s=None if arrivals is None else np.array(arrivals),
    )


def target(url: str, silence_s: float = 5.0) -> Target:
    return Target(url, "tiny", 2048, silence_s=silence_s)


def outcome(reply, silence_s: float = 5.0):
    """The answer to one request that *reply* handles."""
    with FakeServer(reply) as server:
        return replay(target(server.url, silence_s), table()).answers[0]


def test_every_message_is_stamped_in_order():
    async def every_50_ms(call: Call) -> None:
        await call.start()
        for _ in range(3):
            await asyncio.sleep(0.05)
            await call.token()
        await call.finish()

    answer = outcome(every_50_ms)
    assert answer.error is None
    assert answer.output_tokens == len(answer.messages_s) == 3
    times = [answer.sent_s, *answer.messages_s, answer.end_s]
    assert times == sorted(times)  # messages that come in one read have one stamp
    assert answer.messages_s[2] - answer.sent_s >= 0.15


def test_the_request_asks_for_an_exact_length_and_token_ids():
    with FakeServer() as server:
        replay(target(server.url), table(prompt=8, output=3))
    body = server.calls[0].body
    assert (body["max_tokens"], body["ignore_eos"], body["temperature"], body["stream"]) == (3, True, 0.0, True)
    assert len(body["prompt"]) == 8
    assert all(0 < token < 2048 for token in body["prompt"])


async def _error_500(call: Call) -> None:
    text = b'{"error": "out of luck"}'
    await call.raw(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))


async def _dropped(call: Call) -> None:
    await call.start()
    await call.token()
    await asyncio.sleep(0.02)
    call.drop()


async def _not_json(call: Call) -> None:
    await call.start()
    await call.chunk(b'data: {"choices": [\n\n')
    await call.finish()


async def _error_inside(call: Call) -> None:
    await call.start()
    await call.token()
    await call.chunk(event({"error": {"message": "engine is dead"}}))
    await call.finish()


async def _no_done(call: Call) -> None:
    await call.start()
    await call.token()
    await call.raw(b"0\r\n\r\n")


async def _no_token(call: Call) -> None:
    await call.start()
    await call.finish()


async def _short(call: Call) -> None:
    await call.start()
    await call.token()
    await call.finish(tokens=1)


async def _hanging(call: Call) -> None:
    await call.start()
    await call.token()
    await asyncio.sleep(60)


async def _silent(call: Call) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (_error_500, "HTTP 500.*out of luck"),
        (_dropped, "connection closed in the middle .*after 1 messages"),
        (_not_json, "not JSON"),
        (_error_inside, "engine is dead"),
        (_no_done, r"without \[DONE\]"),
        (_no_token, "no token"),
        (_short, "1 tokens came, 3 were asked"),
    ],
)
def test_a_failure_is_recorded_with_its_reason(reply, words):
    import re

    assert re.search(words, outcome(reply).error or "")


@pytest.mark.parametrize(("reply", "messages"), [(_hanging, 1), (_silent, 0)])
def test_a_server_that_hangs_ends_the_request(reply, messages):
    started = time.monotonic()
    answer = outcome(reply, silence_s=0.3)
    assert answer.error == f"nothing came for 0.3 s after {messages} messages"
    assert time.monotonic() - started < 5


def test_nobody_listening_is_a_failure_of_every_request():
    run = replay(target(f"http://127.0.0.1:{free_port()}"), table(3))
    assert [bool(answer.error and "cannot connect" in answer.error) for answer in run.answers] == [True] * 3
    assert "3 of 3 requests failed" in run.first_error()


def test_characters_and_frames_cut_anywhere_are_read():
    async def crumbs(call: Call) -> None:
        await call.start()
        message = event({"choices": [{"index": 0, "text": " größe €"}]}) * 3 + b"data: [DONE]\n\n"
        for at in range(len(message)):
            await call.chunk(message[at : at + 1])
        await call.raw(b"0\r\n\r\n")

    answer = outcome(crumbs)
    assert (answer.error, len(answer.messages_s)) == (None, 3)


def test_good_answers_are_kept_beside_failed_ones(tmp_path):
    async def every_other(call: Call) -> None:
        await (_error_500 if call.number % 2 else well)(call)

    with FakeServer(every_other) as server:
        run = replay(target(server.url), table(6))
    data = run.to_dict()
    assert (len(data["requests"]), len(data["failed"])) == (3, 3)
    assert all("HTTP 500" in row["error"] for row in data["failed"])


def test_a_closed_loop_keeps_its_limit_and_order():
    with FakeServer() as server:
        run = replay(target(server.url), table(12), max_concurrency=3)
    assert server.most_in_flight == 3
    assert not run.failures
    sent = [answer.sent_s for answer in run.answers]
    assert sent == sorted(sent)
    assert run.lag.send_max_ms < 100  # counted from the answer that made room


def test_an_open_loop_sends_on_time_whatever_the_server_does():
    async def slow(call: Call) -> None:
        await asyncio.sleep(0.3)
        await well(call)

    planned = [0.0, 0.05, 0.1, 0.15]
    with FakeServer(slow) as server:
        run = replay(target(server.url), table(4, arrivals=planned))
    assert server.most_in_flight == 4
    assert [answer.planned_s - run.base_s for answer in run.answers] == pytest.approx(planned, abs=1e-6)
    assert run.lag.send_max_ms < 40


def test_connections_are_used_again_when_the_server_keeps_them():
    with FakeServer() as server:
        replay(target(server.url), table(10), max_concurrency=2)
    assert server.connections == 2


def test_the_file_is_what_the_readers_read(tmp_path):
    with FakeServer() as server:
        data = replay(target(server.url), table(5, prompt=9, output=4), max_concurrency=2).to_dict()
    path = tmp_path / "w.requests.json"
    path.write_text(json.dumps(data))
    sent = read_requests(path)
    assert sent.prompt_tokens.tolist() == [9] * 5
    assert sent.output_tokens.tolist() == [4] * 5
    assert (sent.first_token_s > sent.sent_s).all()
    seen = measured.parse(path.read_text(), "w")
    assert seen.concurrency == 2
    assert seen.seen.e2el_s == pytest.approx(sent.last_token_s - sent.sent_s, abs=1e-5)


def test_the_file_tells_which_prompts_share_a_prefix(tmp_path):
    shared = RequestTable.build(
        prompt_tokens=np.array([64, 9, 64]),
        output_tokens=np.full(3, 2),
        segments=(np.array([0, 1, 1, 2]), np.array([5, 5]), np.array([48, 48])),
    )
    with FakeServer() as server:
        data = replay(target(server.url), shared, max_concurrency=1).to_dict()
    assert [row.get("prefix") for row in data["requests"]] == [(5, 48), None, (5, 48)]
    again = measured.parse(json.dumps(data), "w").replay()
    assert [(row.prefix_id, row.prefix_tokens) for row in again.rows] == [("5", 48), (None, 0), ("5", 48)]


def test_a_late_client_refuses_to_judge():
    quick = np.full(10, 0.03)
    assert ClientLag(1, 2, 3, 2, 5, 0.2).bottleneck(quick) is None
    assert "it sent 30.0 ms late" in (ClientLag(1, 30, 40, 2, 5, 0.2).bottleneck(quick) or "")
    assert "event loop" in (ClientLag(1, 2, 3, 80, 90, 1.0).bottleneck(quick) or "")


def test_how_late_a_client_may_send_depends_on_how_long_its_requests_wait():
    assert [send_limit_s(np.full(3, ttft)) for ttft in (0.02, 0.1, 0.5)] == pytest.approx([0.010, 0.010, 0.050])
    assert send_limit_s(np.zeros(0)) == 0.010
    assert ClientLag(1, 30, 40, 2, 5, 0.2).bottleneck(np.full(3, 0.5)) is None


def test_prompts_differ_but_for_the_shared_prefix():
    segments = (np.array([0, 1, 2, 3]), np.array([7, 7, 8]), np.array([40, 30, 40]))
    shared = RequestTable.build(prompt_tokens=np.full(3, 64), output_tokens=np.full(3, 1), segments=segments)
    first, second, other = (Prompts(shared, 32_000, seed=1).token_ids(row).tolist() for row in range(3))
    assert first[:30] == second[:30]
    assert first[30:40] != second[30:40]
    assert first[:4] != other[:4]
    assert [len(first), len(second), len(other)] == [64, 64, 64]
    assert Prompts(shared, 32_000, seed=1).token_ids(0).tolist() == first
    assert Prompts(shared, 32_000, seed=1, run=1).token_ids(0).tolist()[:4] != first[:4]


def test_a_tiny_vocabulary_is_refused():
    with pytest.raises(InputError, match="vocab_size 8"):
        Prompts(table(), 8, seed=0)


def test_https_is_refused_in_one_line():
    with pytest.raises(InputError, match="plain http"):
        replay(target("https://127.0.0.1:1"), table())
