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


def run_settings(workers: int | None, backend: BackendName, scheduler: str | None) -> dict[str, object]:
    """Return the keyword arguments of `apps.planning.runs.run_many`."""
    return {"workers": workers, "backend": backend.value, "scheduler": scheduler}
