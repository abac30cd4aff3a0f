"""A client that sends the requests of a table to ``/v1/completions`` and stamps every message it gets back.

Open loop: each request is sent at its own time, whatever the server does.  With *max_concurrency* a request whose time
has come waits in the client until fewer are in flight (first come, first served), and its times start after that wait;
a table without times is a closed loop then.  Both as `vllm bench serve` does.

Answers stream; temperature 0, ``ignore_eos``, so that every output has exactly the wanted length.  ``sent_s`` is read
just before the connection is taken or opened.  A request that fails is recorded with its reason and never repeated.
Standard library, numpy, and uvloop where there is one.
"""

from __future__ import annotations

import asyncio
import collections
import gc
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from calibration.answers import Answer, ClientRun
from calibration.client_lag import ClientLag
from calibration.connection import Connection, Reader
from calibration.connections import Connections
from calibration.prompts import Prompts, shared_prefix
from simulator.errors import InputError
from simulator.request_table import RequestTable

#: Bodies encoded before the first request is sent, in tokens; the others while the client waits.
TOKENS_AHEAD = 20_000_000
#: Connections are opened ahead for what is sent in the first so many seconds, at most so many of them.
AT_ONCE_S, MOST_AHEAD = 0.5, 1024
_LOOP_PROBE_S = 0.02
_SPIN_S = 0.0012  # what asyncio.sleep may overshoot
_MOST_UNREAD_S = 1e-3  # while many are sent at once, answers are read this often


@dataclass(frozen=True)
class Target:
    """Where to send; *silence_s* without a byte ends a request as failed."""

    url: str
    model: str
    vocab_size: int
    api_key: str | None = None
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
    work = _Replay(target, table, max_concurrency, Prompts(table, target.vocab_size, seed, run)).run()
    gc.freeze()  # looking through all that is imported takes a tenth of a second, in the middle of the answers
    try:
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            return runner.run(work)
    finally:
        gc.unfreeze()


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop, which reads a message in two thirds of the time, where there is one."""
    try:
        import uvloop
    except ImportError:  # Windows
        return None
    return uvloop.new_event_loop


class _Replay:
    """One run of a table."""

    def __init__(self, target: Target, table: RequestTable, max_concurrency: int | None, prompts: Prompts) -> None:
        self._target, self._table, self._limit, self._prompts = target, table, max_concurrency, prompts
        self._connections = Connections(*target.address(), target.connect_s)
        self._readers: set[Reader] = set()
        self._lags: list[float] = []
        self._ends_s: list[float] = []
        self._yielded_s = 0.0

    async def run(self) -> ClientRun:
        bodies = self._encoded_ahead()
        self._slots = asyncio.Semaphore(self._limit) if self._limit else None
        self._all_done = asyncio.Event()
        answers: list[Answer] = []
        await self._connections.open_ahead(self._sent_at_once())
        base, cpu = time.monotonic() + 0.01, time.process_time()
        async with _background(self._watch_loop(), self._watch_silence()), asyncio.TaskGroup() as tasks:
            for row in range(len(self._table)):
                body = bodies.popleft() if bodies else self._body(row)
                planned = base + float(self._table.arrival_s[row])
                await self._sleep_until(planned)
                if self._slots is not None:
                    await self._slots.acquire()
                    planned = max(planned, self._became_free_s(row))
                answers.append(self._answer(row, planned))
                self._send(answers[-1], body, tasks)
            if len(self._ends_s) < len(answers):
                await self._all_done.wait()
        end = max((a.end_s or a.sent_s for a in answers), default=base)
        share = (time.process_time() - cpu) / max(time.monotonic() - base, 1e-3)
        self._connections.close()
        sent = np.array([answer.sent_s - answer.planned_s for answer in answers])
        lag = ClientLag.of(sent, np.array(self._lags), share)
        return ClientRun(base, end - base, self._limit, tuple(answers), lag)

    def _sent_at_once(self) -> int:
        """Return how many connections the start needs."""
        count = int(np.searchsorted(self._table.arrival_s, AT_ONCE_S, side="right"))
        return min(count, self._limit or count, MOST_AHEAD)

    def _body(self, row: int) -> bytes:
        body = self._prompts.body(row, self._target.model)
        return self._head(len(body)) + body

    def _encoded_ahead(self) -> collections.deque[bytes]:
        bodies: collections.deque[bytes] = collections.deque()
        tokens = 0
        for row in range(len(self._table)):
            tokens += int(self._table.prompt_tokens[row])
            if tokens > TOKENS_AHEAD:
                break
            bodies.append(self._body(row))
        return bodies

    def _answer(self, row: int, planned: float) -> Answer:
        table = self._table
        prompt, wanted = int(table.prompt_tokens[row]), int(table.output_tokens[row])
        return Answer(row, planned, prompt, wanted, prefix=shared_prefix(table, row))

    def _send(self, answer: Answer, body: bytes, tasks: asyncio.TaskGroup) -> None:
        """Send now on an idle connection, or as soon as one is open."""
        reader = Reader(answer, self._ended)
        answer.sent_s = time.monotonic()
        connection = self._connections.idle(answer.sent_s)
        if connection is None:
            tasks.create_task(self._connect_and_send(reader, body))
        else:
            self._write(connection, reader, body)

    async def _connect_and_send(self, reader: Reader, body: bytes) -> None:
        try:
            self._write(await self._connections.opened(), reader, body)
        except (OSError, TimeoutError) as error:
            reader.fail(f"cannot connect to {self._connections}: {error or 'no answer'}")

    def _write(self, connection: Connection, reader: Reader, body: bytes) -> None:
        self._readers.add(reader)
        connection.send(reader, body)

    def _ended(self, reader: Reader) -> None:
        """The answer of *reader* is complete, or has failed."""
        self._readers.discard(reader)
        self._ends_s.append(reader.answer.end_s or time.monotonic())
        self._connections.put_back(reader)
        if self._slots is not None:
            self._slots.release()
        if len(self._ends_s) == len(self._table):
            self._all_done.set()

    def _became_free_s(self, row: int) -> float:
        """Return when the limit let *row* go: at the end of the answer that made room for it."""
        earlier = row - (self._limit or 0)
        return self._ends_s[earlier] if earlier >= 0 else 0.0

    def _head(self, length: int) -> bytes:
        key = self._target.api_key
        lines = (
            "POST /v1/completions HTTP/1.1", f"Host: {self._connections}", "Content-Type: application/json",
            "Accept: text/event-stream", f"Content-Length: {length}", "Connection: keep-alive",
            *([f"Authorization: Bearer {key}"] if key else []),
        )  # fmt: skip
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")

    async def _sleep_until(self, due_s: float) -> None:
        """Sleep until shortly before, then let answers be read until it is time; each millisecond at least."""
        now = time.monotonic()
        if due_s - now > _SPIN_S:
            await asyncio.sleep(due_s - now - _SPIN_S)
            now = time.monotonic()
        while now < due_s or now - self._yielded_s > _MOST_UNREAD_S:
            await asyncio.sleep(0)
            self._yielded_s = now = time.monotonic()

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
