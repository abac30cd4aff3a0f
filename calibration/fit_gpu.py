"""Fit the GPU-time coefficients, the launch latency and the tails to stretches of recorded steps.

Least squares of relative errors of stretch durations (`calibration.stretches`), robust (soft L1), over the logarithms
of the coefficients, with their priors (`calibration.priors`).  Every kind of step weighs by the square root of its
count, so that thousands of equal decodes do not drown a few long prefills.  Stretches that are off by more than a
quarter after a first fit were disturbed (a launch prolonged by arriving requests) and are left out, and counted.

Several recordings may be fitted together; each but the first then has a GPU scale of its own (another host).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.least_squares import least_squares
from calibration.priors import PRIORS, Prior
from calibration.recording import Floats, Steps
from calibration.stretches import LaunchBounds, Stretches, find, predicted_ends
from simulator.engine_config import EngineConfig
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import ModelSpec
from simulator.profile import Covariance, GpuTime, Launch, Profile, Residuals
from simulator.step_cost import StepCost

#: What a relative error is worth: stretches are as good as this.
SIGMA = 0.02
#: Stretches off by more than this after the first fit are left out.
DISTURBED = 0.25
#: Spread of the GPU scale between hosts of one kind.
HOST_SPREAD = 0.03


@dataclass(frozen=True, eq=False)
class Recording:
    """Recorded steps of one server, with what it served."""

    name: str
    steps: Steps
    model: ModelSpec
    gpu: GpuSpec
    engine: EngineConfig

    def stretches(self) -> Stretches:
        """Return the stretches between results that were on time."""
        return find(self.steps, LaunchBounds.for_layers(self.model.num_hidden_layers))


def kinds(stretches: Stretches, steps: Steps) -> NDArray[np.str_]:
    """Name each stretch: idle (starts with an idle engine), decode, mixed (a step has both), prefill."""
    prefills = np.add.reduceat(np.append(steps.prefill_tokens, 0), ranges(stretches))[::2] > 0
    both = np.append((steps.prefill_tokens > 0) & (steps.decode_reqs > 0), False).astype(np.int64)
    mixed = np.add.reduceat(both, ranges(stretches))[::2] > 0
    busy = np.where(prefills, np.where(mixed, "mixed", "prefill"), "decode")
    return np.where(stretches.from_idle, "idle", busy)


def ranges(stretches: Stretches) -> NDArray[np.int64]:
    """Return the stretches as interleaved begins and ends, for `reduceat`."""
    return np.column_stack((stretches.first, stretches.last + 1)).ravel()


def relative_errors(recording: Recording, stretches: Stretches, profile: Profile) -> Floats:
    """Return (predicted - measured) / measured duration of each stretch."""
    ends, _ = _ends(recording, stretches, profile)
    seen = recording.steps.update_start_s[stretches.last]
    return np.asarray((ends - seen) / (seen - stretches.origin_s))


def step_ends(recording: Recording, stretches: Stretches, profile: Profile) -> Floats:
    """Return when each step ended on the GPU according to *profile*; NaN outside of stretches."""
    return _ends(recording, stretches, profile)[1]


def _ends(recording: Recording, stretches: Stretches, profile: Profile) -> tuple[Floats, Floats]:
    cost = StepCost(profile, recording.model, recording.gpu, recording.engine)
    tails = np.array([cost.tail_s(mode) for mode in range(3)])
    starts = (cost.start_s(False), cost.start_s(True))
    gpu_s = cost.gpu_s_array(**recording.steps.composition())
    return predicted_ends(stretches, recording.steps, gpu_s, starts, tails)


def summary(errors: Floats) -> Residuals:
    """Return the errors of one kind in percent."""
    percent = 100 * errors
    if not len(percent):
        return Residuals(count=0, bias_percent=0.0, median_percent=0.0, mean_percent=0.0, p95_percent=0.0)
    size = np.abs(percent)
    return Residuals(
        count=len(percent),
        bias_percent=round(float(np.median(percent)), 3),
        median_percent=round(float(np.median(size)), 3),
        mean_percent=round(float(size.mean()), 3),
        p95_percent=round(float(np.percentile(size, 95)), 3),
    )


def residuals_by_kind(errors: Floats, names: NDArray[np.str_]) -> dict[str, Residuals]:
    """Return the summary of all errors and of each kind."""
    found = {"all": summary(errors)}
    for kind in ("decode", "mixed", "prefill", "idle"):
        if (names == kind).any():
            found[kind] = summary(errors[names == kind])
    return found


def with_values(profile: Profile, values: dict[str, float]) -> Profile:
    """Return *profile* with coefficients replaced by path, e.g. ``launch.none.tail_s``; not validated."""
    gpu: dict[str, Any] = dict(profile.gpu_time)
    launch: dict[str, Any] = dict(profile.launch)
    curve = list(profile.gpu_time.compute_efficiency)
    for path, value in values.items():
        section, name, *rest = path.split(".")
        if section == "gpu_time" and rest:
            curve[int(rest[0])] = value
        elif section == "gpu_time":
            gpu[name] = value
        elif rest:
            launch[name] = launch[name].model_copy(update={rest[0]: value})
        else:
            launch[name] = value
    gpu["compute_efficiency"] = tuple(curve)
    update = {"gpu_time": GpuTime.model_construct(**gpu), "launch": Launch.model_construct(**launch)}
    return profile.model_copy(update=update)


class GpuTimeFit:
    """Estimator of the coefficients named by the priors.

    Learned: `profile_`, `gpu_scales_` (one a recording), `covariance_`, `residuals_` (by recording), `left_out_`.
    """

    def __init__(self, start: Profile, priors: Sequence[Prior] = PRIORS) -> None:
        self._start = start
        self._priors = tuple(priors)
        self._centre = np.log([prior.centre for prior in self._priors])
        self._spread = np.array([prior.spread for prior in self._priors])

    def fit(self, recordings: Sequence[Recording]) -> GpuTimeFit:
        """Learn from one or several recordings."""
        self._recordings = tuple(recordings)
        self._stretches = [recording.stretches() for recording in recordings]
        self._weights = [
            _weights(stretches, recording.steps)
            for recording, stretches in zip(recordings, self._stretches, strict=True)
        ]
        start = np.concatenate([self._centre, np.zeros(len(recordings) - 1)])
        first = least_squares(self._errors, start, x_scale="jac", max_nfev=60)
        self.left_out_ = 0
        for k, errors in enumerate(self._relative_errors(first.x)):
            disturbed = np.abs(errors) > DISTURBED
            self.left_out_ += int(disturbed.sum())
            self._weights[k] = np.where(disturbed, 0.0, self._weights[k])
        found = least_squares(self._errors, first.x, x_scale="jac", max_nfev=60)
        self._learn(found)
        return self

    def _profile(self, logs: Floats) -> Profile:
        found = np.exp(logs[: len(self._priors)])
        values = {prior.path: float(value) for prior, value in zip(self._priors, found, strict=True)}
        return with_values(self._start, values)

    def _relative_errors(self, logs: Floats) -> list[Floats]:
        profile, found = self._profile(logs), []
        for k, recording in enumerate(self._recordings):
            scale = float(np.exp(logs[len(self._priors) + k - 1])) if k else 1.0
            host = profile.host.model_copy(update={"gpu_scale": profile.host.gpu_scale * scale})
            scaled = profile.model_copy(update={"host": host})
            found.append(relative_errors(recording, self._stretches[k], scaled))
        return found

    def _errors(self, logs: Floats) -> Floats:
        measured = [
            weights * np.clip(errors, -0.5, 0.5) / SIGMA
            for weights, errors in zip(self._weights, self._relative_errors(logs), strict=True)
        ]
        count = len(self._priors)
        prior = (logs[:count] - self._centre) / self._spread
        return np.concatenate([*measured, prior, logs[count:] / HOST_SPREAD])

    def _learn(self, found: Any) -> None:
        count = len(self._priors)
        self.profile_ = self._profile(found.x)
        self.gpu_scales_ = (1.0, *np.exp(found.x[count:]).tolist())
        matrix = np.linalg.inv(found.jac.T @ found.jac)[:count, :count]
        self.covariance_ = Covariance(
            names=tuple(prior.path for prior in self._priors),
            matrix=tuple(tuple(float(f"{value:.4g}") for value in row) for row in matrix),
        )
        self.residuals_ = []
        for recording, stretches, weights, errors in zip(
            self._recordings, self._stretches, self._weights, self._relative_errors(found.x), strict=True
        ):
            kept = weights > 0
            self.residuals_.append(residuals_by_kind(errors[kept], kinds(stretches, recording.steps)[kept]))


def _weights(stretches: Stretches, steps: Steps) -> Floats:
    """Return weights that give every kind of stretch (kind, decode batch, prefill size) the same say in total."""
    decodes = np.log2(np.maximum(steps.decode_reqs[stretches.last], 1)).astype(np.int64)
    tokens = (2 * np.log2(np.maximum(steps.prefill_tokens[stretches.first], 1))).astype(np.int64)
    cells = np.char.add(np.char.add(kinds(stretches, steps), decodes.astype(str)), np.char.add("/", tokens.astype(str)))
    _names, which, counts = np.unique(cells, return_inverse=True, return_counts=True)
    return np.asarray(2.0 / np.sqrt(counts[which]))
