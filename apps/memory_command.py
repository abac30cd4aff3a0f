"""``servecast memory``: does the model fit, and how many tokens of KV cache are left?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.output import FormatOption, OutputOption, Table, emit, say

if TYPE_CHECKING:
    from simulator.engine_config import EngineConfig
    from simulator.gpu_spec import GpuSpec
    from simulator.logged_memory import LoggedMemory
    from simulator.memory import MemoryPlan, Term
    from simulator.model_spec import ModelSpec

NO = 2  # the exit code of "does not fit"

Command = Annotated[
    str | None, typer.Argument(help="The `vllm serve ...` line (quoted), or docker run, k8s args, LLM(...) of a log.")
]
Gpu = Annotated[str | None, typer.Option("--gpu", help="GPU, e.g. H200; see `servecast list gpus`.")]
VllmVersion = Annotated[str | None, typer.Option("--vllm-version", help="vLLM version whose rules apply. [0.24.0]")]
ModelConfig = Annotated[
    str | None, typer.Option("--model-config", help="config.json of a model not in the catalogue, or its folder.")
]
Log = Annotated[
    str | None, typer.Option("--log", help="Start-up log of a real server, or - for stdin: read instead of predicted.")
]


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("memory")(memory_command)


def memory_command(
    command: Command = None,
    gpu: Gpu = None,
    vllm_version: VllmVersion = None,
    model_config: ModelConfig = None,
    log: Log = None,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Does the model fit, and how many tokens of KV cache are left?

    Weights, activations, non-torch memory, CUDA graphs and KV cache of one GPU, in vLLM's words: what counts against
    --gpu-memory-utilization and what does not.  If vLLM would refuse to start: its own words, the largest max_model_len
    that starts, and three fixes that were checked, cheapest first; exit code 2.

    \b
    Examples:
      servecast memory "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384" --gpu H200
      servecast memory --log server.log
    """
    if log is not None:
        _answer_log(log, command, gpu, vllm_version, model_config, format, output)
    else:
        _answer_plan(command, gpu, vllm_version, model_config, format, output)


def _resolved(
    command: str, gpu: str | None, vllm_version: str | None, model_config: str | None
) -> tuple[EngineConfig, ModelSpec, GpuSpec, tuple[str, ...]]:
    """Return what the line means on that GPU, and the parser's notes."""
    from simulator.errors import InputError

    if gpu is None:
        raise InputError("--gpu is missing: on which GPU? For example --gpu H200; `servecast list gpus` shows them all")
    from simulator import catalogue
    from simulator.command_line import parse
    from simulator.hf_config import load_model
    from simulator.resolve import resolve

    args, card = parse(command), catalogue.gpu(gpu)
    model = load_model(model_config or args.hf_config_path or args.model)
    engine, notes = resolve(args, model, card, vllm_version)
    return engine, model, card, tuple(notes)


def _gpus() -> list[GpuSpec]:
    from simulator import catalogue

    return [catalogue.gpu(name) for name in catalogue.gpu_names()]


def _answer_plan(
    command: str | None,
    gpu: str | None,
    vllm_version: str | None,
    model_config: str | None,
    format: Any,
    output: Path | None,
) -> None:
    from simulator.errors import InputError
    from simulator.memory import plan_memory

    if command is None:
        raise InputError("nothing to plan: give a `vllm serve ...` line in quotes, or --log FILE")
    engine, model, card, notes = _resolved(command, gpu, vllm_version, model_config)
    plan = plan_memory(engine, model, card, gpus=_gpus())
    for note in (*notes, *plan.notes):
        say(f"note: {note}")
    data = {"schema_version": 1, "source": "planned", **plan.model_dump(mode="json")}
    emit(format, table=_plan_tables(plan), data=data, rows=_rows(plan), output=output)
    if not plan.fits:
        raise typer.Exit(NO)


def _answer_log(
    log: str,
    command: str | None,
    gpu: str | None,
    vllm_version: str | None,
    model_config: str | None,
    format: Any,
    output: Path | None,
) -> None:
    from simulator.errors import ServecastError
    from simulator.logged_memory import memory_from_log
    from simulator.memory import plan_memory
    from simulator.startup_log import read_log

    read = read_log(_text(log))
    plan: MemoryPlan | None = None
    notes: tuple[str, ...] = ()
    line = command or read.non_default_args
    if gpu is not None and line is not None:
        try:
            engine, model, card, notes = _resolved(line, gpu, vllm_version or read.vllm_version, model_config)
            plan = plan_memory(engine, model, card, gpus=_gpus())
            logged = memory_from_log(read, model, engine)
        except ServecastError as error:
            if command is not None or model_config is not None:
                raise
            say(f"note: no prediction beside the log: {error}")
    if plan is None:
        logged = memory_from_log(read)
    for note in (*notes, *logged.notes):
        say(f"note: {note}")
    data = {"schema_version": 1, "source": "log", **logged.model_dump(mode="json")}
    data["predicted"] = plan.model_dump(mode="json") if plan else None
    emit(format, table=_log_tables(logged, plan), data=data, rows=_rows(logged), output=output)
    if not logged.fits:
        raise typer.Exit(NO)


