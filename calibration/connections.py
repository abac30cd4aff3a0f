"""The connections of a client: opened as needed, kept while idle, used again."""

from __future__ import annotations

import asyncio
import collections
import time

from calibration.connection import Connection, Reader

#: An idle connection older than this is not used again (vLLM closes them after 5 s).
MOST_IDLE_S = 2.0
READ_BYTES = 65536


class Connections:
    """Connections to one host and port; *connect_s* is the patience for opening one."""

    def __init__(self, host: str, port: int, connect_s: float) -> None:
        self._host, self._port, self._connect_s = host, port, connect_s
        self._buffer = bytearray(READ_BYTES)
        self._idle: collections.deque[Connection] = collections.deque()

    def __str__(self) -> str:
        return f"{self._host}:{self._port}"

    async def open_ahead(self, count: int) -> None:
        """Have *count* idle connections, as far as the server lets them in."""
        found = await asyncio.gather(*(self.opened() for _ in range(count)), return_exceptions=True)
        now_s = time.monotonic()
        for one in found:
            if isinstance(one, Connection):
                one.idle_since_s = now_s
                self._idle.append(one)

    def idle(self, now_s: float) -> Connection | None:
        """Take the connection that was used last, or None if none is fresh."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed and now_s - connection.idle_since_s < MOST_IDLE_S:
                return connection
            connection.close()
        return None

    async def opened(self) -> Connection:
        """Return a new connection; OSError or TimeoutError if there is none to be had."""
        opening = asyncio.get_running_loop().create_connection(lambda: Connection(self._buffer), self._host, self._port)
        async with asyncio.timeout(self._connect_s):
            return (await opening)[1]

    def put_back(self, reader: Reader) -> None:
        """Keep the connection of an ended request for the next one, or drop it."""
        connection, reader.connection = reader.connection, None
        if connection is None:
            return
        connection.reader = None
        connection.idle_since_s = time.monotonic()
        if reader.answer.error is None and reader.http.keep_alive and not connection.is_closed:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close those that are idle."""
        while self._idle:
            self._idle.pop().close()
