"""What is compared with a measurement, by which definition, and how far off it may be.

Definitions are those of `simulator.metrics` (`vllm bench serve`); both sides are computed by the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

_LATENCIES = (("ttft", "TTFT", "ttft"), ("tpot", "TPOT", "tpot"), ("itl", "ITL", "itl"), ("e2e", "E2E", "e2el"))

#: What is compared: name on the command line, title, key of the summary, unit.
METRICS: tuple[tuple[str, str, str, str], ...] = (
    *(
        (f"{name}_{statistic}", f"{title} {statistic}", f"{statistic}_{key}_ms", "ms")
        for name, title, key in _LATENCIES
        for statistic in ("mean", "p50", "p90", "p99")
    ),
    ("throughput", "output throughput", "output_throughput", "tokens/s"),
    ("request_throughput", "request throughput", "request_throughput", "requests/s"),
)
NAMES = tuple(name for name, *_ in METRICS)
KEYS_BY_NAME: Mapping[str, str] = {name: key for name, _title, key, _unit in METRICS}

#: Largest errors in % that pass, by metric.
BARS: Mapping[str, float] = {
    "ttft_p50": 10.0, "ttft_p99": 20.0, "tpot_mean": 5.0, "tpot_p50": 5.0, "e2e_mean": 5.0, "e2e_p50": 5.0,
    "throughput": 3.0,
}  # fmt: skip

#: Definitions for readers of a report.
DEFINITIONS: Mapping[str, str] = {
    "TTFT": "time from sending a request to its first token at the client, waiting included",
    "TPOT": "(time of the last token - time of the first) / (output tokens - 1), one value a request",
    "ITL": "gaps between successive messages, pooled over all requests: long requests weigh more than in TPOT",
    "E2E": "time from sending a request to its last token at the client",
    "output throughput": "output tokens / duration, from before the first send to the last response",
    "request throughput": "completed requests / duration",
    "error": "100 * (predicted / measured - 1), in %",
    "at the host's speed": "the error if the host's speed during this run had been known: a cause, not a prediction",
    "spread": "(largest - smallest) / mean of the measured runs of the same requests, in %",
    "interval": "range that holds one more run on a host of this kind with 90 %: coefficients, hosts from run to run, "
    "noise, residual errors",
    "effect": "predicted minus measured time of a phase, times the share of requests or tokens that go through it; the "
    "effects add up to the error of the mean",
}


class Verdict(StrEnum):
    """How a comparison ended."""

    passed = "pass"
    missed = "miss"
    not_judged = "not judged"


@dataclass(frozen=True)
class Judged:
    """One metric; *spread_percent* with several runs only, *low* and *high* with intervals only."""

    name: str
    title: str
    unit: str
    predicted: float | None
    measured: float | None
    spread_percent: float | None
    low: float | None
    high: float | None
    bar_percent: float | None

    @property
    def error_percent(self) -> float | None:
        """Signed error in % of the measured value."""
        if not self.measured or self.predicted is None:
            return None
        return 100 * (self.predicted / self.measured - 1)

    @property
    def keeps_bar(self) -> bool | None:
        """Whether the error is within the bar; None without a bar or an error."""
        error = self.error_percent
        return None if self.bar_percent is None or error is None else abs(error) <= self.bar_percent

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured value lies in the interval; None without one."""
        if self.low is None or self.high is None or self.measured is None:
            return None
        return self.low <= self.measured <= self.high
