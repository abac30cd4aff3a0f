"""Two answers side by side: the same metrics of both, their difference, and whether it is more than noise.

*Noise*: both sides are simulated with the same further seeds, so that each pair has the same requests and only the
difference of a pair varies.  A difference is called real if the 90 % interval of the mean of these differences
(Student, n - 1 degrees of freedom) leaves out 0; it says nothing about errors that both sides share, such as those of a
profile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEVEL = 0.90

#: Two-sided 90 % points of Student's distribution for 1, 2, ... degrees of freedom; beyond: the normal one.
_STUDENT = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746,
    1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
)  # fmt: skip
_NORMAL = 1.645

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Metric:
    """A row of the table: its title, where it stands in a summary, how it is shown."""

    title: str
    key: str
    digits: int = 2
    scale: float = 1.0
    always: bool = True  # else only where one side has it, and it is not 0


METRICS = (
    *(
        Metric(f"{title} {statistic} (ms)", f"{statistic}_{name}_ms")
        for name, title in (("ttft", "TTFT"), ("tpot", "TPOT"), ("itl", "ITL"), ("e2el", "E2E latency"))
        for statistic in ("mean", "p50", "p99")
    ),
    Metric("request throughput (requests/s)", "request_throughput", 3),
    Metric("output throughput (tokens/s)", "output_throughput", 1),
    Metric("duration (s)", "duration_s"),
    Metric("requests completed", "completed", 0),
    Metric("requests failed", "failed", 0, always=False),
    Metric("preemptions", "preemptions", 0),
    Metric("tokens computed again", "recomputed_tokens", 0, always=False),
    Metric("KV blocks swapped out", "swapped_out_blocks", 0, always=False),
    Metric("steps waited for swaps (s)", "swap_s", always=False),
    Metric("KV cache usage, maximum (%)", "kv_cache_usage_max", 1, 100),
    Metric("KV cache usage, mean (%)", "kv_cache_usage_mean", 1, 100),
    Metric("prefix cache hit rate (%)", "prefix_cache_hit_rate", 1, 100, always=False),
    Metric("CPU tier hit rate, of the rest (%)", "external_prefix_cache_hit_rate", 1, 100, always=False),
    Metric("KV blocks", "memory.num_gpu_blocks", 0),
    Metric("KV blocks on the CPU", "memory.num_cpu_blocks", 0, always=False),
)


def value(summary: Summary, key: str) -> float | None:
    """Return the number under *key* (dots lead inside); None where there is none."""
    found: Any = summary
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return None if found is None else float(found)


def compare(a: Summary, b: Summary, pairs: Sequence[tuple[Summary, Summary]] = ()) -> list[dict[str, Any]]:
    """Return one row a metric: a, b, difference (b - a), percent of a.

    With at least two *pairs* also their mean difference, its interval and the verdict.
    """
    rows = []
    for metric in METRICS:
        first, second = value(a, metric.key), value(b, metric.key)
        if not metric.always and not first and not second:
            continue
        row: dict[str, Any] = {"metric": metric.title, "key": metric.key, "a": first, "b": second}
        row["difference"] = difference = None if first is None or second is None else second - first
        row["difference_percent"] = 100 * difference / first if first and difference is not None else None
        if len(pairs) > 1:
            row |= _noise([(value(one, metric.key), value(other, metric.key)) for one, other in pairs])
        rows.append(row)
    return rows


def _noise(values: Sequence[tuple[float | None, float | None]]) -> dict[str, Any]:
    """Return the mean difference of pairs, its interval, and whether that leaves out 0."""
    known = [other - one for one, other in values if one is not None and other is not None]
    if len(known) < 2:
        return {"mean_difference": None, "low": None, "high": None, "verdict": "-"}
    mean, n = math.fsum(known) / len(known), len(known)
    deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in known) / (n - 1))
    half = (_STUDENT[n - 2] if n - 2 < len(_STUDENT) else _NORMAL) * deviation / math.sqrt(n)
    low, high = mean - half, mean + half
    verdict = "equal" if not any(known) else "real" if low > 0 or high < 0 else "noise"
    return {"mean_difference": mean, "low": low, "high": high, "verdict": verdict}
