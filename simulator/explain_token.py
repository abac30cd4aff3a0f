"""Why a token was late: the gap before it at the client, and what the engine did in that time.

The gap between token n - 1 and n is (time between the outputs of their two steps) + (difference of their deliveries).
Causes are told by facts of the steps in between, in this order:

    preempted     the request was thrown out; it waited and its tokens were computed again
    left out      it was not in the plan of at least one step (budget, or nothing to plan)
    mixed step    the step also computed prompts of others (or their tokens after a preemption)
    graph         the step ran in another CUDA-graph mode than most decode steps
    next launch   its result lay ready while the CPU launched the next plan, one with prompts or without the usual graph
    front end     most of the gap is delivery
    step          none of these: the usual time of such a step and its noise
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.records import Records, Status
from simulator.watch import Chunks

Floats = NDArray[np.float64]

MODES = {0: "no CUDA graph", 1: "a piecewise CUDA graph", 2: "a full CUDA graph"}


@dataclass(frozen=True)
class LateToken:
    """One gap.

    Attributes
    ----------
    request, token: token number *token* (1 is the first) of *request*.
    gap_s, engine_s, delivery_s: gap at the client = time between the outputs + difference of deliveries.
    usual_s: median gap of tokens of pure decode steps in this run; nan if there are none.
    cause: one of the module text.
    step, tokens, decode_reqs, gpu_s, mode: the step that yielded the token; next_tokens, next_mode: of *next launch*.
    prefill: tokens of others computed since the token before (*next launch*: by that next step), by request, most
        first; empty if not known.
    recomputed_tokens, preempted_step: of this request, if it was thrown out in between; else 0 and -1.
    """

    request: int
    token: int
    gap_s: float
    engine_s: float
    delivery_s: float
    usual_s: float
    cause: str
    step: int
    tokens: int
    decode_reqs: int
    gpu_s: float
    mode: int
    prefill: dict[int, int] = field(default_factory=dict)
    recomputed_tokens: int = 0
    preempted_step: int = -1
    next_tokens: int = 0
    next_mode: int = -1


def late_token(records: Records, request: int, token: int, chunks: Chunks | None) -> LateToken:
    """Explain the gap before token number *token* (from 2 on) of *request*; ValueError if there is no such token."""
    steps, times = token_steps(records, request), records.token_times(request)
    if not 2 <= token <= len(steps):
        raise ValueError(f"request {request} has {len(steps)} tokens; a gap lies before tokens 2 to {len(steps)}")
    before, step = int(steps[token - 2]), int(steps[token - 1])
    gap_s = float(times[token - 1] - times[token - 2])
    engine_s = records.step_emit_s[step] - records.step_emit_s[before]
    prefill, own, thrown = _meanwhile(chunks, request, before, step)
    usual_s, usual_mode = _usual(records)
    facts = {
        "preempted": thrown >= 0 or own > 0,
        "left out": step > before + 1,
        "mixed step": records.step_tokens[step] > records.step_decode_reqs[step],
        "graph": usual_mode >= 0 and records.step_mode[step] != usual_mode,
        "next launch": _held_by_the_next(records, step, engine_s, usual_mode),
        "front end": gap_s - engine_s > engine_s,
    }
    cause = next((name for name, holds in facts.items() if holds), "step")
    after = (0, -1)
    if cause == "next launch":
        after = (records.step_tokens[step + 1], records.step_mode[step + 1])
        prefill = {} if chunks is None else chunks.between(step + 1, step + 2)
    return LateToken(
        request, token, gap_s, engine_s, gap_s - engine_s, usual_s, cause, step, records.step_tokens[step],
        records.step_decode_reqs[step], records.step_gpu_s[step], records.step_mode[step], prefill, own, thrown, *after,
    )  # fmt: skip


def _held_by_the_next(records: Records, step: int, engine_s: float, usual_mode: int) -> bool:
    """Did the launch of an unusual next plan keep the CPU from the result of *step* for longer than its GPU time?

    With asynchronous scheduling the CPU plans and launches step n + 1 before it takes the result of step n.
    """
    after = step + 1
    if after >= len(records.step_plan_s) or records.step_plan_s[after] >= records.step_emit_s[step]:
        return False
    unusual = records.step_tokens[after] > records.step_decode_reqs[after] or records.step_mode[after] != usual_mode
    return unusual and engine_s > 2 * records.step_gpu_s[step]


def _meanwhile(chunks: Chunks | None, request: int, before: int, step: int) -> tuple[dict[int, int], int, int]:
    """Return prompts of others computed after step *before* up to *step*, own tokens again, and the preempting step."""
    if chunks is None:
        return {}, 0, -1
    served = chunks.between(before + 1, step + 1)
    own = served.pop(request, 0)
    thrown = chunks.preempted_step[chunks.preempted_request == request]
    inside = thrown[(thrown > before) & (thrown <= step)]
    return served, own, int(inside[0]) if len(inside) else -1


def _usual(records: Records) -> tuple[float, int]:
    """Return the median time between the outputs of two steps where the later one only decodes, and its usual mode."""
    tokens, decodes, mode = (
        np.asarray(column, dtype=np.int64)
        for column in (records.step_tokens, records.step_decode_reqs, records.step_mode)
    )
    emit = np.asarray(records.step_emit_s, dtype=np.float64)
    pure = (tokens == decodes) & (decodes > 0)
    busy = np.append(False, np.asarray(records.step_plan_s)[1:] <= emit[:-1] + 1e-3) if len(emit) else pure
    gaps = np.diff(emit, prepend=np.nan)[pure & busy]
    usual_mode = int(np.bincount(mode[pure]).argmax()) if pure.any() else -1
    return (float(np.median(gaps)) if len(gaps) else float("nan")), usual_mode


def token_steps(records: Records, request: int) -> NDArray[np.int64]:
    """Return the step of each token of *request*, in order."""
    rows = np.flatnonzero(np.asarray(records.run_request, dtype=np.int64) == request)
    runs = sorted((records.run_first_step[row], records.run_steps[row]) for row in rows)
    return np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(first, first + steps) for first, steps in runs)])


def worst_gap(records: Records, request: int | None = None) -> tuple[int, int] | None:
    """Return (request, token) with the longest gap before it, of *request* or of all completed ones; None without."""
    worst: tuple[float, int, int] = (-1.0, -1, -1)
    if request is not None:
        times = {request: records.token_times(request)}
    else:
        from simulator.token_times import token_times

        done = np.asarray(records.status, dtype=np.uint8) == Status.FINISHED
        times = {row: one for row, one in enumerate(token_times(records)) if done[row]}
    for row, one in times.items():
        if len(one) > 1:
            gaps = np.diff(one)
            longest = int(gaps.argmax())
            worst = max(worst, (float(gaps[longest]), row, longest + 2), key=lambda found: found[0])
    return None if worst[1] < 0 else worst[1:]
