"""From what the user set to what the server runs with: the version's defaults, vLLM's refusals, the features by name.

`resolve` returns the `EngineConfig` a server would log and the notes a user should read: flags that were ignored, that
the version does not have, or whose effect is not modelled.
"""

from __future__ import annotations

from typing import Any

from simulator.asked import Asked
from simulator.batch_limits import batch_limits
from simulator.block_sizes import block_size
from simulator.command_line import ServeArgs
from simulator.config_checks import check
from simulator.engine_config import EngineConfig
from simulator.engine_generation import engine_generation
from simulator.errors import ConfigError, validated
from simulator.flag_table import FLAGS
from simulator.gpu_spec import GpuSpec
from simulator.graph_settings import graph_settings
from simulator.model_spec import ModelSpec
from simulator.quantization import FORMATS
from simulator.unsimulated import unsimulated_features
from simulator.versions import DEFAULT_VERSION, facts

V0_SWAP_SPACE_GIB = 4.0
_OFFLOAD_AS_NOW = (0, 23, 0)
_ASYNC_METHODS = ("eagle", "eagle3", "mtp", "dflash", "ngram_gpu")
_V0_ONLY = (
    "num_scheduler_steps", "scheduler_delay_factor", "num_lookahead_slots", "disable_async_output_proc",
    "multi_step_stream_outputs", "max_seq_len_to_capture",
)  # fmt: skip
_AS_GIVEN = (
    "long_prefill_token_threshold", "scheduler_reserve_full_isl", "watermark", "stream_interval", "scheduling_policy",
    "kv_cache_dtype", "num_gpu_blocks_override", "kv_cache_memory_bytes", "kv_offloading_size", "cpu_offload_gb",
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel", "enforce_eager",
)  # fmt: skip


def resolve(
    args: ServeArgs, model: ModelSpec, gpu: GpuSpec, vllm_version: str | None = None
) -> tuple[EngineConfig, tuple[str, ...]]:
    """Return (settings, notes); raises `ConfigError`, one line, for what vLLM would refuse.

    The version is *vllm_version*, else the one of the command (an image's tag), else 0.24.0.
    """
    version = (vllm_version or args.vllm_version or DEFAULT_VERSION).strip().removeprefix("v")
    asked = Asked(
        given=dict(args.given),
        env=args.env,
        usage_context=args.usage_context,
        model=model,
        gpu=gpu,
        version=version,
        known=facts(version),
        notes=list(args.notes),
    )
    _note_origins(asked)
    _drop_absent_flags(asked)
    asked.generation = engine_generation(asked)
    check(asked)
    data = {"model": args.model or model.name, **_settings(asked)}
    return validated(EngineConfig, data, "engine settings"), tuple(asked.notes)


def _note_origins(asked: Asked) -> None:
    if asked.known.note:
        asked.note(asked.known.note)
    if asked.model.source.startswith(("taken as", "by its name")):
        asked.note(f"model {asked.model.name}: {asked.model.source}")
    read = {"max_position_embeddings", "rope_scaling", "rope_parameters", "text_config"}
    others = [str(key)[:40] for key in asked.get("hf_overrides", {}) if key not in read]
    if others:
        asked.note(f"--hf-overrides: {', '.join(others[:5])} not read (ignored); give a changed config.json instead")


def _drop_absent_flags(asked: Asked) -> None:
    """Take out what this version does not have, with a note: vLLM itself would not know the argument."""
    for name in list(asked.given):
        flag = FLAGS.get(name)
        if flag is None:
            raise ConfigError(f"unknown setting {name[:60]!r}; settings are spelled as vLLM's flags, with underscores")
        early = flag.since is not None and asked.known.version < flag.since
        late = flag.until is not None and asked.known.version >= flag.until
        if not early and not late:
            continue
        del asked.given[name]
        since, until = (".".join(str(part) for part in each or ()) for each in (flag.since, flag.until))
        when = f"exists from {since} on" if early else f"was removed in {until}"
        asked.note(
            f"{flag.spelled} {when}: vLLM {asked.version} does not have it (ignored)"
            + (f"; {flag.instead}" if flag.instead else "")
        )


