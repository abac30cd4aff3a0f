"""One TCP connection of the client, and the reply it carries: bytes in, an `Answer` filled in, nothing hidden."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from typing import cast

from calibration.answers import Answer
from calibration.http_stream import BadReplyError, EventReader, HttpReply

#: What makes a message more than a token.
_RARE = re.compile(rb'"error":|"usage":\{')


class Connection(asyncio.BufferedProtocol):
    """One TCP connection; its bytes go to the reader of the request it carries.

    *buffer* takes what arrives; connections of one loop share it, since each reads its bytes at once.
    """

    def __init__(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self.transport: asyncio.Transport | None = None
        self.reader: Reader | None = None
        self.is_closed = False
        self.idle_since_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one, but does not say so

    def send(self, reader: Reader, request: bytes) -> None:
        """Send one request; its reply goes to *reader*."""
        assert self.transport is not None
        self.reader, reader.connection = reader, self
        self.transport.write(request)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Say where the next bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Stamp the bytes and hand them on."""
        now = time.monotonic()
        if self.reader is not None:
            self.reader.feed(bytes(memoryview(self._buffer)[:nbytes]), now)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the reader that nothing more will come."""
        self.is_closed = True
        if self.reader is not None:
            self.reader.lost(error)

    def close(self) -> None:
        """Drop the connection; the server then aborts what it carried."""
        self.is_closed = True
        if self.transport is not None:
            self.transport.abort()


class Reader:
    """The reply to one request, as it arrives; *ended* is called once, when it is complete or has failed."""

    def __init__(self, answer: Answer, ended: Callable[[Reader], None]) -> None:
        self.answer, self._ended = answer, ended
        self.connection: Connection | None = None
        self.is_done = False
        self.heard_s = time.monotonic()
        self.http = HttpReply()
        self._events = EventReader()
        self._error_body = b""
        self._saw_end = False
        self._expects_token = False

    def feed(self, data: bytes, now_s: float) -> None:
        """Take bytes that arrived at *now_s*."""
        self.heard_s = now_s
        if self.is_done:
            return
        if self._expects_token and is_plain_token(data):
            self.answer.messages_s.append(now_s)
            return
        try:
            body = self.http.feed(data)
            if self.http.status == 200:
                for event in self._events.feed(body):
                    self._message(event, now_s)
            else:
                self._error_body += body
            self._expects_token = self.http.is_between_chunks and self._events.is_between_events
            if self.http.is_complete:
                self._finish(now_s)
        except BadReplyError as error:
            self.fail(str(error))

    def lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        if self.is_done:
            return
        try:
            self.http.close()
        except BadReplyError as problem:
            self.fail(f"{problem}{f' ({error})' if error else ''} after {len(self.answer.messages_s)} messages")
        else:
            self._finish(time.monotonic())

    def fail(self, reason: str) -> None:
        """End the request as failed."""
        if not self.is_done:
            self.answer.error = reason
            self.answer.end_s = time.monotonic()
            self._end()

    def _end(self) -> None:
        self.is_done = True
        self._ended(self)

    def _message(self, event: bytes, now_s: float) -> None:
        if event == b"[DONE]":
            self._saw_end = True
            return
        try:
            message = json.loads(event)
        except ValueError:
            raise BadReplyError(f"a message is not JSON: {shown(event)}") from None
        if not isinstance(message, dict) or message.get("error"):
            raise BadReplyError(f"the server sent an error: {shown(event)}")
        if message.get("choices"):
            self.answer.messages_s.append(now_s)
        usage = message.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
            self.answer.output_tokens = usage["completion_tokens"]

    def _finish(self, now_s: float) -> None:
        answer = self.answer
        if self.http.status != 200:
            return self.fail(f"HTTP {self.http.status}: {shown(self._error_body)}")
        if not answer.messages_s:
            return self.fail("the answer holds no token")
        if not self._saw_end:
            return self.fail(f"the answer ends without [DONE] after {len(answer.messages_s)} messages")
        if answer.output_tokens not in (None, answer.wanted_tokens):
            return self.fail(f"{answer.output_tokens} tokens came, {answer.wanted_tokens} were asked for")
        answer.end_s = now_s
        return self._end()


def is_plain_token(data: bytes) -> bool:
    """Whether *data* is one whole chunk with one message with a token, as vLLM writes nearly all; else it is parsed.

    Thousands arrive together, a step of all streams at once, and the last is stamped after the first were read.
    """
    size, _, chunk = data.partition(b"\r\n")
    try:
        is_whole = int(size, 16) + 2 == len(chunk)
    except ValueError:
        return False
    has_token = chunk.startswith(b"data: {") and chunk.endswith(b"}\n\n\r\n") and b'"choices":[{' in chunk
    return is_whole and has_token and chunk.count(b"data:") == 1 and not _RARE.search(chunk)


def shown(data: bytes) -> str:
    """Return bytes as one short line of text."""
    text = " ".join(data.decode("utf-8", errors="replace").split())
    return text if len(text) <= 160 else text[:157] + "..."
