"""Stretches of pure decode in one go: no SimPy event, no plan, no call a step.

Between two things that matter (an event of another process, somebody's last token, a block shortage) every step serves
the same requests.  Its durations follow from the cost curves, blocks from the calendar of `CohortScheduler`, and the
records are extended by whole columns.  What is left is the recursion of the two time lines (`Pipeline.run_ahead`).
The step-by-step path gives the same records; a test compares them.
"""

from __future__ import annotations

import math
from array import array
from typing import NamedTuple

from simulator.cohort import CohortScheduler
from simulator.delivery import Delivery
from simulator.pipeline import Pipeline
from simulator.plan import Plan
from simulator.records import Records
from simulator.step_timer import StepTimer, Stretch

#: Below this many steps the ordinary path is as fast.
SHORTEST = 3
LONGEST = 4096

#: A plan whose results are to come: its step, itself, the time its update will take.
InFlight = tuple[int, Plan, float]


class Stretched(NamedTuple):
    """A stretch that was made: its steps, the end of its last turn, and the plan in flight then if steps overlap."""

    steps: int
    end_s: float
    in_flight: InFlight | None


class FastForward:
    """Runs ahead of the engine loop when nothing else can happen."""

    def __init__(
        self, policy: CohortScheduler, timer: StepTimer, pipeline: Pipeline, records: Records, delivery: Delivery
    ) -> None:
        self._policy = policy
        self._timer = timer
        self._pipeline = pipeline
        self._records = records
        self._delivery = delivery

    def run(self, now_s: float, until_s: float, step: int, in_flight: InFlight | None) -> Stretched | None:
        """Go as far as nothing can interfere before *until_s*; return how far, None for not at all.

        The loop stands just before planning *step*; *in_flight* is the plan before it, if steps overlap.
        """
        policy = self._policy
        quiet = self._quiet_steps(now_s, until_s)
        if quiet < SHORTEST:
            return None
        size, context_sum, context_max = policy.stretch_sums()
        stretch = self._timer.stretch(size, context_sum, context_max, step, quiet)
        update_s = stretch.fixed_s[3]
        turns = self._pipeline.run_ahead(
            now_s, stretch.gpu_s, stretch.launch_s, stretch.fixed_s, until_s, in_flight[2] if in_flight else update_s
        )
        free = policy.advance(1) if turns else []
        if not free:
            return None
        first = 0
        if in_flight is not None and (in_flight[1].requests or in_flight[1].leavers):
            # The plan before the stretch was no quiet one; its results come in during the first turn.
            first = 1
            self._record(stretch, size, 1)
            yielded, ended = policy.update(in_flight[1])
            self._delivery.emit(in_flight[0], in_flight[1].cohort_size, yielded, ended, turns[0][0])
        free += policy.advance(len(turns) - 1)
        count = len(free)
        self._pipeline.commit(turns[count - 1])
        ends_s = [turn[0] for turn in turns[:count]]
        self._record(stretch, size, count - first)
        self._delivery.emit_stretch(ends_s[first:], size)
        records = self._records
        records.step_plan_s.append(now_s)
        records.step_plan_s.extend(ends_s[:-1])
        records.step_emit_s.extend(ends_s)
        records.step_free_blocks.extend(free)
        records.step_gpu_s.extend(stretch.gpu_s[:count])
        self._timer.watch(size, size, context_max + count - 1)
        latest = None if in_flight is None else (step + count - 1, policy.latest_quiet_plan(), update_s)
        return Stretched(count, ends_s[-1], latest)

    def _quiet_steps(self, now_s: float, until_s: float) -> int:
        """Return an upper estimate of the steps that can be made before *until_s*."""
        policy = self._policy
        quiet = min(policy.quiet_steps(ends_matter=self._delivery.somebody_listens), LONGEST)
        if quiet >= SHORTEST and until_s < math.inf:
            # Contexts only grow, so no later step is shorter than the first (noise aside).
            first_s = self._timer.shortest_turn_s(*policy.stretch_sums())
            quiet = min(quiet, int((until_s - now_s) / first_s) + 2)
        return quiet

    def _record(self, stretch: Stretch, size: int, count: int) -> None:
        """Extend the columns that stay the same for *count* steps."""
        records = self._records
        running, waiting, _free = self._policy.counts()
        for column, value in (
            (records.step_tokens, size),
            (records.step_decode_reqs, size),
            (records.step_preempted, 0),
            (records.step_running, running),
            (records.step_waiting, waiting),
            (records.step_mode, stretch.mode),
            (records.step_padded_tokens, stretch.padded_tokens),
        ):
            column.extend(array(column.typecode, (value,)) * count)
