"""What must hold: several targets at once on percentiles or means of the latencies, and a share of good requests.

    ttft_p99=500ms,tpot_p95=40ms,e2el_mean=10s,goodput=95%:ttft=500ms:tpot=40ms

Latencies are those of `simulator.metrics` (ttft, tpot, itl, e2el), statistics ``mean``, ``pNN`` and ``median`` (p50);
either order (``p99_ttft``) is read.  Goodput is the share of *sent* requests that keep every limit behind it, each
request by itself, as `vllm bench serve --goodput` counts them (there per second).

In a mix of classes ``chat/ttft_p99=500ms`` is a target for the requests of class chat; a class with an SLO of its own
(`simulator.mixes`) adds its targets by itself (`of_mix`).

A request that failed, was rejected or never finished keeps no limit: it counts as infinitely late in percentiles, and
one of them makes a mean infinite.  Inside: seconds and shares 0..1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from simulator.errors import InputError
from simulator.metrics import LATENCIES, Latencies, Sample
from simulator.mixes import MixWorkload
from simulator.scenario import Scenario

Name = Literal["ttft", "tpot", "itl", "e2el"]

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_EXAMPLE = "ttft_p99=500ms,tpot_p95=40ms,goodput=95%:ttft=500ms:tpot=40ms"
_ALIASES = {"e2e": "e2el", "median": "p50"}
#: Scores are cut at this many e-folds: beyond, how far a target is off no longer matters.
FARTHEST = 3.0


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Target(_Frozen):
    """A statistic of one latency must not exceed *limit_s* seconds; *of_class* None: of all requests."""

    kind: Literal["latency"] = "latency"
    of_class: str | None = None
    latency: Name
    statistic: str = Field(pattern=r"^(mean|p\d{1,2}(\.\d+)?)$")
    limit_s: float = Field(gt=0)

    @property
    def name(self) -> str:
        """As it is spelled in an SLO, e.g. ``ttft_p99``, ``chat/ttft_p99``."""
        return f"{_prefix(self.of_class)}{self.latency}_{self.statistic}"

    def __str__(self) -> str:
        return f"{self.name}={duration(self.limit_s)}"

    def value(self, seen: Latencies, failed: int) -> float:
        """Return the statistic in seconds; infinite where failures reach it, nan if no request has the latency."""
        values = getattr(seen, f"{self.latency}_s")
        sample = values if isinstance(values, Sample) else Sample.of(values)
        if not len(sample):
            return math.inf if failed else math.nan
        if self.statistic == "mean":
            return math.inf if failed else sample.mean()
        percent = float(self.statistic[1:])
        # Failures come last in order; in pooled gaps they weigh as the average request does.
        lost = failed * len(sample) / max(1, len(seen.ttft_s))
        last = (len(sample) + lost - 1) * percent / 100
        if last > len(sample) - 1 + 1e-9:
            return math.inf
        return sample.percentiles((100 * last / max(1, len(sample) - 1),))[0]

    def score(self, value: float, requests: int) -> float:
        """Return log(value / limit): at most 0 if met.  No value (one-token answers have no TPOT) is met."""
        return _cut(math.log(value / self.limit_s)) if value > 0 else -FARTHEST


class Goodput(_Frozen):
    """At least *share* of the requests (of the class) keep every limit (seconds, by latency)."""

    kind: Literal["goodput"] = "goodput"
    of_class: str | None = None
    share: float = Field(gt=0, le=1)
    limits_s: tuple[tuple[Literal["ttft", "tpot", "e2el"], float], ...] = Field(min_length=1)

    @property
    def name(self) -> str:
        """As it is spelled in an SLO."""
        return f"{_prefix(self.of_class)}goodput"

    def __str__(self) -> str:
        limits = "".join(f":{name}={duration(limit)}" for name, limit in self.limits_s)
        return f"{self.name}={100 * self.share:g}%{limits}"

    def value(self, seen: Latencies, failed: int) -> float:
        """Return the share of the sent requests that keep all limits (a single token has no TPOT to keep)."""
        good = np.ones(len(seen.ttft_s), dtype=bool)
        for name, limit in self.limits_s:
            good &= np.nan_to_num(getattr(seen, f"{name}_s"), nan=0.0) <= limit
        return float(good.sum()) / max(1, len(good) + failed)

    def score(self, value: float, requests: int) -> float:
        """Return the log of (bad share / bad share allowed), half a request added to both so that none is infinite."""
        bit = 0.5 / max(1, requests)
        score = _cut(math.log((1 - value + bit) / (1 - self.share + bit)))
        return max(score, 1e-9) if value < self.share - 1e-12 else min(score, 0.0)


class Slo(_Frozen):
    """Targets that must all be met."""

    targets: tuple[Target | Goodput, ...] = Field(min_length=1)

    def __str__(self) -> str:
        return ",".join(str(target) for target in self.targets)

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Return the targets written in *text* (module text); `InputError` of one line that names part and fix."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            raise InputError(f"the SLO is empty; write e.g. {_EXAMPLE}")
        targets = tuple(map(_target, parts))
        names = [target.name for target in targets]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"SLO: {name} is given twice; keep the stricter one")
        return cls(targets=targets)

    @classmethod
    def of_mix(cls, scenario: Scenario, also: Slo | None = None) -> Slo:
        """Return the targets *also*, and those the classes of a mix have of their own; `InputError` if there are none.

        A target for a class that the workload does not have is an `InputError`, too.
        """
        classes = scenario.workload.classes if isinstance(scenario.workload, MixWorkload) else ()
        targets = list(also.targets if also is not None else ())
        for one in classes:
            for target in cls.parse(one.slo).targets if one.slo is not None else ():
                targets.append(target.model_copy(update={"of_class": one.name}))
        if not targets:
            raise InputError(f"there is no SLO: give one, e.g. {_EXAMPLE}")
        names = [one.name for one in classes]
        for target in targets:
            if target.of_class is not None and target.of_class not in names:
                known = f"classes are {', '.join(names)}" if names else "this workload has no classes"
                raise InputError(f"SLO: {target}: {known}")
        return cls(targets=tuple(dict.fromkeys(targets)))

    def values(
        self, seen: Latencies, failed: int = 0, classes: Mapping[str, tuple[Latencies, int]] | None = None
    ) -> tuple[float, ...]:
        """Return the value of each target, in its order: seconds, or a share.

        *seen* and *failed* are of all requests; *classes* holds the same of each class by its name.
        """
        known = classes or {}
        return tuple(target.value(*known.get(target.of_class or "", (seen, failed))) for target in self.targets)

    def scores(self, values: tuple[float, ...], requests: int) -> tuple[float, ...]:
        """Return for each target how far *values* are from it: a logarithm, at most 0 if met."""
        return tuple(target.score(value, requests) for target, value in zip(self.targets, values, strict=True))


def duration(seconds: float) -> str:
    """Return *seconds* as an SLO spells them: ms below a second."""
    return f"{seconds:g}s" if seconds >= 1 else f"{1e3 * seconds:.6g}ms"


def _prefix(name: str | None) -> str:
    return "" if name is None else f"{name}/"


def _target(part: str) -> Target | Goodput:
    of_class, slash, rest = part.partition("/")
    if slash and "=" not in of_class:
        return _target(rest).model_copy(update={"of_class": of_class.strip()})
    return _goodput(part) if part.startswith("goodput") else _latency(part)


def _cut(score: float) -> float:
    return min(max(score, -FARTHEST), FARTHEST)


def _latency(part: str) -> Target:
    left, limit = _sides(part)
    words = [_ALIASES.get(word, word) for word in left.removesuffix("_ms").split("_")]
    names = [word for word in words if word in LATENCIES]
    statistics = [word for word in words if re.fullmatch(r"mean|p\d{1,2}(\.\d+)?", word)]
    if len(words) != 2 or len(names) != 1 or len(statistics) != 1:
        raise InputError(
            f"SLO: {part[:60]!r} is no target; write LATENCY_STATISTIC=LIMIT with one of {', '.join(LATENCIES)} and "
            f"mean, median or a percentile, e.g. ttft_p99=500ms"
        )
    milliseconds = left.endswith("_ms")
    seconds = _seconds(f"{limit}ms" if milliseconds and re.fullmatch(r"[\d.]+", limit) else limit, part)
    return Target(latency=names[0], statistic=statistics[0], limit_s=seconds)


def _goodput(part: str) -> Goodput:
    head, *limits = part.split(":")
    left, share = _sides(head)
    if left != "goodput" or not limits:
        raise InputError(f"SLO: {part[:60]!r} needs a share and limits, e.g. goodput=95%:ttft=500ms:tpot=40ms")
    try:
        value = float(share.removesuffix("%")) / (100 if share.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise InputError(f"SLO: the share in {head[:60]!r} must lie in (0 %, 100 %]; write e.g. goodput=95%")
    pairs = []
    for limit in limits:
        left, text = _sides(limit)
        name = _ALIASES.get(left, left)
        if name not in ("ttft", "tpot", "e2el"):
            raise InputError(f"SLO: goodput limits ttft, tpot and e2el of each request, not {left[:40]!r}")
        pairs.append((name, _seconds(text, limit)))
    if len({name for name, _ in pairs}) < len(pairs):
        raise InputError(f"SLO: {part[:80]!r} limits one latency twice; keep the stricter limit")
    return Goodput(share=value, limits_s=tuple(pairs))


def _sides(part: str) -> tuple[str, str]:
    left, equals, right = part.partition("=")
    if not equals or not right.strip():
        raise InputError(f"SLO: {part[:60]!r} has no limit; write it behind a =, e.g. {_EXAMPLE}")
    return left.strip().lower(), right.strip().lower()


def _seconds(text: str, part: str) -> float:
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(us|ms|s)", text)
    if found is None or not float(found[1]) > 0:
        raise InputError(f"SLO: the limit in {part[:60]!r} must be a positive time with its unit, e.g. 500ms or 2s")
    return float(found[1]) * _UNITS[found[2]]
