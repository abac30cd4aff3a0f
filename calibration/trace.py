"""One run as steps and requests, in one form for both sides: simulated records and recorded steps.

Steps, by the engine's clock: plan (start of schedule()), emit (end of update_from_output()), graph mode, tokens,
decodes; running, waiting and free blocks after the plan.  Requests, one row per completed request: when it was sent,
the plan of its first chunk, the plan and the emission of the step that yielded its first token, and what the client
saw.  Seconds from the first send; NaN where a recording does not tell.

A recording names no requests, so its prefill chunks are joined to prompts (a chunk goes on where the chunk before it
ended) and prompts are matched with requests: the oldest one sent before the plan that has this length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.recording import Floats, Ints, Sent
from simulator.records import Records, Status


@dataclass(frozen=True, eq=False)
class StepColumns:
    """Steps in order; see the module text."""

    plan_s: Floats
    emit_s: Floats
    mode: Ints
    tokens: Ints
    decode_reqs: Ints
    running: Ints
    waiting: Ints
    free_blocks: Ints
    preempted: Ints

    def __len__(self) -> int:
        return len(self.plan_s)

    @property
    def has_prefill(self) -> NDArray[np.bool_]:
        """Whether a step computes prompt tokens."""
        return np.asarray(self.tokens > self.decode_reqs)


@dataclass(frozen=True, eq=False)
class RequestColumns:
    """Completed requests; ``first_step`` is the step that yielded the first token, -1 if unknown."""

    sent_s: Floats
    first_plan_s: Floats
    first_step: Ints
    first_token_s: Floats
    last_token_s: Floats
    output_tokens: Ints

    def __len__(self) -> int:
        return len(self.sent_s)


@dataclass(frozen=True, eq=False)
class Trace:
    """One side of a comparison."""

    steps: StepColumns
    requests: RequestColumns
    num_gpu_blocks: int
    end_s: float

    @property
    def matched(self) -> NDArray[np.bool_]:
        """Requests whose way through the engine is known."""
        return self.requests.first_step >= 0


def of_records(records: Records) -> Trace:
    """Return the trace of a simulation."""
    integers = {name: np.asarray(getattr(records, f"step_{name}"), dtype=np.int64) for name in _STATE}
    plan, emit = (np.asarray(getattr(records, f"step_{name}_s"), dtype=np.float64) for name in ("plan", "emit"))
    first = np.full(records.num_requests, records.num_steps, dtype=np.int64)
    np.minimum.at(first, np.asarray(records.run_request, dtype=np.int64), np.asarray(records.run_first_step, np.int64))
    done = np.asarray(records.status, dtype=np.uint8) == Status.FINISHED
    sent = np.asarray(records.sent_s)[done]
    zero = float(sent.min()) if len(sent) else 0.0
    requests = RequestColumns(
        sent_s=sent - zero,
        first_plan_s=np.asarray(records.first_scheduled_s)[done] - zero,
        first_step=first[done],
        first_token_s=np.asarray(records.first_token_s)[done] - zero,
        last_token_s=np.asarray(records.last_token_s)[done] - zero,
        output_tokens=np.asarray(records.output_tokens, dtype=np.int64)[done],
    )
    steps = StepColumns(plan_s=plan - zero, emit_s=emit - zero, **integers)
    return Trace(steps, requests, records.num_gpu_blocks, records.end_s - zero)


_STATE = ("mode", "tokens", "decode_reqs", "running", "waiting", "free_blocks", "preempted")


def of_recorded(
    steps: StepColumns, chunks: Sequence[Sequence[Sequence[int]]], sent: Sent, num_gpu_blocks: int
) -> Trace:
    """Return the trace of recorded *steps* (on the clock of *sent*); *chunks*: prefill chunks by step."""
    zero = float(sent.sent_s.min())
    first_plan, first_step = _matched(steps, chunks, sent)
    shifted = StepColumns(steps.plan_s - zero, steps.emit_s - zero, *(getattr(steps, name) for name in _STATE))
    requests = RequestColumns(
        sent_s=sent.sent_s - zero,
        first_plan_s=first_plan - zero,
        first_step=first_step,
        first_token_s=sent.first_token_s - zero,
        last_token_s=sent.last_token_s - zero,
        output_tokens=sent.output_tokens,
    )
    return Trace(shifted, requests, num_gpu_blocks, float(sent.last_token_s.max()) - zero)


def _matched(steps: StepColumns, chunks: Sequence[Sequence[Sequence[int]]], sent: Sent) -> tuple[Floats, Ints]:
    """Return, by request, the plan time of its first chunk and the step of its last one; NaN and -1 if not found."""
    first_plan, last_step = np.full(len(sent.sent_s), np.nan), np.full(len(sent.sent_s), -1, dtype=np.int64)
    waiting: dict[int, list[int]] = {}
    for row in np.argsort(sent.sent_s, kind="stable").tolist():
        waiting.setdefault(int(sent.prompt_tokens[row]), []).append(row)
    for prompt_tokens, first, last in _prompts(chunks):
        rows = waiting.get(prompt_tokens, [])
        if rows and sent.sent_s[rows[0]] <= steps.plan_s[first]:
            row = rows.pop(0)
            first_plan[row], last_step[row] = steps.plan_s[first], last
    return first_plan, last_step


def _prompts(chunks: Sequence[Sequence[Sequence[int]]]) -> Iterator[tuple[int, int, int]]:
    """Yield (length, first step, last step) of every prompt, in the order of their last steps.

    A prompt ends when the next step does not go on with it; two that could both be meant go on in order.
    """
    unfinished: list[tuple[int, int]] = []  # (tokens computed, first step)
    for step, planned in enumerate([*chunks, []]):
        going_on: list[tuple[int, int]] = []
        for tokens, context in planned:
            found = next((k for k, (computed, _) in enumerate(unfinished) if context and computed == context), None)
            first = unfinished.pop(found)[1] if found is not None else step
            going_on.append((context + tokens, first))
        for computed, first in unfinished:
            yield computed, first, step - 1
        unfinished = going_on
