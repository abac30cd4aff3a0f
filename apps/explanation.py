"""A run explained, in numbers and in words: for the command, the report and the pages.

Simulates the scenario once with somebody looking on (`simulator.watch`), and, if asked to, some times more to find out
what would have prevented preemption (`apps.remedies`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from apps.remedies import Remedy, remedies
from simulator.errors import InputError
from simulator.explain_preemption import Onset, onset
from simulator.explain_token import MODES, LateToken, late_token, worst_gap
from simulator.explain_ttft import PARTS, FirstTokens, first_tokens
from simulator.result import Result
from simulator.scenario import Scenario
from simulator.watch import Chunks, watch

#: So many requests are named where prompts of others were computed meanwhile.
NAMED = 4


@dataclass(frozen=True, eq=False)
class Explanation:
    """See the module text.  *views*: rows of *ttft* by name of the column; *request*: the one that is told in words."""

    result: Result
    chunks: Chunks | None
    ttft: FirstTokens
    views: Mapping[str, np.ndarray]
    request: int
    late: LateToken | None
    onset: Onset | None
    remedies: tuple[Remedy, ...] = ()

    @property
    def who(self) -> str:
        """Whose TTFT is explained, in words."""
        return f"{len(self.ttft.request):,} completed requests"

    def ttft_rows(self) -> dict[str, dict[str, float]]:
        """Return ms by part and by view; the last row, TTFT, is their sum."""
        means = {view: self.ttft.mean(rows) for view, rows in self.views.items()}
        found = {part: {view: 1e3 * means[view][part] for view in means} for part in PARTS}
        found["TTFT"] = {view: 1e3 * float(self.ttft.ttft_s[rows].mean()) for view, rows in self.views.items()}
        return found

    def words(self) -> list[str]:
        """Return paragraphs: the request, the late token, the preemption."""
        told = [_request_words(self)]
        if self.late is not None:
            told.append(_token_words(self.late))
        told.append(_onset_words(self.onset, self.remedies, self.result))
        return told

    def data(self) -> dict[str, Any]:
        """Return all of it as plain data; milliseconds where a name ends in ``_ms``."""
        row = self.ttft.row(self.request)
        first, wait, last = (int(column[row]) for column in _edges(self.ttft))
        late = self.late
        return {
            "schema_version": 1,
            "ttft_parts_ms": self.ttft_rows(),
            "request": {
                "request": self.request,
                "ttft_ms": 1e3 * float(self.ttft.ttft_s[row]),
                "parts_ms": {part: 1e3 * float(self.ttft.parts_s[part][row]) for part in PARTS},
                "first_step": first,
                "last_step": last,
                "prefill_of_others_while_it_waited": _named(self._behind(wait, first)),
            },
            "late_token": None if late is None else {
                **{name: value for name, value in vars(late).items() if not name.endswith("_s") and name != "prefill"},
                **{f"{name[:-2]}_ms": _finite(1e3 * one) for name, one in vars(late).items() if name.endswith("_s")},
                "prefill_of_others": _named(late.prefill),
                "words": _token_words(late),
            },
            "preemption": None if self.onset is None else {
                **vars(self.onset), "missing_blocks": self.onset.missing_blocks,
                "remedies": [vars(each) for each in self.remedies],
            },
            "words": self.words(),
        }  # fmt: skip

    def _behind(self, wait: int, first: int) -> dict[int, int]:
        """Return whose prompt tokens were computed in the steps that ran while the request waited."""
        if self.chunks is None:
            return {}
        found = self.chunks.between(max(0, wait - 1), first)
        found.pop(self.request, None)
        return found


def explain(
    scenario: Scenario, *, request: int | None = None, token: int | None = None, check: bool = True
) -> Explanation:
    """Simulate *scenario* and explain it; *request* (row of the workload) and its *token* instead of the slowest ones.

    *check* searches what would have prevented preemption.  Raises `InputError` for a request or token there is not.
    """
    watched = watch(scenario)
    result, records = watched.result, watched.result.records
    ttft = first_tokens(records, result.scenario.engine)
    if not len(ttft.request):
        raise InputError("no request was completed, so there is nothing to explain")
    views = _views(ttft, request)
    told = request if request is not None else int(ttft.request[views["p99 request"][0]])
    try:
        gap = (told, token) if token is not None else worst_gap(records, request)
        late = None if gap is None else late_token(records, *gap, watched.chunks)
    except ValueError as error:
        raise InputError(f"--token {token}: {error}") from None
    begun = onset(records)
    helps = remedies(scenario, begun) if begun is not None and check else ()
    return Explanation(result, watched.chunks, ttft, views, told, late, begun, helps)


def _views(ttft: FirstTokens, request: int | None) -> dict[str, np.ndarray]:
    """Return the columns of the table: mean, slowest 1 %, and one request."""
    order = np.argsort(ttft.ttft_s, kind="stable")
    n = len(order)
    views = {"mean": np.arange(n), "slowest 1 %": order[-max(1, n // 100) :]}
    if request is None:
        return {**views, "p99 request": order[[min(n - 1, round(0.99 * (n - 1)))]]}
    try:
        return {**views, f"request {request}": np.array([ttft.row(request)])}
    except ValueError as error:
        raise InputError(f"--request {request}: {error}; there are {n:,} completed ones") from None


def _edges(ttft: FirstTokens) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return ttft.first_step, ttft.first_wait_step, ttft.last_step


def _named(tokens: Mapping[int, int]) -> list[dict[str, int]]:
    return [{"request": request, "tokens": count} for request, count in tokens.items()]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _others(tokens: Mapping[int, int]) -> str:
    """Return whose tokens, the first few by name."""
    named = [f"request {request} ({count:,} tokens)" for request, count in list(tokens.items())[:NAMED]]
    if len(tokens) > NAMED:
        rest = list(tokens.values())[NAMED:]
        named.append(f"{len(rest)} others ({sum(rest):,} tokens)")
    return ", ".join(named)


def _request_words(found: Explanation) -> str:
    row = found.ttft.row(found.request)
    first, wait, last = (int(column[row]) for column in _edges(found.ttft))
    records = found.result.records
    parts = {name: 1e3 * float(values[row]) for name, values in found.ttft.parts_s.items()}
    largest = max(parts, key=lambda name: parts[name])
    words = [
        f"Request {found.request} ({records.prompt_tokens[found.request]:,} prompt tokens, "
        f"{records.cached_tokens[found.request]:,} of them cached) got its first token after "
        f"{1e3 * found.ttft.ttft_s[row]:,.2f} ms; the largest part is {largest} ({parts[largest]:,.2f} ms)."
    ]
    behind = found._behind(wait, first)
    if behind and first > wait:
        words.append(f"While it waited, the engine computed prompts of {_others(behind)}.")
    elif behind:
        words.append(f"When it came, the engine was computing prompts of {_others(behind)}.")
    if found.chunks is not None:
        own = found.chunks.of(found.request)
        own = own[found.chunks.step[own] <= last]
        if len(own) > 1:
            sizes = ", ".join(f"{tokens:,}" for tokens in found.chunks.tokens[own].tolist())
            words.append(f"Its own prompt was computed in {len(own)} chunks: {sizes} tokens.")
    return " ".join(words)


def _token_words(late: LateToken) -> str:
    usual = f", usually {1e3 * late.usual_s:,.2f} ms" if math.isfinite(late.usual_s) else ""
    head = f"Token {late.token} of request {late.request} came {1e3 * late.gap_s:,.2f} ms after the one before{usual}: "
    step = f"step {late.step} ({late.tokens:,} tokens, {late.decode_reqs:,} decodes, {1e3 * late.gpu_s:,.2f} ms of GPU)"
    by = f" of {_others(late.prefill)}" if late.prefill else ""
    causes = {
        "preempted": f"the request was preempted (plan of step {late.preempted_step}), waited, and "
        f"{late.recomputed_tokens:,} of its tokens were computed again" + (f"; meanwhile prompts{by}" if by else ""),
        "left out": f"it was left out of at least one step before {step}" + (f"; meanwhile prompts{by}" if by else ""),
        "mixed step": f"{step} also computed prompts{by}",
        "graph": f"{step} ran with {MODES[late.mode]}, unlike most decode steps",
        "next launch": f"{step} was done, but the CPU took its result only after it had launched the next step, "
        f"{late.next_tokens:,} tokens with {MODES.get(late.next_mode, 'no CUDA graph')}"
        + (f", among them prompts{by}" if by else ""),
        "front end": f"{1e3 * late.delivery_s:,.2f} ms of it passed between the engine and the client",
        "step": f"{step} took its usual time and noise; no other cause is known",
    }
    return head + causes[late.cause] + "."


def _onset_words(begun: Onset | None, helps: tuple[Remedy, ...], result: Result) -> str:
    if begun is None:
        return "No request was preempted."
    words = [
        f"Preemption began at {begun.time_s:,.2f} s (step {begun.step:,}): {begun.running} requests were running and "
        f"need {begun.needed_blocks:,} KV blocks at their full length, the cache holds {begun.usable_blocks:,}. In all "
        f"{begun.preemptions:,} preemptions of {begun.requests:,} requests; {begun.recomputed_tokens:,} tokens were "
        "computed again."
    ]
    if helps:
        summary = result.summary()
        words.append(f"What would have prevented it: {'; '.join(each.words(summary) for each in helps)}.")
    return " ".join(words)
