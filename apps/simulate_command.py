"""``servecast simulate``: the latency and throughput of one server under one workload."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps import workload_options as options
from apps.output import FormatOption, OutputOption, Table, check_places, emit, say, write_csv, write_file

if TYPE_CHECKING:
    from simulator.result import Result
    from simulator.scenario import Scenario

Command = Annotated[str | None, typer.Argument(help="The `vllm serve ...` line (quoted), or another way to start it.")]
Profile = Annotated[str | None, typer.Option("--profile", help="Step times: name of a shipped profile, or a file.")]
Gpu = Annotated[str | None, typer.Option("--gpu", help="GPU, e.g. H200; default: the profile's.")]
VllmVersion = Annotated[str | None, typer.Option("--vllm-version", help="vLLM version whose rules apply. [0.24.0]")]
ModelConfig = Annotated[
    Path | None, typer.Option("--model-config", help="config.json of a model not in the catalogue.")
]
OverLength = Annotated[str, typer.Option("--over-length", help="Requests above max_model_len: fail or drop.")]
PerRequest = Annotated[Path | None, typer.Option("--per-request", help="Also write one row per request to this CSV.")]
Intervals = Annotated[bool, typer.Option("--intervals", help="Also show the 90 % interval of each metric.")]
Replications = Annotated[
    int | None, typer.Option("--replications", help="Simulations an interval is made of; implies --intervals. [20]")
]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes that share the replications.")]
Replicas = Annotated[int | None, typer.Option("--replicas", help="Servers behind a router, each like this one. [1]")]
Router = Annotated[
    str | None,
    typer.Option(
        "--router",
        help="round-robin, random, least-outstanding, power-of-two, prefix-hash[:prefix_tokens=N], prefix-match.",
    ),
]
Autoscale = Annotated[
    str | None,
    typer.Option("--autoscale", help="E.g. min=1,max=8,signal=waiting,target=4,startup=90s,cooldown=5min."),
]
Timeline = Annotated[Path | None, typer.Option("--timeline", help="Also write one row per second to this CSV.")]

LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E latency"}
STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("simulate")(simulate_command)


def simulate_command(
    command: Command = None,
    profile: Profile = None,
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
    rate_shape: options.RateShape = None,
    users: options.Users = None,
    think_time: options.ThinkTime = None,
    turns: options.Turns = None,
    system_prompt_tokens: options.SystemPromptTokens = None,
    mix: options.Mix = None,
    replicas: Replicas = None,
    router: Router = None,
    autoscale: Autoscale = None,
    over_length: OverLength = "fail",
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same result.")] = 0,
    format: FormatOption = None,
    output: OutputOption = None,
    per_request: PerRequest = None,
    timeline: Timeline = None,
    intervals: Intervals = False,
    replications: Replications = None,
    workers: Workers = 1,
    scenario: Annotated[
        Path | None, typer.Option("--scenario", help="A saved scenario, instead of all the above.")
    ] = None,
    save_scenario: Annotated[
        Path | None, typer.Option("--save-scenario", help="Save it as .json, .toml or .yaml.")
    ] = None,
) -> None:
    """Predict TTFT, TPOT, ITL, E2E latency and throughput of a vLLM server.

    Example:

    \b
      servecast simulate "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384" \\
        --profile h200-llama-3.1-8b --rate 12 \\
        --prompt-tokens lognormal:300:1.0:8:4000 --output-tokens lognormal:180:0.8
    """
    from apps.planning.steady import overload
    from simulator.errors import InputError
    from simulator.simulate import simulate

    check_places(output, per_request, timeline, save_scenario)
    source = {
        "rate": rate, "burstiness": burstiness, "concurrency": concurrency, "max_concurrency": max_concurrency,
        "requests": requests, "trace": trace, "rate_scale": rate_scale, "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens, "num_prompts": num_prompts, "rate_shape": rate_shape, "users": users,
        "think_time": think_time, "turns": turns, "system_prompt_tokens": system_prompt_tokens, "mix": mix,
    }  # fmt: skip
    server = {"profile": profile, "gpu": gpu, "vllm_version": vllm_version, "model_config": model_config}
    fleet = fleet_settings(replicas, router, autoscale)
    question = _question(command, scenario, server, source, {"over_length": over_length, "seed": seed}, fleet)
    if intervals and replications == 0:
        raise InputError("--intervals and --replications 0 contradict each other; leave one of them out")
    wanted = replications if replications is not None else 20 if intervals else 0
    result = _with_intervals(question, wanted, workers) if wanted else simulate(question)
    if (told := overload(result)) is not None:
        result = replace(result, warnings=(*result.warnings, told))
    seconds = None if timeline is None else result.timeline  # may be refused: before anything is written
    if save_scenario is not None:
        write_file(save_scenario, question.to_text(str(save_scenario)))
    if per_request is not None:
        write_csv(per_request, result.requests)
    if timeline is not None and seconds is not None:
        write_csv(timeline, seconds)
    show(result, format, output)
    if result.records.died:
        raise typer.Exit(1)


def _with_intervals(question: Scenario, replications: int, workers: int) -> Result:
    from calibration.intervals import predict_with_intervals

    return predict_with_intervals(question, replications=replications, workers=workers)


def _question(
    command: str | None,
    saved: Path | None,
    server: dict[str, Any],
    source: dict[str, Any],
    rest: dict[str, Any],
    fleet: dict[str, Any],
) -> Scenario:
    """Return the scenario: read from *saved*, or made from the server's command line and the options."""
    from simulator.errors import InputError, validated
    from simulator.request_list import read_text
    from simulator.scenario import Scenario

    if saved is not None:
        if command is not None or fleet or any(value is not None for value in (*server.values(), *source.values())):
            raise InputError("--scenario already holds the server and the workload; leave the other options out")
        return Scenario.from_text(read_text(saved), str(saved))
    if command is None:
        raise InputError(
            'no server: give its start line, e.g. "vllm serve meta-llama/Llama-3.1-8B", or --scenario FILE'
        )
    workload = options.workload(**source)
    made = Scenario.from_command(command, workload=workload, **server, **rest)
    return validated(Scenario, {**dict(made), **fleet}, "scenario") if fleet else made


