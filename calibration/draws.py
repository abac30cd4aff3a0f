"""Profiles as they might also be: coefficients drawn from what the fit left open, and hosts from run to run.

A draw multiplies three independent factors into a profile (all log-normal, standard deviations of logarithms):

    coefficients   the profile's covariance of the fitted logarithms; without one (not calibrated) the priors' spreads
    run to run     GPU 1.5 %, what prompts compute 3 % more; CPU (launches, engine loop and API server together) 20 %
                   between hosts of one kind, 16 % on a host whose speed was measured (prompts 2 %).  Source: nineteen
                   servers on shared hosts (H200, vLLM 0.24.0) took 0.91 to 1.74 times the profile's time for their
                   engine loops; nineteen runs differed from the probe before them by 16 % (standard deviation)
    residuals      what the form of the model leaves, as a factor on GPU time: 1.48 times the median absolute error of
                   recorded stretches (a standard deviation, robust), less the noise of single steps, which averages out

A draw is keyed by (seed, number), so that more draws never change the earlier ones.  Not modelled: slow spells of
seconds within a run; they are longer tails than the profile's noise, which is independent from step to step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.priors import PRIORS
from calibration.recording import Floats
from simulator.profile import Covariance, Profile

#: Largest and smallest values the coefficients can have, by the last part of their path.
_LIMITS = {"roofline_exponent": (1.0, np.inf)}
_EFFICIENCY = (1e-6, 1.5)
#: From a median absolute deviation to the standard deviation of a normal distribution.
_ROBUST = 1.4826


@dataclass(frozen=True)
class RunToRun:
    """Standard deviations of the logarithms of GPU, prompt and CPU times between server runs on hosts of one kind."""

    gpu: float = 0.015
    compute: float = 0.03
    cpu: float = 0.20


ANOTHER_HOST = RunToRun()
#: The host's speed was measured shortly before (`calibration.host`).
THIS_HOST = RunToRun(compute=0.02, cpu=0.16)


def residual_spread(profile: Profile) -> float:
    """Return the standard deviation of the model's own errors, as a share of GPU time; 0 without residuals."""
    found = profile.residuals.get("all")
    whole = _ROBUST * found.median_percent / 100 if found is not None else 0.0
    return float(np.sqrt(max(0.0, whole**2 - profile.noise.full.gpu_sigma**2)))


def draw(profile: Profile, seed: int, number: int, spread: RunToRun | None = None) -> Profile:
    """Return draw *number* of *profile*; *spread* None stands for what is known of the host."""
    if spread is None:
        spread = THIS_HOST if profile.host.measured else ANOTHER_HOST
    rng = np.random.default_rng([seed, number, 90])
    gpu, cpu, misfit, compute = rng.standard_normal(4)
    drawn = _with_coefficients(profile, rng)
    host = {
        "gpu_scale": profile.host.gpu_scale * float(np.exp(spread.gpu * gpu + residual_spread(profile) * misfit)),
        "compute_scale": profile.host.compute_scale * float(np.exp(spread.compute * compute)),
        "cpu_scale": profile.host.cpu_scale * float(np.exp(spread.cpu * cpu)),
    }
    return drawn.model_copy(update={"host": profile.host.model_copy(update=host)})


def _with_coefficients(profile: Profile, rng: np.random.Generator) -> Profile:
    covariance = profile.covariance if profile.covariance.names else _prior_covariance()
    values = {path: value_at(profile, path) for path in covariance.names}
    steps = _root(covariance) @ rng.standard_normal(len(values))
    if covariance.of_logarithms:
        changed = {path: value * float(np.exp(step)) for (path, value), step in zip(values.items(), steps, strict=True)}
    else:
        changed = {path: value + float(step) for (path, value), step in zip(values.items(), steps, strict=True)}
    return with_values(profile, {path: _limited(path, value) for path, value in changed.items()})


def _prior_covariance() -> Covariance:
    matrix = np.diag([prior.spread**2 for prior in PRIORS])
    return Covariance(names=tuple(prior.path for prior in PRIORS), matrix=tuple(map(tuple, matrix.tolist())))


def _root(covariance: Covariance) -> Floats:
    """Return a matrix whose square is the covariance; rounding may have made that slightly indefinite."""
    values, vectors = np.linalg.eigh(np.asarray(covariance.matrix, dtype=np.float64))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _limited(path: str, value: float) -> float:
    name = next(part for part in reversed(path.split(".")) if not part.isdigit())
    low, high = _LIMITS.get(name, _EFFICIENCY if "efficiency" in name else (0.0, np.inf))
    return float(min(max(value, low), high))


def value_at(profile: Profile, path: str) -> float:
    """Return the number at a path such as ``launch.none.tail_s`` or ``gpu_time.compute_efficiency.3``."""
    value: Any = profile
    for part in path.split("."):
        value = value[int(part)] if part.isdigit() else getattr(value, part)
    return float(value)


def with_values(profile: Profile, values: Mapping[str, float]) -> Profile:
    """Return *profile* with the numbers at these paths replaced, validated."""
    data: dict[str, Any] = profile.model_dump()
    for path, value in values.items():
        *parents, last = path.split(".")
        place: Any = data
        for part in parents:
            if isinstance(place[part], tuple):
                place[part] = list(place[part])
            place = place[part]
        place[int(last) if last.isdigit() else last] = value
    return Profile.model_validate(data)
