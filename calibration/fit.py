"""From a folder of recordings to a profile.

A folder holds ``WORKLOAD.steps.jsonl(.gz)``, ``WORKLOAD.requests.json(.gz)`` (optional: without it the front end stays
the prior's) and ``server.log(.gz)`` (optional: vLLM version, date, arguments for the provenance).
"""

from __future__ import annotations

import ast
import gzip
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from calibration.fit_cpu import Launches, fit_cpu, fit_launch
from calibration.fit_front_end import FrontEndFit
from calibration.fit_gpu import GpuTimeFit, Recording, kinds, relative_errors, step_ends
from calibration.priors import starting_profile
from calibration.recording import Floats, Sent, Steps, read_header, read_requests, read_steps, sha256
from calibration.stretches import Stretches
from simulator.cuda_graphs import GraphDispatch, capture_sizes
from simulator.engine_config import EngineConfig
from simulator.errors import InputError
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import ModelSpec
from simulator.profile import Hull, Noise, Profile, Provenance, SourceFile
from simulator.versions import facts

#: Bounds of the step-to-step variation of GPU time.
LEAST_SIGMA, MOST_SIGMA = 0.002, 0.03

#: With fewer usable stretches a fit says more about the prior than about this GPU.
FEW_STRETCHES = 20

#: Arguments that say nothing about speed.
_NOT_TOLD = (
    "model_tag",
    "model",
    "host",
    "port",
    "served_model_name",
    "disable_uvicorn_access_log",
    "api_key",
    "scheduler_cls",
    "worker_cls",
)

Progress = Callable[[str], None]


def _quiet(_text: str) -> None:
    return


@dataclass(frozen=True, eq=False)
class Folder:
    """One workload of a folder of recordings, read."""

    recording: Recording
    sent: Sent | None
    files: tuple[SourceFile, ...]
    notes: tuple[str, ...]

    @classmethod
    def read(cls, steps_dir: Path, workload: str, model: ModelSpec, gpu: GpuSpec, vllm_version: str) -> Folder:
        """Read steps, requests and log.  Raises `InputError` naming the file."""
        steps_path = _find(steps_dir, workload, "steps.jsonl")
        if steps_path is None:
            raise InputError(f"{steps_dir}: no {workload}.steps.jsonl or .gz; has {_workloads(steps_dir) or 'none'}")
        engine = engine_of(
            read_header(steps_path), model, vllm_version, enforce_eager=_is_eager(steps_dir),
            quantization=logged_quantization(steps_dir),
        )  # fmt: skip
        steps = read_steps(steps_path, GraphDispatch(engine).dispatch)
        requests_path = _find(steps_dir, workload, "requests.json")
        sent = read_requests(requests_path) if requests_path else None
        paths = [path for path in (steps_path, requests_path, _find_log(steps_dir)) if path]
        files = tuple(SourceFile(name=path.name, sha256=sha256(path)) for path in paths)
        return cls(Recording(workload, steps, model, gpu, engine), sent, files, steps.notes)


def _find(steps_dir: Path, workload: str, kind: str) -> Path | None:
    for suffix in (".gz", ""):
        path = steps_dir / f"{workload}.{kind}{suffix}"
        if path.is_file():
            return path
    return None


def _workloads(steps_dir: Path) -> str:
    if not steps_dir.is_dir():
        raise InputError(f"{steps_dir}: no such folder")
    return ", ".join(sorted(path.name.split(".steps.")[0] for path in steps_dir.glob("*.steps.jsonl*")))


def server_log(steps_dir: Path) -> str:
    """Return the text of ``server.log`` or ``server.log.gz``, empty where there is none."""
    path = _find_log(steps_dir)
    if path is None:
        return ""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", errors="replace")


def _find_log(steps_dir: Path) -> Path | None:
    return next((path for path in (steps_dir / "server.log", steps_dir / "server.log.gz") if path.is_file()), None)


def _is_eager(steps_dir: Path) -> bool:
    return bool(re.search(r"'enforce_eager': True|enforce_eager=True", server_log(steps_dir)))


def logged_quantization(steps_dir: Path) -> str | None:
    """Return the ``--quantization`` the log names, if there was one."""
    found = re.search(r"'quantization': '(\w+)'", server_log(steps_dir))
    return found.group(1) if found else None


def logged_version(steps_dir: Path, default: str = "0.24.0") -> str:
    """Return the vLLM version the log names."""
    found = re.search(
        r"(?:LLM engine \(v|vLLM API server version |version )(\d+\.\d+\.\d+\S*?)\)?[\s,]", server_log(steps_dir)
    )
    return found.group(1) if found else default


def engine_of(
    header: dict[str, object],
    model: ModelSpec,
    vllm_version: str,
    *,
    enforce_eager: bool,
    quantization: str | None = None,
) -> EngineConfig:
    """Return the settings a recording was made with, as far as step costs depend on them."""
    tokens, seqs = (int(str(header.get(key) or default)) for key, default in (("max_tok", 8192), ("max_run", 1024)))
    return EngineConfig(
        model=model.name, vllm_version=vllm_version, max_model_len=model.max_position_embeddings,
        max_num_batched_tokens=tokens, max_num_seqs=seqs, enforce_eager=enforce_eager,
        quantization=quantization,
        async_scheduling=bool(header.get("async", True)),
        cudagraph_capture_sizes=capture_sizes(seqs, tokens, facts(vllm_version)),
    )  # fmt: skip


