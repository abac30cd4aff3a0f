"""The API server: what lies between the client's clock and the engine's.

Requests: HTTP, validation and tokenization share one event loop, modelled as *processor sharing*: n requests in service
each advance at rate 1/n, a request needs ``demand`` seconds of service, and a constant latency follows (parse, ZMQ).
Outputs: the message of a step is worked off stream by stream; the client sees later tokens a constant plus a term per
stream after the engine's time stamp, first tokens a constant plus a term per prompt token.

The numbers come from the profile's ``front_end`` section.  Not modelled: several API servers, slow clients.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import simpy


class ProcessorSharing:
    """Equal sharing of one processor, as arithmetic: virtual time advances at 1/n of real time.

    A job that arrives at virtual time v leaves when virtual time reaches v + demand; ties leave in order of arrival.
    """

    __slots__ = ("_at_s", "_count", "_jobs", "_virtual_s")

    def __init__(self) -> None:
        self._jobs: list[tuple[float, int, int]] = []  # (virtual end, order, job)
        self._virtual_s = 0.0
        self._at_s = 0.0
        self._count = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def _advance(self, now_s: float) -> None:
        if self._jobs:
            self._virtual_s += (now_s - self._at_s) / len(self._jobs)
        self._at_s = now_s

    def add(self, now_s: float, job: int, demand_s: float) -> None:
        """Begin to serve *job*, which needs *demand_s* seconds of an otherwise idle processor."""
        self._advance(now_s)
        self._count += 1
        heappush(self._jobs, (self._virtual_s + demand_s, self._count, job))

    def next_departure_s(self) -> float:
        """Return when the next job leaves if nobody else comes; there must be one."""
        return self._at_s + (self._jobs[0][0] - self._virtual_s) * len(self._jobs)

    def depart(self, now_s: float) -> int:
        """Remove and return the job that leaves at *now_s* (as told by `next_departure_s`)."""
        end = self._jobs[0][0]
        self._advance(now_s)
        self._virtual_s = end  # exact, whatever the rounding of the division was
        return heappop(self._jobs)[2]


class ApiServer:
    """The request path as SimPy events: `receive` a row, hand it on after its service and the latency."""

    def __init__(
        self,
        env: simpy.Environment,
        latency_s: float,
        demand_s: Callable[[int], float],
        forward: Callable[[int], None],
        *,
        least_demand_s: float = 0.0,
    ) -> None:
        self._env = env
        self._latency_s = latency_s
        #: No request is on its way for less than this.
        self.least_delay_s = latency_s + least_demand_s
        self._demand_s = demand_s
        self._forward = forward
        self._sharing = ProcessorSharing()
        self._generation = 0
        self._in_service = 0

    @property
    def is_idle(self) -> bool:
        """Whether no request is on its way to the engine."""
        return self._in_service == 0

    def receive(self, row: int) -> None:
        """Take in a request that was sent now."""
        self._in_service += 1
        self._sharing.add(self._env.now, row, self._demand_s(row))
        self._arm()

    def _arm(self) -> None:
        """Set the alarm for the next departure; an arrival since then makes an older alarm void."""
        self._generation += 1
        if len(self._sharing) == 0:
            return
        generation = self._generation
        alarm = self._env.timeout(max(0.0, self._sharing.next_departure_s() - self._env.now))
        alarm.callbacks.append(lambda _event: self._depart(generation))

    def _depart(self, generation: int) -> None:
        if generation != self._generation:
            return
        row = self._sharing.depart(self._env.now)
        arrival = self._env.timeout(self._latency_s)
        arrival.callbacks.append(lambda _event: self._arrive(row))
        self._arm()

    def _arrive(self, row: int) -> None:
        self._in_service -= 1
        self._forward(row)
