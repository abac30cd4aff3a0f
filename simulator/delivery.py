"""From the engine's outputs to the clients: who got a token in which step, and when the client saw it.

The output path of the front end is one queue: the message of a step needs a service time per token, more for a first
token and for a response that ends; its tokens reach their clients a constant after their service.  The numbers come
from the profile's ``front_end`` section.  Responses are announced only if somebody waits for them.
"""

from __future__ import annotations

from typing import Protocol

import simpy

from simulator.profile import FrontEnd
from simulator.records import Records, Status
from simulator.request import Request


class Listener(Protocol):
    """Who may wait for responses."""

    @property
    def listens(self) -> bool:
        """Whether responses must be announced at their exact time."""

    def done(self, row: int) -> None:
        """The response to request *row* is complete, or will never come."""


class Delivery:
    """Writes the request columns and the runs of `Records`; one call a step."""

    def __init__(self, env: simpy.Environment, records: Records, front_end: FrontEnd) -> None:
        self._env = env
        self._records = records
        self._front_end = front_end
        self._free_s = 0.0  # when the API server has worked off what it got
        #: What a first token costs beyond a later one.
        self._first_s = max(0.0, front_end.first_token_s - front_end.token_s)
        self.clients: Listener | None = None

    @property
    def somebody_listens(self) -> bool:
        """Whether a response may lead to the next request."""
        return self.clients is not None and self.clients.listens

    def emit(self, step: int, cohort_size: int, yielded: list[Request], ended: list[Request], now_s: float) -> None:
        """Deliver the tokens of *step*, emitted at *now_s*; the runs of the cohort go on by themselves."""
        front_end, before = self._front_end, step - 1
        service_s = front_end.token_per_stream_s * (cohort_size + len(yielded)) + front_end.finish_s * len(ended)
        first: list[Request] = []
        for request in yielded:
            if request.last_step != before:
                if request.run_start >= 0:
                    self._close_run(request)
                else:
                    first.append(request)
                    service_s += self._first_s + front_end.first_token_per_prompt_token_s * request.num_prompt_tokens
                request.run_start = step
            request.last_step = step
        free_s = self._free_s
        self._free_s = (now_s if now_s > free_s else free_s) + service_s
        deliver_s = self._free_s + front_end.token_s
        self._records.step_deliver_s.append(deliver_s)
        for request in first:
            self._records.first_token_s[request.row] = deliver_s
        for request in ended:
            self._end(request, deliver_s)

    def emit_stretch(self, emit_s: list[float], size: int) -> None:
        """Deliver the tokens of consecutive steps that served the same *size* requests, none of them a first token."""
        service_s, token_s, free_s = self._front_end.token_per_stream_s * size, self._front_end.token_s, self._free_s
        deliver_s: list[float] = []
        for at_s in emit_s:
            free_s = (at_s if at_s > free_s else free_s) + service_s
            deliver_s.append(free_s + token_s)
        self._free_s = free_s
        self._records.step_deliver_s.extend(deliver_s)

    def _close_run(self, request: Request) -> None:
        records = self._records
        records.run_request.append(request.row)
        records.run_first_step.append(request.run_start)
        records.run_steps.append(request.last_step - request.run_start + 1)

    def give_up(self, request: Request) -> None:
        """V0 ends a request that can never run (again): a last message without a token, and without an error."""
        records, row = self._records, request.row
        if request.run_start >= 0:
            self._close_run(request)
        records.output_tokens[row] = request.num_tokens - request.num_prompt_tokens
        records.preemptions[row] = request.num_preemptions
        records.status[row] = Status.IGNORED
        if self.clients is not None and self.clients.listens:
            response = self._env.timeout(self._front_end.token_s)
            response.callbacks.append(lambda _event: self.refuse(row))

    def refuse(self, row: int) -> None:
        """Request *row* is refused: its client is free for the next one."""
        if self.clients is not None:
            self.clients.done(row)

    def _end(self, request: Request, deliver_s: float) -> None:
        records, row = self._records, request.row
        self._close_run(request)
        outputs = request.num_tokens - request.num_prompt_tokens
        records.last_token_s[row] = deliver_s
        records.output_tokens[row] = outputs
        records.preemptions[row] = request.num_preemptions
        records.status[row] = Status.FINISHED
        clients = self.clients
        if clients is not None and clients.listens:
            response = self._env.timeout(deliver_s - self._env.now)
            response.callbacks.append(lambda _event: clients.done(row))
