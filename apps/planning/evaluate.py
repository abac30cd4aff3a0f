"""One configuration of a search, from its flags to a row: refused, pruned by memory, or simulated.

Status of a row:

    ok              simulated
    overloaded      simulated: an open loop it does not keep up with
    SLO missed      no load was found that meets the SLO
    does not fit    vLLM would not start: memory; never simulated
    refused         vLLM would refuse these flags together; never simulated
    failed          could not be simulated (not covered, the engine died, a worker was lost ...)

Two kinds of question: a fixed *load*, one run of it; or *capacity*: the highest load within the SLO, from few runs
(`apps.planning.local`; the scale first, then looks by the secant).  Replicas share the load evenly, so one of them is
simulated under its share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from apps.planning.cost import gpus_of
from apps.planning.limits import binding
from apps.planning.load import Axis, is_whole, requests_per_arrival, think_time_s
from apps.planning.local import Near, search
from apps.planning.measure import STABILITY, Ask, Run, everything, measure
from apps.planning.slo import Slo
from apps.planning.space import GPU, REPLICAS, Config, settings
from apps.planning.variants import memory_of, with_settings
from simulator.command_line import ServeArgs
from simulator.errors import ServecastError
from simulator.metrics import LATENCIES
from simulator.scenario import Scenario

Mode = Literal["load", "capacity"]
Row = dict[str, Any]

OK, OVERLOADED, MISSED, DOES_NOT_FIT, REFUSED, FAILED = (
    "ok", "overloaded", "SLO missed", "does not fit", "refused", "failed",
)  # fmt: skip
#: Never simulated.
PRUNED = (DOES_NOT_FIT, REFUSED)
_START, _LOOKS, _LONGEST = 0.7, 8, 2.5

THROUGHPUTS = ("request_throughput", "output_throughput", "total_token_throughput")
METRICS = (
    *THROUGHPUTS,
    *(f"{statistic}_{name}_ms" for name in LATENCIES for statistic in ("mean", "p50", "p95", "p99")),
)


@dataclass(frozen=True)
class Question:
    """What every configuration is asked; *load* on *axis* is the whole load of all replicas (mode ``load``).

    *prices* are US $ per GPU hour by GPU; *latency* is a key of `METRICS`, or ``slo``: the worst target as a share of
    its limit.
    """

    scenario: Scenario
    mode: Mode
    axis: Axis
    load: float
    slo: Slo | None
    latency: str
    requests: int
    prices: Mapping[str, float]


@dataclass(frozen=True)
class Task:
    """One configuration that can start, ready to be simulated."""

    question: Question
    config: Config
    server: Scenario


def prepared(question: Question, config: Config, args: ServeArgs) -> Task | Row:
    """Return the task of *config*, or the row of one that vLLM would refuse or that does not fit."""
    gpu = dict(config).get(GPU)
    try:
        server = with_settings(question.scenario, settings(config), None if gpu is None else str(gpu), args)
        plan = memory_of(server)
    except ServecastError as error:
        return _row(config, REFUSED, reason=str(error))
    if not plan.fits:
        return _row(config, DOES_NOT_FIT, reason=f"{server.gpu.name}: {plan.refusal}", gpus=_gpus(server, config))
    return Task(question, config, server)


def evaluate(task: Task) -> Row:
    """Simulate one configuration; raises what `simulate` raises."""
    question = task.question
    replicas = int(dict(task.config).get(REPLICAS, 1))
    slo = question.slo or _NO_SLO
    if question.mode == "load":
        share = question.load / replicas
        share = float(max(1, round(share))) if is_whole(question.axis) else share
        run = measure(Ask(task.server, slo, question.axis, share, question.requests))
        status = OK if run.scores[-1] <= 0 else OVERLOADED
        return _answered(task, run, replicas, question.load, status, runs=1)
    few = min(question.requests, 1000)
    scale = measure(everything(task.server, slo, question.axis, few))
    throughput = scale.metrics["request_throughput"] or 1.0
    start = _START * throughput / requests_per_arrival(task.server)
    if is_whole(question.axis):
        start = max(1.0, round(start * think_time_s(task.server) + min(task.server.engine.max_num_seqs, few) / 4))
    found = search(Near(Ask(task.server, slo, question.axis, start, question.requests), 1.0, None, _LOOKS, _LONGEST))
    if found.best is None:
        return _row(task.config, MISSED, reason=f"no load found within {slo}", gpus=_gpus(task.server, task.config))
    return _answered(task, found.best, replicas, found.load * replicas, OK, runs=found.looks + 1)


#: Stands in where no SLO is given: nothing real misses it.
_NO_SLO = Slo.parse("e2el_p50=1000000s")


def _answered(task: Task, run: Run, replicas: int, load: float, status: str, runs: int) -> Row:
    question, gpus = task.question, _gpus(task.server, task.config)
    metrics = {name: run.metrics[name] for name in METRICS}
    for name in THROUGHPUTS:
        value = metrics[name]
        metrics[name] = None if value is None else value * replicas
    price = question.prices.get(task.server.gpu.name)
    output = metrics["output_throughput"]
    names = [*(target.name for target in (question.slo or _NO_SLO).targets), STABILITY]
    closest = names[max(range(len(names)), key=lambda index: run.scores[index])]
    cost = None if price is None or not output else 1e6 * price * gpus / 3600 / output
    return _row(
        task.config,
        status,
        gpus=gpus,
        load=load,
        load_per_gpu=load / gpus,
        output_throughput_per_gpu=None if output is None else output / gpus,
        usd_per_million_output_tokens=cost,
        latency=_latency(question, run),
        slo_met=None if question.slo is None else run.met,
        slo_share={target.name: math.exp(score) for target, score in _scored(question, run)},
        closest_target=closest if question.slo else None,
        limit=binding(run.state, closest).name,
        kv_tokens=run.kv_tokens,
        kv_cache_usage_max=run.state.kv_usage_max,
        calibrated=run.calibrated,
        runs=runs,
        **metrics,
    )


def _scored(question: Question, run: Run) -> list[tuple[Any, float]]:
    return list(zip(question.slo.targets, run.scores, strict=False)) if question.slo else []


def _latency(question: Question, run: Run) -> float | None:
    if question.latency == "slo":
        return math.exp(max(run.scores[:-1]))
    return run.metrics[question.latency]


def _gpus(server: Scenario, config: Config) -> int:
    return gpus_of(server.engine) * int(dict(config).get(REPLICAS, 1))


#: The columns behind the configuration, in every row.
COLUMNS = (
    "status", "reason", "gpus", "load", "load_per_gpu", "output_throughput_per_gpu", "usd_per_million_output_tokens",
    "latency", "slo_met", "slo_share", "closest_target", "limit", "kv_tokens", "kv_cache_usage_max", "calibrated",
    "runs", *METRICS,
)  # fmt: skip


def _row(config: Config, status: str, **values: Any) -> Row:
    return {"config": dict(config), **dict.fromkeys(COLUMNS), "status": status, **values}


def failed(config: Config, reason: str) -> Row:
    """Return the row of a configuration that could not be simulated."""
    return _row(config, FAILED, reason=reason)
