"""How well a fit knows the step times that matter: the standard error of each, from the coefficients' covariance.

For a step time g(c), standard error of log g = sqrt(d' C d), d the derivative of log g by the logarithms of the
coefficients (differences), C their covariance.  The steps are of the kinds the bursts measure, so that the worst one
says what to measure next.  Says nothing about what the form of the model leaves out: that is in the residuals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibration.bursts import Limits
from calibration.fit_gpu import with_values
from calibration.recording import Floats
from simulator.cuda_graphs import GraphDispatch
from simulator.engine_config import EngineConfig
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import ModelSpec
from simulator.profile import Profile
from simulator.step_cost import StepCost

#: A fit is good enough when every kind of step is known as well as this (standard error of its time).
ENOUGH = 0.015
_DIFFERENCE = 1e-4


@dataclass(frozen=True)
class KnownStep:
    """One kind of step: words, and the burst (its kind) that would tell more about it."""

    what: str
    decodes: int
    context: int
    prefill: int


def steps_that_matter(limits: Limits) -> list[KnownStep]:
    """Return the kinds of steps that lie inside the limits."""
    batches = [batch for batch in (1, 16, 64, 256) if batch <= limits.max_num_seqs]
    found = [KnownStep(f"decode batch of {batch} at 512 tokens", batch, 512, 0) for batch in batches]
    found += [KnownStep(f"decode batch of {batch} at 2,048 tokens", batch, 2048, 0) for batch in batches if batch > 1]
    for tokens in (128, 512, 2048, 8192):
        if tokens <= min(limits.max_num_batched_tokens, limits.max_model_len):
            found.append(KnownStep(f"a prompt of {tokens:,} tokens alone", 0, 0, tokens))
            if tokens + 32 <= limits.max_num_batched_tokens:
                found.append(KnownStep(f"a prompt of {tokens:,} tokens beside 32 decodes", 32, 512, tokens))
    return [step for step in found if step.decodes * (step.context or 1) <= limits.kv_tokens]


def standard_errors(
    profile: Profile, model: ModelSpec, gpu: GpuSpec, engine: EngineConfig, limits: Limits
) -> dict[str, float]:
    """Return the relative standard error of each step that matters; the least known first."""
    steps, covariance = steps_that_matter(limits), profile.covariance
    if not covariance.names:
        return {}
    base = _log_times(profile, steps, model, gpu, engine)
    columns = []
    for name in covariance.names:
        moved = with_values(profile, {name: _value(profile, name) * (1 + _DIFFERENCE)})
        columns.append((_log_times(moved, steps, model, gpu, engine) - base) / _DIFFERENCE)
    slopes = np.array(columns).T
    variances = np.einsum("ij,jk,ik->i", slopes, np.array(covariance.matrix), slopes)
    errors = {step.what: float(error) for step, error in zip(steps, np.sqrt(np.maximum(variances, 0)), strict=True)}
    return dict(sorted(errors.items(), key=lambda item: -item[1]))


def _value(profile: Profile, path: str) -> float:
    value: object = profile
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, tuple) else getattr(value, part)
    assert isinstance(value, (int, float))
    return float(value)


def _log_times(
    profile: Profile, steps: list[KnownStep], model: ModelSpec, gpu: GpuSpec, engine: EngineConfig
) -> Floats:
    cost, dispatch = StepCost(profile, model, gpu, engine), GraphDispatch(engine).dispatch
    times = []
    for step in steps:
        reqs = step.decodes + (1 if step.prefill else 0)
        tokens = step.decodes + step.prefill
        mode, padded = dispatch(tokens, reqs, not step.prefill)
        decoding = (step.decodes, float(step.decodes * step.context), float(step.context))
        attention = step.prefill**2 / 2.0
        times.append(cost.gpu_s(int(mode), padded, tokens, reqs, reqs, *decoding, attention, step.prefill))
    return np.asarray(np.log(times))
