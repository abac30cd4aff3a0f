"""Who sends when: SimPy processes for open-loop arrivals, closed-loop users and chats.

Open loop: every request is sent at its planned time, or as soon as one of ``max_concurrency`` places is free (timings
start when it is sent, as in ``vllm bench serve``).  Closed loop: all arrival times are 0 and the places are the users.

When a response is complete at its client, the client thinks (``think_s`` of that request), and then sends the request
that follows it, or is free for the next one in the table.  So a user of a closed loop goes through one chat after the
other, and holds one place all the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator

import numpy as np
import simpy

from simulator.request_table import Floats, RequestTable


class Clients:
    """Sends the rows of a workload in order; `done` must be called when a response has reached its client."""

    def __init__(
        self,
        env: simpy.Environment,
        table: RequestTable,
        send: Callable[[int], None],
        *,
        max_concurrency: int | None = None,
        user_start_s: Floats | None = None,
    ) -> None:
        self._env = env
        self._send = send
        heads = np.flatnonzero(table.follows < 0)
        self._heads: list[int] = heads.tolist()
        self._arrival_s: list[float] = table.arrival_s[heads].tolist()
        followers = np.flatnonzero(table.follows >= 0)
        self._next = dict(zip(table.follows[followers].tolist(), followers.tolist(), strict=True))
        self._think_s: list[float] | None = table.think_s.tolist() if table.think_s.any() else None
        self._free = max_concurrency if max_concurrency is not None else len(self._heads)
        #: Whether anybody waits for responses: only then must they be announced at their exact time.
        self.listens = self._free < len(self._heads) or bool(self._next) or user_start_s is not None
        self._place_is_free: simpy.Event | None = None
        self._next_send_s = 0.0
        if user_start_s is not None:
            self._free = 0
            for start_s in user_start_s.tolist():
                self._later(start_s, self._vacate)
        env.process(self._run())

    def _run(self) -> Generator[simpy.Event, None, None]:
        env = self._env
        for row, arrival_s in zip(self._heads, self._arrival_s, strict=True):
            if arrival_s > env.now:
                self._next_send_s = arrival_s
                yield env.timeout(arrival_s - env.now)
            while self._free == 0:
                self._place_is_free = env.event()
                yield self._place_is_free
            self._free -= 1
            self._send(row)
        self._next_send_s = math.inf

    @property
    def known_send_s(self) -> float:
        """When the next request will be sent; infinity after the last one, -infinity if that depends on responses."""
        return -math.inf if self.listens else self._next_send_s

    def done(self, row: int) -> None:
        """The response to request *row* is complete: its client goes on, after some thought."""
        think_s = self._think_s[row] if self._think_s is not None else 0.0
        if think_s > 0:
            self._later(think_s, lambda: self._go_on(row))
        else:
            self._go_on(row)

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        alarm = self._env.timeout(delay_s)
        alarm.callbacks.append(lambda _event: act())

    def _go_on(self, row: int) -> None:
        """Send what follows *row*; if nothing does, its place is free for the next request."""
        following = self._next.get(row)
        if following is not None:
            self._send(following)
        else:
            self._vacate()

    def _vacate(self) -> None:
        self._free += 1
        if self._place_is_free is not None and not self._place_is_free.triggered:
            self._place_is_free.succeed()
