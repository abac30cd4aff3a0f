"""What a client saw: one answer a request, how well the client kept its own times, and the file of both.

A file of requests is one JSON object (or a list of such, one a burst), times in seconds:

    t_base    time.monotonic at the start, the clock of the recorded steps
    duration  from the start to the last answer; conc: limit of requests in flight, or null
    requests  answered ones: i row of the table, t planned, send, isl, osl wanted, n tokens received (both from sending:
              ttft, e2e) and itl, the ms between messages; prefix [number, tokens] where the prompt shares one
    failed    the others: i, t, send, isl, osl, error, messages that came before
    client    how late the client was: see `calibration.client_lag.ClientLag`
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from calibration.client_lag import ClientLag


@dataclass
class Answer:
    """One request; times are ``time.monotonic`` seconds; *prefix*: number and tokens of what its prompt shares."""

    row: int
    planned_s: float
    prompt_tokens: int
    wanted_tokens: int
    prefix: tuple[int, int] | None = None
    sent_s: float = 0.0
    messages_s: list[float] = field(default_factory=list)
    output_tokens: int | None = None
    end_s: float | None = None
    error: str | None = None

    def record(self, base_s: float) -> dict[str, Any]:
        """Return the line of the file."""
        common = {
            "i": self.row, "t": round(self.planned_s - base_s, 6), "send": round(self.sent_s - base_s, 6),
            "isl": self.prompt_tokens, "osl": self.wanted_tokens,
            **({} if self.prefix is None else {"prefix": self.prefix}),
        }  # fmt: skip
        if self.error is not None:
            return {**common, "error": self.error, "messages": len(self.messages_s)}
        times = np.array(self.messages_s)
        tokens = self.output_tokens if self.output_tokens is not None else len(times)
        return {
            **common, "ttft": round(float(times[0] - self.sent_s), 6), "e2e": round(float(times[-1] - self.sent_s), 6),
            "n": tokens, "itl": [round(gap, 3) for gap in (np.diff(times) * 1e3).tolist()],
        }  # fmt: skip


@dataclass(frozen=True)
class ClientRun:
    """A table of requests, sent and answered."""

    base_s: float
    duration_s: float
    max_concurrency: int | None
    answers: tuple[Answer, ...]
    lag: ClientLag

    @property
    def failures(self) -> tuple[Answer, ...]:
        """The requests that were not answered in full."""
        return tuple(answer for answer in self.answers if answer.error is not None)

    @property
    def answered(self) -> int:
        """How many requests were answered in full."""
        return len(self.answers) - len(self.failures)

    def bottleneck(self) -> str | None:
        """Return why this run says nothing about the server, or None."""
        good = [answer for answer in self.answers if answer.error is None]
        return self.lag.bottleneck(np.array([answer.messages_s[0] - answer.sent_s for answer in good]))

    def to_dict(self) -> dict[str, Any]:
        """Return what the file holds."""
        good = [answer.record(self.base_s) for answer in self.answers if answer.error is None]
        return {
            "t_base": round(self.base_s, 6), "duration": round(self.duration_s, 6), "conc": self.max_concurrency,
            "requests": good, "failed": [answer.record(self.base_s) for answer in self.failures],
            "client": asdict(self.lag),
        }  # fmt: skip

    def first_error(self) -> str:
        """Return what went wrong, in words: the first error and how many there are."""
        failed = self.failures
        return f"{len(failed)} of {len(self.answers)} requests failed; the first: {failed[0].error}" if failed else ""