def _settings(asked: Asked) -> dict[str, Any]:
    """Return the fields of `EngineConfig` with all defaults applied."""
    limits = batch_limits(asked)
    mode, sizes = graph_settings(asked, limits.max_num_seqs, limits.max_num_batched_tokens)
    data: dict[str, Any] = {name: asked.given[name] for name in _AS_GIVEN if asked.get(name) is not None}
    if asked.is_v0:
        data |= {name: asked.given[name] for name in _V0_ONLY if asked.get(name) is not None}
    data |= {
        "vllm_version": asked.version,
        "usage_context": asked.usage_context,
        "engine_generation": asked.generation,
        "max_model_len": limits.max_model_len,
        "auto_max_model_len": limits.auto_max_model_len,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "max_num_seqs": limits.max_num_seqs,
        "enable_chunked_prefill": limits.enable_chunked_prefill,
        "async_scheduling": _async_scheduling(asked),
        "scheduler_reserve_full_isl": asked.get("scheduler_reserve_full_isl", True) and asked.known.full_sequence_check,
        "block_size": block_size(asked),
        "gpu_memory_utilization": asked.get("gpu_memory_utilization", asked.known.gpu_memory_utilization),
        "enable_prefix_caching": asked.get("enable_prefix_caching", not asked.is_v0 and not asked.is_pooling),
        "swap_space": _swap_space(asked),
        **_kv_offloading(asked),
        "preemption_mode": asked.get("preemption_mode") if asked.is_v0 else None,
        "dtype": _dtype(asked),
        "quantization": _quantization(asked),
        "cudagraph_mode": mode,
        "cudagraph_capture_sizes": sizes,
        "attention_backend": asked.attention_backend,
        "unsimulated": unsimulated_features(asked, limits.max_model_len),
    }
    return data


def _async_scheduling(asked: Asked) -> bool:
    """Return whether two steps are planned ahead; `ConfigError` if it is demanded where it cannot be."""
    if asked.is_v0:
        if asked.get("async_scheduling"):
            asked.note("--async-scheduling has no effect in V0")
        return False
    given, obstacle = asked.get("async_scheduling"), _async_obstacle(asked)
    if given and obstacle:
        raise ConfigError(f"--async-scheduling does not work with {obstacle}; leave one of them out")
    if given is not None:
        return bool(given)
    return asked.known.async_scheduling_default and obstacle is None


def _async_obstacle(asked: Asked) -> str | None:
    method, executor = asked.speculative_method, asked.get("distributed_executor_backend")
    if asked.is_pooling:
        return "a pooling model"
    if method is not None and method not in _ASYNC_METHODS and not method.endswith("mtp"):
        return f"speculative method {method[:40]}"
    if asked.get("speculative_config", {}).get("disable_padded_drafter_batch"):
        return "disable_padded_drafter_batch"
    if executor in ("ray", "external_launcher"):
        return f"--distributed-executor-backend {executor}"
    return None


def _swap_space(asked: Asked) -> float | None:
    """Return V0's swap space in GiB per GPU; in V1 the flag has no effect."""
    if asked.is_v0:
        return float(asked.get("swap_space", V0_SWAP_SPACE_GIB))
    if asked.get("swap_space") is not None:
        asked.note(f"--swap-space has no effect in V1 (ignored); {FLAGS['swap_space'].instead}")
    return None


def _kv_offloading(asked: Asked) -> dict[str, Any]:
    """Return the CPU tier's size, also where it is written as a connector's configuration, and its block factor."""
    transfer = asked.get("kv_transfer_config", {})
    used = asked.get("kv_offloading_size") or transfer.get("kv_connector") == "OffloadingConnector"
    if used and not asked.is_v0 and asked.known.version < _OFFLOAD_AS_NOW:
        asked.note(f"KV offload of vLLM {asked.version} is simulated by the rules of 0.24 (before 0.23 it also stored "
                   "generated tokens)")  # fmt: skip
    extra = transfer.get("kv_connector_extra_config") or {}
    if asked.is_v0 or transfer.get("kv_connector") != "OffloadingConnector":
        return {}
    size, block = extra.get("cpu_bytes_to_use"), block_size(asked)
    if not size:
        raise ConfigError(
            "OffloadingConnector needs cpu_bytes_to_use in kv_connector_extra_config (bytes over all ranks)"
        )
    tier_block = int(extra.get("block_size", block))
    if tier_block < block or tier_block % block:
        raise ConfigError(f"the block_size of OffloadingConnector must be a multiple of {block}, got {tier_block}")
    return {"kv_offloading_size": float(size) / (1 << 30), "kv_offloading_block_factor": tier_block // block}


def _dtype(asked: Asked) -> str:
    dtype = str(asked.get("dtype", "auto"))
    if dtype == "auto" and asked.model.dtype == "bf16" and asked.gpu.compute_capability < 8.0:
        asked.note(f"{asked.gpu.name} has no bfloat16: vLLM falls back to float16")
        return "float16"
    return dtype


def _quantization(asked: Asked) -> str | None:
    """Return the weight format where it is certain, else the method as given."""
    if asked.model.quantization is not None:
        return asked.model.quantization
    given = asked.get("quantization")
    return None if given is None else FORMATS.get(given, given)
