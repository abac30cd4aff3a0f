"""``servecast capacity``: the highest load within an SLO, why it ends there, what it means in GPUs and dollars."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps import capacity_question as asked
from apps import run_options
from apps import workload_options as options
from apps.output import FormatOption, OutputOption, Table, emit, say
from apps.simulate_command import Command, Gpu, ModelConfig, OverLength, Profile, VllmVersion

if TYPE_CHECKING:
    from apps.planning.capacity import Capacity, Progress
    from apps.planning.cost import Fleet
    from apps.planning.marginal import Marginal
    from apps.planning.prices import Price
    from apps.planning.runs import Workers
    from simulator.scenario import Scenario

SloOption = Annotated[
    str | None,
    typer.Option("--slo", help="What must hold: ttft_p99=500ms,tpot_p95=40ms,goodput=95%:ttft=500ms:tpot=40ms ..."),
]
Users = Annotated[
    bool, typer.Option("--users", help="Search for users who think between requests (--think-time), or chat (--turns).")
]
ThinkTime = Annotated[str | None, typer.Option("--think-time", help="exponential:20, lognormal:15:1, 20s ...")]
ClosedLoop = Annotated[bool, typer.Option("--closed-loop", help="Search for concurrency: clients that never think.")]
TargetRate = Annotated[float | None, typer.Option("--target-rate", help="GPUs for so many requests/s.")]
TargetUsers = Annotated[float | None, typer.Option("--target-users", help="GPUs for so many users (or clients).")]
Gpus = Annotated[int | None, typer.Option("--gpus", min=1, help="GPUs you have: exit code 2 if they are too few.")]
PriceOption = Annotated[float | None, typer.Option("--price", help="US $ per GPU hour; default: a list price, marked.")]
Growth = Annotated[str | None, typer.Option("--growth", help="How the target grows: 5%/month, 60%/year.")]
Horizon = Annotated[int | None, typer.Option("--horizon", help="Months to look ahead. [12]")]
Marginals = Annotated[bool, typer.Option("--marginal/--no-marginal", help="Also simulate the nearest flag changes.")]
Draws = Annotated[int, typer.Option("--draws", help="Searches the interval is made of; 0 for none, else 5 or more.")]
Replications = Annotated[int, typer.Option("--replications", min=2, help="Runs at each load; up to twice as many.")]
Tolerance = Annotated[float, typer.Option("--tolerance", help="How close the load is searched, as a share.")]
SavedScenario = Annotated[Path | None, typer.Option("--scenario", help="A saved scenario (server and workload).")]


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("capacity")(capacity_command)


def capacity_command(
    command: Command = None,
    slo: SloOption = None,
    profile: Profile = None,
    gpu: Gpu = None,
    vllm_version: VllmVersion = None,
    model_config: ModelConfig = None,
    users: Users = False,
    think_time: ThinkTime = None,
    closed_loop: ClosedLoop = False,
    burstiness: options.Burstiness = None,
    requests: options.Requests = None,
    trace: options.Trace = None,
    prompt_tokens: options.PromptTokens = None,
    output_tokens: options.OutputTokens = None,
    num_prompts: Annotated[
        int | None, typer.Option("--num-prompts", help="Requests per run; default: as many as the load needs.")
    ] = None,
    turns: options.Turns = None,
    system_prompt_tokens: options.SystemPromptTokens = None,
    mix: options.Mix = None,
    scenario: SavedScenario = None,
    over_length: OverLength = "fail",
    target_rate: TargetRate = None,
    target_users: TargetUsers = None,
    gpus: Gpus = None,
    price: PriceOption = None,
    growth: Growth = None,
    horizon: Horizon = None,
    marginal: Marginals = True,
    draws: Draws = 10,
    replications: Replications = 4,
    tolerance: Tolerance = 0.02,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same answer.")] = 0,
    workers: run_options.Workers = None,
    backend: run_options.Backend = run_options.BackendName.processes,
    scheduler: run_options.Scheduler = None,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Find the highest load that meets an SLO, what it stops at, what would move it, GPUs and cost.

    Exit code 2 if no load meets the SLO, or if --gpus are too few for the target.

    Example:

    \b
      servecast capacity "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384" \\
        --profile h200-llama-3.1-8b --slo ttft_p99=500ms,tpot_p95=40ms \\
        --prompt-tokens lognormal:300:1.0:8:4000 --output-tokens lognormal:180:0.8
    """
    from apps.planning.capacity import Effort, capacity
    from apps.planning.load import axis_of
    from apps.planning.slo import Slo

    who = run_options.workers_of(workers, backend, scheduler)
    wanted = None if slo is None else Slo.parse(slo)
    shape = {
        "burstiness": burstiness, "requests": requests, "trace": trace, "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens, "num_prompts": num_prompts, "turns": turns,
        "system_prompt_tokens": system_prompt_tokens, "mix": mix,
    }  # fmt: skip
    server = {"profile": profile, "gpu": gpu, "vllm_version": vllm_version, "model_config": model_config}
    axis = asked.axis_asked(users, think_time, closed_loop, mix)
    rest = {"over_length": over_length, "seed": seed}
    question = asked.question(command, scenario, server, shape, axis, think_time, rest)
    axis = axis or axis_of(question)
    asked.check_num_prompts(question, axis, num_prompts)
    Slo.of_mix(question, wanted)  # says what is missing before any work
    plan = _Plan(asked.target(axis, target_rate, target_users), gpus, price, growth, horizon, question)
    effort = Effort(
        tolerance=_share(tolerance), replications=replications, most_replications=2 * replications, draws=draws,
        requests=num_prompts,
    )  # fmt: skip
    with _bar() as watch:
        found = capacity(question, wanted, axis=axis, effort=effort, workers=who, watch=watch)
    changes = _marginals(found, who) if marginal else []
    enough = plan.show(found, changes, format, output)
    if found.load is None or not enough:
        raise typer.Exit(2)


