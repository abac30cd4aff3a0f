"""Messages that are only stamped against the same messages read in full."""

import json

import pytest

from calibration.answers import Answer
from calibration.connection import Reader, is_plain_token

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(message: object, end: str = "\n\n") -> bytes:
    text = (message if isinstance(message, str) else json.dumps(message, separators=(",", ":"))) + end
    body = b"data: " + text.encode()
    return b"%x\r\n%s\r\n" % (len(body), body)


def token(text: str = " w", **more: object) -> dict:
    return {"id": "cmpl-1", "choices": [{"index": 0, "text": text, "finish_reason": None}], "usage": None, **more}


PLAIN = [chunk(token()), chunk(token(" größe €")), chunk(token('"usage":')), chunk(token('"error"'))]
READ = [
    chunk(token("x", usage={"completion_tokens": 1})),
    chunk(token("x", error={"message": "no"})),
    chunk({"choices": [], "usage": {"completion_tokens": 2}}),
    chunk(token()) * 2,
    chunk(token()) + chunk("[DONE]"),
    chunk("[DONE]"),
    chunk(token("data: x")),
    chunk(token(), end="\n"),
    chunk(token())[:-3],
    b"zz\r\nno chunk\r\n",
    b"",
]


def read(*pieces: bytes) -> Answer:
    answer = Answer(0, 0.0, 8, 3)
    reader = Reader(answer, lambda _: None)
    for number, piece in enumerate([HEAD, *pieces]):
        reader.feed(piece, float(number))
    return answer


@pytest.mark.parametrize("piece", PLAIN)
def test_a_whole_token_message_is_stamped_without_being_read(piece):
    assert is_plain_token(piece)
    in_two = read(piece[:9], piece[9:])  # read in full
    assert (in_two.messages_s, in_two.output_tokens, in_two.error) == ([2.0], None, None)
    assert read(piece, piece).messages_s == [1.0, 2.0]


@pytest.mark.parametrize("piece", READ)
def test_everything_else_is_read_in_full(piece):
    assert not is_plain_token(piece)


def test_a_token_message_after_half_a_message_is_not_taken_for_a_whole_one():
    whole = chunk(token())
    answer = read(whole[:-3], whole[-3:] + whole, whole)
    assert answer.messages_s == [2.0, 2.0, 3.0]
    assert read(whole[:-3], whole).error is not None
