"""What happened, in columns: one row per engine step, one row per request, and who received tokens in which steps.

Records hold facts; every metric is derived from them in `simulator.metrics`.  Times are seconds on the clock of the
simulation (0 = start), lengths tokens, memory blocks.

Tokens are not stored one by one.  A *run* ``(request, first_step, steps)`` says that the request received exactly one
token in each of the consecutive steps ``first_step .. first_step + steps - 1``; a pause (preemption, a step in which it
was left out) begins a new run.  Memory grows with steps and runs, not with tokens.

Two clocks meet here: the engine's (``step_plan_s``, ``step_emit_s``, ``engine_arrival_s``, ``first_scheduled_s``) and
the client's, later by the front end (``sent_s``, ``step_deliver_s``, ``first_token_s``, ``last_token_s``).
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from simulator.offload_records import OffloadRecords
from simulator.swap_records import SwapRecords

Floats = NDArray[np.float64]


#: Counts fit into 32 bits; with hour-long traces the columns of steps are most of the memory.
INTEGERS = "i"


class Status(IntEnum):
    """How a request ended; values of ``Records.status``."""

    UNFINISHED = 0
    FINISHED = 1
    REJECTED = 2  # can never be scheduled
    DROPPED = 3  # left out before the run
    IGNORED = 4  # V0: ended by the engine without an error, because it can never run (again)


def _doubles() -> array[float]:
    return array("d")


def _integers() -> array[int]:
    return array(INTEGERS)


@dataclass(slots=True, eq=False)
class Records:
    """Columns of one simulation; mutable while it runs.

    Attributes
    ----------
    step_plan_s: start of schedule().
    step_emit_s: the engine's time stamp of the step's outputs: end of update().
    step_deliver_s: when the step's tokens (other than first ones) reach the client; never descends.  A token that would
        overtake its request's first one arrives together with it.
    step_running, step_waiting, step_free_blocks: state after the step was planned; requests, requests, blocks.
    step_tokens, step_decode_reqs, step_preempted: tokens scheduled, requests that decode, requests thrown out.
    step_mode: CUDA graph mode 0 none, 1 piecewise, 2 full.
    step_padded_tokens, step_gpu_s: tokens after padding, time on the GPU in seconds.
    sent_s: when the client sent the request; nan if it never did.
    engine_arrival_s, first_scheduled_s: entry to the engine's queue, start of its first step; nan if none.
    first_token_s, last_token_s: at the client; nan if none.
    output_tokens, prompt_tokens: delivered tokens, tokens of the prompt.
    preemptions: how often the request was thrown out.
    cached_tokens: prefix-cache hits at its first admission.
    recomputed_tokens: tokens computed again after preemptions.
    status: see `Status`.
    run_request, run_first_step, run_steps: the runs (module text), in any order; those of one request ascend in time.
    prefix_queries_tokens, prefix_hits_tokens: tokens looked up and found, as vLLM's counters count them.
    start_s, end_s: before the first request is sent, after the last response.
    usable_blocks: blocks that requests can hold: V1 keeps one of ``num_gpu_blocks`` as its null block, V0 none.
    died, died_s: why and when the engine stopped before its work was done, in vLLM's words; empty, nan if it did not.
    swap, offload: what only V0's swapping and V1's KV offload have; None without.
    parts: of several replicas: the rows of each, and its own records; then the columns by step and by run are empty.
    """

    num_gpu_blocks: int = 0
    block_size: int = 16
    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    start_s: float = 0.0
    end_s: float = 0.0
    usable_blocks: int = 0
    died: str = ""
    died_s: float = float("nan")
    swap: SwapRecords | None = None
    offload: OffloadRecords | None = None
    parts: tuple[tuple[NDArray[np.int64], Records], ...] = ()

    step_plan_s: array[float] = field(default_factory=_doubles)
    step_emit_s: array[float] = field(default_factory=_doubles)
    step_deliver_s: array[float] = field(default_factory=_doubles)
    step_running: array[int] = field(default_factory=_integers)
    step_waiting: array[int] = field(default_factory=_integers)
    step_free_blocks: array[int] = field(default_factory=_integers)
    step_tokens: array[int] = field(default_factory=_integers)
    step_decode_reqs: array[int] = field(default_factory=_integers)
    step_preempted: array[int] = field(default_factory=_integers)
    step_mode: array[int] = field(default_factory=lambda: array("b"))
    step_padded_tokens: array[int] = field(default_factory=_integers)
    step_gpu_s: array[float] = field(default_factory=_doubles)

    sent_s: array[float] = field(default_factory=_doubles)
    engine_arrival_s: array[float] = field(default_factory=_doubles)
    first_scheduled_s: array[float] = field(default_factory=_doubles)
    first_token_s: array[float] = field(default_factory=_doubles)
    last_token_s: array[float] = field(default_factory=_doubles)
    output_tokens: array[int] = field(default_factory=_integers)
    prompt_tokens: array[int] = field(default_factory=_integers)
    preemptions: array[int] = field(default_factory=_integers)
    cached_tokens: array[int] = field(default_factory=_integers)
    recomputed_tokens: array[int] = field(default_factory=_integers)
    status: array[int] = field(default_factory=lambda: array("B"))

    run_request: array[int] = field(default_factory=_integers)
    run_first_step: array[int] = field(default_factory=_integers)
    run_steps: array[int] = field(default_factory=_integers)

    @classmethod
    def for_requests(
        cls, prompt_tokens: NDArray[np.int64], *, num_gpu_blocks: int, block_size: int, null_blocks: int = 1
    ) -> Records:
        """Return records with one unfinished row per prompt length: times nan, counts 0, no steps."""
        n = len(prompt_tokens)
        times = {name: array("d", [np.nan]) * n for name in REQUEST_TIMES}
        counts = {name: array(INTEGERS, [0]) * n for name in REQUEST_COUNTS}
        counts["prompt_tokens"] = array(INTEGERS, prompt_tokens.astype(np.int32).tobytes())
        status = array("B", [Status.UNFINISHED]) * n
        return cls(
            num_gpu_blocks=num_gpu_blocks,
            block_size=block_size,
            usable_blocks=num_gpu_blocks - null_blocks,
            status=status,
            **times,  # type: ignore[arg-type]
            **counts,  # type: ignore[arg-type]
        )

    def append_request(self, prompt_tokens: int) -> None:
        """Add a row for one more request, unfinished."""
        for name in REQUEST_TIMES:
            getattr(self, name).append(math.nan)
        for name in REQUEST_COUNTS:
            getattr(self, name).append(prompt_tokens if name == "prompt_tokens" else 0)
        self.status.append(Status.UNFINISHED)
        if self.offload is not None:
            self.offload.append_request()

    @property
    def num_requests(self) -> int:
        """Rows of the request columns."""
        return len(self.status)

    @property
    def num_steps(self) -> int:
        """Rows of the step columns."""
        return len(self.step_plan_s)

    def token_times(self, r: int) -> Floats:
        """Return when each token of request *r* reached the client, in seconds; empty if none did.  O(runs)."""
        mine = np.flatnonzero(np.asarray(self.run_request) == r)
        deliver = np.asarray(self.step_deliver_s, dtype=np.float64)
        pieces = [deliver[self.run_first_step[k] : self.run_first_step[k] + self.run_steps[k]] for k in mine]
        if not pieces:
            return np.zeros(0)
        times = np.maximum(np.concatenate(pieces), self.first_token_s[r])
        times[0] = self.first_token_s[r]
        return times


#: Request columns by type, for building and for tables.
REQUEST_TIMES = ("sent_s", "engine_arrival_s", "first_scheduled_s", "first_token_s", "last_token_s")
REQUEST_COUNTS = ("output_tokens", "prompt_tokens", "preemptions", "cached_tokens", "recomputed_tokens")
STEP_COLUMNS = (
    "step_plan_s", "step_emit_s", "step_deliver_s", "step_running", "step_waiting", "step_free_blocks", "step_tokens",
    "step_decode_reqs", "step_preempted", "step_mode", "step_padded_tokens", "step_gpu_s",
)  # fmt: skip
