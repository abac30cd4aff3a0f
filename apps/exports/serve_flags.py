"""From resolved settings back to the flags one types: the shortest list that resolves to the same engine.

Nothing is guessed: flags are added where the defaults of this vLLM version, model and GPU give another value, the
result is resolved again as any command line is, and what still differs is named.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import Any

from simulator.command_line import ServeArgs
from simulator.engine_config import EngineConfig
from simulator.errors import ServecastError
from simulator.flag_table import FLAGS
from simulator.resolve import resolve
from simulator.scenario import Scenario

#: Settings whose value decides defaults of others: first.
_FIRST = (
    "dtype", "quantization", "kv_cache_dtype", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
    "enable_expert_parallel", "max_model_len", "num_scheduler_steps", "enable_chunked_prefill", "max_num_seqs",
    "max_num_batched_tokens",
)  # fmt: skip
#: Not flags of their own, or said by others.
_NO_FLAG = {
    "model", "vllm_version", "usage_context", "engine_generation", "auto_max_model_len", "unsimulated",
    "cudagraph_mode", "cudagraph_capture_sizes", "kv_offloading_block_factor",
}  # fmt: skip


@dataclass(frozen=True)
class ServeFlags:
    """How to start the server: settings by flag name, variables of the environment, and what no flag can say."""

    model: str
    given: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    unsaid: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Return the arguments behind ``vllm serve``: the model, then the flags."""
        found = [self.model]
        for name, value in self.given.items():
            found += _flag_words(name, value)
        return found

    def command(self) -> str:
        """Return the line for a shell."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        return " ".join([*variables, "vllm serve", *(shlex.quote(word) for word in self.words())])


def serve_flags(scenario: Scenario) -> ServeFlags:
    """Return how to start the server of *scenario*."""
    wanted = scenario.engine
    env = _environment(scenario)
    given: dict[str, Any] = {}
    best = _resolved(scenario, given, env)
    names = [*_FIRST, *(name for name in EngineConfig.model_fields if name not in _FIRST and name not in _NO_FLAG)]
    for name in [*names, *names]:  # twice: a later flag may change the default of an earlier one
        if name not in FLAGS or _agree(best, wanted, name):
            continue
        tried = {**given, name: _value(wanted, name)}
        found = _resolved(scenario, tried, env)
        if _agree(found, wanted, name):
            given, best = tried, found
    for extra in _structured(wanted):
        tried = {**given, **extra}
        found = _resolved(scenario, tried, env)
        if found is not None and (best is None or len(_differences(found, wanted)) < len(_differences(best, wanted))):
            given, best = tried, found
    unsaid = tuple(_differences(best, wanted)) if best is not None else ("all settings",)
    return ServeFlags(wanted.model, given, env, unsaid)


def _resolved(scenario: Scenario, given: dict[str, Any], env: dict[str, str]) -> EngineConfig | None:
    """Return what vLLM would make of these flags; None if it refuses them."""
    engine = scenario.engine
    try:
        args = ServeArgs(model=engine.model, given=given, env=env)
        return resolve(args, scenario.model, scenario.gpu, engine.vllm_version)[0]
    except ServecastError:
        return None


def _agree(found: EngineConfig | None, wanted: EngineConfig, name: str) -> bool:
    """Whether the setting *name* came out as wanted."""
    if found is None:
        return False
    names = (name, "auto_max_model_len") if name == "max_model_len" else (name,)
    return all(getattr(found, each) == getattr(wanted, each) for each in names)


def _differences(found: EngineConfig, wanted: EngineConfig) -> list[str]:
    ignored = {"usage_context"}  # `vllm serve` it shall be, whatever the question was asked for
    return [
        name
        for name in EngineConfig.model_fields
        if name not in ignored and getattr(found, name) != getattr(wanted, name)
    ]


def _environment(scenario: Scenario) -> dict[str, str]:
    """Return the variable that picks the other engine of versions that have both."""
    plain = _resolved(scenario, {}, {})
    wanted = scenario.engine.engine_generation
    if plain is None or wanted is None or plain.engine_generation == wanted:
        return {}
    return {"VLLM_USE_V1": "1" if wanted == "V1" else "0"}


def _value(engine: EngineConfig, name: str) -> Any:
    if name == "max_model_len" and engine.auto_max_model_len:
        return -1
    return getattr(engine, name)


def _structured(engine: EngineConfig) -> list[dict[str, Any]]:
    """Return settings that are written as JSON, to be tried in this order."""
    sizes = list(engine.cudagraph_capture_sizes)
    found: list[dict[str, Any]] = [{"compilation_config": {"cudagraph_mode": engine.cudagraph_mode}}]
    if sizes:
        found += [
            {"cudagraph_capture_sizes": sizes},
            {"compilation_config": {"cudagraph_capture_sizes": sizes}},
            {"compilation_config": {"cudagraph_mode": engine.cudagraph_mode, "cudagraph_capture_sizes": sizes}},
        ]
    if engine.kv_offloading_size:
        block = engine.kv_offloading_block_factor * engine.block_size
        extra = {"cpu_bytes_to_use": int(engine.kv_offloading_size * (1 << 30)), "block_size": block}
        config = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
        found.append({"kv_offloading_size": None, "kv_transfer_config": config})
    return found


def _flag_words(name: str, value: Any) -> list[str]:
    if value is None:
        return []
    spelled = FLAGS[name].spelled
    if isinstance(value, bool):
        return [spelled if value else "--no-" + spelled.removeprefix("--")]
    if isinstance(value, dict):
        return [spelled, json.dumps(value)]
    if isinstance(value, (list, tuple)):
        return [spelled, *map(str, value)]
    return [spelled, f"{value:g}" if isinstance(value, float) and value == float(f"{value:g}") else str(value)]
