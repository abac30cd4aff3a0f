"""One simulated server, put together: clients, API server, engine, and the records they write.

clients -> ApiServer -> engine (V1: CohortScheduler over a BlockPool; V0: V0Scheduler) -> Delivery -> clients
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import simpy

from simulator.clients import Clients
from simulator.cohort import CohortScheduler
from simulator.delivery import Delivery
from simulator.engine_config import EngineConfig
from simulator.engine_parts import Surroundings, build
from simulator.front_end import ApiServer
from simulator.host_memory import HostMemory
from simulator.memory_terms import is_v0
from simulator.noise import StepNoise
from simulator.offload_scheduler import OffloadScheduler
from simulator.records import Records, Status
from simulator.request import KEYS_PER_REQUEST, Request
from simulator.request_table import Floats, RequestTable
from simulator.scheduler import V1Scheduler
from simulator.step_cost import StepCost
from simulator.v0_scheduler import V0Scheduler


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is sent to the server: the requests, how many may be in flight (None: any number), who comes when.

    *user_start_s* says, for a closed loop, when each of its ``max_concurrency`` users begins; None: all at 0.
    """

    table: RequestTable
    max_concurrency: int | None = None
    user_start_s: Floats | None = None

    @property
    def is_plain(self) -> bool:
        """Whether requests are sent at their times or when a place is free, without any thinking."""
        return self.user_start_s is None and not self.table.has_waits


def shared_keys(table: RequestTable, row: int, block_size: int) -> list[int]:
    """Return the block keys of the shared prefix of request *row*: every block that ends inside a segment."""
    keys: list[int] = []
    for segment in range(table.segment_start[row], table.segment_start[row + 1]):
        base = (int(table.segment_id[segment]) + 1) * KEYS_PER_REQUEST
        keys.extend(range(base + len(keys), base + int(table.segment_end[segment]) // block_size))
    return keys


class Server:
    """One engine behind one API server, ready to `run`."""

    def __init__(
        self,
        engine: EngineConfig,
        num_gpu_blocks: int,
        cost: StepCost,
        load: Load,
        *,
        seed: int | None,
        scheduler: type[V1Scheduler] = CohortScheduler,
        host: HostMemory | None = None,
    ) -> None:
        self._load = load
        self._clients: Clients | None = None
        self._block_size = engine.block_size
        self.env = simpy.Environment()
        self.records = Records.for_requests(
            load.table.prompt_tokens,
            num_gpu_blocks=num_gpu_blocks,
            block_size=engine.block_size,
            null_blocks=0 if is_v0(engine) else 1,
        )
        self._delivery = Delivery(self.env, self.records, cost.front_end)
        around = Surroundings(
            env=self.env,
            records=self.records,
            delivery=self._delivery,
            cost=cost,
            noise=None if seed is None else StepNoise(seed, 1, cost),
            horizon_s=self._horizon_s,
        )
        parts = build(engine, around, scheduler, host)
        self.scheduler, self.timer = parts.scheduler, parts.timer
        self._pipeline, self._engine = parts.pipeline, parts.core
        self._api = ApiServer(self.env, cost.front_end, load.table.prompt_tokens.tolist(), self._submit, self._disturb)

    def run(self) -> Records:
        """Send everything, wait for every response, and return what was recorded."""
        load, records = self._load, self.records
        self._clients = Clients(
            self.env,
            load.table,
            self._send,
            max_concurrency=load.max_concurrency,
            user_start_s=load.user_start_s,
        )
        self._delivery.clients = self._clients
        self.env.run()
        if records.offload is not None and isinstance(self.scheduler, OffloadScheduler):
            records.offload.queries_tokens = self.scheduler.external_queries_tokens
            records.offload.hits_tokens = self.scheduler.external_hits_tokens
            records.offload.skipped_stores = self.scheduler.skipped_stores
        records.prefix_queries_tokens = self.scheduler.prefix_queries_tokens
        records.prefix_hits_tokens = self.scheduler.prefix_hits_tokens
        if isinstance(self.scheduler, V0Scheduler) and not records.died and self.scheduler.stuck:
            records.died, records.died_s = self.scheduler.stuck, self.env.now
        ends = np.asarray(records.last_token_s)
        records.end_s = float(np.nanmax(ends)) if np.isfinite(ends).any() else self.env.now
        return records

    def _disturb(self, work_s: float) -> None:
        """The input thread needs the CPU: a launch in progress takes longer."""
        if self._pipeline.is_launching(self.env.now):
            self._pipeline.prolong_launch(work_s)

    def _horizon_s(self) -> float:
        """Return a time before which no request can reach the engine."""
        clients = self._clients
        if clients is None or clients.listens or not self._api.is_idle:
            return self.env.peek()
        return clients.next_send_s + self._api.least_delay_s

    def _send(self, row: int) -> None:
        self.records.sent_s[row] = self.env.now
        self._api.receive(row)

    def _submit(self, row: int) -> None:
        table = self._load.table
        request = Request(
            row,
            int(table.prompt_tokens[row]),
            int(table.output_tokens[row]),
            priority=int(table.priority[row]),
            arrival=self.records.sent_s[row],
            shared_keys=shared_keys(table, row, self._block_size),
        )
        if isinstance(self.scheduler, V0Scheduler) or self.scheduler.can_ever_run(request):  # V0 decides when it comes
            self._engine.submit(request)
        else:
            self.records.status[row] = Status.REJECTED
            self._delivery.refuse(row)
