"""Requests with their timings, as a tool recorded them: to a workload that sends them again, and to metrics.

The metrics are computed here, by the definitions of `simulator.metrics`, not copied from the tool: tools differ in what
they call TPOT.  Where the tool's own value differs by more than `TOLERANCE`, the user is told.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calibration.evidence.evidence import Evidence
from simulator import measured

#: Relative difference of two values of one metric above which they are said to contradict each other.
TOLERANCE = 0.02


@dataclass(frozen=True)
class Seen:
    """One answered request: sent (any clock), seconds from there to the first and last token, gaps if known."""

    sent_s: float
    prompt_tokens: int
    output_tokens: int
    ttft_s: float
    e2el_s: float
    itl_s: Sequence[float] = field(default_factory=tuple)


def evidence_of(
    tool: str,
    name: str,
    requests: Sequence[Seen],
    *,
    duration_s: float,
    concurrency: int | None = None,
    model: str = "",
    own: Mapping[str, float | None] | None = None,
    notes: Sequence[str] = (),
) -> Evidence:
    """Return the evidence of *requests*; *own* are the tool's own values in ms, compared and, if they differ, told.

    *concurrency* makes it a closed loop of so many clients, else the requests are sent at their times.
    """
    for number, request in enumerate(requests, 1):
        times = (request.sent_s, request.ttft_s, request.e2el_s, *request.itl_s)
        if not all(math.isfinite(value) for value in times) or min(request.ttft_s, request.e2el_s) < 0:
            raise ValueError(f"request {number} has a time that is no number or negative")
    zero = min(request.sent_s for request in requests)
    document = {
        "name": name,
        "workload": tool,
        "duration_s": duration_s,
        "concurrency": concurrency,
        "requests": [_row(request, zero) for request in requests],
    }
    run = measured.parse(json.dumps(document), name)
    metrics = {key: value for key, value in run.summary().items() if isinstance(value, (int, float)) and value == value}
    told = [*notes, *contradictions(tool, own or {}, metrics)]
    return Evidence(tool, name, run.replay(), metrics, model, tuple(told))


def _row(request: Seen, zero: float) -> dict[str, Any]:
    sent = max(0.0, request.sent_s - zero)
    return {
        "arrival_s": sent, "sent_s": sent, "prompt_tokens": request.prompt_tokens,
        "output_tokens": request.output_tokens, "ttft_s": request.ttft_s, "e2el_s": request.e2el_s,
        "itl_ms": [1e3 * gap for gap in request.itl_s],
    }  # fmt: skip


def contradictions(tool: str, own: Mapping[str, float | None], metrics: Mapping[str, float]) -> list[str]:
    """Return one line for each of the tool's *own* values that its requests contradict."""
    found = []
    for key, value in own.items():
        recomputed = metrics.get(key)
        if (
            value is None
            or recomputed is None
            or abs(value - recomputed) <= TOLERANCE * max(abs(value), abs(recomputed))
        ):
            continue
        word = (
            key.removesuffix("_ms").replace("_", " ").upper()
            if "_tpot" in key
            else key.removesuffix("_ms").replace("_", " ")
        )
        found.append(
            f"{tool} says {word} {value:.2f} ms; recomputed from its own requests it is {recomputed:.2f} ms"
            + (": (E2E latency - TTFT) / (output tokens - 1)" if "_tpot" in key else "")
            + "; the recomputed one is used"
        )
    return found
