"""One simulated server and its clients, put together: clients -> `Replica` -> clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import simpy

from simulator.clients import Clients
from simulator.cohort import CohortScheduler
from simulator.engine_config import EngineConfig
from simulator.host_memory import HostMemory
from simulator.records import Records
from simulator.replica import Machine, Replica
from simulator.request_table import Floats, RequestTable
from simulator.scheduler import V1Scheduler
from simulator.step_cost import StepCost


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

    @property
    def is_open(self) -> bool:
        """Whether every send time is known beforehand, in order."""
        in_order = bool((np.diff(self.table.arrival_s) >= 0).all())
        return self.max_concurrency is None and self.is_plain and in_order


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
        machine = Machine(engine=engine, num_gpu_blocks=num_gpu_blocks, cost=cost, scheduler=scheduler, host=host)
        self.env = simpy.Environment()
        rows = range(len(load.table))
        self._replica = Replica(
            self.env, machine, load.table, rows, seed=seed, next_send_s=lambda: clients.known_send_s
        )
        clients = Clients(
            self.env,
            load.table,
            self._replica.receive,
            max_concurrency=load.max_concurrency,
            user_start_s=load.user_start_s,
        )
        self._replica.listen(clients)
        self.scheduler, self.timer = self._replica.scheduler, self._replica.timer

    def run(self) -> Records:
        """Send everything, wait for every response, and return what was recorded."""
        self.env.run()
        return self._replica.close()
