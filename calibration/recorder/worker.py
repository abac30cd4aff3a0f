"""A worker that runs as vLLM's own does and records GPU times with CUDA events, read steps later, never waited for.

One JSON line a step of rank 0: n step, h0, h1 host times (``time.monotonic`` s) around the launch, g seconds on the GPU
from its first to its last kernel (sampling included, waiting for launches too), gap seconds between the end of the step
before and the start of this one, o seconds spent on recording this.  g and gap are missing where there is no GPU.
"""

from __future__ import annotations

import collections
import importlib
import time
from typing import Any

from .scheduler import _STEP
from .steplog import StepLog, logger, prefix

#: Steps whose events may be outstanding; beyond it the oldest are forgotten rather than waited for.
MOST_PENDING = 64


class GpuClock:
    """Events of steps on their way, and their times once the GPU has passed them."""

    def __init__(self, log: StepLog, event: Any | None) -> None:
        self._log, self._event = log, event
        self._count = 0
        self._open: tuple[int, Any, float, float] | None = None
        self._pending: collections.deque[tuple[dict[str, Any], Any, Any]] = collections.deque()
        self._last_end: Any = None
        self._broken = False

    def begin(self, plan: Any) -> None:
        """A step is about to be launched."""
        if not self._broken:
            self._guarded(self._begin, plan)

    def end(self) -> None:
        """The last kernel of the open step has been launched."""
        if self._open is not None and not self._broken:
            self._guarded(self._end)

    def _guarded(self, act: Any, *args: Any) -> None:
        try:
            act(*args)
        except Exception:
            self._broken = True
            logger.exception("servecast: GPU times are not recorded any more; the server goes on without")

    def _begin(self, plan: Any) -> None:
        if self._open is not None:  # a step whose sampling never came
            self._end()
        self._count += 1
        begun = time.monotonic()
        start = self._mark()
        now = time.monotonic()
        self._open = (getattr(plan, _STEP, self._count), start, now, now - begun)

    def _end(self) -> None:
        assert self._open is not None
        (step, start, begun, spent), self._open = self._open, None
        now = time.monotonic()
        record = {"n": step, "h0": round(begun, 6), "h1": round(now, 6), "o": 0.0}
        if start is None:
            self._log.add(record)
            return
        self._pending.append((record, start, self._mark()))
        self._collect()
        record["o"] = round(spent + time.monotonic() - now, 7)

    def _mark(self) -> Any:
        if self._event is None:
            return None
        event = self._event(enable_timing=True)
        event.record()
        return event

    def _collect(self) -> None:
        while self._pending and (self._pending[0][2].query() or len(self._pending) > MOST_PENDING):
            record, start, end = self._pending.popleft()
            if end.query():
                record["g"] = round(start.elapsed_time(end) / 1e3, 7)
                if self._last_end is not None:
                    record["gap"] = round(self._last_end.elapsed_time(start) / 1e3, 7)
                self._last_end = end
                self._log.add(record)


def base_class() -> Any:
    """Return the worker class the platform would use."""
    platform = importlib.import_module("vllm.platforms").current_platform
    if platform.is_cpu():
        return importlib.import_module("vllm.v1.worker.cpu_worker").CPUWorker
    return importlib.import_module("vllm.v1.worker.gpu_worker").Worker


def _clock(worker: Any) -> GpuClock | None:
    path = prefix()
    if path is None or getattr(worker, "rank", 0) != 0:
        return None
    try:
        cuda = importlib.import_module("torch").cuda
        return GpuClock(StepLog(f"{path}.gpu.jsonl"), cuda.Event if cuda.is_available() else None)
    except Exception:
        logger.exception("servecast: GPU times are not recorded; the server goes on without")
        return None


def recording_class(base: Any) -> Any:
    """Return a subclass of a vLLM worker class that records."""

    class Recording(base):  # type: ignore[misc]
        """The worker of the server, recorded."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._servecast = _clock(self)

        def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            clock = self._servecast if scheduler_output.total_num_scheduled_tokens else None
            if clock is not None:
                clock.begin(scheduler_output)
            output = super().execute_model(scheduler_output, *args, **kwargs)
            if clock is not None and output is not None:  # None: sampling follows (0.11.2 and later)
                clock.end()
            return output

    if hasattr(base, "sample_tokens"):

        def sample_tokens(self: Any, *args: Any, **kwargs: Any) -> Any:
            output = super(Recording, self).sample_tokens(*args, **kwargs)
            if self._servecast is not None:
                self._servecast.end()
            return output

        Recording.sample_tokens = sample_tokens
    return Recording


def __getattr__(name: str) -> Any:
    """Make ``RecordingWorker`` when the server asks for it: only then is vLLM imported."""
    if name != "RecordingWorker":
        raise AttributeError(name)
    made = globals()[name] = recording_class(base_class())
    return made