def fit_profile(
    steps_dir: Path,
    model: ModelSpec,
    gpu: GpuSpec,
    *,
    name: str,
    workload: str = "calib",
    measured: str | None = None,
    progress: Progress = _quiet,
) -> Profile:
    """Return the profile fitted to one workload of *steps_dir*."""
    vllm_version = logged_version(steps_dir)
    folder = Folder.read(steps_dir, workload, model, gpu, vllm_version)
    recording, steps = folder.recording, folder.recording.steps
    for note in folder.notes:
        progress(f"note: {note}")
    provenance = _provenance(steps_dir, folder, measured)
    progress(f"{workload}: {len(steps):,} steps, {steps.num_tokens.sum():,} tokens; fitting GPU time")
    fit = GpuTimeFit(starting_profile(name, provenance)).fit([recording])
    profile, stretches = fit.profile_, recording.stretches()
    progress("fitting launches and CPU work")
    launches = Launches.of(steps, stretches, folder.sent, step_ends(recording, stretches, profile))
    launch, noise = fit_launch(launches, model.num_hidden_layers, profile.launch)
    front_end = profile.front_end
    if folder.sent is not None:
        progress("fitting the front end")
        front_end = FrontEndFit(front_end).fit(steps, stretches, folder.sent).front_end_
    quality = {"stretches": float(len(stretches)), "left_out": float(fit.left_out_)}
    made = profile.model_copy(
        update={
            "launch": launch,
            "cpu": fit_cpu(steps),
            "front_end": front_end,
            "noise": with_gpu_sigma(noise, recording, stretches, profile),
            "covariance": fit.covariance_,
            "residuals": fit.residuals_[0],
            "hull": _hull(steps),
            "provenance": provenance.model_copy(update={"fit": quality}),
        }
    )
    return Profile.model_validate(rounded(made.model_dump()))


def doubts(profile: Profile) -> str | None:
    """Return why the GPU times of a fitted *profile* rest on little or nothing, and what to do; None if they do not."""
    found = profile.provenance.fit
    seen, left_out = int(found.get("stretches", 0)), int(found.get("left_out", 0))
    if seen - left_out >= FEW_STRETCHES:
        return None
    rests = "the prior alone" if seen == left_out else f"the prior and {seen - left_out} stretches of steps"
    if left_out > seen / 2:
        why = (
            f"{left_out} of {seen} stretches were more than a quarter off what {profile.provenance.gpu} can do; is "
            "that the GPU, and was the server alone on it (a CPU's times fit no profile)?"
        )
    elif seen:
        why = "few steps were recorded; add --resume and more --minutes"
    else:
        why = (
            "no result came on time, because every step was shorter than the next one's launch (a small model, or a "
            "busy host); record longer steps: a larger model, batch (--max-num-seqs) or context, or an idle host"
        )
    return f"GPU times rest on {rests}: {why}"


def rounded(value: object, digits: int = 6) -> object:
    """Return *value* with all floats rounded to so many significant digits."""
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def with_gpu_sigma(noise: Noise, recording: Recording, stretches: Stretches, profile: Profile) -> Noise:
    """Return *noise* with the step-to-step spread of GPU time: single steps against the median of their like."""
    errors = relative_errors(recording, stretches, profile)
    single = (stretches.first == stretches.last) & (kinds(stretches, recording.steps) == "decode")
    padded = recording.steps.padded_tokens[stretches.last]
    spreads: list[Floats] = []
    for size in np.unique(padded[single]):
        like = errors[single & (padded == size)]
        spreads.append(like - np.median(like))
    deviation = np.abs(np.concatenate(spreads)) if spreads else np.zeros(1)
    sigma = float(np.clip(1.4826 * np.median(deviation), LEAST_SIGMA, MOST_SIGMA))
    update = {mode: getattr(noise, mode).model_copy(update={"gpu_sigma": sigma}) for mode in Noise.model_fields}
    return noise.model_copy(update=update)


def _hull(steps: Steps) -> Hull:
    tokens, decodes = int(steps.num_tokens.max()), int(steps.decode_reqs.max())
    return Hull(tokens=tokens, decode_reqs=decodes, context=steps.longest_context)


def _provenance(steps_dir: Path, folder: Folder, measured: str | None) -> Provenance:
    recording, log = folder.recording, server_log(steps_dir)
    try:
        own_version = version("servecast")
    except PackageNotFoundError:
        own_version = ""
    return Provenance(
        gpu=recording.gpu.name,
        vllm_version=recording.engine.vllm_version,
        model=recording.model.name,
        quantization=recording.engine.quantization or recording.model.quantization,
        command=_command(log, recording.model.name),
        measured=measured or logged_date(steps_dir),
        files=folder.files,
        created=datetime.now(UTC).strftime("%Y-%m-%d"),
        servecast_version=own_version,
    )


def _command(log: str, model_name: str) -> str:
    """Return the command that started the server, from the arguments vLLM logs; places and ports left out."""
    found = re.search(r"non-default args: (\{.*?\})\s*$", log, re.MULTILINE)
    if not found:
        return ""
    try:
        arguments = ast.literal_eval(found.group(1))
    except (ValueError, SyntaxError):
        return ""
    parts = ["vllm serve", model_name]
    for name, value in arguments.items():
        flag = f"--{name.replace('_', '-')}"
        if name not in _NOT_TOLD:
            parts.append(flag if value is True else f"{flag} {value}")
    return " ".join(parts)


def logged_date(steps_dir: Path) -> str:
    """Return the date of the log's first line, empty without one; vLLM leaves out the year, which is the file's."""
    path = _find_log(steps_dir)
    found = re.search(r"\b(\d\d)-(\d\d) \d\d:\d\d:\d\d\b", server_log(steps_dir))
    if not found or path is None:
        return ""
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return f"{written.year}-{found.group(1)}-{found.group(2)}"
