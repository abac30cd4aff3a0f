"""``servecast list``: what is shipped: models, GPUs, profiles, workloads."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from apps.output import FormatOption, OutputOption, Table, emit

_Rows = list[dict[str, Any]]


class Kind(StrEnum):
    """What there is to list."""

    models = "models"
    gpus = "gpus"
    profiles = "profiles"
    workloads = "workloads"


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("list")(list_command)


def list_command(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """List the shipped models, GPUs, profiles (step times) or workloads, each with its source.

    \b
    Example:
      servecast list gpus
    """
    rows = _LISTS[kind]()
    columns = list(rows[0]) if rows else ["name"]
    cells = [["" if row[column] is None else str(row[column]) for column in columns] for row in rows]
    numbers = [at for at, column in enumerate(columns) if rows and isinstance(rows[0][column], (int, float))]
    emit(format, table=Table(columns, cells, right=numbers), data=rows, rows=rows, output=output)


def _models() -> _Rows:
    from simulator import catalogue

    return [
        {
            "name": name,
            "parameters_g": round(model.num_parameters / 1e9, 2),
            "layers": model.num_hidden_layers,
            "kv_heads": model.num_key_value_heads,
            "max_model_len": model.max_position_embeddings,
            "verified": "yes" if model.verified else "no",
            "source": model.source,
        }
        for name, model in ((name, catalogue.model(name)) for name in catalogue.model_names())
        if model is not None
    ]


def _gpus() -> _Rows:
    from simulator import catalogue

    return [
        {
            "name": gpu.name,
            "visible_memory_gib": gpu.visible_memory_gib,
            "bandwidth_tb_per_s": round(gpu.memory_bandwidth_bytes_per_s / 1e12, 3),
            "bf16_tflops": round(gpu.bf16_flops_per_s / 1e12, 1),
            "compute_capability": gpu.compute_capability,
            "source": gpu.source,
        }
        for gpu in (catalogue.gpu(name) for name in catalogue.gpu_names())
    ]


def _profiles() -> _Rows:
    from simulator.profile import load_profile, shipped_profiles

    made = {name: load_profile(name).provenance for name in shipped_profiles()}
    keys = ("gpu", "model", "vllm_version")
    return [{"name": name, **{key: getattr(one, key) for key in keys}} for name, one in made.items()]


def _workloads() -> _Rows:
    from simulator import shipped

    folders = (("traces", "trace", "--trace"), ("measured", "measured on real servers", "servecast demo"))
    return [
        {"name": path.name.removesuffix("".join(path.suffixes[-2:])), "kind": kind, "use": use}
        for folder, kind, use in folders
        for path in sorted(shipped.path("workloads", folder).glob("*"))
        if path.suffix in {".gz", ".csv", ".json", ".jsonl"}
    ]


_LISTS: dict[Kind, Callable[[], _Rows]] = {
    Kind.models: _models,
    Kind.gpus: _gpus,
    Kind.profiles: _profiles,
    Kind.workloads: _workloads,
}
