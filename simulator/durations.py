"""Times that people take, written in one word: text in, distributions out.  Unit: seconds, not negative.

    20, 20s, 500ms, 2min        always the same
    uniform:5:30                any time from 5 to 30 s
    exponential:20              mean 20 s
    lognormal:MEDIAN:SIGMA[:MIN[:MAX]]   exp(ln(MEDIAN) + SIGMA * z), clipped; z standard normal
    choice:5,10,60              each with the same probability

A number may carry a unit (ms, s, min, h); without one it is seconds.  SIGMA has none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError

Floats = NDArray[np.float64]

HELP = (
    "give seconds (20, 20s, 500ms, 2min), exponential:MEAN, lognormal:MEDIAN:SIGMA[:MIN:MAX], uniform:MIN:MAX or "
    "choice:A,B"
)

_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)(ms|s|min|h)?", re.IGNORECASE)
_LONGEST_S = 1e7  # four months: beyond any experiment

#: Draws from which the rest of a time in progress is taken.
_POOL = 4096


@dataclass(frozen=True)
class Durations:
    """A distribution of times in seconds."""

    text: str
    mean_s: float
    _draw: Callable[[int, np.random.Generator], Floats]

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        """Return *n* times drawn with *rng*."""
        return self._draw(n, rng)

    def residual(self, n: int, rng: np.random.Generator) -> Floats:
        """Return what is left of *n* such times when one looks in at any instant (long ones are met more often)."""
        return residual(self.sample(_POOL, rng), n, rng)


def residual(times_s: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Return what is left of *n* times like *times_s* at any instant, picked by their length; 0 if all are 0."""
    if not times_s.any():
        return np.zeros(n)
    return np.asarray(rng.choice(times_s, size=n, p=times_s / times_s.sum()) * rng.random(n))


def in_step(times_s: Floats, users: int) -> tuple[str, ...]:
    """Return a remark if several *users* all pause equally long: queues herd them together, as people never are."""
    if users < 2 or not len(times_s) or times_s.min() != (pause := float(times_s.max())) or pause <= 0:
        return ()
    return (
        f"all users pause exactly {pause:g} s between requests, so they fall into step and send in bursts; people do "
        f"not: write exponential:{pause:g}",
    )


def seconds(text: str, what: str = "time") -> float:
    """Return the seconds that *text* says, e.g. ``20``, ``20s``, ``500ms``; `InputError` naming *what* otherwise."""
    match = _NUMBER.fullmatch(text.strip())
    try:
        value = float(match[1]) * _UNITS[(match[2] or "s").lower()] if match else math.nan
    except ValueError:
        value = math.nan
    if not 0 <= value <= _LONGEST_S:
        raise InputError(f"{what}: {text!r} is not a time from 0 to {_LONGEST_S:,.0f} s; write it like 20s or 500ms")
    return value


def parse(text: str) -> Durations:
    """Return the distribution that *text* describes (forms in the module text); `InputError` otherwise."""
    text = text.strip()
    kind, _, rest = text.partition(":")
    what, parts = f"time {text!r}", rest.split(":")
    if not rest:
        value = seconds(text, what)
        return Durations(text, value, lambda n, _rng: np.full(n, value))
    if kind == "exponential" and len(parts) == 1:
        mean = seconds(rest, what)
        return Durations(text, mean, lambda n, rng: rng.exponential(mean, n))
    if kind == "uniform" and len(parts) == 2:
        low, high = _ordered(parts, what)
        return Durations(text, (low + high) / 2, lambda n, rng: rng.uniform(low, high, n))
    if kind == "lognormal" and 2 <= len(parts) <= 4:
        return _lognormal(text, parts, what)
    if kind == "choice" and len(parts) == 1:
        options = np.array([seconds(part, what) for part in rest.split(",")])
        return Durations(text, float(options.mean()), lambda n, rng: rng.choice(options, n))
    raise InputError(f"{what} is not understood; {HELP}")


def _ordered(parts: list[str], what: str) -> tuple[float, float]:
    low, high = (seconds(part, what) for part in parts)
    if low > high:
        raise InputError(f"{what}: MIN {low:g} is above MAX {high:g}; swap them")
    return low, high


def _lognormal(text: str, parts: list[str], what: str) -> Durations:
    median = seconds(parts[0], what)
    try:
        sigma = float(parts[1])
    except ValueError:
        sigma = math.nan
    if not 0 <= sigma <= 10:
        raise InputError(f"{what}: SIGMA must be a number from 0 to 10, got {parts[1]!r}; {HELP}")
    low, high = _ordered([*parts[2:], *("0", f"{_LONGEST_S}")[len(parts) - 2 :]], what)

    def draw(n: int, rng: np.random.Generator) -> Floats:
        return np.clip(median * np.exp(sigma * rng.standard_normal(n)), low, high)

    return Durations(text, min(max(median * math.exp(sigma**2 / 2), low), high), draw)
