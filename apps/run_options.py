"""Who computes: the options of every command that simulates many times (`apps.planning.runs`)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class BackendName(StrEnum):
    """Where the simulations run."""

    processes = "processes"
    dask = "dask"


Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes at most; default: one per core of this machine.")
]
Backend = Annotated[BackendName, typer.Option("--backend", help="processes of this machine, or a dask cluster.")]
Scheduler = Annotated[
    str | None, typer.Option("--scheduler", help="Address of the Dask scheduler, e.g. tcp://host:8786.")
]


def workers_of(workers: int | None, backend: BackendName, scheduler: str | None) -> int | str | None:
    """Return who computes, as `apps.planning.runs.run_many` takes it; `InputError` for options that do not go."""
    from simulator.errors import InputError

    if backend is BackendName.processes:
        if scheduler is not None:
            raise InputError(f"--scheduler {scheduler} is of no use to processes of this machine; add --backend dask")
        return workers
    if scheduler is None:
        raise InputError("--backend dask needs a scheduler: give its address, e.g. --scheduler tcp://host:8786")
    if workers is not None:
        raise InputError(f"--workers {workers} limits processes of this machine; a cluster's workers are all taken")
    return scheduler
