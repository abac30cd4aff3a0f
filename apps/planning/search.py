"""Which flags, GPU and number of replicas?  Every configuration of a small space, or Optuna's choice from a large one.

    for row in search(question, space, trials=200): ...

Rows (`apps.planning.evaluate`) come as they are ready.  Memory and vLLM's rules are asked first: what cannot start is a
row with the reason, and is never simulated.  A configuration that fails is a row, too, and the search goes on.

Large spaces: Optuna's multi-objective TPE, seeded, asked for `BATCH` configurations at a time, so that the proposals do
not depend on the number of workers.  It minimises the cost (or maximises what one GPU carries) and the latency.  Rows
that are *known* are not computed again: a search that goes on proposes the same as one that was never interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from apps.planning.evaluate import OK, PRUNED, Question, Row, Task, evaluate, failed, prepared
from apps.planning.pareto import frontier
from apps.planning.runs import Failure, Workers, run_many
from apps.planning.space import DEFAULT, GPU, REPLICAS, Config, Space
from apps.planning.sweep_values import Value
from apps.planning.variants import args_of
from simulator.errors import InputError

Objective = Literal["throughput", "cost"]

BATCH = 8
#: Digits in which two numbers must differ to be told apart: no prediction is better than a few percent.
DIGITS = 2
#: A search in which almost nothing can start ends at last.
_MOST_BATCHES_PER_TRIAL, _TRIES = 20, 50
#: What a configuration that cannot start, or answers nothing, counts as: the sampler learns to leave it.
_WORST = 1e9


@dataclass(frozen=True)
class Goal:
    """What is minimised: the first number against the second; what they are called."""

    objective: Objective
    per_gpu: str  # the column that says what one GPU carries

    def costs(self, row: Row) -> tuple[float, float]:
        """Return (cost, latency) of *row*, smaller is better; nan where it has none."""
        value = row["usd_per_million_output_tokens"] if self.objective == "cost" else row[self.per_gpu]
        latency = row["latency"]
        first = math.nan if value is None else value if self.objective == "cost" else -value
        return first, math.nan if latency is None else latency


def goal_of(question: Question, objective: Objective) -> Goal:
    """Return what is minimised: in mode ``capacity`` the load a GPU carries, else the tokens it writes."""
    return Goal(objective, "load_per_gpu" if question.mode == "capacity" else "output_throughput_per_gpu")


def best_of(rows: list[Row], goal: Goal, question: Question) -> list[Row]:
    """Return the rows on the Pareto frontier of those that keep up and keep the SLO, if any; the cheapest first.

    Numbers that agree in `DIGITS` digits are alike.  Of rows alike in both, the one that changes least stands for all.
    """
    good = [row for row in rows if row["status"] == OK and row["slo_met"] is not False]
    good.sort(key=lambda row: len(changed(row["config"], question)))
    alike: dict[tuple[float, float], Row] = {}
    for row in good:
        cost, latency = goal.costs(row)
        alike.setdefault((_rounded(cost), _rounded(latency)), row)
    kept = frontier(list(alike))
    return [alike[costs] for costs, on in sorted(zip(alike, kept, strict=True)) if on]


def changed(config: Mapping[str, Value], question: Question) -> dict[str, Value]:
    """Return the part of *config* that is not as in the server that was asked about."""
    now = {**dict(question.scenario.engine), GPU: question.scenario.gpu.name, REPLICAS: 1}
    return {name: value for name, value in config.items() if value != now.get(name, DEFAULT)}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def search(
    question: Question,
    space: Space,
    goal: Goal,
    *,
    trials: int = 200,
    known: Mapping[Config, Row] | None = None,
    workers: Workers = None,
) -> Iterator[Row]:
    """Yield a row for each configuration, as they come; those *known* are not yielded again.

    At most *trials* configurations are simulated.  Raises `InputError` for no trials.
    """
    if trials < 1:
        raise InputError(f"a search needs at least 1 trial, got {trials}")
    rows = dict(known or {})
    if len(space) <= trials:
        yield from _some(question, [config for config in space.grid() if config not in rows], workers)
    else:
        yield from _chosen(question, space, goal, trials, rows, workers)


def _some(question: Question, configs: list[Config], workers: Workers) -> Iterator[Row]:
    args, tasks = args_of(question.scenario), []
    for config in configs:
        ready = prepared(question, config, args)
        if isinstance(ready, Task):
            tasks.append(ready)
        else:
            yield ready
    with closing(run_many(evaluate, tasks, workers=workers)) as results:  # type: ignore[type-var]
        for index, row in results:
            yield failed(tasks[index].config, str(row)) if isinstance(row, Failure) else row


def _chosen(
    question: Question, space: Space, goal: Goal, trials: int, rows: dict[Config, Row], workers: Workers
) -> Iterator[Row]:
    """Let Optuna choose; known rows answer its proposals at once."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=_seed(question), n_startup_trials=max(10, trials // 4))
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    study.enqueue_trial(_as_it_is(question, space))
    met: set[Config] = set()  # proposed before, in this run or in one that was interrupted
    simulated, rng = 0, np.random.default_rng(_seed(question))
    for _ in range(_MOST_BATCHES_PER_TRIAL * trials):
        asked = [study.ask() for _ in range(BATCH)]
        configs = [_config(trial, space) for trial in asked]
        fresh = list(dict.fromkeys(config for config in configs if config not in met))
        others = _at_random(space, BATCH - len(fresh), met | set(fresh), rng)
        wanted = [*fresh, *others][: trials - simulated]
        if not wanted:
            break
        for row in _some(question, [config for config in wanted if config not in rows], workers):
            rows[_key(row, space)] = row
            yield row
        met |= set(wanted)
        simulated += sum(rows[config]["status"] not in PRUNED for config in wanted)
        for trial, config in zip(asked, configs, strict=True):
            if config in met:
                study.tell(trial, _told(rows[config], goal))
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
        for config in (config for config in others if config in met):
            study.add_trial(_trial(config, space, _told(rows[config], goal)))


