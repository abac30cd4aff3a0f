"""Calibrated times of one (GPU, vLLM version, host): coefficients, their uncertainty, their range, their provenance.

The GPU-time coefficients are physical (efficiencies, overheads per layer and per request): FLOPs and bytes come from
`ModelSpec`, rates from `GpuSpec`, so one profile serves other models of the same kind on the same GPU.
`simulator.step_cost` holds the formulas; `calibration` writes profiles; ``profiles/`` holds the shipped ones.

Seconds everywhere.  A file of a newer schema is refused.  One of schema 1, in which decode attention had another form,
is read with that form's two fields left out, and says so in its provenance.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from simulator.errors import InputError, input_error

SCHEMA_VERSION = 2
#: Fields of schema 1 that are no more.
_RETIRED = ("imbalance_factor", "partial_wave_factor")


class Section(BaseModel):
    """Base of all sections: frozen, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GpuTime(Section):
    """Coefficients of the GPU time of a step (formulas in `simulator.step_cost`)."""

    compute_tokens: tuple[float, ...] = Field(min_length=1)  # tokens at which the next are given, ascending
    compute_efficiency: tuple[float, ...] = Field(min_length=1)  # of the peak rate, linear layers of so many tokens
    bandwidth_efficiency: float = Field(gt=0, le=1.5)  # of the peak bandwidth, reading weights
    roofline_exponent: float = Field(ge=1)
    activation_factor: float = Field(ge=0)  # multiples of the traffic of one read and one write per linear layer
    step_s: float = Field(default=0.0, ge=0)  # a step of whatever size: sampling, input preparation on the GPU
    per_layer_s: float = Field(ge=0)
    per_request_s: float = Field(ge=0)
    per_kv_tile_s: float = Field(ge=0)  # decode attention: a tile, that is per request, KV head and layer
    kv_bandwidth_efficiency: float = Field(gt=0, le=1.5)  # reading KV in steps of decodes only
    kv_bandwidth_efficiency_mixed: float = Field(gt=0, le=1.5)  # the same beside prefills
    attention_efficiency: float = Field(gt=0, le=1.5)  # of the peak rate, prefill attention
    attention_slots: int = Field(gt=0)  # (request, KV head) tiles that run at once: multiprocessors of the GPU
    # Decode attention on an H200, FlashAttention 3 of vLLM 0.24.0, bf16, head dimension 128 (docs/calibration.md):
    kv_block_s: float = Field(default=1.04e-6, ge=0)  # a multiprocessor reads 128 tokens of a KV head, alone
    kv_split_s: float = Field(default=0.6e-6, ge=0)  # a layer in which a context is split, to join the parts

    @model_validator(mode="after")
    def _check_curve(self) -> GpuTime:
        tokens, efficiency = self.compute_tokens, self.compute_efficiency
        if len(tokens) != len(efficiency):
            raise ValueError(f"compute_efficiency must have {len(tokens)} values, as compute_tokens has")
        if tokens[0] <= 0 or any(low >= high for low, high in pairwise(tokens)):
            raise ValueError("compute_tokens must be positive and ascend")
        if not all(0 < value <= 1.5 for value in efficiency):
            raise ValueError("compute_efficiency must lie in (0, 1.5]")
        return self


class ModeLaunch(Section):
    """Blocking launch in one CUDA-graph mode: constant + per layer + per request, dearer after idle."""

    constant_s: float = Field(ge=0)
    per_layer_s: float = Field(ge=0)
    per_request_s: float = Field(default=0.0, ge=0)
    idle_factor: float = Field(default=1.0, ge=0)  # multiplies the launch when the GPU was idle
    tail_s: float = Field(default=0.0, ge=0)  # from the end of the launch to the earliest end of the step


class Launch(Section):
    """CPU time that blocks the engine loop, by CUDA-graph mode."""

    start_s: float = Field(ge=0)  # from the start of the launch to the first kernel
    idle_start_s: float = Field(default=0.0, ge=0)  # more when the engine loop had been asleep
    #: --enforce-eager: nothing is fused, more kernels a layer.  Measured once: Llama-3.1-8B, H200, vLLM 0.24.
    eager_factor: float = Field(default=1.5, ge=1)
    none: ModeLaunch
    piecewise: ModeLaunch
    full: ModeLaunch