def fleet_settings(replicas: int | None, router: str | None, autoscale: str | None) -> dict[str, Any]:
    """Return the fields of a scenario that make it several servers; empty without options."""
    from simulator.autoscaler import Autoscaler
    from simulator.errors import InputError
    from simulator.routing import Routing

    found: dict[str, Any] = {}
    if autoscale is not None:
        found["autoscaler"] = Autoscaler.parse(autoscale)
        found["replicas"] = found["autoscaler"].min
    if replicas is not None:
        found["replicas"] = replicas
    if router is not None:
        if not found:
            raise InputError(f"--router {router}: there is one server; give --replicas N or --autoscale")
        found["router"] = Routing.parse(router)
    return found


def show(result: Result, format: Any, output: Path | None) -> None:
    """Write the summary of *result*; warnings go to stderr unless the format carries them."""
    summary = result.summary()
    tables: list[Table | str] = [headline(summary), latency_table(summary), totals_table(summary)]
    if summary["intervals"]:
        tables.append(interval_table(summary))
    tables += [
        table(summary) for key, table in (("classes", class_table), ("replicas", replica_table)) if key in summary
    ]
    rows = [{key: value for key, value in summary.items() if not isinstance(value, (dict, list))}]
    data = {**summary, "scenario": result.scenario.model_dump(mode="json")}
    emit(format, table=tables, data=data, rows=rows, output=output)
    carried = format == "json" or (format is None and output is not None and output.suffix.lower() == ".json")
    for warning in () if carried else summary["warnings"]:
        say(f"warning: {warning}")


def headline(summary: dict[str, Any]) -> str:
    """Return one line that says what was simulated and how far to trust it."""
    source = summary["provenance"]
    timed = f"profile {source['profile']}" if source["profile"] else "data sheet only"
    marked = "" if source["calibrated"] else ", NOT CALIBRATED: a first answer"
    return f"{source['model']} on {source['gpu']}, vLLM {source['vllm_version']} ({timed}{marked})"