def _text(log: str) -> str:
    from simulator.errors import InputError

    if log == "-":
        return sys.stdin.buffer.read().decode("utf-8", errors="replace")
    try:
        return Path(log).read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"--log {log}: {error.strerror}") from None


def _gib(size: float | None) -> str:
    return "" if size is None else f"{size / 2**30:.2f}"


def _budget(term: Term) -> str:
    return "inside" if term.inside_budget else "outside"


def _plan_tables(plan: MemoryPlan) -> list[Table | str]:
    share = f"{plan.visible_bytes / 2**30:.2f} GiB visible x gpu_memory_utilization {plan.gpu_memory_utilization}"
    rows = [["requested", _gib(plan.requested_bytes), "", share]]
    rows += [[term.label, _gib(term.bytes), _budget(term), term.source] for term in plan.terms]
    ranks = f", one of {plan.tensor_parallel_size} ranks" if plan.tensor_parallel_size > 1 else ""
    title = f"{plan.model} on {plan.gpu}{ranks}, vLLM {plan.vllm_version}"
    parts: list[Table | str] = [Table(("memory", "GiB", "budget", "from"), rows, title=title, right=(1,))]
    if plan.num_gpu_blocks:
        parts.append(_capacity(plan))
    if not plan.fits:
        parts += _refusal_parts(plan)
    return parts


def _capacity(memory: MemoryPlan | LoggedMemory) -> str:
    lines = []
    if memory.kv_tokens is not None:
        lines.append(f"GPU KV cache size: {memory.kv_tokens:,} tokens")
    if memory.max_concurrency is not None and memory.max_model_len is not None:
        lines.append(
            f"Maximum concurrency for {memory.max_model_len:,} tokens per request: {memory.max_concurrency:.2f}x"
        )
    if memory.num_gpu_blocks is not None:
        swap = f", # CPU blocks: {memory.num_cpu_blocks}" if memory.num_cpu_blocks else ""
        lines.append(f"# GPU blocks: {memory.num_gpu_blocks} of {memory.block_size} tokens{swap}")
    return "\n".join(lines)


def _refusal_parts(plan: MemoryPlan) -> list[Table | str]:
    longest = plan.largest_max_model_len
    lengths = f"Largest max_model_len that starts: {longest}" if longest else "No max_model_len starts."
    rows = [
        [str(rank), fix.flags, fix.cost, f"{fix.kv_tokens:,}", f"{fix.max_concurrency:.2f}x of {fix.max_model_len:,}"]
        for rank, fix in enumerate(plan.fixes, 1)
    ]
    columns = ("", "fix", "costs", "KV tokens", "concurrency")
    fixes: list[Table | str] = [Table(columns, rows, title="Fixes, cheapest first:", right=(3,))] if rows else []
    return [f"vLLM would not start:\n{plan.refusal}", lengths, *fixes]


def _log_tables(logged: LoggedMemory, plan: MemoryPlan | None) -> list[Table | str]:
    predicted = {term.name: term.bytes for term in plan.terms} if plan else {}
    rows = [["requested", _gib(logged.requested_bytes), ""]] if logged.requested_bytes else []
    rows += [[term.label, _gib(term.bytes), _budget(term)] for term in logged.terms]
    columns = ["memory", "GiB", "budget"]
    if plan:
        columns.append("predicted")
        names = (["requested"] if logged.requested_bytes else []) + [term.name for term in logged.terms]
        predicted["requested"] = plan.requested_bytes
        rows = [[*row, _gib(predicted.get(name))] for row, name in zip(rows, names, strict=True)]
    title = f"as logged by vLLM {logged.vllm_version or '(version unknown)'}"
    parts: list[Table | str] = [Table(columns, rows, title=title, right=(1, 3))]
    if capacity := _capacity(logged):
        parts.append(capacity)
    if logged.refusal:
        parts.append(f"vLLM did not start:\n{logged.refusal}")
    return parts


def _rows(memory: MemoryPlan | LoggedMemory) -> list[dict[str, Any]]:
    """One row a number, for spreadsheets."""
    rows: list[dict[str, Any]] = [
        {"name": term.name, "value": round(term.bytes / 2**30, 4), "unit": "GiB", "budget": _budget(term)}
        for term in memory.terms
    ]
    counts = (
        ("num_gpu_blocks", memory.num_gpu_blocks, "blocks"),
        ("num_cpu_blocks", memory.num_cpu_blocks, "blocks"),
        ("kv_tokens", memory.kv_tokens, "tokens"),
        ("max_model_len", memory.max_model_len, "tokens"),
        ("max_concurrency", memory.max_concurrency, "requests"),
        ("fits", memory.fits, ""),
    )
    return rows + [{"name": name, "value": value, "unit": unit, "budget": None} for name, value, unit in counts]
