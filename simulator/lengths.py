"""Lengths of prompts and outputs, written in one word: text in, distributions out.  Unit: tokens, whole, at least 1.

    512                          always 512
    uniform:50:300               every whole number from 50 to 300, both included
    lognormal:MEDIAN:SIGMA[:MIN[:MAX]]   exp(ln(MEDIAN) + SIGMA * z), rounded, then clipped
    normal:MEAN:STD[:MIN[:MAX]]          MEAN + STD * z, rounded, then clipped
    choice:128,512,2048          each with the same probability

z is standard normal; MIN is 1 and MAX `MAX_TOKENS` unless given.  Lengths of different requests are independent, and so
are a request's prompt and output: a trace (`simulator.traces`) keeps what real traffic correlates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError

Ints = NDArray[np.int64]

#: No model reads more; keeps a heavy tail from overflowing.
MAX_TOKENS = 10_000_000

HELP = (
    "give a number (512), uniform:MIN:MAX, lognormal:MEDIAN:SIGMA[:MIN:MAX], normal:MEAN:STD[:MIN:MAX] or choice:A,B,C"
)


class Lengths(Protocol):
    """A distribution of lengths in tokens."""

    @property
    def mean(self) -> float:
        """Expected length in tokens (rounding to whole tokens ignored)."""

    def sample(self, n: int, rng: np.random.Generator) -> Ints:
        """Return *n* lengths drawn with *rng*."""


@dataclass(frozen=True)
class Constant:
    """Always the same length."""

    tokens: int

    @property
    def mean(self) -> float:
        """Expected length in tokens."""
        return float(self.tokens)

    def sample(self, n: int, rng: np.random.Generator) -> Ints:
        """Return *n* times the length; *rng* is not used."""
        return np.full(n, self.tokens, dtype=np.int64)


@dataclass(frozen=True)
class Choice:
    """One of some lengths, all equally likely; a range for ``uniform``."""

    options: tuple[int, ...] | range

    @property
    def mean(self) -> float:
        """Expected length in tokens."""
        if isinstance(self.options, range):
            return (self.options[0] + self.options[-1]) / 2
        return sum(self.options) / len(self.options)

    def sample(self, n: int, rng: np.random.Generator) -> Ints:
        """Return *n* lengths drawn with *rng*."""
        picked = rng.integers(0, len(self.options), size=n)
        if isinstance(self.options, range):
            return np.asarray(picked + self.options[0], dtype=np.int64)
        return np.asarray(self.options, dtype=np.int64)[picked]


@dataclass(frozen=True)
class Clipped:
    """Normal or log-normal, clipped to ``low..high`` tokens; *center* is the mean or the median."""

    center: float
    sigma: float
    low: int
    high: int
    log: bool

    @property
    def mean(self) -> float:
        """Expected length in tokens, clipping included, rounding not."""
        if self.sigma == 0:
            return min(max(self.center, self.low), self.high)
        a, b = self._score(self.low), self._score(self.high)
        clipped = self.low * _cdf(a) + self.high * _cdf(-b)
        if self.log:
            scale = self.center * math.exp(self.sigma**2 / 2)
            return clipped + scale * (_cdf(b - self.sigma) - _cdf(a - self.sigma))
        density = math.exp(-a * a / 2) - math.exp(-b * b / 2)
        return clipped + self.center * (_cdf(b) - _cdf(a)) + self.sigma * density / math.sqrt(2 * math.pi)

    def _score(self, tokens: float) -> float:
        distance = math.log(tokens / self.center) if self.log else tokens - self.center
        return distance / self.sigma

    def sample(self, n: int, rng: np.random.Generator) -> Ints:
        """Return *n* lengths drawn with *rng*."""
        z = rng.standard_normal(n)
        if self.log:
            with np.errstate(over="ignore"):  # clipped right below
                lengths = self.center * np.exp(self.sigma * z)
        else:
            lengths = self.center + self.sigma * z
        return np.clip(np.rint(lengths), self.low, self.high).astype(np.int64)


def _cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def parse(text: str) -> Lengths:
    """Return the distribution that *text* describes (forms in the module text); `InputError` otherwise."""
    text = text.strip()
    kind, _, rest = text.partition(":")
    if not rest and ":" not in text:
        return Constant(_tokens(text, text))
    parts = rest.split(":")
    if kind == "uniform" and len(parts) == 2:
        low, high = (_tokens(part, text) for part in parts)
        if low > high:
            raise InputError(f"length {text!r}: MIN {low} is above MAX {high}; swap them")
        return Choice(range(low, high + 1))
    if kind in ("lognormal", "normal") and 2 <= len(parts) <= 4:
        return _clipped(kind, parts, text)
    if kind == "choice" and len(parts) == 1:
        return Choice(tuple(_tokens(part, text) for part in parts[0].split(",")))
    raise InputError(f"length {text!r} is not understood; {HELP}")


def _clipped(kind: str, parts: list[str], text: str) -> Clipped:
    center, sigma = (_number(part, text) for part in parts[:2])
    if center <= 0:
        raise InputError(
            f"length {text!r}: {'MEDIAN' if kind == 'lognormal' else 'MEAN'} must be above 0, got {center:g}"
        )
    if sigma < 0:
        raise InputError(
            f"length {text!r}: {'SIGMA' if kind == 'lognormal' else 'STD'} must not be negative, got {sigma:g}"
        )
    low = _tokens(parts[2], text) if len(parts) > 2 else 1
    high = _tokens(parts[3], text) if len(parts) > 3 else MAX_TOKENS
    if low > high:
        raise InputError(f"length {text!r}: MIN {low} is above MAX {high}; swap them")
    return Clipped(center=center, sigma=sigma, low=low, high=high, log=kind == "lognormal")


def _tokens(word: str, text: str) -> int:
    try:
        tokens = int(word)
    except ValueError:
        raise InputError(f"length {text!r}: {word!r} is not a whole number; {HELP}") from None
    if not 1 <= tokens <= MAX_TOKENS:
        raise InputError(f"length {text!r}: {tokens} is not between 1 and {MAX_TOKENS:,}")
    return tokens


def _number(word: str, text: str) -> float:
    try:
        number = float(word)
    except ValueError:
        raise InputError(f"length {text!r}: {word!r} is not a number; {HELP}") from None
    if not math.isfinite(number):
        raise InputError(f"length {text!r}: {word!r} is not finite; {HELP}")
    return number