def number(value: float | None, digits: int = 2) -> str:
    """Return *value* as text; a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def latency_table(summary: dict[str, Any]) -> Table:
    """Return mean and percentiles of the four latencies in ms."""
    rows = [
        [title, *(number(summary[f"{statistic}_{name}_ms"]) for statistic in STATISTICS)]
        for name, title in LATENCIES.items()
    ]
    return Table(columns=["latency (ms)", *STATISTICS], rows=rows, right=range(1, 6))


def totals_table(summary: dict[str, Any]) -> Table:
    """Return throughput, counts and the state of the engine."""
    whole = {
        "completed": "requests completed", "failed": "requests failed", "dropped": "requests dropped (over length)",
        "preemptions": "preemptions", "swapped_out_blocks": "KV blocks swapped out",
        "swapped_in_blocks": "KV blocks swapped in",
    }  # fmt: skip
    lines = [
        ["duration", number(summary["duration_s"]), "s"],
        ["request throughput", number(summary["request_throughput"]), "requests/s"],
        ["output throughput", number(summary["output_throughput"], 1), "tokens/s"],
        ["total token throughput", number(summary["total_token_throughput"], 1), "tokens/s"],
        *([title, f"{summary[key]:,}", ""] for key, title in whole.items() if key in summary),
        ["KV cache usage, maximum", number(_percent(summary["kv_cache_usage_max"]), 1), "%"],
        ["KV cache usage, mean", number(_percent(summary["kv_cache_usage_mean"]), 1), "%"],
        ["prefix cache hit rate", number(_percent(summary["prefix_cache_hit_rate"]), 1), "%"],
        *_offload_lines(summary),
        ["KV blocks", f"{summary['memory']['num_gpu_blocks']:,}", f"of {summary['memory']['block_size']} tokens"],
    ]
    if "num_cpu_blocks" in summary["memory"]:
        lines.append(["KV blocks on the CPU", f"{summary['memory']['num_cpu_blocks']:,}", ""])
    return Table(columns=["result", "value", "unit"], rows=lines, right=[1])


def _offload_lines(summary: dict[str, Any]) -> list[list[str]]:
    """Return what the CPU tier of the prefix cache gained; nothing without one."""
    if "external_prefix_cache_hit_rate" not in summary:
        return []
    return [
        ["CPU tier hit rate, of the rest", number(_percent(summary["external_prefix_cache_hit_rate"]), 1), "%"],
        ["requests that loaded from it", f"{summary['requests_loaded']:,}", ""],
        ["mean TTFT, loaded", number(summary["mean_ttft_loaded_ms"]), "ms"],
        ["mean TTFT, not loaded", number(summary["mean_ttft_not_loaded_ms"]), "ms"],
    ]


def interval_table(summary: dict[str, Any]) -> Table:
    """Return the intervals of latencies and throughput beside the prediction."""
    found = summary["intervals"]
    wanted = {
        f"{statistic}_{name}_ms": f"{title} {statistic} (ms)"
        for name, title in LATENCIES.items()
        for statistic in STATISTICS
    } | {"request_throughput": "requests/s", "output_throughput": "output tokens/s"}
    rows = [[title, number(summary[key]), *map(number, found[key])] for key, title in wanted.items() if key in found]
    title = f"{100 * found['level']:.0f} % intervals of {found['replications']} replications"
    if found.get("lacks"):
        title += f"; TOO NARROW, they do not contain {', '.join(found['lacks'])}"
    return Table(columns=["metric", "predicted", "low", "high"], rows=rows, title=title, right=[1, 2, 3])


def class_table(summary: dict[str, Any]) -> Table:
    """Return the latencies of each class of a mix."""
    keys = ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms", "mean_e2el_ms", "p99_e2el_ms")
    rows = [
        [name, f"{one['requests']:,}", f"{one['failed']:,}", *(number(one[key]) for key in keys)]
        for name, one in summary["classes"].items()
    ]
    titles = ("TTFT mean (ms)", "TTFT p99", "TPOT mean", "TPOT p99", "E2E mean", "E2E p99")
    return Table(columns=["class", "requests", "failed", *titles], rows=rows, right=range(1, 9))


def replica_table(summary: dict[str, Any]) -> Table:
    """Return what each replica did."""
    rows = [
        [str(one["replica"]), f"{one['requests']:,}", number(_percent(one["utilisation"]), 1),
         number(_percent(one.get("prefix_cache_hit_rate")), 1), number(one.get("mean_ttft_ms")),
         number(one.get("p99_ttft_ms")), number(one["launched_s"], 1), number(one["stopped_s"], 1)]
        for one in summary["replicas"]
    ]  # fmt: skip
    title = (
        f"{summary['router']}; {number(summary['replicas_mean'], 1)} replicas paid for on average, "
        f"{summary['replicas_max']} ready at most, {number(summary['gpu_hours'], 3)} GPU hours"
    )
    columns = ["replica", "requests", "GPU busy %", "prefix hits %", "TTFT mean (ms)", "TTFT p99", "from s", "to s"]
    return Table(columns=columns, rows=rows, title=title, right=range(8))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
