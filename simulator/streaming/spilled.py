"""Exact percentiles of values that do not fit into memory: they go to a temporary file and are read once more.

A `Sketch` tells in which narrow bucket each wanted value lies; only the values of those buckets are sorted.
"""

from __future__ import annotations

import tempfile

import numpy as np

from simulator.streaming.sketch import Floats, Ints, Sketch, between, neighbours

_PIECE = 1 << 16
_PAIR = np.dtype([("value", np.float64), ("count", np.int64)])


class Spilled(Sketch):
    """A sketch that keeps its values on disk, 16 bytes each, so that percentiles are exact."""

    def __init__(self) -> None:
        super().__init__()
        self.relative_error = 0.0
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this does, and needs no name

    def add(self, values: Floats, counts: Ints | None = None) -> None:
        """Take in *values*, each of them *counts* times (default once)."""
        super().add(values, counts)
        pairs = np.zeros(len(values), _PAIR)
        pairs["value"], pairs["count"] = values, 1 if counts is None else counts
        self._file.write(pairs[pairs["count"] > 0].tobytes())

    def percentiles(self, percents: tuple[float, ...]) -> list[float]:
        """Return what ``numpy.percentile`` (linear) returns for the expanded list; nan if empty."""
        if not len(self):
            return super().percentiles(percents)
        ranks = {rank for percent in percents for rank in neighbours(len(self), percent)}
        places = {rank: self.place(rank) for rank in ranks}
        found = self._values_of({bucket for bucket, _before in places.values()})
        ranked = {}
        for rank, (bucket, before) in places.items():
            values, counts = found[bucket]
            ranked[rank] = float(values[np.searchsorted(np.cumsum(counts), rank - before, side="right")])
        return [between(len(self), percent, ranked.__getitem__) for percent in percents]

    def _values_of(self, buckets: set[int]) -> dict[int, tuple[Floats, Ints]]:
        """Return the different values of each bucket, ascending, and how often each occurs."""
        pieces: dict[int, list[np.ndarray]] = {bucket: [] for bucket in buckets}
        self._file.seek(0)
        while raw := self._file.read(_PIECE * _PAIR.itemsize):
            pairs = np.frombuffer(raw, _PAIR)
            places = self.bucket(pairs["value"])
            for bucket, kept in pieces.items():
                kept.append(pairs[places == bucket])
        self._file.seek(0, 2)
        return {bucket: _merged(np.concatenate(kept)) for bucket, kept in pieces.items()}


def _merged(pairs: np.ndarray) -> tuple[Floats, Ints]:
    values, which = np.unique(pairs["value"], return_inverse=True)
    counts = np.zeros(len(values), dtype=np.int64)
    np.add.at(counts, which, pairs["count"])
    return values, counts
