"""Where the error of a latency arises: both sides cut into the same phases, whose differences add up to the error.

Time to first token, mean over the requests matched on both sides (`calibration.trace`), in ms:

    send to plan     the client's send to the plan of the prompt's first chunk: front end in, wait for the loop, queue
    chunks           from there to the plan of the step that yields the first token; 0 for prompts in one piece
    plan to emit     of that step, by kind of step: with or without decodes, CUDA graph mode
    emit to client   front end out

Time per token after the first, mean over all tokens (long requests weigh more than in TPOT), in ms:

    interval         from the emission before to the token's own, by kind of step: beside prompts (the step or the next
                     one, whose launch holds this one back, computes prompt tokens) or not; compared at equal shares of
                     kinds and decode batches
    which steps      what other shares of kinds and batches make up
    emit to client   the rest: how much more the client's times differ than the engine's

The *effect* of a phase is predicted minus measured.  For a kind of step it is split as share * (p - m) + (p_share -
m_share) * p: the first is the kind's own, the second goes to "which steps".  Exact by construction, not a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.recording import Floats, Ints
from calibration.trace import Trace

MODES = ("no CUDA graph", "piecewise CUDA graph", "full CUDA graph")

TTFT, TOKEN = "ttft", "token"
SEND_TO_PLAN, CHUNKS, PLAN_TO_EMIT, EMIT_TO_CLIENT = "send to plan", "chunks", "plan to emit", "emit to client"
INTERVAL, WHICH_STEPS = "interval", "which steps"


@dataclass(frozen=True)
class Contribution:
    """What one phase adds to the error of a metric; times are means over those who went through it.

    *share*: of the measured requests or tokens that did; *mode* and *mixed* tell the kind of step, None where there is
    none.
    """

    metric: str
    phase: str
    predicted_ms: float | None
    measured_ms: float | None
    effect_ms: float
    share: float = 1.0
    mode: int | None = None
    mixed: bool | None = None

    @property
    def title(self) -> str:
        """The phase and the kind of step in words."""
        if self.phase == PLAN_TO_EMIT and self.mode is not None:
            return f"{self.phase} of {'mixed' if self.mixed else 'prompt-only'} steps, {MODES[self.mode]}"
        if self.phase == INTERVAL:
            return f"{self.phase} of decode steps {'beside prompts' if self.mixed else 'alone'}"
        return self.phase


def contributions(predicted: Sequence[Trace], measured: Trace) -> list[Contribution]:
    """Return the phases of TTFT and of the time per token; *predicted*: one trace a seed, pooled."""
    return [*_first_tokens(predicted, measured), *_later_tokens(predicted, measured)]


# Time to first token --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Firsts:
    """Phases of each request in ms, and the kind of the step that yielded its first token (mode + 3 * mixed)."""

    to_plan: Floats
    chunks: Floats
    to_emit: Floats
    to_client: Floats
    kind: Ints

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> _Firsts:
        """Return the matched requests of *traces*, pooled."""
        columns: list[list[Floats]] = []
        for trace in traces:
            steps, requests, known = trace.steps, trace.requests, trace.matched
            step = requests.first_step[known]
            first_plan, plan, emit = requests.first_plan_s[known], steps.plan_s[step], steps.emit_s[step]
            kind = steps.mode[step] + 3 * (steps.decode_reqs[step] > 0)
            times = (first_plan - requests.sent_s[known], plan - first_plan, emit - plan,
                     requests.first_token_s[known] - emit)  # fmt: skip
            columns.append([*(1e3 * column for column in times), kind.astype(np.float64)])
        to_plan, chunks, to_emit, to_client, kinds = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        return cls(to_plan, chunks, to_emit, to_client, kinds.astype(np.int64))


def _first_tokens(predicted: Sequence[Trace], measured: Trace) -> list[Contribution]:
    ours, theirs = _Firsts.of(predicted), _Firsts.of([measured])
    if not len(ours.kind) or not len(theirs.kind):
        return []
    found = [
        _plain(TTFT, phase, float(mine.mean()), float(his.mean()))
        for phase, mine, his in (
            (SEND_TO_PLAN, ours.to_plan, theirs.to_plan),
            (CHUNKS, ours.chunks, theirs.chunks),
        )
    ]
    kinds = np.union1d(ours.kind, theirs.kind)
    cells = [(ours.to_emit[ours.kind == k], theirs.to_emit[theirs.kind == k]) for k in kinds]
    for kind, (mine, his) in zip(kinds.tolist(), cells, strict=True):
        share = len(his) / len(theirs.kind)
        effect = share * float(mine.mean() - his.mean()) if len(mine) and len(his) else 0.0
        found.append(
            Contribution(TTFT, PLAN_TO_EMIT, _mean(mine), _mean(his), effect, share, kind % 3, mixed=kind >= 3)
        )
    whole = float(ours.to_emit.mean() - theirs.to_emit.mean())
    own = sum(one.effect_ms for one in found if one.phase == PLAN_TO_EMIT)
    found.append(Contribution(TTFT, WHICH_STEPS, None, None, whole - own))
    found.append(_plain(TTFT, EMIT_TO_CLIENT, float(ours.to_client.mean()), float(theirs.to_client.mean())))
    return found


def _plain(metric: str, phase: str, predicted_ms: float, measured_ms: float) -> Contribution:
    return Contribution(metric, phase, predicted_ms, measured_ms, predicted_ms - measured_ms)


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


# Time per token after the first ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Intervals:
    """Intervals between emissions in ms, the tokens that waited for them, and the kind: 64 * beside + log2 batch."""

    interval: Floats
    tokens: Floats
    kind: Ints

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> _Intervals:
        """Return the steps of *traces* with decodes, pooled."""
        intervals, tokens, kinds = [], [], []
        for trace in traces:
            steps = trace.steps
            prompts = steps.has_prefill
            beside = prompts | np.append(prompts[1:], False)
            gap = np.diff(steps.emit_s, prepend=steps.emit_s[:1])
            kept = steps.decode_reqs > 0
            kept[:1] = False
            batch = np.log2(np.maximum(steps.decode_reqs, 1)).astype(np.int64)
            intervals.append(1e3 * gap[kept])
            tokens.append(steps.decode_reqs[kept].astype(np.float64))
            kinds.append((64 * beside + batch)[kept])
        return cls(np.concatenate(intervals), np.concatenate(tokens), np.concatenate(kinds))

    def inside(self, chosen: NDArray[np.bool_]) -> tuple[float, float]:
        """Return (share of the tokens, mean interval of a token in ms) of some steps; (0, 0) if there are none."""
        tokens = float(self.tokens[chosen].sum())
        mean = float(np.dot(self.interval[chosen], self.tokens[chosen])) / tokens if tokens else 0.0
        return tokens / float(self.tokens.sum()), mean


def _later_tokens(predicted: Sequence[Trace], measured: Trace) -> list[Contribution]:
    ours, theirs = _Intervals.of(predicted), _Intervals.of([measured])
    if not ours.tokens.sum() or not theirs.tokens.sum():
        return []
    found = []
    for beside in (False, True):
        effect = 0.0
        for kind in np.union1d(ours.kind, theirs.kind):
            if (kind >= 64) == beside:
                (my_share, mine), (share, his) = ours.inside(ours.kind == kind), theirs.inside(theirs.kind == kind)
                effect += share * (mine - his) if my_share and share else 0.0
        (_, mine), (share, his) = (side.inside((side.kind >= 64) == beside) for side in (ours, theirs))
        found.append(Contribution(TOKEN, INTERVAL, mine, his, effect, share, mixed=beside))
    everything = [side.inside(np.ones(len(side.kind), dtype=bool))[1] for side in (ours, theirs)]
    whole = everything[0] - everything[1]
    found.append(Contribution(TOKEN, WHICH_STEPS, None, None, whole - sum(one.effect_ms for one in found)))
    clients = [_per_token_ms(predicted), _per_token_ms([measured])]
    found.append(_plain(TOKEN, EMIT_TO_CLIENT, clients[0] - everything[0], clients[1] - everything[1]))
    return found


def _per_token_ms(traces: Sequence[Trace]) -> float:
    """Return the mean time per token after the first, over all tokens, at the clients."""
    seconds = sum(float((t.requests.last_token_s - t.requests.first_token_s).sum()) for t in traces)
    tokens = sum(int(np.maximum(t.requests.output_tokens - 1, 0).sum()) for t in traces)
    return 1e3 * seconds / tokens if tokens else 0.0
