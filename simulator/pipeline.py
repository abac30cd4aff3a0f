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

from collections import deque


class Pipeline:
    """Plans in flight on one engine; all times in seconds on one clock."""

    __slots__ = ("_ends", "cpu_free_s", "depth", "gpu_end_s")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.cpu_free_s = 0.0
        self.gpu_end_s = 0.0
        self._ends: deque[float] = deque()

    @property
    def in_flight(self) -> int:
        """Plans launched whose results were not taken."""
        return len(self._ends)

    def gpu_idle(self, now_s: float) -> bool:
        """Whether the GPU has nothing to do at *now_s*."""
        return self.gpu_end_s <= now_s

    def launch(
        self, now_s: float, schedule_s: float, launch_s: float, start_s: float, gpu_s: float, tail_s: float
    ) -> float:
        """Plan a step at *now_s* and launch it; return when the launch ends (the CPU is blocked until then)."""
        launch_start_s = now_s + schedule_s
        launch_end_s = launch_start_s + launch_s
        gpu_start_s = max(self.gpu_end_s, launch_start_s + start_s)
        self.gpu_end_s = max(gpu_start_s + gpu_s, launch_end_s + tail_s)
        self.cpu_free_s = launch_end_s
        self._ends.append(self.gpu_end_s)
        return launch_end_s

    def result_ready_s(self) -> float:
        """When the host can see the oldest result in flight."""
        return max(self._ends[0], self.cpu_free_s)

    def pop(self, now_s: float) -> None:
        """Take the oldest result; its update ends at *now_s*."""
        self._ends.popleft()
        self.cpu_free_s = now_s
