"""``servecast search``: which flags, which GPU, how many replicas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps import run_options
from apps import workload_options as options
from apps.output import FormatOption, say
from apps.simulate_command import Command, Gpu, ModelConfig, OverLength, Profile, VllmVersion

if TYPE_CHECKING:
    from apps.planning.evaluate import Question, Row
    from apps.planning.runs import Workers
    from apps.planning.search import Goal
    from apps.planning.space import Space
    from simulator.scenario import Scenario

Over = Annotated[
    list[str] | None,
    typer.Option("--over", help="An axis: max_num_seqs=64,128 or max_num_batched_tokens=2048..16384 or gpu=H100,H200."),
]
Slo = Annotated[str | None, typer.Option("--slo", help="What must hold: ttft_p99=500ms,tpot_p95=40ms ...")]
Latency = Annotated[
    str | None,
    typer.Option("--latency", help="What is set against throughput or cost: slo, ttft_p99, tpot_mean ... [slo]"),
]
Objective = Annotated[
    str | None, typer.Option("--objective", help="throughput (per GPU) or cost (US $ per million output tokens).")
]
Trials = Annotated[int, typer.Option("--trials", min=1, help="Configurations simulated at most; more: Optuna chooses.")]
Price = Annotated[
    list[str] | None, typer.Option("--price", help="US $ per GPU hour: 2.50, or H100=2.50; default: list prices.")
]
Rows = Annotated[
    Path | None, typer.Option("-o", "--output", help="Rows as they come (.jsonl); an interrupted search goes on there.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Begin the -o file anew.")]


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("search")(search_command)


def search_command(
    command: Command = None,
    over: Over = None,
    slo: Slo = None,
    latency: Latency = None,
    objective: Objective = None,
    trials: Trials = 200,
    price: Price = None,
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
    num_prompts: Annotated[int, typer.Option("--num-prompts", help="Requests per run.")] = 2000,
    over_length: OverLength = "fail",
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same search.")] = 0,
    workers: run_options.Workers = None,
    backend: run_options.Backend = run_options.BackendName.processes,
    scheduler: run_options.Scheduler = None,
    format: FormatOption = None,
    output: Rows = None,
    overwrite: Overwrite = False,
) -> None:
    """Search flags, GPUs and replicas for what one GPU carries, or what tokens cost, against latency.

    With a load (--rate ...) each configuration is run under it; without one, --slo is needed and the capacity of each
    within it is searched.  What memory cannot hold or vLLM refuses is never simulated.  Exit code 2 if nothing holds.

    Example:

    \b
      servecast search "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384" --profile h200-llama-3.1-8b \\
        --over max_num_seqs=64,128,256 --over max_num_batched_tokens=2048..16384 --rate 24 --slo ttft_p99=500ms
    """
    from apps.planning.search import goal_of
    from apps.planning.space import default_space, parse_space
    from apps.search_store import SearchStore
    from apps.search_tables import show
    from simulator.errors import InputError
    from simulator.scenario import Scenario

    if command is None:
        raise InputError('no server: give its start line, e.g. "vllm serve meta-llama/Llama-3.1-8B"')
    source: dict[str, Any] = {
        "rate": rate, "burstiness": burstiness, "concurrency": concurrency, "max_concurrency": max_concurrency,
        "requests": requests, "trace": trace, "rate_scale": rate_scale, "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens, "num_prompts": num_prompts,
    }  # fmt: skip
    fixed = any(source[name] is not None for name in ("rate", "concurrency", "requests", "trace"))
    if not fixed and slo is None:
        raise InputError("give a load (--rate R ...) to compare under it, or an --slo to search each one's capacity")
    rest: dict[str, Any] = {"over_length": over_length, "seed": seed}
    workload = options.workload(**(source if fixed else {**source, "rate": 1.0}))
    asked = parse_space(over) if over else None
    if gpu is None and profile is None and asked is not None and asked.gpus:
        gpu = asked.gpus[0]
    rest |= {"profile": profile, "gpu": gpu, "vllm_version": vllm_version, "model_config": model_config}
    scenario = Scenario.from_command(command, workload=workload, **rest)
    space = asked or default_space(scenario)
    question = _question(scenario, fixed, slo, latency, num_prompts, _prices(price, scenario, space))
    goal = goal_of(question, _objective(objective, question, space))
    if overwrite and output is not None:
        output.unlink(missing_ok=True)
    store = SearchStore(output, _asked(question, space, trials, goal), space)
    rows = _searched(question, space, goal, trials, store, run_options.workers_of(workers, backend, scheduler))
    if not show(rows, question, space, goal, format):
        raise typer.Exit(2)


def _question(
    scenario: Scenario, fixed: bool, slo: str | None, latency: str | None, requests: int, prices: dict[str, float]
) -> Question:
    from apps.planning.evaluate import METRICS, Question
    from apps.planning.load import axis_of, load_of
    from apps.planning.slo import Slo
    from simulator.errors import InputError

    wanted = None if slo is None else Slo.parse(slo)
    name = latency or ("slo" if wanted is not None and fixed else "e2el_p99")
    key = name if name == "slo" else "{1}_{0}_ms".format(*name.split("_", 1)) if "_" in name else ""
    if (key != "slo" and key not in METRICS) or (key == "slo" and wanted is None):
        known = "ttft, tpot, itl, e2el with mean, p50, p95 or p99, e.g. ttft_p99, or slo with --slo"
        raise InputError(f"--latency {name[:40]!r} is not known; give {known}")
    return Question(
        scenario=scenario,
        mode="load" if fixed else "capacity",
        axis=axis_of(scenario),
        load=load_of(scenario),
        slo=wanted,
        latency=key,
        requests=requests,
        prices=prices,
    )


def _prices(given: list[str] | None, scenario: Scenario, space: Space) -> dict[str, float]:
    """Return US $ per GPU hour of the GPUs in the search, as far as they are known."""
    from apps.planning.prices import list_price, own_price
    from simulator import catalogue
    from simulator.errors import InputError

    names = space.gpus or (scenario.gpu.name,)
    prices = {name: price.usd_per_gpu_hour for name in names if (price := list_price(name)) is not None}
    for text in given or []:
        gpu, equals, number = text.rpartition("=")
        try:
            value = own_price(float(number)).usd_per_gpu_hour
        except ValueError:
            raise InputError(f"--price {text[:40]!r}: write 2.50, or H100=2.50") from None
        prices |= dict.fromkeys([catalogue.gpu(gpu).name] if equals else names, value)
    return prices


def _objective(name: str | None, question: Question, space: Space) -> Any:
    from simulator.errors import InputError

    if name not in (None, "throughput", "cost"):
        raise InputError(f"--objective must be throughput or cost, got {name[:40]!r}" if name else "")
    unpriced = [gpu for gpu in space.gpus or (question.scenario.gpu.name,) if gpu not in question.prices]
    if name == "cost" and unpriced:
        raise InputError(f"no list price is shipped for {', '.join(unpriced)}; give --price {unpriced[0]}=DOLLARS")
    if name is None and len(space.gpus) > 1 and unpriced:
        say(f"no list price for {', '.join(unpriced)}: GPUs are compared by throughput; give --price to compare cost")
    return name or ("cost" if len(space.gpus) > 1 and not unpriced else "throughput")


def _asked(question: Question, space: Space, trials: int, goal: Goal) -> dict[str, Any]:
    """Return what makes two searches the same."""
    from importlib.metadata import version

    return {
        "servecast_version": version("servecast"),
        "scenario": question.scenario.model_dump(mode="json"),
        "mode": question.mode,
        "slo": None if question.slo is None else str(question.slo),
        "latency": question.latency,
        "requests": question.requests,
        "prices": dict(question.prices),
        "objective": goal.objective,
        "space": {name: list(values) for name, values in space.axes.items()},
        "trials": trials if len(space) > trials else None,
    }


def _searched(question: Question, space: Space, goal: Goal, trials: int, store: Any, workers: Workers) -> list[Row]:
    """Run the search, every row kept at once; return all rows."""
    from apps.planning.evaluate import PRUNED
    from apps.planning.progress import shown
    from apps.planning.search import search

    known = dict(store.rows)
    if known:
        say(f"going on with {len(known):,} configurations that are there already")
    try:
        with shown("searching", min(len(space), trials)) as advance:
            for row in known.values():
                if row["status"] not in PRUNED or len(space) <= trials:
                    advance()
            for row in search(question, space, goal, trials=trials, known=known, workers=workers):
                store.add(tuple((name, row["config"][name]) for name in space.axes), row)
                if row["status"] not in PRUNED or len(space) <= trials:
                    advance()
    except KeyboardInterrupt:
        kept = "are kept; the same command goes on" if store.path else "are lost; with -o FILE.jsonl a search can go on"
        say(f"stopped: {len(store.rows):,} configurations {kept}")
        raise
    return list(store.rows.values())
