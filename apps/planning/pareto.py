"""The frontier: what nothing else beats in every respect."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def frontier(costs: Sequence[Sequence[float]]) -> NDArray[np.bool_]:
    """Return which rows of *costs*, (n, k), smaller is better, are on the Pareto frontier.

    A row is dominated by another that is nowhere larger and somewhere smaller; equal rows are all kept.  Rows with nan
    are never on it.
    """
    if not costs:
        return np.zeros(0, dtype=bool)
    table = np.asarray(costs, dtype=np.float64)
    kept: NDArray[np.bool_] = np.asarray(~np.isnan(table).any(axis=1))
    for row in np.flatnonzero(kept):
        rest = table[kept]
        if ((rest <= table[row]).all(axis=1) & (rest < table[row]).any(axis=1)).any():
            kept[row] = False
    return kept
