"""A distribution known by buckets or percentiles, as a length specification (`simulator.lengths`, ``choice:``).

The levels (k + 1/2) / n are looked up in the cumulative distribution, straight between two known points; all n values
are equally likely.  Then they are scaled so that their mean is the known one, because a bucket does not say where in it
its values lie.  n = 64: the mean of a heavy tail is kept, its last percent is one or two values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.lengths import MAX_TOKENS

LEVELS = 64


def lengths(shares: Sequence[float], values: Sequence[float], mean: float) -> str:
    """Return the specification of the distribution with cumulative *shares* (0..1, ascending) at *values* (tokens)."""
    if not np.isfinite([mean, *shares, *values]).all():
        raise ValueError("a length is no number")
    if mean <= 0:
        return "1"
    levels = (np.arange(LEVELS) + 0.5) / LEVELS
    found = np.maximum(np.interp(levels, np.asarray(shares, dtype=np.float64), np.asarray(values, dtype=np.float64)), 1)
    for _ in range(20):  # clipping at 1 token moves the mean; a few rounds settle it
        found = np.clip(found * (mean / found.mean()), 1, MAX_TOKENS)
    whole = _rounded(found, mean)
    return str(whole[0]) if len(set(whole)) == 1 else f"choice:{','.join(map(str, whole))}"


def _rounded(values: np.ndarray, mean: float) -> list[int]:
    """Return whole numbers whose sum is as near to the wanted one as whole numbers allow, largest remainders up."""
    low = np.floor(values)
    missing = round(mean * len(values) - float(low.sum()))
    order = np.argsort(low - values, kind="stable")
    low[order[: max(0, missing)]] += 1
    return [int(value) for value in np.maximum(low, 1)]
