"""V0's engine loop on SimPy: one step at a time; what it puts out may wait for the launch of the next step.

    loop:  drain inbox -> schedule -> launch -> (async: output of the step before) -> wait for the GPU -> update
           -> (sync: output) -> loop

* Async output processing: the tokens of step n leave the engine while step n + 1 runs; with nothing to run, at once.
* Multi-step: each model step is launched by itself, the scheduler is asked once; without ``multi_step_stream_outputs``
  the tokens of all of them leave together.
* An engine that dies (`EngineDiedError`) takes its requests with it; the message stands in the records.

Source: LLMEngine.step and _AsyncLLMEngine.step_async of vLLM 0.6.3.  Not modelled: launches of a multi-step run that
overlap the step before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import simpy

from simulator.delivery import Delivery
from simulator.engine import TICK_S, EngineCore, StepTimer
from simulator.errors import EngineDiedError
from simulator.pipeline import Pipeline
from simulator.plan import Plan
from simulator.records import Records
from simulator.request import Request
from simulator.swap_records import SwapRecords
from simulator.v0_scheduler import V0Scheduler

Events = Generator[simpy.Event, None, None]


class V0Engine(EngineCore):
    """One V0 engine: a SimPy process around one of V0's policies."""

    def __init__(
        self,
        env: simpy.Environment,
        policy: V0Scheduler,
        timer: StepTimer,
        records: Records,
        swap: SwapRecords,
        delivery: Delivery,
        *,
        streams_steps: bool = True,
    ) -> None:
        self._v0 = policy
        self._swap = swap
        self._delivery = delivery
        self._streams_steps = streams_steps
        self._held: list[tuple[int, list[Request], list[Request], float]] = []  # outputs that are still to leave
        super().__init__(env, policy, timer, Pipeline(1), records, delivery.emit)

    @property
    def pipeline(self) -> Pipeline:
        """The two time lines."""
        return self._pipeline

    def _run(self) -> Events:
        env, policy = self._env, self._v0
        try:
            while True:
                if self._inbox:
                    policy.add(self._inbox)
                    self._inbox = []
                plan = policy.schedule(env.now) if policy.has_requests else Plan()
                self._preempted += len(plan.preempted) - plan.forced
                for request in plan.ignored:
                    self._delivery.give_up(request)
                if plan.num_tokens:
                    yield from self._step_through(plan)
                    continue
                yield from self._put_out()
                if not self._inbox:
                    self._sleeping = env.event()
                    yield self._sleeping
        except EngineDiedError as death:
            self._records.died, self._records.died_s = str(death), env.now

    def _step_through(self, plan: Plan) -> Events:
        """Run *plan* on the GPU; the outputs before it leave meanwhile."""
        env, policy, pipeline = self._env, self._v0, self._pipeline
        self._launch(plan)
        step, _plan, update_s = self._in_flight.popleft()
        self._record_swap(plan)
        if self._held and (self._streams_steps or not plan.is_continuation):
            yield from self._wait_until(lambda: pipeline.cpu_free_s)
            yield from self._put_out()
        is_async = policy.rules.async_output_processing
        later_s = 0.0 if is_async else update_s
        yield from self._wait_until(lambda: pipeline.result_ready_s() + later_s)
        pipeline.pop(env.now)
        yielded, ended = policy.update(plan)
        self._held.append((step, yielded, ended, update_s if is_async else 0.0))
        if not is_async and (self._streams_steps or not policy.steps_left):
            yield from self._put_out()

    def _put_out(self) -> Events:
        """Process the outputs held back; their tokens leave the engine."""
        held, self._held = self._held, []
        for step, yielded, ended, update_s in held:
            if update_s > TICK_S:
                yield self._env.timeout(update_s)
            self._pipeline.cpu_free_s = max(self._pipeline.cpu_free_s, self._env.now)
            self._records.step_emit_s.append(self._env.now)
            self._emit(step, 0, yielded, ended, self._env.now)

    def _wait_until(self, time_s: Callable[[], float]) -> Events:
        while (left_s := time_s() - self._env.now) > TICK_S:  # it may move meanwhile
            yield self._env.timeout(left_s)

    def _record_swap(self, plan: Plan) -> None:
        swap, policy = self._swap, self._v0
        swap.step_swapped.append(len(policy.swapped))
        swap.step_free_cpu_blocks.append(policy.blocks.cpu.num_free)
        swap.step_swapped_in.append(plan.swapped_in)
        swap.step_swapped_out.append(plan.swapped_out)
