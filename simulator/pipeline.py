"""The two time lines of the engine loop, CPU and GPU, as arithmetic.

    CPU: schedule(n) -> launch(n), which blocks -> if fewer than ``depth`` plans are in flight, again;
         else wait for the oldest result -> update -> drain the input -> loop
    GPU: start(n) = max(end(n-1), launch_start(n) + start_s)
         end(n)   = max(start(n) + gpu(n), launch_end(n) + tail(n))

The host can see step n at max(end(n), the moment the CPU is free): a plan launched meanwhile holds step n's tokens
back until its own launch has ended.  Depth 2 is asynchronous scheduling, depth 1 synchronous.  Source: EngineCore.step
and step_with_batch_queue of vLLM 0.24, recorded steps.  Not modelled: pipeline parallelism.
"""

from __future__ import annotations

import math
from collections import deque

#: A loop that goes on after less than this has not slept: times of one moment may differ by rounding.
MOMENT_S = 1e-6

#: (end of the turn, end of its step on the GPU, end of its launch) and (schedule, start latency, tail, update).
Turn = tuple[float, float, float]
FixedTimes = tuple[float, float, float, float]


class Pipeline:
    """Plans in flight on one engine; all times in seconds on one clock."""

    __slots__ = ("_ends", "_tail_s", "cpu_free_s", "depth", "gpu_end_s")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.cpu_free_s = -math.inf
        self.gpu_end_s = 0.0
        self._tail_s = 0.0
        self._ends: deque[float] = deque()

    @property
    def in_flight(self) -> int:
        """Plans launched whose results were not taken."""
        return len(self._ends)

    def gpu_idle(self, now_s: float) -> bool:
        """Whether nothing is in flight at *now_s* and the loop has been asleep since its last turn.

        Launches are slower then.  A synchronous engine finds the GPU idle each turn, but has not slept.
        """
        return not self._ends and now_s > self.cpu_free_s + MOMENT_S

    def launch(
        self, now_s: float, schedule_s: float, launch_s: float, start_s: float, gpu_s: float, tail_s: float
    ) -> float:
        """Plan a step at *now_s* and launch it; return when the launch ends (the CPU is blocked until then)."""
        launch_start_s = now_s + schedule_s
        launch_end_s = launch_start_s + launch_s
        gpu_start_s = max(self.gpu_end_s, launch_start_s + start_s)
        self.gpu_end_s = max(gpu_start_s + gpu_s, launch_end_s + tail_s)
        self.cpu_free_s = launch_end_s
        self._tail_s = tail_s
        self._ends.append(self.gpu_end_s)
        return launch_end_s

    def is_launching(self, now_s: float) -> bool:
        """Whether the CPU is in the launch of the newest plan at *now_s*."""
        return bool(self._ends) and now_s < self.cpu_free_s

    def prolong_launch(self, seconds: float) -> float:
        """The launch in progress takes *seconds* longer (an arriving request needs the CPU); return when it ends."""
        self.cpu_free_s += seconds
        self.gpu_end_s = self._ends[-1] = max(self._ends[-1], self.cpu_free_s + self._tail_s)
        return self.cpu_free_s

    def result_ready_s(self) -> float:
        """When the host can see the oldest result in flight."""
        return max(self._ends[0], self.cpu_free_s)

    def pop(self, now_s: float) -> None:
        """Take the oldest result; its update ends at *now_s*."""
        self._ends.popleft()
        self.cpu_free_s = now_s

    def run_ahead(
        self,
        now_s: float,
        gpu_s: list[float],
        launch_s: list[float],
        fixed_s: FixedTimes,
        until_s: float,
        first_update_s: float,
    ) -> list[Turn]:
        """Return how a stretch of steps would go, as long as their turns end before *until_s*; `commit` makes it so.

        The loop stands just before planning, at *now_s*, with ``depth - 1`` plans in flight.  A turn is (its end: when
        the result it waited for has been taken in, end of its step on the GPU, end of its launch); with depth 2 it
        waits for the step before its own.  *fixed_s* holds (schedule, start latency, tail, update); the first turn's
        update takes *first_update_s*.
        """
        schedule_s, start_s, tail_s, later_update_s = fixed_s
        update_s = first_update_s
        gpu_end_s, overlapped = self.gpu_end_s, self.depth > 1
        awaited_s = self._ends[0] if overlapped else 0.0
        turns: list[Turn] = []
        for gpu, launch in zip(gpu_s, launch_s, strict=True):  # conditionals: max() would take half of the time
            launch_start_s = now_s + schedule_s
            launch_end_s = launch_start_s + launch
            kernels_s = launch_start_s + start_s
            end_s = (gpu_end_s if gpu_end_s > kernels_s else kernels_s) + gpu
            if end_s < launch_end_s + tail_s:
                end_s = launch_end_s + tail_s
            if not overlapped:
                awaited_s = end_s
            ready_s = (awaited_s if awaited_s > launch_end_s else launch_end_s) + update_s
            now_s += ready_s - now_s  # which is not always ready_s: the last bit as the clock has it
            if now_s >= until_s:
                break
            turns.append((now_s, end_s, launch_end_s))
            update_s = later_update_s
            gpu_end_s = awaited_s = end_s
        return turns

    def commit(self, last: Turn) -> None:
        """Take over the state after the turn *last* of a stretch."""
        self.cpu_free_s, self.gpu_end_s, _launch_end_s = last
        if self.depth > 1:
            self._ends[0] = self.gpu_end_s
