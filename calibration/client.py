"""A client that sends the requests of a table to ``/v1/completions`` and stamps every message it gets back.

Open loop: each request is sent at its own time, whatever the server does.  With *max_concurrency* a request whose time
has come waits in the client until fewer are in flight (first come, first served), and its times start after that wait;
a table without times is a closed loop then.  Both as `vllm bench serve` does.

Answers stream; temperature 0, ``ignore_eos``, so that every output has exactly the wanted length.  ``sent_s`` is read
just before the connection is taken or opened.  A request that fails is recorded with its reason and never repeated.
Standard library and numpy only.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from calibration.answers import Answer, ClientLag, ClientRun
from calibration.connection import Connection, Reader
from calibration.prompts import Prompts
from simulator.errors import InputError
from simulator.request_table import RequestTable

#: Bodies encoded before the first request is sent, in tokens; the others while the client waits.
TOKENS_AHEAD = 20_000_000
#: An idle connection older than this is not used again (vLLM closes them after 5 s).
MOST_IDLE_S = 2.0
_LOOP_PROBE_S = 0.02
_SPIN_S = 0.0012  # what asyncio.sleep may overshoot


@dataclass(frozen=True)
class Target:
    """Where to send; *silence_s* without a byte ends a request as failed."""

    url: str
    model: str
    vocab_size: int
    silence_s: float = 60.0
    connect_s: float = 10.0

    def address(self) -> tuple[str, int]:
        """Return host and port."""
        parts = urlsplit(self.url)
        if parts.scheme != "http" or not parts.hostname:
            raise InputError(f"{self.url}: the client speaks plain http; give http://HOST:PORT")
        return parts.hostname, parts.port or 80


def replay(
    target: Target, table: RequestTable, *, max_concurrency: int | None = None, seed: int = 0, run: int = 0
) -> ClientRun:
    """Send *table* and return what came back.  *run* makes the prompts differ from those of other runs."""
    return asyncio.run(_Replay(target, table, max_concurrency, Prompts(table, target.vocab_size, seed, run)).run())


class _Replay:
    """One run of a table."""

    def __init__(self, target: Target, table: RequestTable, max_concurrency: int | None, prompts: Prompts) -> None:
        self._target, self._table, self._limit, self._prompts = target, table, max_concurrency, prompts
        self._host, self._port = target.address()
        self._idle: collections.deque[Connection] = collections.deque()
        self._readers: set[Reader] = set()
        self._lags: list[float] = []
        self._ends_s: list[float] = []

    async def run(self) -> ClientRun:
        bodies = self._encoded_ahead()
        slots = asyncio.Semaphore(self._limit) if self._limit else None
        base, cpu = time.monotonic() + 0.01, time.process_time()
        answers: list[Answer] = []
        async with _background(self._watch_loop(), self._watch_silence()), asyncio.TaskGroup() as tasks:
            for row in range(len(self._table)):
                body = bodies.popleft() if bodies else self._prompts.body(row, self._target.model)
                planned = base + float(self._table.arrival_s[row])
                await _sleep_until(planned)
                if slots is not None:
                    await slots.acquire()
                    planned = max(planned, self._became_free_s(row))
                answers.append(self._answer(row, planned))
                tasks.create_task(self._send(answers[-1], body, slots))
        end = max((a.end_s or a.sent_s for a in answers), default=base)
        share = (time.process_time() - cpu) / max(time.monotonic() - base, 1e-3)
        self._close_idle()
        return ClientRun(base, end - base, self._limit, tuple(answers), ClientLag.of(answers, self._lags, share))

    def _encoded_ahead(self) -> collections.deque[bytes]:
        bodies: collections.deque[bytes] = collections.deque()
        tokens = 0
        for row in range(len(self._table)):
            tokens += int(self._table.prompt_tokens[row])
            if tokens > TOKENS_AHEAD:
                break
            bodies.append(self._prompts.body(row, self._target.model))
        return bodies

    def _answer(self, row: int, planned: float) -> Answer:
        return Answer(row, planned, int(self._table.prompt_tokens[row]), int(self._table.output_tokens[row]))

    async def _send(self, answer: Answer, body: bytes, slots: asyncio.Semaphore | None) -> None:
        reader = Reader(answer, asyncio.get_running_loop().create_future())
        answer.sent_s = time.monotonic()
        connection: Connection | None = None
        try:
            connection = await self._connected()
            self._readers.add(reader)
            connection.reader = reader
            assert connection.transport is not None
            connection.transport.write(self._head(len(body)) + body)
            await reader.done
        except (OSError, TimeoutError) as error:
            reader.fail(f"cannot connect to {self._host}:{self._port}: {error or 'no answer'}")
        finally:
            self._readers.discard(reader)
            self._ends_s.append(answer.end_s or time.monotonic())
            if slots is not None:
                slots.release()
            if connection is not None:
                self._put_back(connection, reader)

    def _became_free_s(self, row: int) -> float:
        """Return when the limit let *row* go: at the end of the answer that made room for it."""
        earlier = row - (self._limit or 0)
        return self._ends_s[earlier] if earlier >= 0 else 0.0

    def _head(self, length: int) -> bytes:
        lines = (
            "POST /v1/completions HTTP/1.1", f"Host: {self._host}:{self._port}", "Content-Type: application/json",
            "Accept: text/event-stream", f"Content-Length: {length}", "Connection: keep-alive",
        )  # fmt: skip
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")

    async def _connected(self) -> Connection:
        now = time.monotonic()
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed and now - connection.idle_since_s < MOST_IDLE_S:
                return connection
            connection.close()
        opening = asyncio.get_running_loop().create_connection(Connection, self._host, self._port)
        async with asyncio.timeout(self._target.connect_s):
            return (await opening)[1]

    def _put_back(self, connection: Connection, reader: Reader) -> None:
        connection.reader = None
        connection.idle_since_s = time.monotonic()
        if reader.answer.error is None and reader.http.keep_alive and not connection.is_closed:
            self._idle.append(connection)
        else:
            connection.close()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def _watch_loop(self) -> None:
        """Measure how late the event loop comes back."""
        while True:
            due = time.monotonic() + _LOOP_PROBE_S
            await asyncio.sleep(_LOOP_PROBE_S)
            self._lags.append(max(0.0, time.monotonic() - due))

    async def _watch_silence(self) -> None:
        """End requests that have heard nothing for too long."""
        limit = self._target.silence_s
        while True:
            await asyncio.sleep(min(0.5, limit / 4))
            now = time.monotonic()
            for reader in list(self._readers):
                if now - reader.heard_s > limit:
                    reader.fail(f"nothing came for {limit:g} s after {len(reader.answer.messages_s)} messages")


async def _sleep_until(due_s: float) -> None:
    """Sleep until shortly before, then let other tasks run until it is time."""
    left = due_s - time.monotonic()
    if left > _SPIN_S:
        await asyncio.sleep(left - _SPIN_S)
    await asyncio.sleep(0)
    while time.monotonic() < due_s:
        await asyncio.sleep(0)


@asynccontextmanager
async def _background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines beside the block and end them with it."""
    tasks = [asyncio.create_task(item) for item in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
