"""One simulated server, put together: clients, API server, engine, and the records they write.

clients -> ApiServer -> EngineCore (CohortScheduler over a BlockPool, StepTimer) -> Delivery -> clients
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import simpy

from simulator.blocks import BlockPool
from simulator.clients import Clients
from simulator.cohort import CohortScheduler
from simulator.cuda_graphs import GraphDispatch
from simulator.delivery import Delivery
from simulator.engine import EngineCore
from simulator.engine_config import EngineConfig
from simulator.fast_forward import FastForward
from simulator.front_end import ApiServer
from simulator.noise import StepNoise
from simulator.pipeline import Pipeline
from simulator.records import Records, Status
from simulator.request import KEYS_PER_REQUEST, Request
from simulator.request_table import RequestTable
from simulator.rules import SchedulerRules
from simulator.scheduler import V1Scheduler
from simulator.step_cost import StepCost
from simulator.step_timer import StepTimer
from simulator.versions import facts


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is sent to the server: the requests, and how many may be in flight (None: any number)."""

    table: RequestTable
    max_concurrency: int | None = None


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
    ) -> None:
        self._load = load
        self._clients: Clients | None = None
        self._block_size = engine.block_size
        self.env = simpy.Environment()
        self.records = Records.for_requests(
            load.table.prompt_tokens, num_gpu_blocks=num_gpu_blocks, block_size=engine.block_size
        )
        blocks = BlockPool(
            num_gpu_blocks,
            engine.block_size,
            caching=engine.enable_prefix_caching,
            unhashed_to_head=facts(engine.vllm_version).unhashed_blocks_to_head,
        )
        self.scheduler = scheduler(SchedulerRules.of(engine), blocks)
        noise = None if seed is None else StepNoise(seed, 1, cost)
        self.timer = StepTimer(GraphDispatch(engine), cost, self.records, noise)
        self._delivery = Delivery(self.env, self.records, cost.front_end)
        self._pipeline = pipeline = Pipeline(2 if engine.async_scheduling else 1)
        fast_forward = None
        if isinstance(self.scheduler, CohortScheduler):
            fast_forward = FastForward(self.scheduler, self.timer, pipeline, self.records, self._delivery)
        self._engine = EngineCore(
            self.env,
            self.scheduler,
            self.timer,
            pipeline,
            self.records,
            self._delivery.emit,
            fast_forward,
            self._horizon_s,
        )
        self._api = ApiServer(
            self.env, cost.front_end, load.table.prompt_tokens.tolist(), self._submit, self._disturb
        )

    def run(self, progress: Callable[[float], None] | None = None) -> Records:
        """Send everything, wait for every response, and return what was recorded."""
        load, records = self._load, self.records
        self._clients = Clients(self.env, load.table.arrival_s, self._send, max_concurrency=load.max_concurrency)
        self._delivery.clients = self._clients
        self.env.run()
        records.prefix_queries_tokens = self.scheduler.prefix_queries_tokens
        records.prefix_hits_tokens = self.scheduler.prefix_hits_tokens
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
        if self.scheduler.can_ever_run(request):
            self._engine.submit(request)
        else:
            self.records.status[row] = Status.REJECTED
            self._delivery.refuse()