class CpuWork(Section):
    """Times that grow as the host's CPU gets slower."""

    def slower(self, factor: float) -> Self:
        """Return the same work on a CPU that takes *factor* times as long."""
        return self if factor == 1.0 else self.model_copy(update={name: factor * value for name, value in self})


class Cpu(CpuWork):
    """schedule() and update_from_output(): constant + per request."""

    schedule_s: float = Field(ge=0)
    schedule_per_request_s: float = Field(ge=0)
    update_s: float = Field(ge=0)
    update_per_request_s: float = Field(ge=0)


class FrontEnd(CpuWork):
    """API server and the engine's input thread: requests in, tokens out (`simulator.front_end`).

    In: processor sharing with a demand, then a latency, then one after the other through the input thread, which takes
    its time from a launch in progress.  Out: one queue; a step's message needs a service time per stream, and more for
    each first token.
    """

    request_latency_s: float = Field(ge=0)
    request_latency_per_token_s: float = Field(default=0.0, ge=0)
    request_demand_s: float = Field(ge=0)
    request_demand_per_token_s: float = Field(ge=0)
    input_s: float = Field(default=0.0, ge=0)
    input_per_token_s: float = Field(default=0.0, ge=0)
    first_token_s: float = Field(ge=0)
    first_token_per_prompt_token_s: float = Field(ge=0)
    token_s: float = Field(ge=0)
    token_per_stream_s: float = Field(ge=0)
    finish_s: float = Field(default=0.0, ge=0)  # per response that ends in the step


class Transfer(Section):
    """Moving data between devices."""

    allreduce_latency_s: float = Field(ge=0)  # one all-reduce of few bytes
    allreduce_bytes_per_s: float = Field(gt=0)
    # Between GPU and pinned host memory (`simulator.transfer_cost`).  The first two measured on an H200, PCIe 5 x16:
    # 55.1 of 64 GB/s in large copies, 1.9 us more a copy out and 2.6 us in (calibration/transfer_probe.py).
    pcie_efficiency: float = Field(default=0.86, gt=0, le=1)  # of the GPU's `pcie_bytes_per_s`, each way
    copy_s: float = Field(default=2.3e-6, ge=0)  # one copy, whatever its size
    # V1 offload hands over a batch: what a copy in it costs.  Fitted to one run (H200, vLLM 0.24.0, Llama-3.1-8B, 96
    # blocks a load): with this the requests waited as long for their loads as recorded.
    batched_copy_s: float = Field(default=1.0e-6, ge=0)
    copy_job_s: float = Field(default=50e-6, ge=0)  # V1 offload: hand-over of one request's copies; a guess


class Host(Section):
    """This host against the one the coefficients come from; re-measured by `servecast calibrate refresh`.

    ``gpu_scale`` multiplies GPU times, ``compute_scale`` what prompts compute once more (GPUs of one kind read memory
    and compute at speeds of their own); ``cpu_scale`` all CPU work (engine loop, launches, API server), and once more
    ``launch_scale`` the launches, ``front_end_scale`` the API server.  ``measured`` says when this very host was
    measured; empty: another host of its kind.
    """

    gpu_scale: float = Field(default=1.0, gt=0)
    compute_scale: float = Field(default=1.0, gt=0)
    launch_scale: float = Field(default=1.0, gt=0)
    cpu_scale: float = Field(default=1.0, gt=0)
    front_end_scale: float = Field(default=1.0, gt=0)
    measured: str = ""


class ModeNoise(Section):
    """Step-to-step variation in one mode: log-normal GPU time; launches by their quantiles."""

    gpu_sigma: float = Field(default=0.0, ge=0)
    #: Launches relative to the typical one, at evenly spaced probabilities from 0 to 1; empty: always 1.
    launch_quantiles: tuple[float, ...] = ()


class Noise(Section):
    """Variation by CUDA-graph mode."""

    none: ModeNoise = ModeNoise()
    piecewise: ModeNoise = ModeNoise()
    full: ModeNoise = ModeNoise()


