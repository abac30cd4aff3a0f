"""The engine-core loop on SimPy: drain the inbox, plan, launch, wait for the oldest result, update, again.

The policy decides (`schedule`, `update`), the costs are asked for, the pipeline does the arithmetic of the two time
lines, and this module owns the clock.  There is at most one SimPy event a step: in the steady state the process wakes
when the oldest result has been processed, and plans the next step in the same instant.

    loop:  drain inbox -> plan (if fewer than `depth` are in flight) -> again at the end of the launch if there is room
           -> else sleep until max(end of oldest, launch end) + update time -> update, emit -> loop

Order as in vLLM (EngineCore.step and step_with_batch_queue, 0.24): results of the oldest plan are consumed, then the
input queue is drained, then the next plan is made.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Protocol

import simpy

from simulator.fast_forward import FastForward
from simulator.pipeline import Pipeline
from simulator.plan import Plan
from simulator.records import Records
from simulator.request import Request

#: Times closer than this are the same instant (sums of floats do not always meet).
TICK_S = 1e-12


def _delay_s(now_s: float, until_s: float) -> float:
    """Return a delay after which it is *until_s* to the last bit, or not yet: never later."""
    delay_s = until_s - now_s
    return delay_s if now_s + delay_s <= until_s else math.nextafter(delay_s, 0.0)


class Policy(Protocol):
    """What the loop needs from a scheduler; V0's policies can stand here as well."""

    @property
    def has_requests(self) -> bool:
        """Whether anything is waiting or running."""

    def add(self, requests: Iterable[Request]) -> None:
        """Queue new requests."""

    def schedule(self) -> Plan:
        """Return the next step's plan; empty (no tokens) if nothing can run."""

    def update(self, plan: Plan) -> tuple[list[Request], list[Request]]:
        """Take in a plan's results; return who got a token (the cohort apart) and who ended."""

    def counts(self) -> tuple[int, int, int]:
        """Return (running requests, waiting requests, free blocks)."""


class StepTimer(Protocol):
    """Times of one plan in seconds: (schedule, launch, start latency, GPU, tail, update); records what it used."""

    def times(self, plan: Plan, step: int, *, gpu_is_idle: bool) -> tuple[float, float, float, float, float, float]:
        """Return the six times of *plan*, step number *step*."""


class EngineCore:
    """One engine: a SimPy process around a policy."""

    def __init__(
        self,
        env: simpy.Environment,
        policy: Policy,
        timer: StepTimer,
        pipeline: Pipeline,
        records: Records,
        emit: Callable[[int, int, list[Request], list[Request], float], None],
        fast_forward: FastForward | None = None,
        horizon_s: Callable[[], float] | None = None,
    ) -> None:
        self._env = env
        self._policy = policy
        self._timer = timer
        self._pipeline = pipeline
        self._records = records
        self._emit = emit
        self._fast_forward = fast_forward
        self._horizon_s = horizon_s if horizon_s is not None else env.peek
        self._inbox: list[Request] = []
        self._in_flight: deque[tuple[int, Plan, float]] = deque()
        self._sleeping: simpy.Event | None = None
        self._step = 0
        self._preempted = 0  # since the last step with tokens: a plan that only preempts is no step
        env.process(self._run())

    def submit(self, request: Request) -> None:
        """Put a request into the input queue; it is seen when the loop drains it."""
        self._inbox.append(request)
        self._records.engine_arrival_s[request.row] = self._env.now
        if self._sleeping is not None:
            self._sleeping.succeed()
            self._sleeping = None

    def _run(self) -> Generator[simpy.Event, None, None]:
        env, policy, pipeline, in_flight = self._env, self._policy, self._pipeline, self._in_flight
        while True:
            if self._inbox:
                policy.add(self._inbox)
                self._inbox = []
            if self._fast_forward is not None and len(in_flight) == pipeline.depth - 1 and not self._preempted:
                stretched = self._fast_forward.run(
                    env.now, self._horizon_s(), self._step, in_flight[0] if in_flight else None
                )
                if stretched is not None:
                    self._step += stretched.steps
                    if stretched.in_flight is not None:
                        in_flight[0] = stretched.in_flight
                    while env.now < stretched.end_s:
                        yield env.timeout(_delay_s(env.now, stretched.end_s))
                    continue
            if len(in_flight) < pipeline.depth and policy.has_requests:
                plan = policy.schedule()
                self._preempted += len(plan.preempted)
                if plan.num_tokens:
                    self._launch(plan)
                    if len(in_flight) < pipeline.depth:
                        while (left_s := pipeline.cpu_free_s - env.now) > TICK_S:
                            yield env.timeout(left_s)
                        continue
                elif plan.preempted and not in_flight:
                    continue  # what was thrown out may be admitted by the next plan
            if in_flight:
                step, plan, update_s = in_flight[0]
                while (left_s := pipeline.result_ready_s() + update_s - env.now) > TICK_S:  # it may move meanwhile
                    yield env.timeout(left_s)
                in_flight.popleft()
                pipeline.pop(env.now)
                yielded, ended = policy.update(plan)
                self._records.step_emit_s.append(env.now)
                self._emit(step, plan.cohort_size, yielded, ended, env.now)
            else:
                self._sleeping = env.event()
                yield self._sleeping

    def _launch(self, plan: Plan) -> None:
        """Start *plan* on the two time lines."""
        now_s, step, pipeline, records = self._env.now, self._step, self._pipeline, self._records
        times = self._timer.times(plan, step, gpu_is_idle=pipeline.gpu_idle(now_s))
        pipeline.launch(now_s, *times[:5])
        self._in_flight.append((step, plan, times[5]))
        self._step = step + 1
        records.step_plan_s.append(now_s)
        records.step_tokens.append(plan.num_tokens)
        records.step_decode_reqs.append(plan.decode_reqs)
        records.step_preempted.append(self._preempted)
        self._preempted = 0
        running, waiting, free_blocks = self._policy.counts()
        records.step_running.append(running)
        records.step_waiting.append(waiting)
        records.step_free_blocks.append(free_blocks)
        for request, cached in plan.admitted:
            if request.num_preemptions == 0:
                records.first_scheduled_s[request.row] = now_s
                records.cached_tokens[request.row] = cached
            else:
                records.recomputed_tokens[request.row] += request.num_tokens - cached
