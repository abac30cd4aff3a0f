"""``servecast calibrate``: recorded engine steps in, a profile out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.calibrate_bootstrap import bootstrap_command
from apps.calibrate_plan import plan_command
from apps.calibrate_run import run_command
from apps.output import FormatOption, Table, emit, say, write_file

if TYPE_CHECKING:
    from simulator.profile import Profile, Residuals

StepsDir = Annotated[
    Path, typer.Argument(help="Folder with WORKLOAD.steps.jsonl.gz, WORKLOAD.requests.json.gz and server.log.")
]
Model = Annotated[
    str, typer.Option("--model", help="Model that was served: a name of the catalogue, or a config.json.")
]
Gpu = Annotated[str, typer.Option("--gpu", help="GPU it was served on, e.g. H200.")]
Workload = Annotated[str, typer.Option("--workload", help="Which recording of the folder to fit.")]
ProfileFile = Annotated[Path, typer.Option("-o", "--output", help="Where to write the profile.")]

KINDS = {
    "all": "all",
    "decode": "decodes alone",
    "mixed": "prefills beside decodes",
    "prefill": "prefills alone",
    "idle": "first steps after idle",
}


def register(app: typer.Typer) -> None:
    """Add the command and its two actions to *app*."""
    calibrate = typer.Typer(
        name="calibrate", help="Fit step times to recorded engine steps.", no_args_is_help=True, rich_markup_mode=None
    )
    calibrate.command("fit")(fit_command)
    calibrate.command("check")(check_command)
    calibrate.command("refresh")(refresh_command)
    calibrate.command("plan")(plan_command)
    calibrate.command("run")(run_command)
    calibrate.command("bootstrap")(bootstrap_command)
    app.add_typer(calibrate)


def fit_command(
    steps_dir: StepsDir,
    model: Model,
    gpu: Gpu,
    output: ProfileFile,
    workload: Workload = "calib",
    name: Annotated[str | None, typer.Option("--name", help="Name of the profile; default: the file's.")] = None,
    measured: Annotated[
        str | None, typer.Option("--measured", help="Date of the measurement; default: the log's.")
    ] = None,
    format: FormatOption = None,
) -> None:
    """Fit a profile to recorded steps and say how well it fits.

    Example:

    \b
      servecast calibrate fit runs/llama-3.1-8b --model meta-llama/Llama-3.1-8B --gpu H200 -o my-h200.json
      servecast simulate "vllm serve meta-llama/Llama-3.1-8B" --profile my-h200.json --rate 8
    """
    from calibration.fit import doubts, fit_profile
    from simulator import catalogue
    from simulator.hf_config import load_model

    profile = fit_profile(
        steps_dir,
        load_model(model),
        catalogue.gpu(gpu),
        name=name or output.stem,
        workload=workload,
        measured=measured,
        progress=say,
    )
    write_file(output, profile.model_dump_json(indent=2) + "\n")
    emit(format, table=_tables(profile), data=_data(profile))
    warn(doubts(profile))
    say(f"wrote {output}")


def check_command(
    steps_dir: StepsDir,
    profile: Annotated[str, typer.Option("--profile", help="Profile to check: a shipped name, or a file.")],
    model: Annotated[str | None, typer.Option("--model", help="Model that was served; default: the profile's.")] = None,
    workload: Workload = "calib",
    format: FormatOption = None,
) -> None:
    """Predict recorded steps with a profile, also of a run or a model it was not fitted on.

    Example:

    \b
      servecast calibrate check runs/qwen2.5-32b --model Qwen/Qwen2.5-32B --profile h200-llama-3.1-8b
    """
    from calibration.check import check
    from simulator import catalogue
    from simulator.hf_config import load_model
    from simulator.profile import load_profile

    used = load_profile(profile)
    served = load_model(model or used.provenance.model)
    found = check(used, steps_dir, served, catalogue.gpu(used.provenance.gpu), workload=workload)
    intervals = [
        [f"p{level}", f"{predicted:.2f}", f"{measured:.2f}", f"{100 * (predicted / measured - 1):+.1f}"]
        for level, (predicted, measured) in found.intervals_ms.items()
    ]
    title = f"{used.name} on {served.name}, {workload}: predicted against recorded step times"
    if found.left_out:
        title += f" ({found.left_out} disturbed stretches left out)"
    tables = [
        _quality(found.residuals, title),
        Table(("interval between steps", "predicted ms", "recorded ms", "error %"), intervals, right=(1, 2, 3),
              title=f"replay through the two time lines: all runs together {found.replay_total_percent:+.1f} %"),
    ]  # fmt: skip
    emit(format, table=tables, data={**vars(found), "residuals": _plain(found.residuals)})


def refresh_command(
    steps_dir: StepsDir,
    profile: Annotated[str, typer.Option("--profile", help="Profile to adapt: a shipped name, or a file.")],
    output: ProfileFile,
    model: Annotated[str | None, typer.Option("--model", help="Model that was served; default: the profile's.")] = None,
    workload: Workload = "calib",
    format: FormatOption = None,
) -> None:
    """Re-measure only what differs between hosts: the GPU scale and the launch scale; 20 s of bursts are enough.

    Example:

    \b
      servecast calibrate refresh runs/today --profile h200-llama-3.1-8b -o this-host.json
    """
    from calibration.host import refresh_host
    from simulator import catalogue
    from simulator.hf_config import load_model
    from simulator.profile import load_profile

    before = load_profile(profile)
    served = load_model(model or before.provenance.model)
    after = refresh_host(before, steps_dir, served, catalogue.gpu(before.provenance.gpu), workload=workload)
    write_file(output, after.model_dump_json(indent=2) + "\n")
    rows = [
        [name, f"{getattr(before.host, name):.4f}", f"{getattr(after.host, name):.4f}"]
        for name in ("gpu_scale", "cpu_scale", "launch_scale")
    ]
    emit(format, table=Table(("host", "before", "now"), rows, right=(1, 2)), data=after.host.model_dump())
    say(f"wrote {output}")


def warn(doubt: str | None) -> None:
    """Show a doubt, if there is one."""
    if doubt is not None:
        say(f"warning: {doubt}")


def _tables(profile: Profile) -> list[Table | str]:
    errors = _relative_errors(profile)
    values = [[name, f"{value:.4g}", f"{errors[name]:.0%}"] for name, value in _coefficients(profile).items()]
    return [
        _quality(profile.residuals, f"{profile.name}: predicted against recorded step times"),
        Table(("coefficient", "value", "uncertain by"), values, right=(1, 2)),
    ]


def _quality(residuals: dict[str, Residuals], title: str) -> Table:
    rows = [
        [KINDS.get(kind, kind), f"{r.count:,}", f"{r.bias_percent:+.1f}", f"{r.median_percent:.1f}",
         f"{r.mean_percent:.1f}", f"{r.p95_percent:.1f}"]
        for kind, r in residuals.items()
    ]  # fmt: skip
    columns = ("stretches of steps", "count", "bias %", "median %", "mean %", "p95 %")
    return Table(columns, rows, title=title, right=(1, 2, 3, 4, 5))


def _plain(residuals: dict[str, Residuals]) -> dict[str, dict[str, float]]:
    return {kind: r.model_dump() for kind, r in residuals.items()}


def _coefficients(profile: Profile) -> dict[str, float]:
    """Return the fitted coefficients by path."""
    found: dict[str, float] = {}
    for path in profile.covariance.names:
        value: Any = profile
        for part in path.split("."):
            value = value[int(part)] if part.isdigit() else getattr(value, part)
        found[path] = float(value)
    return found


def _relative_errors(profile: Profile) -> dict[str, float]:
    """Return the standard deviation of each coefficient relative to it."""
    covariance = profile.covariance
    return {name: covariance.matrix[k][k] ** 0.5 for k, name in enumerate(covariance.names)}


def _data(profile: Profile) -> dict[str, Any]:
    return {
        "profile": profile.name,
        "residuals": _plain(profile.residuals),
        "coefficients": _coefficients(profile),
        "relative_errors": _relative_errors(profile),
        "provenance": profile.provenance.model_dump(),
    }
