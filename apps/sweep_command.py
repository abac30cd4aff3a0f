"""``servecast sweep``: every combination of flags, loads, GPUs and profiles, simulated; rows written as they come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps import run_options
from apps import workload_options as options
from apps.output import Format, FormatOption, emit, say, write_file

if TYPE_CHECKING:
    from apps.planning.runs import Workers
    from apps.planning.sweep import Sweep
    from apps.sweep_store import Store

Command = Annotated[str | None, typer.Argument(help="The `vllm serve ...` line (quoted), or another way to start it.")]
Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="NAME=VALUES",
        help="An axis: a flag of vLLM or an option of this command; 64,128 or 2..20:2 or 1..64:*2. Repeat for more.",
    ),
]
SweepFile = Annotated[
    Path | None, typer.Option("--sweep", help="A sweep in a .toml or .yaml file, instead of COMMAND and options.")
]
Save = Annotated[Path | None, typer.Option("--save-sweep", help="Save the sweep as .toml or .yaml; runs it as well.")]
Slo = Annotated[str | None, typer.Option("--slo", help="Say which meet it, e.g. ttft_p99=500ms,tpot_p95=40ms.")]
Rows = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Rows, .jsonl or .csv, written as they come; goes on where it was stopped."),
]
Metric = Annotated[
    list[str] | None, typer.Option("--metric", help="What is shown and drawn, e.g. p99_ttft_ms. Repeat for more.")
]
TimeLimit = Annotated[float | None, typer.Option("--time-limit", help="Seconds one simulation may take. [any]")]


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("sweep")(sweep_command)


def sweep_command(
    command: Command = None,
    vary: Vary = None,
    profile: Annotated[str | None, typer.Option("--profile", help="Step times: a shipped profile, or a file.")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="GPU; default: the profile's.")] = None,
    vllm_version: Annotated[str | None, typer.Option("--vllm-version", help="vLLM version. [0.24.0]")] = None,
    model_config: Annotated[str | None, typer.Option("--model-config", help="config.json of the model.")] = None,
    rate: options.Rate = None,
    burstiness: options.Burstiness = None,
    concurrency: options.Concurrency = None,
    max_concurrency: options.MaxConcurrency = None,
    requests: options.Requests = None,
    trace: options.Trace = None,
    rate_scale: options.RateScale = None,
    prompt_tokens: options.PromptTokens = None,
    output_tokens: options.OutputTokens = None,
    num_prompts: options.NumPrompts = None,
    over_length: Annotated[str | None, typer.Option("--over-length", help="fail or drop. [fail]")] = None,
    slo: Slo = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The first seed.")] = 0,
    replications: Annotated[int, typer.Option("--replications", min=1, help="Seeds per configuration.")] = 1,
    sweep: SweepFile = None,
    save_sweep: Save = None,
    output: Rows = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin anew, whatever -o holds.")] = False,
    format: FormatOption = None,
    metric: Metric = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw to an .svg, .png or .html file.")] = None,
    x: Annotated[str | None, typer.Option("--x", help="Axis to draw along; default: the numeric one.")] = None,
    time_limit: TimeLimit = None,
    workers: run_options.Workers = None,
    backend: run_options.Backend = run_options.BackendName.processes,
    scheduler: run_options.Scheduler = None,
) -> None:
    """Simulate every combination of flags, loads, GPUs; a configuration that fails is a row with its reason.

    Example:

    \b
      servecast sweep "vllm serve meta-llama/Llama-3.1-8B" --profile h200-llama-3.1-8b --num-prompts 300 \\
        --vary max_num_seqs=16,64,256 --vary rate=4..20:4 -o results.jsonl --plot sweep.html
    """
    fixed = {
        "profile": profile, "gpu": gpu, "vllm_version": vllm_version, "model_config": model_config, "rate": rate,
        "burstiness": burstiness, "concurrency": concurrency, "max_concurrency": max_concurrency,
        "requests": requests and str(requests), "trace": trace, "rate_scale": rate_scale,
        "prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "num_prompts": num_prompts,
        "over_length": over_length,
    }  # fmt: skip
    from apps.sweep_picture import check_picture
    from apps.sweep_tables import check_metrics

    metrics = check_metrics(metric or [])
    if plot is not None:
        check_picture(plot)
    given = {name: value for name, value in fixed.items() if value is not None}
    asked = _asked(command, sweep, vary or [], given, {"slo": slo, "seed": seed, "replications": replications})
    if save_sweep is not None:
        _save(asked, save_sweep)
    if overwrite and output is not None:
        output.unlink(missing_ok=True)
    from apps.sweep_store import Store

    store = Store(output, asked)
    who = run_options.workers_of(workers, backend, scheduler)
    try:
        _run(asked, store, who, time_limit)
    except BaseException:
        _keep(asked, store, format, metrics)
        raise
    _show(asked, store, format, metrics, plot, x)
    _end(store)


def _asked(
    command: str | None, file: Path | None, vary: list[str], fixed: dict[str, Any], rest: dict[str, Any]
) -> Sweep:
    from apps.planning.sweep import Sweep
    from apps.planning.sweep_file import read_sweep
    from apps.planning.sweep_values import read_choices
    from simulator.errors import InputError
    from simulator.request_list import read_text

    if file is not None:
        if command is not None or vary or fixed or rest["slo"] is not None or rest["seed"] or rest["replications"] > 1:
            raise InputError("--sweep says all by itself; leave out the command and its options, or change the file")
        return read_sweep(read_text(file), str(file))
    if command is None:
        raise InputError('no server: give its start line, e.g. "vllm serve meta-llama/Llama-3.1-8B", or --sweep FILE')
    axes: dict[str, Any] = {}
    for text in vary:
        name, equals, values = text.partition("=")
        name = ",".join(part.strip().removeprefix("--").replace("-", "_") for part in name.split(","))
        if not equals or not name:
            raise InputError(f"--vary {text[:60]}: has no values; write NAME=VALUES, e.g. max_num_seqs=64,128")
        if name in axes:
            raise InputError(f"--vary {name} is given twice; put all its values into one")
        axes[name] = read_choices(values, name)
    return Sweep(command=command, options=fixed, vary=axes, **rest)


def _save(sweep: Sweep, path: Path) -> None:
    from apps.planning.sweep_file import write_sweep

    write_file(path, write_sweep(sweep, str(path)))


def _run(sweep: Sweep, store: Store, who: Workers, time_limit_s: float | None) -> None:
    from apps.planning.sweep_run import run_sweep
    from simulator.errors import InputError

    if time_limit_s is not None and not time_limit_s > 0:
        raise InputError(f"--time-limit must be above 0 seconds, got {time_limit_s:g}; leave it out for no limit")
    if store.rows:
        say(f"{store.path}: {len(store.rows):,} of {len(sweep):,} rows are there already (--overwrite begins anew)")
    done = frozenset(store.rows)
    for point, row in run_sweep(sweep, skip=done, time_limit_s=time_limit_s, progress="sweep", workers=who):
        store.add(point, row)
    store.finish()


def _keep(sweep: Sweep, store: Store, format: Format | None, metrics: tuple[str, ...]) -> None:
    """Tell, when the run ends early, where what was done is; without a file it is shown."""
    if store.path is not None:
        say(f"stopped: {len(store.rows):,} of {len(sweep):,} rows are in {store.path}; the same command goes on")
    elif store.rows:
        say(f"stopped: {len(store.rows):,} of {len(sweep):,} rows; with -o FILE.jsonl a sweep can go on")
        _show(sweep, store, format, metrics, None, None)


def _show(
    sweep: Sweep, store: Store, format: Format | None, metrics: tuple[str, ...], plot: Path | None, x: str | None
) -> None:
    from apps.planning.sweep_file import as_data
    from apps.planning.sweep_summary import averages
    from apps.sweep_picture import axis_of, draw
    from apps.sweep_tables import SHOWN, SHOWN_OVER_TWO, by_configuration, headline, tables, warnings

    rows = store.in_order()
    found = averages(sweep, rows)
    data = {"sweep": as_data(sweep), "rows": rows, "averages": [average.as_dict() for average in found]}
    emit(format, table=[headline(rows), *tables(sweep, found, metrics)], data=data, rows=rows)
    for text in warnings(rows):
        say(f"warning: {text}")
    if plot is not None:
        axis, drawn = axis_of(found, x), metrics or SHOWN_OVER_TWO
        draw(plot, sweep.command, found, axis, drawn, by_configuration(sweep, found, metrics or SHOWN))


def _end(store: Store) -> None:
    """Exit code 2 if vLLM would serve nothing or nothing meets the SLO; `InputError` if nothing could be asked."""
    from apps.planning.sweep_run import OK, PASSING
    from simulator.errors import InputError

    rows = store.in_order()
    states = {row["status"] for row in rows}
    met = [row["slo_met"] for row in rows if row["status"] == OK]
    if met and not all(one is False for one in met):
        return
    if met:
        say("no configuration meets the SLO")
        raise typer.Exit(2)
    if states <= {"bad input", "not covered", *PASSING}:
        raise InputError(f"nothing was answered; the first reason: {rows[0]['reason']}")
    raise typer.Exit(2)
