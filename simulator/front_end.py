"""The API server: what lies between the client's clock and the engine's.

Requests: HTTP, validation and tokenization share one event loop, modelled as *processor sharing in order of arrival*: n
requests in service each advance at rate 1/n, a request needs ``demand`` seconds of service, and none overtakes another
(as recorded: 24 to 64 requests of all lengths sent at once reach the engine in the order of sending).  A latency
follows (parse, ZMQ), then the engine's input thread, which takes one request after the other and slows a launch in
progress.
Outputs: one queue (`simulator.delivery`).

The numbers come from the profile's ``front_end`` section.  Not modelled: several API servers, slow clients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import simpy

from simulator.profile import FrontEnd


class ProcessorSharing:
    """Equal sharing of one processor, as arithmetic: virtual time advances at 1/n of real time.

    A job that arrives at virtual time v leaves when virtual time reaches v + demand, and not before an earlier one.
    """

    __slots__ = ("_at_s", "_jobs", "_last_s", "_virtual_s")

    def __init__(self) -> None:
        self._jobs: deque[tuple[float, int]] = deque()  # (virtual end, job), in order of both
        self._virtual_s = 0.0
        self._last_s = 0.0  # virtual end of the latest
        self._at_s = 0.0

    def __len__(self) -> int:
        return len(self._jobs)

    def _advance(self, now_s: float) -> None:
        if self._jobs:
            self._virtual_s += (now_s - self._at_s) / len(self._jobs)
        self._at_s = now_s

    def add(self, now_s: float, job: int, demand_s: float) -> None:
        """Begin to serve *job*, which needs *demand_s* seconds of an otherwise idle processor."""
        self._advance(now_s)
        self._last_s = max(self._last_s, self._virtual_s + demand_s)
        self._jobs.append((self._last_s, job))

    def next_departure_s(self) -> float:
        """Return when the next job leaves if nobody else comes; there must be one."""
        return self._at_s + (self._jobs[0][0] - self._virtual_s) * len(self._jobs)

    def depart(self, now_s: float) -> int:
        """Remove and return the job that leaves at *now_s* (as told by `next_departure_s`)."""
        self._advance(now_s)
        end, job = self._jobs.popleft()
        self._virtual_s = end  # exact, whatever the rounding of the division was
        return job


class ApiServer:
    """The request path as SimPy events: `receive` a row, hand it on when the engine's input thread is done with it."""

    def __init__(
        self,
        env: simpy.Environment,
        times: FrontEnd,
        prompt_tokens: list[int],
        forward: Callable[[int], None],
        disturb: Callable[[float], None],
    ) -> None:
        self._env = env
        self._times = times
        self._prompt_tokens = prompt_tokens
        self._forward = forward
        self._disturb = disturb
        self._sharing = ProcessorSharing()
        self._generation = 0
        self._on_their_way = 0
        self._sent_on_s = 0.0  # when the latest is at the engine's input thread
        self._input_free_s = 0.0
        #: No request is on its way for less than this.
        self.least_delay_s = times.request_demand_s + times.request_latency_s

    @property
    def is_idle(self) -> bool:
        """Whether no request is on its way to the engine."""
        return self._on_their_way == 0

    def receive(self, row: int) -> None:
        """Take in a request that was sent now."""
        times = self._times
        self._on_their_way += 1
        demand_s = times.request_demand_s + times.request_demand_per_token_s * self._prompt_tokens[row]
        self._sharing.add(self._env.now, row, demand_s)
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
        latency_s = self._times.request_latency_s
        latency_s += self._times.request_latency_per_token_s * self._prompt_tokens[row]
        self._sent_on_s = max(self._sent_on_s, self._env.now + latency_s)
        sent_on = self._env.timeout(self._sent_on_s - self._env.now)
        sent_on.callbacks.append(lambda _event: self._decode(row))
        self._arm()

    def _decode(self, row: int) -> None:
        """The input thread takes one request after the other, at the expense of a launch in progress."""
        now_s, times = self._env.now, self._times
        work_s = times.input_s + times.input_per_token_s * self._prompt_tokens[row]
        self._input_free_s = max(self._input_free_s, now_s) + work_s
        self._disturb(work_s)
        arrival = self._env.timeout(self._input_free_s - now_s)
        arrival.callbacks.append(lambda _event: self._arrive(row))

    def _arrive(self, row: int) -> None:
        self._on_their_way -= 1
        self._forward(row)
