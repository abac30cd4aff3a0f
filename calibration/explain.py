"""Names the largest contributor to an error, and the mechanism behind it, in one sentence with numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibration.mechanisms import Mechanism
from calibration.phases import (
    CHUNKS,
    EMIT_TO_CLIENT,
    INTERVAL,
    PLAN_TO_EMIT,
    SEND_TO_PLAN,
    TOKEN,
    TTFT,
    WHICH_STEPS,
    Contribution,
)

#: A mechanism explains a phase if it differs at least by this share of it, in the same direction.
EXPLAINS = 0.25
TITLES = {TTFT: "TTFT", TOKEN: "time per token"}


@dataclass(frozen=True)
class Explanation:
    """Why a metric is off: the phase that contributes most, and the mechanism behind it, if one was found.

    *compared*: how many step times and launches of this phase the recording let compare.
    """

    metric: str
    error_ms: float
    measured_ms: float
    largest: Contribution
    mechanism: Mechanism | None
    compared: int

    @property
    def error_percent(self) -> float:
        """The error relative to what was measured."""
        return 100 * self.error_ms / self.measured_ms if self.measured_ms else 0.0

    def words(self) -> str:
        """Return the sentence."""
        head = (
            f"{TITLES[self.metric]} (mean): {self.error_ms:+.2f} ms ({self.error_percent:+.1f} %), of which "
            f"{self.largest.effect_ms:+.2f} ms {self.largest.title}"
        )
        found = self.mechanism
        if found is None and self.largest.phase in (PLAN_TO_EMIT, INTERVAL):
            agreed = "the step times at equal composition agree, so it is which requests shared which steps"
            return f"{head}; {agreed if self.compared else 'the recording does not tell why'}"
        if found is None:
            return head
        seen = f" ({found.count:,} seen)" if found.count else ""
        return (
            f"{head}; {found.what}: predicted {found.predicted:.2f}, measured {found.measured:.2f} {found.unit}{seen}"
        )


def explain(found: Sequence[Contribution], known: Sequence[Mechanism]) -> list[Explanation]:
    """Return one explanation for TTFT and one for the time per token, as far as the run tells."""
    explanations = []
    for metric in (TTFT, TOKEN):
        parts = [one for one in found if one.metric == metric]
        if parts:
            error = sum(one.effect_ms for one in parts)
            largest = max(parts, key=lambda one: abs(one.effect_ms))
            measured = sum((one.measured_ms or 0.0) * one.share for one in parts)
            candidates = [one for one in known if _concerns(one, largest)]
            behind = _behind(largest, candidates)
            times = sum(one.area in ("launch", "GPU time") for one in candidates)
            explanations.append(Explanation(metric, error, measured, largest, behind, times))
    return explanations


def _behind(phase: Contribution, candidates: Sequence[Mechanism]) -> Mechanism | None:
    """Return the mechanism that differs most in the direction of *phase*, if it differs enough to explain it."""
    if phase.phase in (WHICH_STEPS, CHUNKS):
        return max(candidates, key=_relative, default=None)
    own = phase.effect_ms / phase.share if phase.share else 0.0
    same = [one for one in candidates if one.difference * own > 0 and abs(one.difference) >= EXPLAINS * abs(own)]
    return max(same, key=lambda one: abs(one.difference), default=None)


def _relative(one: Mechanism) -> float:
    return abs(one.difference) / max(abs(one.measured), 1e-9)


def _concerns(one: Mechanism, phase: Contribution) -> bool:
    """Whether the mechanism can make this phase longer or shorter."""
    busy_launch = one.area == "launch" and one.idle is False
    if phase.phase in (WHICH_STEPS, CHUNKS):
        return one.area == "step composition"
    if phase.phase == PLAN_TO_EMIT:
        launch = one.area == "launch" and one.mode == phase.mode and (one.idle is False or not phase.mixed)
        return launch or one.kind == ("mixed" if phase.mixed else "prefill")
    if phase.phase == INTERVAL:
        alone = one.kind == "decode" or one.area == "engine loop"
        return busy_launch or one.kind == "mixed" if phase.mixed else alone
    if phase.phase == SEND_TO_PLAN:
        return one.area == "queue" or one.what.startswith("send to plan")
    return phase.phase == EMIT_TO_CLIENT and phase.metric == TTFT and one.what.startswith("emit to client")
