"""Prometheus' text exposition as values: counters, gauges and histograms, summed over labels.

Source: Prometheus text format 0.0.4.  Labels are read only for ``le`` and ``model_name``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.errors import InputError

_LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Histogram:
    """Cumulative counts up to each bound (ascending, the last one infinite), number of values and their sum."""

    counts: Mapping[float, float] = field(default_factory=dict)
    count: float = 0.0
    sum: float = 0.0

    def __sub__(self, before: Histogram) -> Histogram:
        """Return what was observed since *before*."""
        counts = {bound: count - before.counts.get(bound, 0.0) for bound, count in self.counts.items()}
        return Histogram(counts, self.count - before.count, self.sum - before.sum)

    @property
    def mean(self) -> float:
        """Mean of the values; nan if there are none."""
        return self.sum / self.count if self.count else math.nan

    def quantile(self, share: float) -> float:
        """Return the value below which *share* lies, straight inside a bucket; nan if it is in the last, open one."""
        if not self.count:
            return math.nan
        low, below = 0.0, 0.0
        for bound, count in sorted(self.counts.items()):
            if count >= share * self.count and count > below:
                if math.isinf(bound):
                    return math.nan
                return low + (bound - low) * (share * self.count - below) / (count - below)
            low, below = bound, count
        return math.nan


@dataclass(frozen=True)
class Scrape:
    """All vLLM samples of a page: plain values and histograms by name, and the model's name."""

    values: Mapping[str, float]
    histograms: Mapping[str, Histogram]
    model: str = ""

    def value(self, *names: str) -> float | None:
        """Return the first of *names* that is there, with or without ``_total``."""
        for name in names:
            for spelled in (name, f"{name}_total"):
                if spelled in self.values:
                    return self.values[spelled]
        return None

    def histogram(self, *names: str) -> Histogram | None:
        """Return the first of *names* that is there."""
        return next((self.histograms[name] for name in names if name in self.histograms), None)


def parse(text: str, where: str) -> Scrape:
    """Return the samples whose names begin with ``vllm:`` (or ``vllm_``); `InputError` naming a line that is none."""
    values: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {}
    model = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            raise InputError(
                f"{where}:{number}: is not a sample of a /metrics page; save what `curl URL/metrics` prints"
            )
        name, labels, value = match.group(1), dict(_LABEL.findall(match.group(2) or "")), match.group(3)
        if not name.startswith(("vllm:", "vllm_")) and name != "process_start_time_seconds":
            continue
        name, number_ = name.replace("vllm_", "vllm:", 1), _number(value, f"{where}:{number}")
        model = model or labels.get("model_name", "")
        if name.endswith("_bucket") and "le" in labels:
            counts = buckets.setdefault(name.removesuffix("_bucket"), {})
            bound = _number(labels["le"], f"{where}:{number}")
            counts[bound] = counts.get(bound, 0.0) + number_
        else:
            values[name] = values.get(name, 0.0) + number_
    histograms = {
        name: Histogram(counts, values.pop(f"{name}_count", counts.get(math.inf, 0.0)), values.pop(f"{name}_sum", 0.0))
        for name, counts in buckets.items()
    }
    return Scrape(values, histograms, model)


def _number(word: str, where: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise InputError(f"{where}: {word[:40]!r} is not a number; save what `curl URL/metrics` prints") from None