class Covariance(Section):
    """Covariance of the fitted coefficients, named ``section.field``; relative if they were fitted as logarithms."""

    names: tuple[str, ...] = ()
    matrix: tuple[tuple[float, ...], ...] = ()
    of_logarithms: bool = True


class Residuals(Section):
    """Signed and absolute errors of predicted step times, in percent, over *count* stretches of one kind."""

    count: int = Field(ge=0)
    bias_percent: float
    median_percent: float
    mean_percent: float
    p95_percent: float


class Hull(Section):
    """The largest values seen while calibrating; predictions beyond are extrapolations."""

    tokens: int = 0
    decode_reqs: int = 0
    context: int = 0


class SourceFile(Section):
    """One file the profile was fitted from."""

    name: str
    sha256: str


class Provenance(Section):
    """Where the numbers come from."""

    gpu: str
    vllm_version: str
    model: str
    command: str = ""
    measured: str = ""
    files: tuple[SourceFile, ...] = ()
    created: str = ""
    servecast_version: str = ""
    calibrated: bool = True
    quantization: str | None = None  # of the weights, as `--quantization` or the checkpoint says
    note: str = ""
    fit: dict[str, float] = Field(default_factory=dict)  # numbers that tell how good the fit is


class Profile(Section):
    """Everything `simulator.step_cost` and `simulator.front_end` need to know about time."""

    schema_version: Literal[2] = 2
    name: str
    gpu_time: GpuTime
    launch: Launch
    cpu: Cpu
    front_end: FrontEnd
    transfer: Transfer
    host: Host = Host()
    noise: Noise = Noise()
    covariance: Covariance = Covariance()
    residuals: dict[str, Residuals] = Field(default_factory=dict)
    hull: Hull = Hull()
    provenance: Provenance


def shipped_profiles(gpu: str = "") -> list[str]:
    """Return the names of the shipped profiles, GPU-MODEL each; of one *gpu* if it is given."""
    from simulator import shipped

    return sorted(path.stem for path in shipped.path("profiles").glob(f"{gpu.lower() or '*'}-*.json"))


def load_profile(name_or_path: str | Path) -> Profile:
    """Return a shipped profile by name, or the one in a file.  Raises `InputError`, one line."""
    path = Path(name_or_path)
    if path.suffix != ".json" and not path.exists():
        from simulator import shipped

        shipped_path = Path(str(shipped.path("profiles", f"{name_or_path}.json")))
        if not shipped_path.is_file():
            known = ", ".join(shipped_profiles())
            raise InputError(f"profile {str(name_or_path)!r} is neither a file nor a shipped profile ({known})")
        path = shipped_path
    return parse_profile(_read(path), f"profile {path}")


def parse_profile(text: str, what: str) -> Profile:
    """Return the profile written in *text*; *what* names it in errors."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{what}: not JSON (truncated?): {error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{what}: not a profile: the top level must be an object")
    version = data.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise InputError(
            f"{what}: schema_version {version} is newer than this servecast reads ({SCHEMA_VERSION}); update it"
        )
    try:
        return Profile.model_validate(_renewed(data) if version == 1 else data)
    except ValidationError as error:
        raise input_error(error, what) from None


def _renewed(data: dict[str, Any]) -> dict[str, Any]:
    """Return a profile of schema 1 as one of schema 2."""
    gpu_time, source, spread = (dict(data.get(name) or {}) for name in ("gpu_time", "provenance", "covariance"))
    names = [str(name) for name in spread.get("names", ())]
    kept = [k for k, name in enumerate(names) if name.removeprefix("gpu_time.") not in _RETIRED]
    if len(kept) < len(names):
        matrix = spread.get("matrix", ())
        spread |= {"names": [names[k] for k in kept], "matrix": [[matrix[k][other] for other in kept] for k in kept]}
    for name in _RETIRED:
        gpu_time.pop(name, None)
    old = "fitted before the form of decode attention changed; fit it again: servecast calibrate fit"
    source["note"] = f"{source['note']}; {old}" if source.get("note") else old
    return data | {"schema_version": 2, "gpu_time": gpu_time, "provenance": source, "covariance": spread}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"profile {path}: not a text file") from None
    except OSError as error:
        raise InputError(f"profile {path}: {error.strerror}") from None
