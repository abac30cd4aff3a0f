"""Why TTFT is what it is: the time from sending a request to its first token, cut into parts that add up to it.

    front end            sent -> the engine's queue
    step in progress     until the next plan is made: the engine is busy with the step before
    queue: ...           from plan to plan, by what kept those waiting out of each (see `Reason`)
    prefill              first chunk -> the step of the last one is planned
    step before          async scheduling plans one step ahead: the step before is still running
    own last step        until the first token leaves the engine
    delivery             engine -> client

Edges are those of the records (plan and emit times of steps, times of requests), so the parts add up exactly but for
rounding.  A request that is preempted before its first token has the waiting in its prefill part.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from simulator.engine_config import EngineConfig
from simulator.records import Records, Status

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Reason(StrEnum):
    """What kept waiting requests out of a plan."""

    preempting = "queue: the step threw requests out, so it admitted nobody"
    seqs = "queue: all max_num_seqs places were taken"
    budget = "queue: the token budget of the step was used up"
    blocks = "queue: too few free KV blocks"


#: The parts in order of time; the queue's by reason.
PARTS = (
    "front end", "step in progress", *(reason.value for reason in Reason), "prefill", "step before", "own last step",
    "delivery",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class FirstTokens:
    """TTFT of every completed request, in parts.

    Attributes
    ----------
    request: (n,) rows of the workload.
    ttft_s: (n,) what the clients saw.
    parts_s: by name of `PARTS`, (n,) seconds; their sum is ttft_s.
    first_wait_step, first_step, last_step: (n,) first plan that could have served the request, plan of its first chunk,
        step that yielded its first token.
    """

    request: Ints
    ttft_s: Floats
    parts_s: dict[str, Floats]
    first_wait_step: Ints
    first_step: Ints
    last_step: Ints

    def row(self, request: int) -> int:
        """Return where *request* stands; ValueError if it has no first token."""
        found = np.flatnonzero(self.request == request)
        if not len(found):
            raise ValueError(f"request {request} was not completed")
        return int(found[0])

    def mean(self, rows: NDArray[np.intp] | None = None) -> dict[str, float]:
        """Return the mean of each part in seconds over *rows* (all if None)."""
        return {name: float(np.mean(values if rows is None else values[rows])) for name, values in self.parts_s.items()}


def first_tokens(records: Records, engine: EngineConfig) -> FirstTokens:
    """Return the parts of all completed requests.  O(steps + requests log steps)."""
    done = np.flatnonzero(np.asarray(records.status, dtype=np.uint8) == Status.FINISHED)
    sent, queued, scheduled, seen = (
        np.asarray(getattr(records, name), dtype=np.float64)[done]
        for name in ("sent_s", "engine_arrival_s", "first_scheduled_s", "first_token_s")
    )
    plan, emit = (np.asarray(column, dtype=np.float64) for column in (records.step_plan_s, records.step_emit_s))
    first = np.searchsorted(plan, scheduled, side="left")
    wait = np.minimum(np.searchsorted(plan, queued, side="left"), first)
    last = _first_token_steps(records)[done]
    parts = {"front end": queued - sent, "step in progress": np.maximum(plan[wait] - queued, 0.0)}
    begin = np.maximum(plan[wait], queued)
    kept_out = _reasons(records, engine)
    gaps = np.diff(plan, append=plan[-1:])
    for reason in Reason:
        upto = np.concatenate(([0.0], np.cumsum(np.where(kept_out == reason.value, gaps, 0.0))))
        parts[reason.value] = upto[first] - upto[wait]
    running_before = np.concatenate(([-np.inf], emit))[last]  # when the step before the last one is done
    turn = np.clip(running_before, plan[last], emit[last])
    parts |= {
        "prefill": plan[last] - plan[first],
        "step before": turn - plan[last],
        "own last step": emit[last] - turn,
        "delivery": seen - emit[last],
    }
    # Cumulated sums round; what they miss belongs to the largest of the queue's parts.
    queue = np.array([parts[reason.value] for reason in Reason])
    missing = plan[first] - begin - queue.sum(axis=0)
    for number, reason in enumerate(Reason):
        parts[reason.value] = parts[reason.value] + np.where(queue.argmax(axis=0) == number, missing, 0.0)
    return FirstTokens(done, seen - sent, parts, wait, first, last)


def _first_token_steps(records: Records) -> Ints:
    steps = np.full(records.num_requests, max(records.num_steps - 1, 0), dtype=np.int64)
    request, first = (np.asarray(column, dtype=np.int64) for column in (records.run_request, records.run_first_step))
    np.minimum.at(steps, request, first)
    return steps


def _reasons(records: Records, engine: EngineConfig) -> NDArray[np.str_]:
    """Return for each step what kept those out who waited on, in the order in which the scheduler asks."""
    preempted, running, tokens = (
        np.asarray(getattr(records, f"step_{name}"), dtype=np.int64) for name in ("preempted", "running", "tokens")
    )
    full = tokens >= engine.max_num_batched_tokens
    if (
        not engine.enable_chunked_prefill
    ):  # a prompt that does not fit the rest of the budget waits for a step of its own
        full = np.ones(len(tokens), dtype=bool)
    conditions = [preempted > 0, running >= engine.max_num_seqs, full]
    return np.select(conditions, [Reason.preempting.value, Reason.seqs.value, Reason.budget.value], Reason.blocks.value)
