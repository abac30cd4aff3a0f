import json

import pytest

from calibration.http_stream import BadReplyError, EventReader, HttpReply

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TEXT = 'data: {"text": "größe €"}\r\n\r\n: a comment\ndata: two\ndata: lines\n\ndata: [DONE]\n\n'.encode()


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%X;name=value\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\nTrailer: x\r\n\r\n"


@pytest.mark.parametrize("chunk", [1, 3, 7, 1000])
@pytest.mark.parametrize("piece", [1, 2, 5, 64, 4096])
def test_bytes_cut_anywhere_give_the_same_events(chunk, piece):
    reply, events, found = HttpReply(), EventReader(), []
    wire = HEAD + chunked(TEXT, chunk)
    for at in range(0, len(wire), piece):
        found += events.feed(reply.feed(wire[at : at + piece]))
    assert [found[0].decode(), *found[1:]] == ['{"text": "größe €"}', b"two\nlines", b"[DONE]"]
    assert json.loads(found[0])["text"] == "größe €"
    assert reply.is_complete
    assert reply.keep_alive
    assert events.is_between_events


def test_a_body_of_known_length_ends_there():
    reply = HttpReply()
    assert reply.feed(b"HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\nab") == b"ab"
    assert not reply.is_complete
    assert reply.feed(b"cd") == b"cd"
    assert (reply.status, reply.is_complete) == (500, True)


def test_a_body_without_length_ends_with_the_connection():
    reply = HttpReply()
    reply.feed(b"HTTP/1.0 200 OK\r\n\r\nab")
    reply.close()
    assert reply.is_complete


def test_interim_replies_are_passed_over():
    reply = HttpReply()
    assert reply.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx") == b"x"


@pytest.mark.parametrize(
    "wire", [b"SSH-2.0-OpenSSH\r\n\r\n", HEAD + b"zz\r\n", HEAD + b"2\r\nabcd\r\n", b"x" * 70_000], ids=lambda w: w[:12]
)
def test_what_is_not_http_is_refused(wire):
    with pytest.raises(BadReplyError):
        HttpReply().feed(wire)


@pytest.mark.parametrize("wire", [b"", HEAD, HEAD + b"5\r\nab"])
def test_a_connection_closed_too_early_is_an_error(wire):
    reply = HttpReply()
    reply.feed(wire)
    with pytest.raises(BadReplyError, match="connection closed"):
        reply.close()
