"""Whether the client kept up: a run in which it did not says nothing about the server.

A request should have been sent at its planned time or, in a closed loop of C clients, when a client became free: the
i-th at the (i - C)-th response at the earliest.  Lag is what passed from there to the send.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibration.recording import Floats
from simulator.measured import MeasuredRun

#: The client was the bottleneck if the 99th percentile of its lag exceeds this, and this share of the median TTFT.
LIMIT_S, LIMIT_SHARE = 5e-3, 0.10


@dataclass(frozen=True)
class Lag:
    """Lag of all requests in seconds, and the limit of the 99th percentile."""

    median_s: float
    p99_s: float
    max_s: float
    limit_s: float

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


def client_lag(run: MeasuredRun) -> Lag:
    """Return how late the requests of *run* were sent."""
    lag = lags_s(run)
    limit_s = max(LIMIT_S, LIMIT_SHARE * float(np.median(run.seen.ttft_s)))
    return Lag(float(np.median(lag)), float(np.percentile(lag, 99)), float(lag.max()), limit_s)


def lags_s(run: MeasuredRun) -> Floats:
    """Return the lag of each request, in order of sending."""
    order = np.argsort(run.sent_s, kind="stable")
    sent, earliest = run.sent_s[order], np.sort(run.planned_s)
    if run.concurrency is not None and run.concurrency < len(sent):
        answered = np.sort(run.sent_s + run.seen.e2el_s)
        free = np.concatenate((np.zeros(run.concurrency), answered[: len(sent) - run.concurrency]))
        earliest = np.maximum(earliest, free)
    return np.asarray(np.maximum(sent - earliest, 0.0))
