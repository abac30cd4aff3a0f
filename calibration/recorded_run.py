"""A recorded run, read: what the clients saw and, where the engine was recorded too, its steps.

A folder holds ``WORKLOAD.requests.json(.gz)``, ``WORKLOAD.steps.jsonl(.gz)`` and ``server.log`` (formats:
`calibration.recording`).  A measured-run file alone (`simulator.measured`) gives the clients' side only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.client_lag import ClientLag, client_lag
from calibration.fit import Folder, logged_version, server_log
from calibration.fit_gpu import Recording
from calibration.recording import Sent, Steps, read_lines
from calibration.trace import StepColumns, Trace, of_recorded
from simulator.errors import InputError
from simulator.gpu_spec import GpuSpec
from simulator.measured import MeasuredRun, load_measured
from simulator.model_spec import ModelSpec


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """See the module text; *recording*, *sent* and *trace* are None without recorded steps.

    *client*: how well the client kept its times, by its own account; *failed*: why requests were not answered.
    """

    measured: MeasuredRun
    recording: Recording | None = None
    sent: Sent | None = None
    trace: Trace | None = None
    notes: tuple[str, ...] = ()
    client: ClientLag | None = None
    failed: tuple[str, ...] = ()

    def obstacles(self) -> list[str]:
        """Return why this run must not be judged, in words; empty if it may be."""
        lag = client_lag(self.measured)
        own = self.client.bottleneck(self.measured.seen.ttft_s) if self.client is not None else None
        found = [lag.words()] if lag.is_bottleneck else [own] if own else []
        if self.failed:
            found.append(f"{len(self.failed)} requests failed on the server; the first: {self.failed[0]}")
        return found

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.measured.name


def clients_only(name_or_path: str | Path) -> RecordedRun:
    """Return a measured run without steps: a shipped one by name, or a file."""
    return RecordedRun(load_measured(name_or_path))


def read_run(folder: Path, workload: str, model: ModelSpec, gpu: GpuSpec) -> RecordedRun:
    """Return the run *workload* of a folder.  Raises `InputError` naming the file that is missing or broken."""
    requests = _requests_path(folder, workload)
    measured = load_measured(requests)
    measured = replace(measured, name=workload, provenance=_provenance(folder, model, gpu, measured.provenance))
    about = _about_client(requests)
    steps_path = next((p for p in _places(folder, workload, "steps.jsonl") if p.is_file()), None)
    if steps_path is None:
        note = f"{folder} has no {workload}.steps.jsonl(.gz): engine steps unknown"
        return RecordedRun(measured, notes=(note,), **about)
    found = Folder.read(folder, workload, model, gpu, logged_version(folder))
    assert found.sent is not None
    sent, steps = found.sent, found.recording.steps
    inside = (steps.plan_start_s >= sent.sent_s.min()) & (steps.plan_start_s <= sent.last_token_s.max())
    if not inside.any():
        raise InputError(f"{steps_path}: no step while {requests.name} was running; are both from one run?")
    kept = np.flatnonzero(inside)
    recording = replace(found.recording, steps=take(steps, kept))
    columns, chunks, blocks = _states(steps_path, recording.steps)
    return RecordedRun(measured, recording, sent, of_recorded(columns, chunks, sent, blocks), found.notes, **about)


def _about_client(path: Path) -> dict[str, Any]:
    """Return what the client says about itself, where it does, and the reasons of requests that failed."""
    data = json.loads("".join(read_lines(path)[0]))
    client, failed = data.get("client"), data.get("failed", [])
    try:
        lag = ClientLag(**client) if client else None
        return {"client": lag, "failed": tuple(str(one["error"]) for one in failed)}
    except (TypeError, KeyError) as error:
        raise InputError(f"{path}: client or failed is not as this servecast writes it ({error})") from None


def take(steps: Steps, index: NDArray[np.int64]) -> Steps:
    """Return some steps in the given order; a step is linked only if the one before it is its predecessor."""
    columns: dict[str, Any] = {
        name: value[index] for name, value in vars(steps).items() if isinstance(value, np.ndarray)
    }
    follows = np.append(False, np.diff(index) == 1)
    columns["linked"] = columns["linked"] & follows
    return replace(steps, **columns)


def _places(folder: Path, workload: str, kind: str) -> list[Path]:
    return [folder / f"{workload}.{kind}{suffix}" for suffix in (".gz", "")]


def _requests_path(folder: Path, workload: str) -> Path:
    found = next((path for path in _places(folder, workload, "requests.json") if path.is_file()), None)
    if found is None and not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the one that holds {workload}.requests.json.gz")
    if found is None:
        known = sorted(path.name.split(".requests.")[0] for path in folder.glob("*.requests.json*"))
        raise InputError(f"{folder}: no {workload}.requests.json or .gz; has {', '.join(known) or 'none'}")
    return found


def logged_arguments(folder: Path) -> str | None:
    """Return the line of ``server.log(.gz)`` that tells how the server was started, if there is one."""
    lines = server_log(folder).splitlines()
    return next((line[line.index("non-default args:") :] for line in lines if "non-default args:" in line), None)


def _provenance(folder: Path, model: ModelSpec, gpu: GpuSpec, known: Mapping[str, str]) -> dict[str, str]:
    found = {"gpu": gpu.name, "model": model.name, "vllm_version": logged_version(folder)}
    arguments = logged_arguments(folder)
    if arguments is not None:
        found["command"] = arguments
    return found | dict(known)


def _states(path: Path, steps: Steps) -> tuple[StepColumns, list[list[list[int]]], int]:
    """Return the columns of the recorded *steps*, their prefill chunks, and the KV blocks of the header."""
    plans: dict[int, dict[str, Any]] = {}
    blocks = 0
    for line in read_lines(path)[0]:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:  # the last line of a truncated file; any other was refused before
            break
        if record["a"] == "h":
            blocks = int(record.get("blocks") or 0)
        elif record["a"] == "s":
            plans[int(record["n"])] = record
    rows = [plans[number] for number in steps.number.tolist()]

    def column(key: str) -> NDArray[np.int64]:
        return np.array([int(row.get(key) or 0) for row in rows], dtype=np.int64)

    columns = StepColumns(
        plan_s=steps.plan_start_s, emit_s=steps.update_end_s, mode=steps.mode, tokens=steps.num_tokens,
        decode_reqs=steps.decode_reqs, running=column("r"), waiting=column("w"), free_blocks=column("f"),
        preempted=column("pre"),
    )  # fmt: skip
    return columns, [row["p"] for row in rows], blocks
