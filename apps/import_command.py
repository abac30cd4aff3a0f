"""``servecast import``: what people already have (results, scrapes, traces) as a load, and beside a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.output import Format, FormatOption, Table, emit, say, write_file
from apps.simulate_command import Gpu, ModelConfig, OverLength, Profile, VllmVersion, number

if TYPE_CHECKING:
    from calibration.evidence.beside import Beside
    from calibration.evidence.evidence import Evidence
    from simulator.scenario import Scenario

Files = Annotated[list[Path], typer.Argument(help="A result, trace, scrape (or two), or a folder of results.")]
From = Annotated[
    str,
    typer.Option(
        "--from",
        help="Format, if not found by the content: vllm-bench, guidellm, inference-perf, prometheus, openai-batch, "
        "azure, mooncake, burstgpt, csv.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", help="Write the load: .csv a request list, .json a workload (--server: a scenario)."
    ),
]
Run = Annotated[int | None, typer.Option("--run", min=1, help="Which of several runs in the file; 1 is the first.")]
Seconds = Annotated[
    float | None, typer.Option("--seconds", min=1e-3, help="Time between two scrapes (one: since the server started).")
]
CharsPerToken = Annotated[
    float, typer.Option("--chars-per-token", min=0.1, help="Characters a token of an OpenAI batch file has.")
]
OutputTokens = Annotated[
    int | None,
    typer.Option("--output-tokens", min=1, help="Output length of an OpenAI batch; default: its max_tokens."),
]
Server = Annotated[
    str | None,
    typer.Option("--server", help="The server's start line: predict the same load, beside what was measured."),
]


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("import")(import_command)


def import_command(
    files: Files,
    from_: From = "auto",
    output: Output = None,
    run: Run = None,
    seconds: Seconds = None,
    chars_per_token: CharsPerToken = 4.0,
    output_tokens: OutputTokens = None,
    server: Server = None,
    profile: Profile = None,
    gpu: Gpu = None,
    vllm_version: VllmVersion = None,
    model_config: ModelConfig = None,
    over_length: OverLength = "fail",
    seed: Annotated[int, typer.Option("--seed", help="Of the simulation, and of lengths drawn for a .csv.")] = 0,
    format: FormatOption = None,
) -> None:
    """Read a benchmark's result, a /metrics scrape or a trace: the load it holds, and what was measured.

    Formats are recognised by their content: vllm bench serve, GuideLLM, inference-perf, Prometheus scrapes of vLLM,
    OpenAI batch files, Azure, Mooncake, Qwen and BurstGPT traces, request lists.

    Example:

    \b
      servecast import measured.json -o load.csv
      servecast import before.txt after.txt --seconds 3600 -o load.json
      servecast import measured.json --server "vllm serve meta-llama/Llama-3.1-8B" --profile h200-llama-3.1-8b
    """
    from calibration.evidence.evidence import Options
    from calibration.evidence.formats import read_evidence

    options = Options(seconds=seconds, chars_per_token=chars_per_token, output_tokens=output_tokens)
    found = read_evidence(files[0], *files[1:], format=from_, options=options)
    if len(found) > 1 and run is None:
        _show_runs(found, needs_one=output is not None or server is not None, format=format)
        return
    one = _chosen(found, run, files[0])
    scenario = None
    if server is not None:
        settings = {"profile": profile, "gpu": gpu, "vllm_version": vllm_version, "model_config": model_config}
        scenario = _scenario(one, server, settings, over_length=over_length, seed=seed)
    if output is not None:
        _write(one, scenario, output, seed)
    if scenario is not None and one.metrics:
        _show_beside(one, scenario, format)
    elif output is None or format is not None:
        emit(format, table=_about(one), data=_data(one), rows=_rows(one))
    for note in one.notes:
        say(f"note: {note}")


def _chosen(found: list[Evidence], run: int | None, path: Path) -> Evidence:
    from simulator.errors import InputError

    if run is not None and run > len(found):
        raise InputError(f"--run {run}: {path} holds {len(found)} runs; give a number from 1 to {len(found)}")
    return found[(run or 1) - 1]


def _show_runs(found: list[Evidence], needs_one: bool, format: Format | None) -> None:
    from simulator.errors import InputError

    if needs_one:
        raise InputError(
            f"{len(found)} runs are in there; choose one with --run 1 .. {len(found)} (without -o they are listed)"
        )
    keys = ("completed", "request_throughput", "output_throughput", "p50_ttft_ms", "p99_ttft_ms", "mean_tpot_ms")
    cells = [
        [str(number_), each.name, *(number(each.metrics.get(key)) for key in keys)]
        for number_, each in enumerate(found, 1)
    ]
    table = Table(columns=["run", "name", *keys], rows=cells, title=found[0].tool, right=[0, *range(2, 2 + len(keys))])
    rows = [{"run": number_, "name": each.name, **each.metrics} for number_, each in enumerate(found, 1)]
    emit(format, table=table, data=[_data(each) for each in found], rows=rows)


def _scenario(one: Evidence, server: str, settings: dict[str, Any], *, over_length: Any, seed: int) -> Scenario:
    from simulator.errors import InputError
    from simulator.scenario import Scenario

    if one.workload is None:
        raise InputError(f"{one.name}: holds no load that can be simulated: {one.no_workload}")
    return Scenario.from_command(server, workload=one.workload, over_length=over_length, seed=seed, **settings)


def _write(one: Evidence, scenario: Scenario | None, output: Path, seed: int) -> None:
    """Write the load as the suffix of *output* says, and say how it is used."""
    from simulator.errors import InputError
    from simulator.request_list import render
    from simulator.workload import traffic

    if one.workload is None:
        raise InputError(f"{one.name}: holds no load that can be written: {one.no_workload}")
    if output.suffix.lower() == ".json":
        whole = scenario if scenario is not None else one.workload
        write_file(output, whole.model_dump_json(indent=2) + "\n")
        return
    if output.suffix.lower() != ".csv":
        raise InputError(f"cannot write {output}: the load is written as .csv or .json; give one of them")
    sent = traffic(one.workload, seed)
    write_file(output, render(sent.table))
    clients = "" if sent.max_concurrency is None else f" --concurrency {sent.max_concurrency}"
    say(f'wrote {output}; use it: servecast simulate "vllm serve ..." --requests {output}{clients}')


def _about(one: Evidence) -> list[Table | str]:
    """Return the evidence for people."""
    parts: list[Table | str] = [f"{one.tool}: {one.name}" + (f", model {one.model}" if one.model else "")]
    parts.append(f"Load: {_load(one)}")
    if one.metrics:
        from collections import defaultdict

        from apps.simulate_command import latency_table

        parts.append(latency_table(defaultdict(lambda: None, one.metrics)))
        others = [[key, number(value)] for key, value in one.metrics.items() if not key.endswith("_ms")]
        parts.append(Table(columns=["measured", "value"], rows=others, right=[1]))
    return parts


def _load(one: Evidence) -> str:
    """Return the load in words."""
    from numpy import percentile as at

    from simulator.workload import traffic

    if one.workload is None:
        return f"none ({one.no_workload})"
    sent = traffic(one.workload, 0)
    table = sent.table
    lengths = ", ".join(
        f"{name} tokens mean {column.mean():,.0f}, p50 {at(column, 50):,.0f}, p99 {at(column, 99):,.0f}"
        for name, column in (("prompt", table.prompt_tokens), ("output", table.output_tokens))
    )
    span = float(table.arrival_s[-1] - table.arrival_s[0])
    rate = f", {(len(table) - 1) / span:,.2f} requests/s" if span > 0 else ""
    closed = "" if sent.max_concurrency is None else f", at most {sent.max_concurrency} in flight"
    return f"{len(table):,} requests{rate}{closed}; {lengths}"


def _rows(one: Evidence) -> list[dict[str, Any]]:
    return [{"metric": key, "measured": value} for key, value in one.metrics.items()]


def _data(one: Evidence) -> dict[str, Any]:
    return {
        "tool": one.tool,
        "name": one.name,
        "model": one.model,
        "metrics": dict(one.metrics),
        "workload": None if one.workload is None else one.workload.model_dump(mode="json"),
        "notes": list(one.notes),
    }


def _show_beside(one: Evidence, scenario: Scenario, format: Format | None) -> None:
    from apps.simulate_command import headline
    from calibration.evidence.beside import beside

    done = beside(one, scenario)
    summary = done.results[0].summary()
    rows = [
        {"metric": row.title, "unit": row.unit, "measured": row.measured, "predicted": row.predicted,
         "error_percent": row.error_percent}
        for row in done.rows
    ]  # fmt: skip
    data = {**_data(one), "rows": rows, "predicted": summary}
    emit(format, table=_beside_parts(done, summary, headline(summary)), data=data, rows=rows)
    for warning in summary["warnings"]:
        say(f"warning: {warning}")


def _beside_parts(done: Beside, summary: dict[str, Any], predicted: str) -> list[Table | str]:
    cells = [
        [f"{row.title} ({row.unit})", number(row.measured), number(row.predicted),
         "-" if row.error_percent is None else f"{row.error_percent:+.1f}"]
        for row in done.rows
    ]  # fmt: skip
    measured = f"Measured:  {done.evidence.tool}, {done.evidence.name}"
    about = f"{measured}\nPredicted: {predicted}; mean of {len(done.results)} seeds"
    load = f"Load: {_load(done.evidence)}"
    table = Table(columns=["metric", "measured", "predicted", "error %"], rows=cells, right=range(1, 4))
    return [about, load, table]
