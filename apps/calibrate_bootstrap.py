"""``servecast calibrate bootstrap``: how uncertain a profile is, by refits on resampled bursts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apps.output import FormatOption, Table, emit, say, write_file


def bootstrap_command(
    steps_dir: Annotated[Path, typer.Argument(help="The folder the profile was fitted to.")],
    profile: Annotated[str, typer.Option("--profile", help="The profile: a shipped name, or a file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write it with its new covariance.")],
    workload: Annotated[str, typer.Option("--workload", help="Which recording of the folder.")] = "calib",
    refits: Annotated[int, typer.Option("--refits", help="How often to fit again; about a second each.")] = 40,
    workers: Annotated[int, typer.Option("--workers", help="Processes that share the refits.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same covariance.")] = 0,
    format: FormatOption = None,
) -> None:
    """Measure how uncertain the coefficients of a profile are: fit again and again to resampled bursts.

    Example:

    \b
      servecast calibrate bootstrap runs/llama-3.1-8b --profile my-h200.json -o my-h200.json --workers 2
      servecast simulate "vllm serve meta-llama/Llama-3.1-8B" --profile my-h200.json --rate 8 --intervals
    """
    from calibration.bootstrap import bootstrap_folder
    from simulator.hf_config import load_model
    from simulator.profile import load_profile

    before = load_profile(profile)
    served = load_model(before.provenance.model)
    after = bootstrap_folder(
        before, steps_dir, served, workload=workload, refits=refits, seed=seed, workers=workers, progress=say
    )
    write_file(output, after.model_dump_json(indent=2) + "\n")
    old, new = (
        {name: one.covariance.matrix[k][k] ** 0.5 for k, name in enumerate(one.covariance.names)}
        for one in (before, after)
    )
    rows = [[name, f"{old[name]:.1%}" if name in old else "-", f"{value:.1%}"] for name, value in new.items()]
    columns = ("coefficient", "uncertain by, before", "now")
    emit(format, table=Table(columns, rows, right=(1, 2)), data={"before": old, "now": new})
    say(f"wrote {output}")
