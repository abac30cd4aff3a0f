"""The engine's gauges as step functions of time: running, waiting, KV use.  O(steps + requests).

A step's row holds the state after it was planned; it lasts until the next plan.  When the outputs of a step leave no
request in the engine, the state is empty from then on, although no plan says so.  KV use is vLLM's
``1 - free / (blocks - 1)``: one block is the null block (not in V0), cached blocks without a user count as free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.records import Records, Status
from simulator.swap_records import SwapRecords

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StepFunction:
    """``values[i]`` from ``times_s[i]`` on; 0 before the first time.  Times never descend."""

    times_s: Floats
    values: Floats

    def at(self, times_s: Floats) -> Floats:
        """Return the value at each of *times_s* (a change at that very time counts)."""
        index = np.searchsorted(self.times_s, times_s, side="right")
        return np.concatenate(([0.0], self.values))[index]

    def maximum(self) -> float:
        """Return the largest value; 0 if there is none."""
        return float(self.values.max(initial=0.0))

    def mean(self, start_s: float, end_s: float) -> float:
        """Return the mean over the time from *start_s* to *end_s*; 0 for no time."""
        if end_s <= start_s:
            return 0.0
        edges = np.clip(np.append(self.times_s, end_s), start_s, end_s)
        return float(np.dot(self.values, np.diff(edges)) / (end_s - start_s))


def _changes(records: Records, column: ArrayLike) -> StepFunction:
    """Return *column* over time, 0 whenever the engine is empty."""
    plan = np.asarray(records.step_plan_s, dtype=np.float64)
    emit = np.asarray(records.step_emit_s, dtype=np.float64)
    values = np.asarray(column, dtype=np.float64)
    idle = _empty_after(records, plan)[: len(emit)]
    later = min(len(plan) - 1, len(emit)) if len(plan) else 0  # steps that another one follows
    idle[:later] &= plan[1 : later + 1] > emit[:later]
    empty = np.flatnonzero(idle)
    if not len(empty):
        return StepFunction(plan, values)
    places = np.searchsorted(plan, emit[empty], side="right")
    return StepFunction(np.insert(plan, places, emit[empty]), np.insert(values, places, 0.0))


def _empty_after(records: Records, plan: Floats) -> NDArray[np.bool_]:
    """Return for each step whether its outputs left no request in the engine: all that had begun have ended."""
    begun = np.asarray(records.first_scheduled_s, dtype=np.float64)
    first_step = np.searchsorted(plan, begun[~np.isnan(begun)], side="right") - 1
    last_step = np.full(records.num_requests, -1, dtype=np.int64)
    runs = np.asarray(records.run_request, dtype=np.int64)
    ends = np.asarray(records.run_first_step, dtype=np.int64) + np.asarray(records.run_steps, dtype=np.int64) - 1
    np.maximum.at(last_step, runs, ends)
    finished = np.isin(np.asarray(records.status, dtype=np.uint8), (Status.FINISHED, Status.IGNORED))
    change = np.zeros(len(plan) + 1, dtype=np.int32)
    np.add.at(change, np.maximum(first_step, 0), 1)
    np.add.at(change, last_step[finished & (last_step >= 0)], -1)
    return np.asarray(np.cumsum(change, out=change)[: len(plan)] == 0)


def running(records: Records) -> StepFunction:
    """Return requests in the running list over time."""
    if records.parts:
        return total([running(part) for _, part in records.parts])
    return _changes(records, records.step_running)


def waiting(records: Records) -> StepFunction:
    """Return requests that wait in the engine over time."""
    if records.parts:
        return total([waiting(part) for _, part in records.parts])
    return _changes(records, records.step_waiting)


def usage(records: Records) -> StepFunction:
    """Return the used share of the KV cache over time, 0..1; of all caches if there are several replicas."""
    if records.parts:
        used = total([usage(part) for _, part in records.parts])
        return StepFunction(used.times_s, used.values / len(records.parts))
    blocks = max(1, records.usable_blocks or records.num_gpu_blocks - 1)
    return _used_share(records, records.step_free_blocks, blocks)


def total(functions: Sequence[StepFunction]) -> StepFunction:
    """Return the sum of step functions."""
    times_s = np.concatenate([one.times_s for one in functions])
    changes = np.concatenate([np.diff(one.values, prepend=0.0) for one in functions])
    order = np.argsort(times_s, kind="stable")
    return StepFunction(times_s[order], np.cumsum(changes[order]))


def _used_share(records: Records, free_blocks: Sequence[int], total: int) -> StepFunction:
    share = np.asarray(free_blocks, dtype=np.float64) / total
    return _changes(records, np.subtract(1.0, share, out=share))


def swapped(records: Records, swap: SwapRecords) -> StepFunction:
    """Return V0's requests whose KV lies on the CPU over time."""
    return _changes(records, swap.step_swapped)


def cpu_usage(records: Records, swap: SwapRecords) -> StepFunction:
    """Return the used share of V0's swap space over time, 0..1."""
    return _used_share(records, swap.step_free_cpu_blocks, max(1, swap.num_cpu_blocks))
