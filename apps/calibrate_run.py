"""``servecast calibrate run``: start a vLLM server, drive it, and leave a profile of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps.output import FormatOption, Table, emit, say, write_file

if TYPE_CHECKING:
    from calibration.campaign_files import RunFolder
    from calibration.live import Outcome, Wish
    from simulator.profile import Profile

Model = Annotated[str, typer.Argument(help="Model to serve, as `vllm serve` takes it: a name or a folder.")]
ServeArgs = Annotated[str, typer.Option("--serve-args", help="Arguments of `vllm serve`, quoted.")]
Url = Annotated[
    str | None,
    typer.Option("--url", help="Measure a server that runs already, from outside: no profile, only client timings."),
]
Vllm = Annotated[str, typer.Option("--vllm", help="How to start vLLM; the model and its arguments follow.")]
Gpu = Annotated[str | None, typer.Option("--gpu", help="GPU it runs on, e.g. H200; default: what nvidia-smi names.")]
Minutes = Annotated[
    float, typer.Option("--minutes", min=0.02, max=240, help="Time for the bursts; the start not counted.")
]
Out = Annotated[Path, typer.Option("--out", help="Folder for the recording, the log and profile.json.")]
ModelConfig = Annotated[
    Path | None, typer.Option("--model-config", help="config.json of a model not in the catalogue.")
]


def run_command(
    model: Model,
    serve_args: ServeArgs = "",
    url: Url = None,
    minutes: Minutes = 5.0,
    out: Out = Path("calibration-run"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    gpu: Gpu = None,
    vllm: Vllm = "vllm serve",
    model_config: ModelConfig = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the profile; default: GPU and model.")] = None,
    gpu_times: Annotated[
        bool, typer.Option("--gpu-times/--no-gpu-times", help="Also record GPU times, by a worker class.")
    ] = True,
    startup_timeout: Annotated[
        float, typer.Option("--startup-timeout", help="Seconds until the server is up.")
    ] = 900.0,
    silence: Annotated[float, typer.Option("--silence", help="Seconds without a byte that end a request.")] = 60.0,
    refits: Annotated[
        int, typer.Option("--refits", min=0, help="Refits on resampled bursts: how uncertain the profile is. 0: none.")
    ] = 40,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same prompts.")] = 0,
    format: FormatOption = None,
) -> None:
    """Measure a server for some minutes and fit a profile of this GPU, model and vLLM.

    Example:

    \b
      servecast calibrate run meta-llama/Llama-3.1-8B --serve-args "--max-model-len 16384" --minutes 5 --out run
      servecast simulate "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384" --profile run/profile.json --rate 8
    """
    from calibration.campaign_files import RunFolder
    from calibration.live import Wish
    from simulator import catalogue
    from simulator.hf_config import load_model

    card = catalogue.gpu(gpu or _gpu_here())
    spec = load_model(str(model_config) if model_config else model)
    short = spec.name.rstrip("/").rsplit("/", 1)[-1].lower()
    wish = Wish(
        model=model, spec=spec, gpu=card, name=name or f"{card.name.lower().replace(' ', '-')}-{short}",
        serve_args=serve_args, vllm=vllm, url=url, minutes=minutes, gpu_times=gpu_times,
        startup_timeout_s=startup_timeout, silence_s=silence, seed=seed,
    )  # fmt: skip
    folder = RunFolder(out)
    outcome = _calibrated(wish, folder, resume)
    if outcome.profile is not None:
        write_file(out / "profile.json", outcome.profile.model_dump_json(indent=2) + "\n")
        if refits:
            outcome.profile = _resampled(outcome.profile, folder, wish, refits)
            write_file(out / "profile.json", outcome.profile.model_dump_json(indent=2) + "\n")
    _report_end(outcome, out)
    if url is not None:
        _report_outside(folder, wish, format)
    else:
        _report_fit(outcome, out, format)
    if outcome.stopped is not None:
        raise outcome.stopped
    if outcome.profile is None and url is None:
        raise typer.Exit(1)


def _calibrated(wish: Wish, folder: RunFolder, resume: bool) -> Outcome:
    """Run it; words of a server that died are shown before the error, and an interruption leaves a hint."""
    from calibration.live import calibrate
    from calibration.server import ServerError

    try:
        return calibrate(wish, folder, resume=resume, progress=say)
    except ServerError as error:
        _show_tail(error.log_tail)
        raise
    except (KeyboardInterrupt, SystemExit):
        say(f"stopped; what was recorded is in {folder.path}, --resume goes on with it")
        raise


def _resampled(profile: Profile, folder: RunFolder, wish: Wish, refits: int) -> Profile:
    """Return *profile* with the covariance of refits on resampled bursts; as it is where they are too few."""
    import os

    from calibration.bootstrap import bootstrap_folder
    from simulator.errors import ServecastError

    workers = min(4, os.cpu_count() or 1)
    try:
        return bootstrap_folder(
            profile, folder.path, wish.spec, refits=refits, seed=wish.seed, workers=workers, progress=say
        )
    except (ServecastError, ArithmeticError, ValueError, IndexError) as error:  # too few bursts, most often
        say(f"note: intervals rest on the fit's own covariance ({error})")
        return profile


def _show_tail(tail: str) -> None:
    if tail:
        say("the last lines of the server's log:")
        say("\n".join(f"  | {line[:200]}" for line in tail.splitlines()))


def _report_end(outcome: Outcome, out: Path) -> None:
    """Say why the run ended and what it has measured."""
    if outcome.stopped is not None:
        _show_tail(outcome.stopped.log_tail)
        say(f"the run stopped early; {outcome.bursts} bursts are kept in {out}, --resume goes on with them")
    else:
        say(f"{outcome.bursts} bursts, {outcome.steps:,} steps; ended because {outcome.reason}")
    if outcome.late:
        say(f"note: in {outcome.late} bursts the client was late; their steps count, their client timings do not")
    if outcome.next_up:
        purposes = dict.fromkeys(burst.purpose for burst in outcome.next_up)
        say(f"next it would measure: {'; '.join(list(purposes)[:4])}")


def _report_fit(outcome: Outcome, out: Path, format: FormatOption) -> None:
    """Say how well the fit is."""
    from apps.calibrate_command import _data, _tables, warn
    from calibration.fit import doubts

    if outcome.profile is None:
        say(f"no profile: {outcome.fit_error}")
        return
    emit(format, table=_tables(outcome.profile), data=_data(outcome.profile))
    warn(doubts(outcome.profile))
    for what, error in list(outcome.unsure.items())[:3]:
        say(f"least known: {what}, {100 * error:.1f} %")
    say(f"wrote {out / 'profile.json'}")


def _report_outside(folder: RunFolder, wish: Wish, format: FormatOption) -> None:
    """Show what the client saw, and how to see more."""
    import json

    from calibration.outside import recording_start, summary

    rows = summary(folder.good())
    shown = [
        [row["burst"], str(row["requests"]), f"{row['median_ttft_ms']:.1f}",
         "" if row["median_tpot_ms"] is None else f"{row['median_tpot_ms']:.2f}", f"{row['output_tokens_per_s']:,.0f}"]
        for row in rows
    ]  # fmt: skip
    columns = ("burst", "requests", "TTFT p50 ms", "TPOT p50 ms", "output tokens/s")
    emit(format, table=Table(columns, shown, right=(1, 2, 3, 4)), data={"url": wish.url, "bursts": rows})
    write_file(folder.path / "client.json", json.dumps({"url": wish.url, "bursts": rows}) + "\n")
    say(
        f"wrote {folder.path / 'client.json'}; a profile needs the engine's steps: let `calibrate run` start the server"
    )
    say(f"(no --url), or start it with: {recording_start(folder, wish.model, wish.serve_args)}")


def _gpu_here() -> str:
    """Return the first GPU that nvidia-smi names."""
    import subprocess

    from simulator.errors import InputError

    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        )
        names = done.stdout.strip().splitlines() if done.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired):
        names = []
    if not names:
        raise InputError("nvidia-smi names no GPU here; say which one it is with --gpu, e.g. --gpu H200")
    return names[0].removeprefix("NVIDIA ").strip()
