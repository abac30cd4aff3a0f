"""One TCP connection of the client, and the reply it carries: bytes in, an `Answer` filled in, nothing hidden."""

from __future__ import annotations

import asyncio
import json
import time

from calibration.answers import Answer
from calibration.http_stream import BadReplyError, EventReader, HttpReply


class Connection(asyncio.Protocol):
    """One TCP connection; its bytes go to the reader of the request it carries."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.reader: Reader | None = None
        self.is_closed = False
        self.idle_since_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Stamp the bytes and hand them on."""
        now = time.monotonic()
        if self.reader is not None:
            self.reader.feed(data, now)

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
    """The reply to one request, as it arrives."""

    def __init__(self, answer: Answer, done: asyncio.Future[None]) -> None:
        self.answer, self.done = answer, done
        self.heard_s = time.monotonic()
        self.http = HttpReply()
        self._events = EventReader()
        self._error_body = b""
        self._saw_end = False

    def feed(self, data: bytes, now_s: float) -> None:
        """Take bytes that arrived at *now_s*."""
        self.heard_s = now_s
        if self.done.done():
            return
        try:
            body = self.http.feed(data)
            if self.http.status == 200:
                for event in self._events.feed(body):
                    self._message(event, now_s)
            else:
                self._error_body += body
            if self.http.is_complete:
                self._finish(now_s)
        except BadReplyError as error:
            self.fail(str(error))

    def lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        if self.done.done():
            return
        try:
            self.http.close()
        except BadReplyError as problem:
            self.fail(f"{problem}{f' ({error})' if error else ''} after {len(self.answer.messages_s)} messages")
        else:
            self._finish(time.monotonic())

    def fail(self, reason: str) -> None:
        """End the request as failed."""
        if not self.done.done():
            self.answer.error = reason
            self.answer.end_s = time.monotonic()
            self.done.set_result(None)

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
        self.done.set_result(None)
        return None


def shown(data: bytes) -> str:
    """Return bytes as one short line of text."""
    text = " ".join(data.decode("utf-8", errors="replace").split())
    return text if len(text) <= 160 else text[:157] + "..."
