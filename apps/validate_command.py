"""``servecast validate``: predicts, measures the same requests (or reads a recorded run), and judges the prediction."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps import workload_options as options
from apps.output import FormatOption, OutputOption, emit, say, write_file

if TYPE_CHECKING:
    from calibration.live_validation import SendsRequests
    from calibration.validate import Validation
    from calibration.validation_inputs import Judging


class ClientKind(StrEnum):
    """A client."""

    own = "own"
    vllm_bench = "vllm-bench"


Command = Annotated[str | None, typer.Argument(help="The `vllm serve ...` line (quoted); started here unless --url.")]
Profile = Annotated[str, typer.Option("--profile", help="Step times: name of a shipped profile, or a file.")]
Gpu = Annotated[str | None, typer.Option("--gpu", help="GPU; default: the profile's.")]
Model = Annotated[str | None, typer.Option("--model", help="Recorded model; default: the profile's.")]
VllmVersion = Annotated[str | None, typer.Option("--vllm-version", help="vLLM version whose rules apply. [0.24.0]")]
ModelConfig = Annotated[
    Path | None, typer.Option("--model-config", help="config.json of a model not in the catalogue.")
]
Recorded = Annotated[
    Path | None, typer.Option("--recorded", help="Judge runs recorded in this folder; starts no server.")
]
Names = Annotated[
    list[str] | None,
    typer.Option("--workload", help="Recorded run NAME.requests.json.gz; several are repeats of the same requests."),
]
HostFrom = Annotated[
    str | None,
    typer.Option("--host-from", help="Recorded run of that server, made before: the host's speed is taken from it."),
]
HostProbe = Annotated[
    bool,
    typer.Option("--host-probe", help="Measure the host's speed for some seconds before the run, and predict with it."),
]
Measured = Annotated[
    list[str] | None, typer.Option("--measured", help="Judge a measured run: a shipped name, or a file.")
]
Bar = Annotated[
    list[str] | None, typer.Option("--bar", help="Largest error in %, e.g. ttft_p50=10; NAME=off takes one away.")
]
Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Measure the same requests so many times.")]
Folder = Annotated[Path | None, typer.Option("--out", help="Folder for what is measured; default: a temporary one.")]
Client = Annotated[
    ClientKind,
    typer.Option("--client", help="Who sends the requests; vllm-bench is `vllm bench serve` (0.24 or later)."),
]
Tokenizer = Annotated[
    str | None, typer.Option("--tokenizer", help="Tokenizer for vllm-bench: a name or folder; default: the model's.")
]
Url = Annotated[str | None, typer.Option("--url", help="Server that runs already; its engine steps stay unknown.")]
Replications = Annotated[int, typer.Option("--replications", help="Simulations an interval is made of; 0: none.")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes that share the replications.")]
Report = Annotated[Path | None, typer.Option("--report", help="Write REPORT.md, REPORT.html and REPORT.json.")]


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("validate")(validate_command)


def validate_command(
    profile: Profile,
    command: Command = None,
    gpu: Gpu = None,
    vllm_version: VllmVersion = None,
    model_config: ModelConfig = None,
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
    recorded: Recorded = None,
    workload: Names = None,
    host_from: HostFrom = None,
    host_probe: HostProbe = False,
    measured: Measured = None,
    model: Model = None,
    bar: Bar = None,
    repeats: Repeats = 1,
    out: Folder = None,
    url: Url = None,
    client: Client = ClientKind.own,
    tokenizer: Tokenizer = None,
    replications: Replications = 20,
    workers: Workers = 1,
    seed: Annotated[int, typer.Option("--seed", help="Seed of requests, prompts and noise.")] = 0,
    report: Report = None,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Compare prediction and measurement of the same requests: errors, bars, verdict, and where the error arises.

    Exit code 0: all bars kept; 2: a bar broken; 1: not judged (the client was too slow, requests failed).

    Examples:

    \b
      servecast validate "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384" \\
        --profile h200-llama-3.1-8b --rate 12 --num-prompts 300 --report chat12
      servecast validate "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384" \\
        --profile h200-llama-3.1-8b --concurrency 32 --num-prompts 200 --client vllm-bench --out runs
      servecast validate --recorded runs --workload chat12 --profile h200-llama-3.1-8b --bar ttft_p99=15
    """
    from calibration.validation_inputs import Judging, of_measured, of_recorded
    from simulator.errors import InputError

    source = {
        "rate": rate, "burstiness": burstiness, "concurrency": concurrency, "max_concurrency": max_concurrency,
        "requests": requests, "trace": trace, "rate_scale": rate_scale, "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens, "num_prompts": num_prompts,
    }  # fmt: skip
    if report is not None:
        made(report.parent)
    how = Judging(seed=seed, replications=replications, workers=workers, bars=bars(bar or []))
    given = any(value is not None for value in source.values())
    if host_from is not None and recorded is None:
        raise InputError(f"--host-from {host_from}: goes with --recorded, the folder that holds it")
    if host_probe and not given:
        raise InputError(
            "--host-probe: goes with a workload to measure now; for recorded runs there is --host-from RUN"
        )
    if (recorded is not None) + bool(measured) + given != 1:
        raise InputError("give one of: a workload (--rate R ...) to measure now, --recorded FOLDER, --measured RUN")
    if recorded is not None:
        done = of_recorded(
            recorded, workload or [], profile, how, command=command, model=model, gpu=gpu, host_from=host_from
        )
    elif measured:
        done = of_measured(measured, profile, how, command=command)
    else:
        server = {"profile": profile, "gpu": gpu, "vllm_version": vllm_version, "model_config": model_config}
        sender = _client(client, tokenizer, seed)
        done = _on_a_server(command, server, source, how, repeats, out, url, sender, host_probe)
    _show(done, report, format, output)


