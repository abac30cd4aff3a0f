"""The configurations a search may propose: axes with their values, every combination is one.

    max_num_seqs=64,128,256           values
    max_num_batched_tokens=2048..16384   doubling from 2048 to 16384
    gpu_memory_utilization=0.8..0.95     in steps of 0.05
    gpu=H100,H200                     GPUs of the catalogue
    replicas=1..4                     servers that share the load evenly; steps of 1
    enable_prefix_caching=true,false  switches

All other names are vLLM's flags, with underscores.  Ranges with steps of their own: `apps.planning.sweep_values`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apps.planning.sweep_values import Value, read_choices
from simulator import catalogue
from simulator.command_line import ServeArgs
from simulator.errors import InputError
from simulator.memory_terms import is_v0
from simulator.scenario import Scenario
from simulator.workload import table

#: Axes that are no flags.
GPU, REPLICAS = "gpu", "replicas"
DEFAULT = "default"
_LINEAR = {REPLICAS: "1", "gpu_memory_utilization": "0.05"}

#: One configuration: the value of every axis, in their order.
Config = tuple[tuple[str, Value], ...]


def settings(config: Config) -> dict[str, Any]:
    """Return the flags of *config*; the word ``default`` is vLLM's own default."""
    return {name: None if value == DEFAULT else value for name, value in config if name not in (GPU, REPLICAS)}


@dataclass(frozen=True)
class Space:
    """Axes by name, each with at least one value."""

    axes: Mapping[str, tuple[Value, ...]]

    def __len__(self) -> int:
        """Return how many configurations there are."""
        return math.prod(len(values) for values in self.axes.values())

    def grid(self) -> Iterator[Config]:
        """Yield every configuration; the last axis changes fastest."""
        for values in itertools.product(*self.axes.values()):
            yield tuple(zip(self.axes, values, strict=True))

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that are named; empty if the GPU does not vary."""
        return tuple(str(name) for name in self.axes.get(GPU, ()))


def parse_space(texts: list[str]) -> Space:
    """Return the space of axes written ``NAME=VALUES``; `InputError` of one line names axis, value and fix."""
    axes: dict[str, tuple[Value, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if not equals or not name:
            raise InputError(f"--over {text[:60]!r}: write NAME=VALUES, e.g. max_num_seqs=64,128,256")
        if name in axes:
            raise InputError(f"--over {name} is given twice; put all its values into one")
        if "," in name:
            raise InputError(f"--over {name}: one name an axis; what goes together is for `servecast sweep`")
        found = read_choices(_with_step(name, values.strip()), name)
        axes[name] = _checked(name, tuple(value for value in found if not isinstance(value, tuple)))
    return Space(axes)


def default_space(scenario: Scenario) -> Space:
    """Return the flags worth a look for this server, around the values it has."""
    engine = scenario.engine
    axes: dict[str, tuple[Value, ...]] = {
        "max_num_seqs": _around(engine.max_num_seqs, (0.125, 0.25, 0.5, 1, 2)),
        "max_num_batched_tokens": tuple(sorted({2048, 4096, 8192, 16384, engine.max_num_batched_tokens})),
        "gpu_memory_utilization": tuple(sorted({0.85, 0.9, 0.95, round(engine.gpu_memory_utilization, 4)})),
    }
    if not is_v0(engine) and engine.enable_chunked_prefill:
        axes["long_prefill_token_threshold"] = tuple(sorted({0, 1024, engine.long_prefill_token_threshold}))
    if len(table(scenario.workload, scenario.seed).segment_id):
        axes["enable_prefix_caching"] = (True, False)
    return Space(axes)


def _around(value: int, factors: tuple[float, ...]) -> tuple[Value, ...]:
    return tuple(sorted({max(1, int(value * factor)) for factor in factors}))


def _with_step(name: str, text: str) -> str:
    """Return *text* with the step its ranges have on this axis, where none is given."""
    step = _LINEAR.get(name, "*2")
    parts = [part.strip() for part in text.split(",")]
    return ",".join(f"{part}:{step}" if ".." in part and ":" not in part else part for part in parts)


def _checked(name: str, values: tuple[Value, ...]) -> tuple[Value, ...]:
    if name == GPU:
        values = tuple(catalogue.gpu(str(value)).name for value in values)
    elif name == REPLICAS:
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
                raise InputError(f"--over replicas must be whole numbers from 1 to 10,000, got {value}")
    else:
        for value in values:  # an unknown flag, or a value that is none, says so at once
            ServeArgs.from_kwargs(None, **settings(((name, value),)))
    return tuple(dict.fromkeys(values))
