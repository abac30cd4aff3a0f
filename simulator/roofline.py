"""Profiles for what was not measured: another GPU, or another model on a measured GPU.

The coefficients of a profile are efficiencies and overheads, so a measured profile carries: to another model on the
same GPU by `ModelSpec` alone (8B to 32B within 1.4 % of decode steps and 3 % of mixed ones, docs/calibration.md), to
another GPU by `GpuSpec` alone, which was never checked.  Both are marked, so that a result can say what it stands on.
"""

from __future__ import annotations

from simulator.gpu_spec import GpuSpec
from simulator.profile import Covariance, Profile, load_profile

REFERENCE = "h200-llama-3.1-8b"

#: Multiprocessors, as many KV tiles of decode attention run at once (NVIDIA data sheets and architecture papers).
MULTIPROCESSORS = {
    "H200": 132, "H100": 132, "A100": 108, "B200": 148, "L40S": 142, "L4": 58, "A10G": 80, "RTX 4090": 128,
    "H20": 78, "H100-PCIe": 114,
}  # fmt: skip


def multiprocessors(gpu_name: str, default: int = 132) -> int:
    """Return the multiprocessors of a GPU by the longest name it starts with."""
    known = sorted((name for name in MULTIPROCESSORS if gpu_name.upper().startswith(name.upper())), key=len)
    return MULTIPROCESSORS[known[-1]] if known else default


def default_profile(gpu: GpuSpec) -> Profile:
    """Return an uncalibrated profile for any GPU: the efficiencies of the reference, marked."""
    reference = load_profile(REFERENCE)
    note = f"uncalibrated: efficiencies of {reference.name} with the peak rates of {gpu.name}"
    provenance = reference.provenance.model_copy(update={"calibrated": False, "gpu": gpu.name, "note": note})
    slots = multiprocessors(gpu.name, reference.gpu_time.attention_slots)
    return reference.model_copy(
        update={
            "name": f"roofline-{gpu.name.lower().replace(' ', '-')}",
            "gpu_time": reference.gpu_time.model_copy(update={"attention_slots": slots}),
            "provenance": provenance,
            "residuals": {},
            "covariance": Covariance(),
        }
    )
