"""Profiles for what was not measured: another GPU, or another model on a measured GPU.

The coefficients of a profile are efficiencies, so a measured profile carries: to another model on the same GPU by
`ModelSpec` alone, to another GPU by `GpuSpec` alone.  Both are marked, so that a result can say what it stands on.
"""

from __future__ import annotations

from simulator.gpu_spec import GpuSpec
from simulator.profile import Profile, load_profile

REFERENCE = "h200-llama-3.1-8b"


def default_profile(gpu: GpuSpec) -> Profile:
    """Return an uncalibrated profile for any GPU: the efficiencies of the reference, marked."""
    reference = load_profile(REFERENCE)
    note = f"uncalibrated: efficiencies of {reference.name} with the peak rates of {gpu.name}"
    provenance = reference.provenance.model_copy(update={"calibrated": False, "gpu": gpu.name, "note": note})
    return reference.model_copy(
        update={"name": f"roofline-{gpu.name.lower()}", "provenance": provenance, "residuals": {}}
    )


def basis(profile: Profile, model_name: str, gpu_name: str) -> str | None:
    """Return what a prediction for *model_name* on *gpu_name* rests on, or None if the profile was measured for it."""
    source = profile.provenance
    if not source.calibrated:
        return f"{gpu_name}: no calibrated profile; a roofline with {source.note.removeprefix('uncalibrated: ')}"
    if source.gpu != gpu_name:
        return f"profile {profile.name} was calibrated on {source.gpu}, used for {gpu_name}"
    if source.model != model_name:
        return f"profile {profile.name} was calibrated on model {source.model}, used for {model_name}"
    return None
