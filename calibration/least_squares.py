"""scipy's least squares for fits of a few dozen numbers, on one core.

BLAS shares such small matrices among all cores and waits for them actively: on two busy cores a fit of a profile then
takes four times as long, and more of them on a server next to the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize
from threadpoolctl import threadpool_limits

from calibration.recording import Floats


def least_squares(errors: Callable[[Floats], Floats], start: Any, **options: Any) -> Any:
    """Return the result of `scipy.optimize.least_squares`, robust (soft L1) unless *options* say otherwise."""
    with threadpool_limits(limits=1, user_api="blas"), np.errstate(over="ignore"):
        return optimize.least_squares(errors, start, **{"loss": "soft_l1", **options})