def _share(tolerance: float) -> float:
    from simulator.errors import InputError

    if not 0.001 <= tolerance <= 0.5:
        raise InputError(f"--tolerance must lie between 0.001 and 0.5, got {tolerance:g}; 0.02 is 2 %")
    return tolerance


class _Plan:
    """What is to be made of the capacity; checked before anything is simulated."""

    def __init__(
        self,
        target: float | None,
        gpus: int | None,
        price: float | None,
        growth: str | None,
        horizon: int | None,
        question: Scenario,
    ) -> None:
        from apps.planning.cost import parse_growth
        from apps.planning.prices import list_price, own_price
        from simulator.errors import InputError

        if target is None and (gpus is not None or growth is not None):
            raise InputError("--gpus and --growth need a target: give --target-rate or --target-users")
        if horizon is not None and growth is None:
            raise InputError("--horizon needs --growth, e.g. 5%/month")
        if horizon is not None and not 1 <= horizon <= 600:
            raise InputError(f"--horizon must be from 1 to 600 months, got {horizon}")
        self.target, self.gpus, self.horizon = target, gpus, horizon or 12
        self.growth = None if growth is None else parse_growth(growth)
        self.price: Price | None = own_price(price) if price is not None else list_price(question.gpu.name)

    def show(self, found: Capacity, changes: list[Marginal], format: Any, output: Path | None) -> bool:
        """Write the answer; return whether the GPUs at hand carry the target."""
        from apps import capacity_tables as tables
        from apps.planning.cost import gpus_of, token_prices

        parts: list[Table | str] = [tables.answer(found)]
        data = {**found.as_dict(), "marginal": [each.as_dict() for each in changes]}
        point = found.point
        if point is not None:
            parts.append(tables.target_table(found, point))
        if changes:
            parts.append(tables.marginal_table(changes))
        prices = token_prices(found, self.price) if self.price is not None else None
        data["price"] = self.price.model_dump() if self.price is not None else None
        data["token_prices_usd_per_million"] = asdict(prices) if prices is not None else None
        if prices is not None and self.price is not None:
            parts.append(tables.cost_table(self.price, prices))
        fleets = self._fleets(found)
        data["fleet"] = [fleet.as_dict() for fleet in fleets]
        enough = True
        if fleets:
            parts.append(tables.fleet_table(found, fleets))
            if self.gpus is not None:
                enough = fleets[0].gpus <= self.gpus
                carried = self.gpus // gpus_of(found.scenario.engine) * (found.load or 0.0)
                parts.append(
                    f"{self.gpus} GPUs carry {tables.amount(found, carried)} {found.unit}: "
                    f"{'enough' if enough else 'NOT enough'} for {tables.amount(found, fleets[0].load)}"
                )
        data["next_commands"] = _commands(found, parts)
        emit(format, table=parts, data=data, rows=tables.curve_rows(found), output=output)
        _warn(found, format, output)
        return enough

    def _fleets(self, found: Capacity) -> list[Fleet]:
        from apps.planning.cost import fleet_for, growing

        if self.target is None:
            return []
        if self.growth is not None:
            return growing(found, self.target, self.growth, self.horizon, self.price)
        fleet = fleet_for(found, self.target, self.price)
        return [] if fleet is None else [fleet]


def _commands(found: Capacity, parts: list[Table | str]) -> list[dict[str, str]]:
    """Add the commands to run next to *parts* and return them as data; nothing without a capacity."""
    from apps.exports.commands import bench_command, serve_command
    from apps.planning.load import at_load, requests_per_arrival

    if found.load is None:
        return []
    question = at_load(found.scenario, found.axis, found.load, found.requests)
    sent, title = question, "Send this load"
    if found.axis == "users" and found.point is not None:  # the bench knows no think time
        rate = found.point.metrics["request_throughput"] or found.load
        begun = rate / requests_per_arrival(question)
        sent, title = at_load(found.scenario, "rate", begun, found.requests), "Send what these users send, as a rate"
    lines = {"Start the server": serve_command(question), title: bench_command(sent)}
    parts.append("Run next:\n" + "\n".join(f"  {line}" for line in lines.values()))
    return [{"title": title, "command": line} for title, line in lines.items()]


def _warn(found: Capacity, format: Any, output: Path | None) -> None:
    if format == "json" or (format is None and output is not None and output.suffix.lower() == ".json"):
        return
    for note in found.notes:
        say(f"warning: {note}")


def _marginals(found: Capacity, workers: Workers) -> list[Marginal]:
    from apps.planning.marginal import marginals

    with _bar() as watch:
        return marginals(found, workers=workers, told=watch.more)


class _Silent:
    """Hears of the runs and says nothing."""

    def __call__(self, progress: Progress) -> None:
        """One run more."""

    def more(self, runs: int) -> None:
        """Some runs more, of the changed flags."""


class _Bar(_Silent):
    def __init__(self, update: Callable[[str, int, int], None]) -> None:
        self._update, self._done = update, 0

    def __call__(self, progress: Progress) -> None:
        self._update(progress.stage, progress.done, progress.expected)

    def more(self, runs: int) -> None:
        self._done += runs
        self._update("changed flags", self._done, max(25, self._done))


@contextlib.contextmanager
def _bar() -> Iterator[_Silent]:
    """Give what is told of the runs: a bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield _Silent()
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (rich.TextColumn("{task.description:<14}"), rich.BarColumn(), rich.MofNCompleteColumn())
    with rich.Progress(*columns, rich.TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("scale", total=None)
        yield _Bar(lambda stage, done, all: bar.update(task, description=stage, completed=done, total=all))
