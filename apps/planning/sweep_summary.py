"""What a sweep found, as small data: seeds averaged, one metric over two axes, one metric along an axis.

The mean of n seeds comes with half its 90 % interval: t(n - 1, 0.95) * sd / sqrt(n) (Student), None for one seed.  It
holds what the seeds vary: arrivals, lengths, noise of the steps; not how far the profile may be off
(``servecast simulate --intervals`` shows that).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from apps.planning.sweep import Sweep
from apps.planning.sweep_run import METRICS, OK, Row
from apps.planning.sweep_values import Value

LEVEL = 0.90
#: Metrics that can be averaged.
NUMBERS = tuple(name for name in METRICS if name not in ("slo_met", "calibrated", "warnings"))


@dataclass(frozen=True)
class Average:
    """One configuration: its values by axis, how many seeds answered, and why the first of the others did not.

    *means* and *halves* (of the 90 % interval) by metric; *slo_met* counts the seeds that met it, None without an SLO.
    """

    values: Mapping[str, Value]
    seeds: int
    status: str
    reason: str | None
    means: Mapping[str, float]
    halves: Mapping[str, float | None]
    slo_met: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return flat data: ``p99_ttft_ms`` beside ``p99_ttft_ms_half``."""
        halves = {f"{name}_half": half for name, half in self.halves.items() if half is not None}
        found = {"seeds": self.seeds, "status": self.status, "reason": self.reason, "seeds_slo_met": self.slo_met}
        return {**self.values, **found, **self.means, **halves}


def averages(sweep: Sweep, rows: Iterable[Row]) -> list[Average]:
    """Return one `Average` for each configuration that has rows, in their order."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[axis] for axis in sweep.axes), []).append(row)
    return [_average(dict(zip(sweep.axes, key, strict=True)), group) for key, group in groups.items()]


def _average(values: Mapping[str, Value], rows: Sequence[Row]) -> Average:
    answered = [row for row in rows if row["status"] == OK]
    missing = next((row for row in rows if row["status"] != OK), None)
    means, halves = {}, {}
    for name in NUMBERS:
        numbers = np.array([row[name] for row in answered if row[name] is not None], dtype=float)
        if len(numbers):
            means[name], halves[name] = float(numbers.mean()), half_interval(numbers)
    judged = [row["slo_met"] for row in answered if row["slo_met"] is not None]
    return Average(
        values=values,
        seeds=len(answered),
        status=OK if answered or missing is None else missing["status"],
        reason=None if missing is None else missing["reason"],
        means=means,
        halves=halves,
        slo_met=sum(judged) if judged else None,
    )


def half_interval(numbers: np.ndarray[Any, Any]) -> float | None:
    """Return half the 90 % interval of the mean of *numbers*; None for one of them."""
    from scipy import stats

    n = len(numbers)
    if n < 2:
        return None
    return float(stats.t.ppf((1 + LEVEL) / 2, n - 1) * numbers.std(ddof=1) / math.sqrt(n))


@dataclass(frozen=True)
class Curve:
    """One metric along an axis: *name* says the values of the other axes."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


def curves(found: Sequence[Average], axis: str, metric: str) -> list[Curve]:
    """Return *metric* along *axis* for every combination of the other axes; configurations without it are left out."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for average in found:
        x, y = average.values[axis], average.means.get(metric)
        others = ", ".join(f"{name} {value}" for name, value in average.values.items() if name != axis)
        if y is not None and isinstance(x, (int, float)):
            lines.setdefault(others, []).append((float(x), y))
    return [Curve(name, *zip(*sorted(points), strict=True)) for name, points in lines.items()]
