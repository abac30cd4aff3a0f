"""Stretches of pure decode in one go: no SimPy event, no plan, no call a step.

Between two things that matter (an event of another process, somebody's last token, a block shortage) every step serves
the same requests.  Its durations follow from the cost curves, blocks from the calendar of `CohortScheduler`, and the
records are extended by whole columns.  What is left is the recursion of the two time lines (`Pipeline.run_ahead`).
The step-by-step path gives the same records; a test compares them.
"""

from __future__ import annotations

import math
from array import array

from simulator.cohort import CohortScheduler
from simulator.delivery import Delivery
from simulator.pipeline import Pipeline, Turn
from simulator.plan import Plan
from simulator.records import Records
from simulator.step_timer import StepTimer, Stretch

#: Below this many steps the ordinary path is as fast.
SHORTEST = 3
LONGEST = 4096


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

    def run(self, now_s: float, until_s: float, step: int) -> tuple[int, float]:
        """Go as far as nothing can interfere before *until_s*; return (steps made, end of the last turn).

        The loop stands just before planning *step*, with ``depth - 1`` plans in flight.
        """
        quiet = min(self._policy.quiet_steps(), LONGEST)
        if quiet < SHORTEST:
            return 0, now_s
        size, context_sum, context_max = self._policy.stretch_sums()
        if until_s < math.inf:
            # Contexts only grow, so no later step is shorter than the first (noise aside): an upper estimate.
            first_s = self._timer.shortest_turn_s(size, context_sum, context_max)
            quiet = min(quiet, int((until_s - now_s) / first_s) + 2)
            if quiet < SHORTEST:
                return 0, now_s
        stretch = self._timer.stretch(size, context_sum, context_max, step, quiet)
        turns = self._pipeline.run_ahead(now_s, stretch.gpu_s, stretch.launch_s, stretch.fixed_s, until_s)
        if not turns:
            return 0, now_s
        free = self._policy.advance(len(turns))
        if not free:
            return 0, now_s
        turns = turns[: len(free)]
        self._pipeline.commit(turns[-1])
        self._timer.watch(size, size, context_max + len(free) - 1)
        self._record(now_s, size, stretch, turns, free)
        return len(free), turns[-1][0]

    def latest_plan(self) -> Plan:
        """Return the plan of the last step made; its results are still to come if steps overlap."""
        return self._policy.latest_quiet_plan()

    def _record(self, now_s: float, size: int, stretch: Stretch, turns: list[Turn], free: list[int]) -> None:
        records, count = self._records, len(turns)
        ends_s = [turn[0] for turn in turns]
        running, waiting, _free = self._policy.counts()
        records.step_plan_s.append(now_s)
        records.step_plan_s.extend(ends_s[:-1])
        records.step_emit_s.extend(ends_s)
        self._delivery.emit_stretch(ends_s, size)
        for column, value in (
            (records.step_tokens, size),
            (records.step_decode_reqs, size),
            (records.step_preempted, 0),
            (records.step_running, running),
            (records.step_waiting, waiting),
            (records.step_mode, stretch.mode),
            (records.step_padded_tokens, stretch.padded_tokens),
        ):
            column.extend(array("q", (value,)) * count)
        records.step_free_blocks.extend(free)
        records.step_gpu_s.extend(stretch.gpu_s[:count])
