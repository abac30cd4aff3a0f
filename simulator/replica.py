"""One engine behind one API server, inside somebody's simulation: takes requests in, says when they are answered.

    receive -> ApiServer -> engine (V1: CohortScheduler over a BlockPool; V0: V0Scheduler) -> Delivery -> listener

A replica numbers its requests by itself; `rows` tells which rows of the workload's table they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import simpy

from simulator.block_keys import shared_keys
from simulator.cohort import CohortScheduler
from simulator.delivery import Delivery, Listener
from simulator.engine_config import EngineConfig
from simulator.engine_parts import Surroundings, build
from simulator.front_end import ApiServer
from simulator.host_memory import HostMemory
from simulator.memory_terms import is_v0
from simulator.noise import StepNoise
from simulator.offload_scheduler import OffloadScheduler
from simulator.records import Records, Status
from simulator.request import Request
from simulator.request_table import RequestTable
from simulator.scheduler import V1Scheduler
from simulator.step_cost import StepCost
from simulator.v0_scheduler import V0Scheduler


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What every replica is made of; *scheduler* is the class of V1's policy without offload, None for the fastest."""

    engine: EngineConfig
    num_gpu_blocks: int
    cost: StepCost
    scheduler: type[V1Scheduler] | None = None
    host: HostMemory | None = None


class Replica:
    """One engine behind one API server; *seed* None: without noise.

    *rows* are the requests it will get, by their rows in *table*; more may be added with `take`.  The next request of
    all is sent at *next_send_s* (-infinity: not known), and its state may be looked at from outside at *interrupt_s*.
    """

    def __init__(
        self,
        env: simpy.Environment,
        machine: Machine,
        table: RequestTable,
        rows: Sequence[int],
        *,
        seed: int | None,
        next_send_s: Callable[[], float],
        interrupt_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        engine, cost = machine.engine, machine.cost
        self._env = env
        self._table = table
        self._block_size = engine.block_size
        self._next_send_s = next_send_s
        self._interrupt_s = interrupt_s
        self.rows = list(rows)
        prompt_tokens = table.prompt_tokens[self.rows]
        self._prompt_tokens: list[int] = prompt_tokens.tolist()
        self.records = Records.for_requests(
            prompt_tokens,
            num_gpu_blocks=machine.num_gpu_blocks,
            block_size=engine.block_size,
            null_blocks=0 if is_v0(engine) else 1,
        )
        self._delivery = Delivery(env, self.records, cost.front_end)
        around = Surroundings(
            env=env,
            records=self.records,
            delivery=self._delivery,
            cost=cost,
            noise=None if seed is None else StepNoise(seed, 1, cost),
            horizon_s=self._horizon_s,
        )
        parts = build(engine, around, machine.scheduler or CohortScheduler, machine.host)
        self.scheduler, self.timer = parts.scheduler, parts.timer
        self._pipeline, self._engine = parts.pipeline, parts.core
        self._api = ApiServer(env, cost.front_end, self._prompt_tokens, self._submit, self._disturb)

    def listen(self, listener: Listener) -> None:
        """Tell *listener* about responses, by the replica's own numbers."""
        self._delivery.clients = listener

    def take(self, row: int) -> None:
        """Receive row *row* of the table now, as one more request."""
        prompt_tokens = int(self._table.prompt_tokens[row])
        self.rows.append(row)
        self._prompt_tokens.append(prompt_tokens)
        self.records.append_request(prompt_tokens)
        self.receive(len(self.rows) - 1)

    def receive(self, number: int) -> None:
        """Receive request *number* (the replica's own count) now."""
        self.records.sent_s[number] = self._env.now
        self._api.receive(number)

    def close(self) -> Records:
        """Return what was recorded, with the counts of the scheduler; nothing may follow."""
        records = self.records
        if records.offload is not None and isinstance(self.scheduler, OffloadScheduler):
            records.offload.queries_tokens = self.scheduler.external_queries_tokens
            records.offload.hits_tokens = self.scheduler.external_hits_tokens
            records.offload.skipped_stores = self.scheduler.skipped_stores
        records.prefix_queries_tokens = self.scheduler.prefix_queries_tokens
        records.prefix_hits_tokens = self.scheduler.prefix_hits_tokens
        if isinstance(self.scheduler, V0Scheduler) and not records.died and self.scheduler.stuck:
            records.died, records.died_s = self.scheduler.stuck, self._env.now
        ends = np.asarray(records.last_token_s)
        records.end_s = float(np.nanmax(ends)) if np.isfinite(ends).any() else self._env.now
        return records

    def _disturb(self, work_s: float) -> None:
        """The input thread needs the CPU: a launch in progress takes longer."""
        if self._pipeline.is_launching(self._env.now):
            self._pipeline.prolong_launch(work_s)

    def _horizon_s(self) -> float:
        """Return a time before which no request can reach the engine, and nobody looks at it."""
        next_send_s = self._next_send_s()
        if next_send_s == -math.inf or not self._api.is_idle:
            return self._env.peek()
        return min(next_send_s + self._api.least_delay_s, self._interrupt_s())

    def _submit(self, number: int) -> None:
        table, row = self._table, self.rows[number]
        request = Request(
            number,
            int(table.prompt_tokens[row]),
            int(table.output_tokens[row]),
            priority=int(table.priority[row]),
            arrival=self.records.sent_s[number],
            shared_keys=shared_keys(table, row, self._block_size),
        )
        if isinstance(self.scheduler, V0Scheduler) or self.scheduler.can_ever_run(request):  # V0 decides when it comes
            self._engine.submit(request)
        else:
            self.records.status[number] = Status.REJECTED
            self._delivery.refuse(number)
