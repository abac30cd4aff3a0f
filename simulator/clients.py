"""Who sends when: SimPy processes for open-loop arrivals and closed-loop clients.

Open loop: every request is sent at its planned time, or as soon as one of ``max_concurrency`` places is free (timings
start when it is sent, as in ``vllm bench serve``).  Closed loop: all arrival times are 0 and the places are the users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator

import numpy as np
import simpy
from numpy.typing import NDArray


class Clients:
    """Sends the rows of a workload in order; `done` must be called when a response has reached its client."""

    def __init__(
        self,
        env: simpy.Environment,
        arrival_s: NDArray[np.float64],
        send: Callable[[int], None],
        *,
        max_concurrency: int | None = None,
    ) -> None:
        self._env = env
        self._arrival_s: list[float] = arrival_s.tolist()
        self._send = send
        self._free = max_concurrency if max_concurrency is not None else len(self._arrival_s)
        #: Whether anybody waits for responses: only then must they be announced at their exact time.
        self.listens = self._free < len(self._arrival_s)
        self._place_is_free: simpy.Event | None = None
        #: When the next request will be sent; infinity after the last one, -infinity while that depends on responses.
        self.next_send_s = 0.0
        env.process(self._run())

    def _run(self) -> Generator[simpy.Event, None, None]:
        env = self._env
        for row, arrival_s in enumerate(self._arrival_s):
            if arrival_s > env.now:
                self.next_send_s = arrival_s
                yield env.timeout(arrival_s - env.now)
            while self._free == 0:
                self.next_send_s = -math.inf
                self._place_is_free = env.event()
                yield self._place_is_free
            self._free -= 1
            self._send(row)
        self.next_send_s = math.inf

    def done(self) -> None:
        """A response is complete: its place is free for the next request."""
        self._free += 1
        if self._place_is_free is not None and not self._place_is_free.triggered:
            self._place_is_free.succeed()
