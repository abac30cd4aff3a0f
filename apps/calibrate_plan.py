"""``servecast calibrate plan``: which bursts a run would record, without a server."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps.output import FormatOption, OutputOption, Table, emit, say

if TYPE_CHECKING:
    from calibration.burst_time import PlannedBurst


def plan_command(
    model: Annotated[str, typer.Argument(help="Model to serve: a name of the catalogue, or a folder.")],
    gpu: Annotated[str, typer.Option("--gpu", help="GPU it will run on, e.g. H200.")],
    serve_args: Annotated[str, typer.Option("--serve-args", help="Arguments of `vllm serve`, quoted.")] = "",
    minutes: Annotated[float, typer.Option("--minutes", min=0.02, max=240, help="Time for the bursts.")] = 5.0,
    model_config: Annotated[
        Path | None, typer.Option("--model-config", help="config.json of a model not in the catalogue.")
    ] = None,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Show which bursts `calibrate run` would record in the given time, in order; no server is started.

    The times are a data-sheet estimate; the run corrects them as it goes, and may stop earlier.

    Example:

    \b
      servecast calibrate plan meta-llama/Llama-3.1-8B --gpu H200 --serve-args "--max-model-len 16384" --minutes 1
    """
    from calibration.burst_time import BurstTime, planned
    from calibration.bursts import Limits
    from simulator import catalogue
    from simulator.command_line import parse
    from simulator.hf_config import load_model
    from simulator.memory import plan_memory
    from simulator.resolve import resolve
    from simulator.roofline import default_profile
    from simulator.step_cost import StepCost

    card, spec = catalogue.gpu(gpu), load_model(str(model_config) if model_config else model)
    engine, _notes = resolve(parse(f"vllm serve {shlex.quote(model)} {serve_args}"), spec, card)
    memory = plan_memory(engine, spec, card, strict=True)
    limits = Limits(engine.max_num_seqs, engine.max_num_batched_tokens, engine.max_model_len, memory.kv_tokens)
    times = BurstTime(StepCost(default_profile(card), spec, card, engine), engine, limits)
    bursts = list(planned(limits, times, 60.0 * minutes))
    rows = [_row(one) for one in bursts]
    columns = ("round", "burst", "what it tells", "requests", "s", "until s")
    emit(format, table=Table(columns, rows, right=(3, 4, 5)), data=_data(bursts), rows=_data(bursts), output=output)
    measured = [one for one in bursts if one.turn >= 0]
    if not measured:
        say("note: not even the warm-up fits; give more --minutes")
    elif max(one.turn for one in measured) < 1:
        say("note: the second round is not reached; a good fit needs it, so give more --minutes")


def _round(one: PlannedBurst) -> str:
    return "warm-up" if one.turn < 0 else str(one.turn + 1)


def _row(one: PlannedBurst) -> list[str]:
    burst = one.burst
    return [_round(one), burst.key, burst.purpose, f"{burst.requests:,}", f"{one.expected_s:.1f}", f"{one.ends_s:.1f}"]


def _data(bursts: Sequence[PlannedBurst]) -> list[dict[str, object]]:
    return [
        {
            "round": _round(one), "burst": one.burst.key, "purpose": one.burst.purpose,
            "requests": one.burst.requests, "expected_s": round(one.expected_s, 3), "ends_s": round(one.ends_s, 3),
        }
        for one in bursts
    ]  # fmt: skip
