"""From the engine's outputs to the clients: who got a token in which step, and when the client saw it.

The output path of the front end is a delay (see `simulator.front_end`): later tokens of a step reach their clients
together, a first token has its own time.  Responses are announced to the clients only if somebody waits for them.
"""

from __future__ import annotations

import simpy

from simulator.clients import Clients
from simulator.profile import FrontEnd
from simulator.records import Records, Status
from simulator.request import Request


class Delivery:
    """Writes the request columns and the runs of `Records`; one call a step."""

    def __init__(self, env: simpy.Environment, records: Records, front_end: FrontEnd) -> None:
        self._env = env
        self._records = records
        self._front_end = front_end
        self._latest_s = 0.0
        self.clients: Clients | None = None

    def emit(self, step: int, cohort_size: int, yielded: list[Request], ended: list[Request]) -> None:
        """Deliver the tokens of *step*, whose outputs the engine emitted now; the runs of the cohort go on by themselves."""
        now_s, records, front_end = self._env.now, self._records, self._front_end
        deliver_s = now_s + front_end.token_s + front_end.token_per_stream_s * (cohort_size + len(yielded))
        deliver_s = self._latest_s = max(deliver_s, self._latest_s)  # one connection keeps its order
        records.step_deliver_s.append(deliver_s)
        before = step - 1
        for request in yielded:
            if request.last_step != before:
                self._begin_run(request, step, now_s, deliver_s)
            request.last_step = step
        for request in ended:
            self._end(request, deliver_s)

    def emit_stretch(self, emit_s: list[float], size: int) -> None:
        """Deliver the tokens of consecutive steps that served the same *size* requests, none of them a first token."""
        delay_s = self._front_end.token_s + self._front_end.token_per_stream_s * size
        latest_s = self._latest_s
        deliver_s = [max(latest_s, at_s + delay_s) for at_s in emit_s]
        self._latest_s = max(latest_s, deliver_s[-1])
        self._records.step_deliver_s.extend(deliver_s)

    def _begin_run(self, request: Request, step: int, now_s: float, deliver_s: float) -> None:
        records, front_end = self._records, self._front_end
        if request.run_start >= 0:
            self._close_run(request)
        else:
            first_s = (
                now_s + front_end.first_token_s + front_end.first_token_per_prompt_token_s * request.num_prompt_tokens
            )
            records.first_token_s[request.row] = max(first_s, deliver_s)
        request.run_start = step

    def _close_run(self, request: Request) -> None:
        records = self._records
        records.run_request.append(request.row)
        records.run_first_step.append(request.run_start)
        records.run_steps.append(request.last_step - request.run_start + 1)

    def refuse(self) -> None:
        """A request is refused: its client is free for the next one."""
        if self.clients is not None:
            self.clients.done()

    def _end(self, request: Request, deliver_s: float) -> None:
        records, row = self._records, request.row
        self._close_run(request)
        outputs = request.num_tokens - request.num_prompt_tokens
        last_s = records.first_token_s[row] if outputs == 1 else max(deliver_s, records.first_token_s[row])
        records.last_token_s[row] = last_s
        records.output_tokens[row] = outputs
        records.preemptions[row] = request.num_preemptions
        records.status[row] = Status.FINISHED
        if self.clients is not None and self.clients.listens:
            response = self._env.timeout(max(0.0, last_s - self._env.now))
            response.callbacks.append(lambda _event: self.clients.done())
