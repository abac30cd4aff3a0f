"""Mean, standard deviation and percentiles of values that are not kept.

Mean, standard deviation, least and greatest value are exact (to rounding).  For percentiles values are counted in
buckets ``(g^(k-1), g^k]`` with ``g = (1 + e) / (1 - e)``; a value is answered by the middle of its bucket, so it is
wrong by at most the share *e* (Masson, Rim, Lee: DDSketch, VLDB 2019).  20,000 buckets from 1 ns to 30 years.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Largest share by which a percentile may be wrong.
RELATIVE_ERROR = 0.001

_LEAST, _MOST = 1e-9, 1e9


class Sketch:
    """What is known of a sample after its values have gone by; stands where `simulator.metrics.Sample` does."""

    def __init__(self, relative_error: float = RELATIVE_ERROR) -> None:
        self.relative_error = relative_error
        self._log_base = math.log1p(relative_error) - math.log1p(-relative_error)
        self._first = math.floor(math.log(_LEAST) / self._log_base)
        self._counts = np.zeros(math.ceil(math.log(_MOST) / self._log_base) - self._first + 1, dtype=np.int64)
        self._total = 0
        self._mean = self._squares = 0.0
        self._least, self._greatest = math.inf, -math.inf

    def __len__(self) -> int:
        return self._total

    def bucket(self, values: Floats) -> Ints:
        """Return the number of the bucket of each value."""
        keys = np.ceil(np.log(np.maximum(values, _LEAST)) / self._log_base).astype(np.int64) - self._first
        return np.asarray(np.clip(keys, 0, len(self._counts) - 1))

    def add(self, values: Floats, counts: Ints | None = None) -> None:
        """Take in *values*, each of them *counts* times (default once)."""
        weights = np.ones(len(values), dtype=np.int64) if counts is None else counts
        added = int(weights.sum())
        if added == 0:
            return
        kept = weights > 0
        values, weights = values[kept], weights[kept]
        np.add.at(self._counts, self.bucket(values), weights)
        self._least, self._greatest = min(self._least, values.min()), max(self._greatest, values.max())
        # Two samples as one: Chan, Golub, LeVeque 1979.
        mean = float(np.dot(values, weights)) / added
        squares = float(np.dot((values - mean) ** 2, weights))
        total, apart = self._total + added, mean - self._mean
        self._squares += squares + apart**2 * self._total * added / total
        self._mean += apart * added / total
        self._total = total

    def mean(self) -> float:
        """Return the mean; nan if empty."""
        return self._mean if self._total else math.nan

    def std(self) -> float:
        """Return the population standard deviation; nan if empty."""
        return math.sqrt(self._squares / self._total) if self._total else math.nan

    def percentiles(self, percents: tuple[float, ...]) -> list[float]:
        """Return the percentiles as ``numpy.percentile`` (linear) defines them, wrong by at most the stated share."""
        if not self._total:
            return [math.nan] * len(percents)
        return [between(self._total, percent, self._ranked) for percent in percents]

    def place(self, rank: int) -> tuple[int, int]:
        """Return the bucket of the value with *rank* (from 0), and how many values lie in the buckets before it."""
        last = np.cumsum(self._counts)
        bucket = int(np.searchsorted(last, rank, side="right"))
        return bucket, int(last[bucket] - self._counts[bucket])

    def _ranked(self, rank: int) -> float:
        if rank == self._total - 1:
            return float(self._greatest)
        bucket, _before = self.place(rank)
        middle = 2 * math.exp((bucket + self._first) * self._log_base) / (1 + math.exp(self._log_base))
        return float(min(max(middle, self._least), self._greatest))


def neighbours(total: int, percent: float) -> tuple[int, int]:
    """Return the ranks of the two values between which a percentile lies."""
    below = math.floor((total - 1) * (percent / 100))
    return below, min(below + 1, total - 1)


def between(total: int, percent: float, ranked: Callable[[int], float]) -> float:
    """Return the percentile between its two neighbours, which *ranked* finds by rank (numpy's linear method)."""
    low, high = map(ranked, neighbours(total, percent))
    at = (total - 1) * (percent / 100)
    share = at - math.floor(at)
    return float(high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share)
