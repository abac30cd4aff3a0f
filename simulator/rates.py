"""When requests are sent: gamma arrivals as `vllm bench serve` makes them, and rates that change over time.

    steps:0=1,600=4,1200=1[:PERIOD]     the factor from each time on (s from the start), again every PERIOD
    diurnal:AMPLITUDE[:PERIOD[:PEAK]]   1 + A cos(2 pi (t - PEAK) / PERIOD); a day from trough to trough unless given

A shape is a factor on the rate, so that ``rate`` is what stands at 1 (the mean, for ``diurnal``).

Constant rate (vLLM 0.24): gaps ~ Gamma(shape B, scale 1 / (R B)), the first request waits one gap too, and all send
times are scaled so that the last one is N / R.  R = inf sends everything at once, B = inf at even gaps.

Changing rate: the same times at rate 1 (the last is N), each moved to where the integral of the rate reaches it.  For
B = 1 that is the nonhomogeneous Poisson process (Cinlar's inversion); for other B the gaps keep their variation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from simulator import durations
from simulator.errors import InputError
from simulator.request_table import Floats

_DAY_S = 86400.0
HELP = "give steps:0=1,600=4[:PERIOD] (the factor from each time on) or diurnal:AMPLITUDE[:PERIOD[:PEAK]]"


class Shape(Protocol):
    """A factor on the rate over time, with its integral from 0."""

    @property
    def last_change_s(self) -> float:
        """When the factor has shown all of itself: the last step, or one period."""

    def factor(self, at_s: Floats) -> Floats:
        """Return the factor at each of *at_s*."""

    def when(self, area_s: Floats) -> Floats:
        """Return when the integral of the factor reaches each of *area_s*; infinity if never."""


@dataclass(frozen=True, eq=False)
class Steps:
    """Piecewise constant; *factors[i]* from *times_s[i]* on, the first at 0; repeated every *period_s* (inf: never)."""

    times_s: Floats
    factors: Floats
    period_s: float

    @property
    def last_change_s(self) -> float:
        """When the factor has shown all of itself: the last step, or one period."""
        return self.period_s if math.isfinite(self.period_s) else float(self.times_s[-1])

    def factor(self, at_s: Floats) -> Floats:
        """Return the factor at each of *at_s*."""
        inside = np.mod(at_s, self.period_s) if math.isfinite(self.period_s) else at_s
        return np.asarray(self.factors[np.searchsorted(self.times_s, inside, side="right") - 1])

    def when(self, area_s: Floats) -> Floats:
        """Return when the integral of the factor reaches each of *area_s*; infinity if never."""
        begins = np.concatenate(([0.0], np.cumsum(self.factors[:-1] * np.diff(self.times_s))))
        offset_s, inside = np.zeros_like(area_s), area_s
        if math.isfinite(self.period_s):
            whole = begins[-1] + self.factors[-1] * (self.period_s - self.times_s[-1])
            periods = np.maximum(np.ceil(area_s / whole) - 1, 0.0)
            offset_s, inside = periods * self.period_s, area_s - periods * whole
        # The first time that reaches the area lies in the last step that begins below it.
        step = np.clip(np.searchsorted(begins, inside, side="left") - 1, 0, None)
        with np.errstate(divide="ignore", invalid="ignore"):
            into_s = np.where(inside > begins[step], (inside - begins[step]) / self.factors[step], 0.0)
        return np.asarray(offset_s + self.times_s[step] + into_s)


@dataclass(frozen=True)
class Diurnal:
    """1 + amplitude * cos(2 pi (t - peak) / period), amplitude 0..1."""

    amplitude: float
    period_s: float
    peak_s: float

    @property
    def last_change_s(self) -> float:
        """When the factor has shown all of itself: one period."""
        return self.period_s

    def factor(self, at_s: Floats) -> Floats:
        """Return the factor at each of *at_s*."""
        return np.asarray(1 + self.amplitude * np.cos(2 * math.pi * (at_s - self.peak_s) / self.period_s))

    def _area(self, at_s: Floats) -> Floats:
        turn = 2 * math.pi / self.period_s
        wave = np.sin(turn * (at_s - self.peak_s)) + math.sin(turn * self.peak_s)
        return np.asarray(at_s + self.amplitude / turn * wave)

    def when(self, area_s: Floats) -> Floats:
        """Return when the integral of the factor reaches each of *area_s*, by bisection (to 1e-9 of a period)."""
        most = self.amplitude * self.period_s / math.pi
        low, high = np.maximum(area_s - most, 0.0), area_s + most
        for _ in range(32):
            middle = (low + high) / 2
            below = self._area(middle) < area_s
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(high)


def parse_shape(text: str) -> Shape:
    """Return the shape that *text* describes (forms in the module text); `InputError` otherwise."""
    kind, _, rest = text.strip().partition(":")
    parts, what = rest.split(":"), f"rate shape {text!r}"
    if kind == "steps" and rest and len(parts) <= 2:
        return _steps(parts, what)
    if kind == "diurnal" and rest and len(parts) <= 3:
        amplitude = _number(parts[0], what)
        if amplitude > 1:
            raise InputError(f"{what}: AMPLITUDE must be from 0 to 1 (1: the trough is 0), got {parts[0]}")
        period_s = durations.seconds(parts[1], what) if len(parts) > 1 else _DAY_S
        if period_s == 0:
            raise InputError(f"{what}: PERIOD must be above 0; give seconds, or 24h")
        return Diurnal(amplitude, period_s, durations.seconds(parts[2], what) if len(parts) > 2 else period_s / 2)
    raise InputError(f"{what} is not understood; {HELP}")


def _steps(parts: list[str], what: str) -> Steps:
    pairs = [pair.split("=") for pair in parts[0].split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise InputError(f"{what}: every step is TIME=FACTOR; {HELP}")
    times = np.array([durations.seconds(time, what) for time, _ in pairs])
    factors = np.array([_number(factor, what) for _, factor in pairs])
    period_s = durations.seconds(parts[1], what) if len(parts) > 1 else math.inf
    if times[0] != 0 or (np.diff(times) <= 0).any() or period_s <= times[-1]:
        raise InputError(f"{what}: times must begin with 0 and ascend (and PERIOD end them); {HELP}")
    if not factors.any():
        raise InputError(f"{what}: every factor is 0, so nothing is ever sent; give one above 0")
    return Steps(times, factors, period_s)


def _number(word: str, what: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError(f"{what}: {word!r} is not a number of at least 0; {HELP}")
    return value


def arrival_times(
    n: int, rate: float, burstiness: float, rng: np.random.Generator, shape: Shape | None = None
) -> Floats:
    """Return *n* send times in seconds (module text); infinity for those after *shape* has fallen to 0 for ever."""
    if math.isinf(rate):
        return np.zeros(n)
    if shape is not None:
        return shape.when(arrival_times(n, 1.0, burstiness, rng) / rate)
    if math.isinf(burstiness):
        return np.arange(1, n + 1) / rate
    times = np.cumsum(rng.gamma(shape=burstiness, scale=1 / (rate * burstiness), size=n))
    if not 0 < times[-1] < math.inf:
        raise InputError(f"burstiness {burstiness} at rate {rate} leaves no time between requests; give a larger one")
    return np.asarray(times / times[-1] * (n / rate))


def checked_sent(times_s: Floats, n: int) -> Floats:
    """Return the first *n* of *times_s*; `InputError` if some of them never come."""
    if not math.isfinite(times_s[n - 1]):
        sent = int(np.isfinite(times_s).sum())
        raise InputError(f"the rate falls to 0 for ever after {sent} of {n} arrivals; end with a factor above 0")
    return times_s[:n]


def remarks(shape: Shape | None, arrival_s: Floats) -> tuple[str, ...]:
    """Return what the user should know: requests that end before the rate has shown all its changes."""
    if shape is None or len(arrival_s) == 0 or arrival_s[-1] >= shape.last_change_s:
        return ()
    return (
        f"the {len(arrival_s)} arrivals end after {arrival_s[-1]:.0f} s, before the rate has shown all its changes at "
        f"{shape.last_change_s:.0f} s; raise --num-prompts",
    )
