"""Who was served with what in which step: prompts computed chunk by chunk, and who was thrown out when.

`Records` hold counts per step.  For an explanation V1's reference scheduler is run on the same scenario with somebody
looking on: the same decisions, so the same records, only slower.  V0 and the KV offload cannot be looked at this way;
their `Watched.chunks` are None.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.plan import Plan
from simulator.result import Result
from simulator.scenario import Scenario
from simulator.scheduler import V1Scheduler
from simulator.simulate import simulate

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Chunks:
    """Parts of prompts as they were computed, in order of steps; and the preemptions.

    Attributes
    ----------
    step, request, tokens: one row a chunk: in which step which request had how many tokens computed.
    context: tokens of the request that were there before (cached ones included).
    preempted_step, preempted_request: the step whose plan threw the request out.
    """

    step: Ints
    request: Ints
    tokens: Ints
    context: Ints
    preempted_step: Ints
    preempted_request: Ints

    def of(self, request: int) -> NDArray[np.intp]:
        """Return the rows of the chunks of *request*, in order of time."""
        return np.flatnonzero(self.request == request)

    def between(self, first_step: int, end_step: int) -> dict[int, int]:
        """Return tokens by request computed in the steps from *first_step* to before *end_step*, most first."""
        rows = slice(*np.searchsorted(self.step, (first_step, end_step)).tolist())
        found: dict[int, int] = {}
        for request, tokens in zip(self.request[rows].tolist(), self.tokens[rows].tolist(), strict=True):
            found[request] = found.get(request, 0) + tokens
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


@dataclass(frozen=True, eq=False)
class Watched:
    """A result and the chunks behind it; None where nobody could look on."""

    result: Result
    chunks: Chunks | None


def watch(scenario: Scenario) -> Watched:
    """Simulate *scenario* and look on; the result is the one of `simulator.simulate.simulate`."""
    log = _Log()
    result = simulate(scenario, scheduler=_watching(log))
    return Watched(result, log.chunks() if log.steps or not result.records.num_steps else None)


@dataclass(slots=True)
class _Log:
    """Columns under construction."""

    steps: int = 0
    chunk: tuple[array[int], ...] = field(default_factory=lambda: tuple(array("q") for _ in range(4)))
    thrown_out: tuple[array[int], ...] = field(default_factory=lambda: tuple(array("q") for _ in range(2)))

    def add(self, plan: Plan) -> None:
        """Take in a plan that has just been made.  A plan without tokens is no step; its victims belong to the next."""
        for request in plan.preempted:
            self._append(self.thrown_out, (self.steps, request.row))
        for request, tokens in zip(plan.requests, plan.tokens, strict=True):
            context = request.num_computed_tokens - tokens  # a plan advances the counts
            if tokens > 1 or context < request.num_prompt_tokens:
                self._append(self.chunk, (self.steps, request.row, tokens, context))
        self.steps += plan.num_tokens > 0

    @staticmethod
    def _append(columns: Iterable[array[int]], values: Iterable[int]) -> None:
        for column, value in zip(columns, values, strict=True):
            column.append(value)

    def chunks(self) -> Chunks:
        """Return what was seen."""
        return Chunks(*(np.array(column, dtype=np.int64) for column in (*self.chunk, *self.thrown_out)))


def _watching(log: _Log) -> type[V1Scheduler]:
    class Watching(V1Scheduler):
        """V1's reference scheduler, telling *log* every plan."""

        def schedule(self) -> Plan:
            plan = super().schedule()
            log.add(plan)
            return plan

    return Watching
