"""One sweep: a server, a load, and what is varied; every combination of the values is one configuration.

    sweep = Sweep(
        command="vllm serve meta-llama/Llama-3.1-8B",
        options={"profile": "h200-llama-3.1-8b", "num_prompts": 300},
        vary={"max_num_seqs": (64, 128), "rate": (4, 8, 12)},
    )

Anything can be an option or vary: vLLM's flags (they stand in for those of the command; the word ``default`` is vLLM's
own default), the workload's options as the commands spell them, and profile, gpu, vllm_version, model_config and
over_length.  An axis named ``a,b`` varies two together, its values are pairs.  The last axis changes fastest; each
configuration is simulated with *replications* seeds, the same ones for all (common random numbers).
"""

from __future__ import annotations

import difflib
import inspect
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from apps.planning.sweep_values import WORDS, Value, plain, text_of
from simulator.errors import InputError, input_error
from simulator.flag_answers import ANSWERS
from simulator.flag_table import FLAGS
from simulator.flags import answer
from simulator.scenario import Scenario

SCHEMA_VERSION = 1
#: Configurations times seeds; beyond, it is a slip of the pen (a day of work on a hundred cores).
MOST_POINTS = 100_000

SERVER = ("profile", "gpu", "vllm_version", "model_config", "over_length")
_DEFAULT = "default"


@cache
def workload_names() -> tuple[str, ...]:
    """Return the options that describe the workload."""
    from apps.workload_options import workload

    return tuple(inspect.signature(workload).parameters)


@dataclass(frozen=True)
class Point:
    """One configuration with one seed; *values* by name, in the order of the axes."""

    index: int
    values: Mapping[str, Value]
    seed: int


class Sweep(BaseModel):
    """What is simulated; frozen, raises `InputError` of one line for names and values that cannot be."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    schema_version: int = Field(default=SCHEMA_VERSION, ge=1, le=SCHEMA_VERSION)
    command: str = Field(min_length=1)
    options: dict[str, Value] = Field(default_factory=dict)
    vary: dict[str, tuple[Value | tuple[Value, ...], ...]]
    slo: str | None = None
    seed: int = Field(default=0, ge=0, lt=2**62)
    replications: int = Field(default=1, ge=1, le=10_000)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise input_error(error, "sweep") from None

    @model_validator(mode="before")
    @classmethod
    def _plain_values(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("vary"), Mapping):
            vary = {_names(axis): tuple(map(_plain_choice, values)) for axis, values in data["vary"].items()}
            options = {_name(name): plain(value) for name, value in (data.get("options") or {}).items()}
            return data | {"vary": vary, "options": options}
        return data

    @model_validator(mode="after")
    def _checked(self) -> Sweep:
        if not self.vary:
            raise InputError("nothing is varied; give an axis, e.g. --vary max_num_seqs=64,128,256")
        for name in [*self.options, *self.axes]:
            _check_known(name)
            if [*self.options, *self.axes].count(name) > 1:
                raise InputError(f"{name} is given twice, fixed or varied; keep one of them")
        for axis, values in self.vary.items():
            _check_values(axis, values)
        for name, value in self._fixed_and_varied():
            if name in WORDS and not isinstance(value, str):
                raise InputError(f"{name} must be text, got {value!r}; write it in quotes")
            if isinstance(value, str) and not value.isprintable():
                raise InputError(f"{name}: {value[:60]!r} holds a character that cannot be seen; write it anew")
        if self.slo is not None:
            from apps.planning.slo import Slo

            Slo.parse(self.slo)
        if len(self) > MOST_POINTS:
            raise InputError(f"{len(self):,} simulations are more than {MOST_POINTS:,}; vary less, or in larger steps")
        return self

    def _fixed_and_varied(self) -> Iterator[tuple[str, Value]]:
        yield from self.options.items()
        for axis, values in self.vary.items():
            for choice in values:
                parts = choice if isinstance(choice, tuple) else (choice,)
                yield from zip(axis.split(","), parts, strict=True)

    @property
    def axes(self) -> tuple[str, ...]:
        """The names that vary, those of axes that vary together one by one."""
        return tuple(name for axis in self.vary for name in axis.split(","))

    def __len__(self) -> int:
        """Return the number of simulations."""
        count = self.replications
        for values in self.vary.values():
            count *= len(values)
        return count

    def points(self) -> Iterator[Point]:
        """Yield every simulation, in order."""
        index = 0
        for choices in itertools.product(*self.vary.values()):
            flat = [part for choice in choices for part in (choice if isinstance(choice, tuple) else (choice,))]
            values = dict(zip(self.axes, flat, strict=True))
            for replication in range(self.replications):
                yield Point(index, values, self.seed + replication)
                index += 1

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of `question`, the same for every point."""
        return tuple(self.question(next(self.points())))

    def question(self, point: Point) -> dict[str, Value]:
        """Return all that decides the answer of *point*, by name: the beginning of its row."""
        slo = {} if self.slo is None else {"slo": self.slo}
        asked = {"servecast_version": version("servecast"), "command": self.command, **self.options, **slo}
        return asked | dict(point.values) | {"seed": point.seed}

    def scenario(self, point: Point) -> Scenario:
        """Return the scenario of *point*; raises what `Scenario.from_command` and the workload's options raise."""
        from apps.workload_options import workload

        chosen = self.options | dict(point.values)
        load = workload(**{name: chosen[name] for name in workload_names() if name in chosen})  # type: ignore[arg-type]
        settings = {
            name: None if value == _DEFAULT else value
            for name, value in chosen.items()
            if name not in SERVER and name not in workload_names()
        }
        server: dict[str, Any] = {
            name: text_of(chosen[name]) for name in SERVER if chosen.get(name, _DEFAULT) != _DEFAULT
        }
        return Scenario.from_command(self.command, workload=load, settings=settings, seed=point.seed, **server)


def _name(spelled: str) -> str:
    return str(spelled).strip().removeprefix("--").replace("-", "_")


def _names(axis: str) -> str:
    return ",".join(_name(part) for part in str(axis).split(","))


def _plain_choice(choice: Any) -> Any:
    return tuple(map(plain, choice)) if isinstance(choice, (tuple, list)) else plain(choice)


def _check_known(name: str) -> None:
    if name in ("seed", "replications"):
        raise InputError(f"{name} is no axis: the seeds of every configuration are set by --seed and --replications")
    if name in FLAGS or name in SERVER or name in workload_names():
        return
    if name in ANSWERS:
        raise InputError(answer(name))
    near = difflib.get_close_matches(name.removeprefix("no_"), [*FLAGS, *SERVER, *workload_names()], n=1, cutoff=0.7)
    fix = f"did you mean {near[0]}?" if near else "take a flag of vLLM or an option of `servecast simulate`"
    raise InputError(f"{name[:60]!r} cannot be varied or set; {fix}")


def _check_values(axis: str, values: tuple[Value | tuple[Value, ...], ...]) -> None:
    width = axis.count(",") + 1
    if not values:
        raise InputError(f"{axis} has no values; give at least one")
    for choice in values:
        parts = len(choice) if isinstance(choice, tuple) else 1
        if parts != width:
            raise InputError(
                f"{axis} has {parts} parts in {choice!r}, not {width}; write e.g. gpu,block_size=L4/16,A10/32"
            )
        if values.count(choice) > 1 and sum(_same(choice, other) for other in values) > 1:
            raise InputError(f"{axis} lists {choice!r} twice; leave one out")


def _same(one: Any, other: Any) -> bool:
    """Whether two values are one (True is not 1)."""
    return bool(one == other) and type(one) is type(other)