def _told(row: Row, goal: Goal) -> list[float]:
    return [value if math.isfinite(value) else _WORST for value in goal.costs(row)]


def _at_random(space: Space, count: int, met: set[Config], rng: np.random.Generator) -> list[Config]:
    """Return up to *count* configurations not *met* before: the sampler likes to repeat itself."""
    found: list[Config] = []
    for _ in range(_TRIES * count):
        if len(found) == count:
            break
        config = tuple((name, values[int(rng.integers(len(values)))]) for name, values in space.axes.items())
        if config not in met and config not in found:
            found.append(config)
    return found


def _trial(config: Config, space: Space, values: list[float]) -> Any:
    import optuna

    varied = [(name, value) for name, value in config if len(space.axes[name]) > 1]
    return optuna.trial.create_trial(
        params={name: space.axes[name].index(value) for name, value in varied},
        distributions={name: optuna.distributions.IntDistribution(0, len(space.axes[name]) - 1) for name, _ in varied},
        values=values,
    )


def _as_it_is(question: Question, space: Space) -> dict[str, int]:
    """Return the server that was asked about as the first proposal, as far as the axes have its values."""
    found = {}
    for name, values in space.axes.items():
        same = [index for index, value in enumerate(values) if not changed({name: value}, question)]
        if same and len(values) > 1:
            found[name] = same[0]
    return found


def _config(trial: Any, space: Space) -> Config:
    return tuple(
        (name, values[trial.suggest_int(name, 0, len(values) - 1)] if len(values) > 1 else values[0])
        for name, values in space.axes.items()
    )


def _key(row: Row, space: Space) -> Config:
    return tuple((name, row["config"][name]) for name in space.axes)


def _seed(question: Question) -> int:
    return int(np.random.SeedSequence(question.scenario.seed).generate_state(1)[0])
