"""A profile against recorded steps, whichever run or model they come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.fit import Folder, logged_version
from calibration.fit_gpu import DISTURBED, kinds, relative_errors, residuals_by_kind
from calibration.replay import replay
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import ModelSpec
from simulator.profile import Profile, Residuals

LEVELS = (50, 90, 99)


@dataclass(frozen=True)
class Checked:
    """Errors of stretches by kind (in percent), and of the replay through the two time lines.

    ``intervals_ms``: percentile of the time between two results: (predicted, recorded) in ms.
    """

    residuals: dict[str, Residuals]
    left_out: int
    replay_total_percent: float
    intervals_ms: dict[int, tuple[float, float]]


def check(profile: Profile, steps_dir: Path, model: ModelSpec, gpu: GpuSpec, *, workload: str) -> Checked:
    """Return how *profile* predicts one recording.  Disturbed stretches are left out of the residuals, and counted."""
    version = logged_version(steps_dir, profile.provenance.vllm_version)
    recording = Folder.read(steps_dir, workload, model, gpu, version).recording
    stretches = recording.stretches()
    errors = relative_errors(recording, stretches, profile)
    kept = np.abs(errors) <= DISTURBED
    again = replay(recording, profile, depth=2 if recording.engine.async_scheduling else 1)
    return Checked(
        residuals=residuals_by_kind(errors[kept], kinds(stretches, recording.steps)[kept]),
        left_out=int((~kept).sum()),
        replay_total_percent=round(100 * again.total_error(), 3),
        intervals_ms=dict(zip(LEVELS, again.interval_quantiles_ms(LEVELS), strict=True)),
    )