def bars(texts: list[str]) -> dict[str, float]:
    """Return the default bars with those of the command line put in or taken away."""
    from calibration.bars import BARS, NAMES
    from simulator.errors import InputError

    found = dict(BARS)
    for text in texts:
        name, _equals, value = text.partition("=")
        if name not in NAMES:
            raise InputError(f"--bar {text}: no metric is called {name!r}; known: {', '.join(NAMES)}")
        if value == "off":
            found.pop(name, None)
            continue
        try:
            found[name] = float(value.removesuffix("%"))
        except ValueError:
            found[name] = -1.0
        if not 0 < found[name] < float("inf"):
            raise InputError(f"--bar {text}: give NAME=PERCENT with a positive number, or NAME=off")
    return found


def _client(kind: ClientKind, tokenizer: str | None, seed: int) -> SendsRequests:
    from calibration.live_validation import BenchClient, OwnClient
    from simulator.errors import InputError

    if kind is ClientKind.vllm_bench:
        return BenchClient(tokenizer)
    if tokenizer is not None:
        raise InputError(f"--tokenizer {tokenizer}: only vllm-bench needs one; add --client vllm-bench")
    return OwnClient(seed)


def _on_a_server(
    command: str | None,
    server: dict[str, Any],
    source: dict[str, Any],
    how: Judging,
    repeats: int,
    out: Path | None,
    url: str | None,
    client: SendsRequests,
    probe: bool,
) -> Validation:
    """Predict, then measure on a server that is started here or runs at *url*."""
    import shutil
    import tempfile

    from calibration.live_validation import LiveServer, words_of
    from calibration.server import ServerError
    from calibration.validation_inputs import of_server
    from simulator.errors import InputError
    from simulator.scenario import Scenario

    if command is None:
        raise InputError('no server: give its start line, e.g. "vllm serve meta-llama/Llama-3.1-8B"; also with --url')
    scenario = Scenario.from_command(command, workload=options.workload(**source), seed=how.seed, **server)
    if url is None:
        words_of(command)
    elif probe:
        raise InputError(f"--host-probe: the steps of {url} are not recorded, so its host stays unknown; leave it out")
    runner = LiveServer(scenario.model.vocab_size, url=url, seed=how.seed, client=client, probe=probe, progress=say)
    folder = made(out) if out is not None else Path(tempfile.mkdtemp(prefix="servecast-"))
    try:
        found = of_server(scenario, command, runner, folder, how, repeats=repeats, progress=say)
    except BaseException as error:
        if isinstance(error, ServerError) and error.log_tail:
            say("the last lines of the log:")
            say("\n".join(f"  | {line[:200]}" for line in error.log_tail.splitlines()))
        if any(folder.glob("*.requests.json.gz")):
            say(f"what was measured until then is in {folder}")
        elif out is None and not isinstance(error, ServerError):  # its message names the log
            shutil.rmtree(folder)
        raise
    if out is None:
        shutil.rmtree(folder)
    return found


def made(folder: Path) -> Path:
    """Return *folder*, made if need be, before minutes are spent on what would lie in it."""
    from simulator.errors import InputError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot write there ({error.strerror}); give another folder") from None
    return folder


def _show(done: Validation, report: Path | None, format: Any, output: Path | None) -> None:
    """Write the report, and end with the exit code of the verdict."""
    from apps import validation_page as page
    from apps.cli import ERROR, NO, OK
    from apps.output import Format
    from calibration.bars import Verdict
    from calibration.validation_data import to_data

    data = to_data(done)
    parts = page.report(data)
    emit(format, table=parts, data=data, rows=data["metrics"], output=output)
    if report is not None:
        folder = report.parent
        emit(Format.md, table=[page.markdown_head(data), *parts[1:]], data=data, output=folder / f"{report.name}.md")
        emit(Format.json, table=parts, data=data, output=folder / f"{report.name}.json")
        write_file(folder / f"{report.name}.html", page.html(data))
        say(f"wrote {report}.md, .html and .json")
    if output is not None or format is Format.json:
        say(done.words())
    code = {Verdict.passed: OK, Verdict.missed: NO, Verdict.not_judged: ERROR}[done.verdict]
    if code:
        raise typer.Exit(code)
