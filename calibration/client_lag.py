"""Whether the client kept up: a run in which it did not says nothing about the server.

A request should have been sent at its planned time or, in a closed loop of C clients, when a client became free: the
i-th at the (i - C)-th response at the earliest.  Lag is what passed from there to the send.  One rule for all runs: the
99th percentile of the lag is at most 10 ms, or a tenth of the median TTFT where that is more (1,000 requests sent at
once take 30 ms, and the server half a second to take them in).  A client that knows its own event loop also says how
late that was, at most 20 ms at the 99th percentile: so late may the time stamps of its messages be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibration.recording import Floats
from simulator.measured import MeasuredRun

#: Above these the client, not the server, shaped what was measured: 99th percentiles.
SEND_LIMIT_S, SEND_LIMIT_SHARE = 10e-3, 0.10
LOOP_LIMIT_S = 20e-3


def send_limit_s(ttft_s: Floats) -> float:
    """Return how late 1 % of the sends may be, given the TTFTs that were measured (none: no share of them)."""
    return max(SEND_LIMIT_S, SEND_LIMIT_SHARE * float(np.median(ttft_s)) if len(ttft_s) else 0.0)


@dataclass(frozen=True)
class Lag:
    """Lag of all requests in seconds, and the limit of the 99th percentile."""

    median_s: float
    p99_s: float
    max_s: float
    limit_s: float

    @classmethod
    def of(cls, lags_s: Floats, ttft_s: Floats) -> Lag:
        """Summarise the lags of a run with these TTFTs."""
        lags_s = lags_s if len(lags_s) else np.zeros(1)
        median, p99, most = (float(value) for value in np.percentile(lags_s, (50, 99, 100)))
        return cls(median, p99, most, send_limit_s(ttft_s))

    @property
    def is_bottleneck(self) -> bool:
        """Whether the run must not be judged."""
        return self.p99_s > self.limit_s

    def words(self) -> str:
        """Say how well the client kept up."""
        verdict = "the client was the bottleneck" if self.is_bottleneck else "the client kept up"
        return (
            f"{verdict}: it sent {1e3 * self.p99_s:.1f} ms late at the 99th percentile (median "
            f"{1e3 * self.median_s:.2f} ms, at most {1e3 * self.max_s:.1f} ms; limit {1e3 * self.limit_s:.1f} ms)"
        )


@dataclass(frozen=True)
class ClientLag:
    """What a client says of itself, in ms: how late it sent, and how late it came back to its own event loop."""

    send_p50_ms: float
    send_p99_ms: float
    send_max_ms: float
    loop_p99_ms: float
    loop_max_ms: float
    cpu_share: float

    @classmethod
    def of(cls, send_lags_s: Floats, loop_lags_s: Floats, cpu_share: float) -> ClientLag:
        """Summarise a run."""
        send = Lag.of(send_lags_s, np.zeros(0))
        loop = loop_lags_s if len(loop_lags_s) else np.zeros(1)
        late_s = (send.median_s, send.p99_s, send.max_s, float(np.percentile(loop, 99)), float(loop.max()))
        p50, p99, most, loop_p99, loop_most = (round(1e3 * value, 3) for value in late_s)
        return cls(p50, p99, most, loop_p99, loop_most, round(cpu_share, 3))

    def bottleneck(self, ttft_s: Floats) -> str | None:
        """Return why this run, with these TTFTs, says nothing about the server, or None."""
        sent = Lag(1e-3 * self.send_p50_ms, 1e-3 * self.send_p99_ms, 1e-3 * self.send_max_ms, send_limit_s(ttft_s))
        if sent.is_bottleneck:
            return sent.words()
        if self.loop_p99_ms > 1e3 * LOOP_LIMIT_S:
            return (
                f"the client was the bottleneck: its event loop ran {self.loop_p99_ms:.0f} ms late "
                f"(at most {1e3 * LOOP_LIMIT_S:.0f} ms is accepted)"
            )
        return None


def client_lag(run: MeasuredRun) -> Lag:
    """Return how late the requests of *run* were sent."""
    return Lag.of(lags_s(run), run.seen.ttft_s)


def lags_s(run: MeasuredRun) -> Floats:
    """Return the lag of each request, in order of sending."""
    order = np.argsort(run.sent_s, kind="stable")
    sent, earliest = run.sent_s[order], np.sort(run.planned_s)
    if run.concurrency is not None and run.concurrency < len(sent):
        answered = np.sort(run.sent_s + run.seen.e2el_s)
        free = np.concatenate((np.zeros(run.concurrency), answered[: len(sent) - run.concurrency]))
        earliest = np.maximum(earliest, free)
    return np.asarray(np.maximum(sent - earliest, 0.0))
