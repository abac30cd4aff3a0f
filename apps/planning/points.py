"""A point of the load curve: the replications at one load, and whether they decide for or against the SLO.

For each target the scores of the replications (logarithms of value / limit) are averaged; their 90 % interval is
Student's.  A load holds if every target's mean is at most 0.  That is *decided* if all intervals lie below 0, or one
lies above; else more replications are needed, or the truth is too close to tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from apps.planning.measure import STABILITY, Run
from apps.planning.slo import Slo

#: One-sided: the interval of 90 % ends here on either side.
_QUANTILE = 0.95


@dataclass(frozen=True)
class Point:
    """Runs at one load: replications of the same length."""

    load: float
    requests: int | None
    runs: tuple[Run, ...]

    @cached_property
    def scores(self) -> tuple[float, ...]:
        """Mean score of each target, then of stability."""
        return tuple(np.mean([run.scores for run in self.runs], axis=0).tolist())

    @property
    def score(self) -> float:
        """The worst of the mean scores; at most 0 if the load holds."""
        return max(self.scores)

    @property
    def holds(self) -> bool:
        """Whether the SLO is met here, by the means."""
        return self.score <= 0

    @cached_property
    def decided(self) -> bool:
        """Whether the replications tell (module text); one run never does."""
        return len(self.runs) > 1 and self.would_decide(len(self.runs))

    def would_decide(self, count: int) -> bool:
        """Whether *count* replications with the mean and the spread of these (two at least) tell."""
        from scipy import stats

        scores = np.array([run.scores for run in self.runs])
        half = stats.t.ppf(_QUANTILE, count - 1) * scores.std(axis=0, ddof=1) / math.sqrt(count)
        means = scores.mean(axis=0)
        return bool((means + half <= 0).all() or (means - half > 0).any())

    @property
    def keeps_up(self) -> bool:
        """Whether the server serves what comes, by the mean."""
        return self.scores[-1] <= 0

    def binding(self, slo: Slo) -> str:
        """Return the name of the target that is closest to its limit, or farthest beyond it."""
        names = [*(target.name for target in slo.targets), STABILITY]
        return names[int(np.argmax(self.scores))]

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The value of each target over the replications, seconds or shares, averaged as the scores are.

        They are geometric means: a latency is at most its limit exactly where the mean score is at most 0.
        """
        with np.errstate(divide="ignore"):
            return tuple(np.exp(np.log([run.values for run in self.runs]).mean(axis=0)).tolist())

    @cached_property
    def metrics(self) -> dict[str, float | None]:
        """Means over the replications, keys as in a summary; None where a run has no value."""
        keys = self.runs[0].metrics
        return {key: _mean([run.metrics[key] for run in self.runs]) for key in keys}

    def as_dict(self, slo: Slo) -> dict[str, Any]:
        """Return plain data: the load, whether it holds, the targets' values, metrics and the engine's state."""
        names = [f"{target.name}" if target.kind == "goodput" else f"{target.name}_ms" for target in slo.targets]
        scale = [1.0 if target.kind == "goodput" else 1e3 for target in slo.targets]
        targets = {name: value * by for name, value, by in zip(names, self.values, scale, strict=True)}
        return {
            "load": self.load,
            "holds": self.holds,
            "decided": self.decided,
            "keeps_up": self.keeps_up,
            "replications": len(self.runs),
            "requests": self.requests,
            "targets": targets,
            "metrics": self.metrics,
            "state": vars(self.runs[0].state),
        }


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def crossing(low: tuple[float, float], high: tuple[float, float]) -> float:
    """Return the load at which the score is 0, linear in log(load) between two (load, score) of unlike sign."""
    (x0, y0), (x1, y1) = low, high
    share = 0.5 if y1 == y0 else min(max(-y0 / (y1 - y0), 0.0), 1.0)
    return math.exp(math.log(x0) + share * (math.log(x1) - math.log(x0)))
