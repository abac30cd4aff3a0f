"""The engine loop with KV offload: V1's loop, plus copies that run beside the steps.

    a step begins:   wait for copies out of blocks that it needs (flush); order the stores of the plan before it, which
                     start when the GPU has done that plan; order its own loads
    launch ends:     copies that are done by now are reported with this step's result
    nothing to run:  the loop turns once a millisecond while a copy is on the way

Copies of one direction run one after the other (`Link`), both directions at the same time, and none slows a step.
Source: core.py and offloading/worker.py of vLLM 0.24.  Not modelled: memory bandwidth that copies take from the step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator

import simpy

from simulator.delivery import Delivery
from simulator.engine import TICK_S, EngineCore, StepTimer
from simulator.offload_plan import OffloadPlan, Transfer
from simulator.offload_records import OffloadRecords
from simulator.offload_scheduler import OffloadScheduler
from simulator.pipeline import Pipeline
from simulator.records import Records
from simulator.transfer_cost import TransferCost

Events = Generator[simpy.Event, None, None]

#: How long the loop sleeps when a turn had nothing to run.
EMPTY_TURN_S = 1e-3


class Link:
    """One direction of the way between GPU and CPU: first come, first served."""

    def __init__(self, cost: TransferCost) -> None:
        self._cost = cost
        self._free_s = 0.0
        self._queue: deque[tuple[float, Transfer]] = deque()

    def begin(self, transfer: Transfer, start_s: float) -> float:
        """Order *transfer*, not to start before *start_s*; return how long the copies take."""
        took_s = self._cost.job_s + self._cost.seconds(transfer.num_blocks)
        self._free_s = max(self._free_s, start_s) + took_s
        self._queue.append((self._free_s, transfer))
        return took_s

    def end_s(self, transfers: list[Transfer]) -> float:
        """Return when the last of *transfers* is done; 0 if none of them is on the way."""
        wanted = set(map(id, transfers))
        return max((end_s for end_s, transfer in self._queue if id(transfer) in wanted), default=0.0)

    def take_done(self, by_s: float) -> list[Transfer]:
        """Remove and return what is done by *by_s*."""
        done: list[Transfer] = []
        while self._queue and self._queue[0][0] <= by_s + TICK_S:
            done.append(self._queue.popleft()[1])
        return done


class OffloadEngine(EngineCore):
    """One V1 engine with a CPU tier."""

    def __init__(
        self,
        env: simpy.Environment,
        policy: OffloadScheduler,
        timer: StepTimer,
        pipeline: Pipeline,
        records: Records,
        offload: OffloadRecords,
        delivery: Delivery,
        transfer: TransferCost,
        horizon_s: Callable[[], float] | None = None,
    ) -> None:
        self._offload_policy = policy
        self._offload = offload
        self._out, self._in = Link(transfer), Link(transfer)
        self._ordered: list[Transfer] = []  # stores that begin with the next step
        self._reports: deque[list[Transfer]] = deque()  # one for each plan in flight
        super().__init__(env, policy, timer, pipeline, records, delivery.emit, None, horizon_s)

    def _run(self) -> Events:
        env, policy, pipeline, in_flight = self._env, self._offload_policy, self._pipeline, self._in_flight
        while True:
            if self._inbox:
                policy.add(self._inbox)
                self._inbox = []
            if len(in_flight) < pipeline.depth and policy.has_requests:
                plan = policy.schedule()
                self._preempted += len(plan.preempted)
                yield from self._flush(plan)
                if plan.num_tokens:
                    self._launch_with_copies(plan)
                    if len(in_flight) < pipeline.depth:
                        yield from self._sleep_until(lambda: pipeline.cpu_free_s)
                        continue
                else:
                    self._begin_copies(plan, env.now)
                    done = self._take_done(env.now)
                    if in_flight:
                        self._reports[-1] += done
                    elif policy.has_transfers:
                        policy.transfers_done(done)
                        yield env.timeout(EMPTY_TURN_S)
                        continue
                    elif plan.preempted:
                        continue
            if in_flight:
                update_s = in_flight[0][2]
                yield from self._sleep_until(lambda u=update_s: pipeline.result_ready_s() + u)  # type: ignore[misc]
                self._take_result()
            else:
                self._sleeping = env.event()
                yield self._sleeping

    def _take_result(self) -> None:
        step, plan, _update_s = self._in_flight.popleft()
        self._pipeline.pop(self._env.now)
        yielded, ended = self._policy.update(plan)
        self._offload_policy.transfers_done(self._reports.popleft())
        self._records.step_emit_s.append(self._env.now)
        self._emit(step, plan.cohort_size, yielded, ended, self._env.now)

    def _sleep_until(self, time_s: Callable[[], float]) -> Events:
        while (left_s := time_s() - self._env.now) > TICK_S:  # it may move meanwhile
            yield self._env.timeout(left_s)

    # -- copies ---------------------------------------------------------------------------------------------------

    def _flush(self, plan: OffloadPlan) -> Events:
        """Wait for the copies that *plan* cannot do without."""
        if not plan.flush:
            return
        self._begin_stores(self._env.now)
        left_s = self._out.end_s(plan.flush) - self._env.now
        if left_s > TICK_S:
            self._offload.flush_s += left_s
            yield self._env.timeout(left_s)

    def _launch_with_copies(self, plan: OffloadPlan) -> None:
        self._begin_copies(plan, self._env.now)
        self._launch(plan)
        self._offload.step_stored_blocks.append(sum(store.num_blocks for store in plan.stores))
        self._offload.step_loaded_blocks.append(sum(load.num_blocks for load in plan.loads))
        self._reports.append(self._take_done(self._pipeline.cpu_free_s))
        for request, _cached in plan.admitted:
            if request.num_preemptions == 0:
                self._offload.external_tokens[request.row] = self._offload_policy.latest_hits.get(request.row, 0)

    def _begin_copies(self, plan: OffloadPlan, now_s: float) -> None:
        """A step begins: the stores before it, then its loads; its own stores wait for the next step."""
        self._begin_stores(now_s)
        for load in plan.loads:
            self._offload.load_start_s[load.request.row] = now_s
            self._offload.loaded_blocks += load.num_blocks
            self._offload.load_s += self._in.begin(load, now_s)
        self._ordered += plan.stores

    def _begin_stores(self, now_s: float) -> None:
        """Order what the plan before had to store: it can be copied when the GPU has computed it."""
        for store in self._ordered:
            self._offload.stored_blocks += store.num_blocks
            self._offload.store_s += self._out.begin(store, max(now_s, self._pipeline.gpu_end_s))
        self._ordered.clear()

    def _take_done(self, by_s: float) -> list[Transfer]:
        return self._out.take_done(by_s) + self._in.take_done(by_s)
