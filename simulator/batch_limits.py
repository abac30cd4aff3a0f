"""max_model_len, max_num_batched_tokens and max_num_seqs: what the user set, else what vLLM sets by device and version.

V1 defaults, tokens for ``LLM`` / ``vllm serve`` and sequences (read in 0.8.5, 0.9.2, 0.24.0, 0.33.0):

    memory >= 160 GiB, since 0.33               16384 / 16384     1024
    memory >= 70 GiB, not an A100 (0.8.5: any)  16384 / 8192      1024 (0.7: 256)
    everything else                              8192 / 2048       256

then, for values the user did not set: throughput mode doubles both; batched data-parallel MoE back ends take 256
tokens; chunked prefill off needs max_model_len tokens; tokens <= sequences * max_model_len; sequences <= tokens.

V0 (0.6.3, 0.7.3): 256 sequences; max(max_model_len, 2048) tokens, with chunked prefill 512 (0.7: 2048).
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.asked import Asked
from simulator.errors import ConfigError
from simulator.hf_config import stretched

_BATCHED_BACKENDS = ("deepep_low_latency", "pplx", "nixl_ep")
_V0_CHUNKS_ABOVE = 32768


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Resolved limits in tokens and sequences."""

    max_model_len: int
    auto_max_model_len: bool
    enable_chunked_prefill: bool
    max_num_batched_tokens: int
    max_num_seqs: int


def batch_limits(asked: Asked) -> BatchLimits:
    """Return the limits; `ConfigError` for the combinations vLLM refuses."""
    length, auto = max_model_len(asked)
    chunked = _chunked_prefill(asked, length)
    tokens, seqs = asked.get("max_num_batched_tokens"), asked.get("max_num_seqs")
    default_tokens, default_seqs = _v0_defaults(asked, length, chunked) if asked.is_v0 else _v1_defaults(asked)
    seqs = default_seqs if seqs is None else seqs
    if tokens is None:
        tokens = default_tokens if chunked else max(default_tokens, length)
        tokens = tokens if asked.is_v0 else min(tokens, seqs * length)
    if asked.get("max_num_seqs") is None:
        seqs = min(seqs, tokens)
    _check(asked, BatchLimits(length, auto, chunked, tokens, seqs))
    return BatchLimits(length, auto, chunked, tokens, seqs)


def is_big_device(asked: Asked) -> bool:
    """Does the GPU get the defaults of 70 GiB and more?  Looked up by name too: since 0.9.2 no A100 does."""
    name = asked.gpu.device_name.lower()
    if asked.known.excludes_a100 and "a100" in name:
        return False
    return asked.gpu.visible_memory_gib >= 70 and not (asked.known.has_160_gib_tier and "gb10" in name)


def _v1_defaults(asked: Asked) -> tuple[int, int]:
    """Return (tokens, sequences) by device, usage context and performance mode."""
    llm = asked.usage_context == "llm"
    if asked.known.has_160_gib_tier and asked.gpu.visible_memory_gib >= 160:
        tokens, seqs = 16384, 1024
    elif is_big_device(asked):
        tokens, seqs = 16384 if llm else 8192, asked.known.big_device_max_num_seqs
    else:
        tokens, seqs = 8192 if llm else 2048, 256
    if asked.get("performance_mode") == "throughput":
        tokens, seqs = 2 * tokens, 2 * seqs
    backend = asked.get("all2all_backend") or asked.env.get("VLLM_ALL2ALL_BACKEND")
    if asked.get("data_parallel_size", 1) > 1 and asked.get("enable_expert_parallel") and backend in _BATCHED_BACKENDS:
        tokens = 256
    return tokens, seqs


def _v0_defaults(asked: Asked, length: int, chunked: bool) -> tuple[int, int]:
    if not chunked or asked.get("num_scheduler_steps", 1) > 1:
        return max(length, 2048), 256
    return 512 if asked.known.version < (0, 7, 0) else 2048, 256


def _chunked_prefill(asked: Asked, length: int) -> bool:
    """V1: on.  V0: off, but turned on for long contexts unless a feature forbids it."""
    given = asked.get("enable_chunked_prefill")
    if given is not None:
        return bool(given)
    if not asked.is_v0:
        return not asked.is_pooling
    forbids = asked.model.sliding_window or asked.speculative_method or asked.uses_lora
    if length > _V0_CHUNKS_ABOVE and not forbids and not asked.get("enable_prompt_adapter"):
        asked.note(f"V0 turns chunked prefill on: max_model_len {length} is above {_V0_CHUNKS_ABOVE}")
        return True
    return False


def max_model_len(asked: Asked) -> tuple[int, bool]:
    """Return (max_model_len, whether memory may shrink it: -1 or auto).  Raises `ConfigError` above the model's."""
    longest = longest_of_model(asked)
    if asked.get("disable_sliding_window") and asked.model.sliding_window:
        longest = min(longest, asked.model.sliding_window)
    given = asked.get("max_model_len")
    if given is None or given == -1:
        return longest, given == -1
    if given < 1:
        raise ConfigError(
            f"--max-model-len must be positive (or -1: what fits), got {given}; leave it out for {longest}"
        )
    if given > longest:
        if asked.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0").lower() in ("1", "true"):
            asked.note(
                f"max_model_len {given} is above the model's {longest}: allowed by VLLM_ALLOW_LONG_MAX_MODEL_LEN"
            )
        else:
            raise ConfigError(
                f"--max-model-len {given} is greater than the model's {longest} (max_position_embeddings of "
                f"{asked.model.name}); use at most {longest}, give a rope scaling with --hf-overrides, or set "
                "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 if the model can take it"
            )
    return int(given), False


def longest_of_model(asked: Asked) -> int:
    """Return the model's longest context after ``--hf-overrides`` and ``--rope-scaling``."""
    overrides = asked.get("hf_overrides", {})
    inner = overrides.get("text_config")
    overrides = {**overrides, **inner} if isinstance(inner, dict) else overrides
    positions = overrides.get("max_position_embeddings")
    given = isinstance(positions, int) and not isinstance(positions, bool) and positions > 0
    longest = int(positions) if given and positions is not None else asked.model.max_position_embeddings
    scaling = asked.get("rope_scaling") or overrides.get("rope_scaling") or overrides.get("rope_parameters")
    if not isinstance(scaling, dict):
        return longest
    try:
        return max(1, stretched(longest, scaling))
    except (ValueError, OverflowError):
        raise ConfigError("the rope scaling's factor is not a number; write e.g. 4.0") from None


def _check(asked: Asked, limits: BatchLimits) -> None:
    tokens, seqs, length = limits.max_num_batched_tokens, limits.max_num_seqs, limits.max_model_len
    if tokens < length and not limits.enable_chunked_prefill:
        raise ConfigError(
            f"--max-num-batched-tokens {tokens} is smaller than max_model_len {length} with chunked prefill off; raise "
            f"it to {length}, lower --max-model-len, or turn chunked prefill on"
        )
    if tokens < seqs:
        raise ConfigError(
            f"--max-num-batched-tokens {tokens} is smaller than max_num_seqs {seqs}; raise it to {seqs} or lower "
            "--max-num-seqs"
        )
    if tokens > seqs * length and not asked.is_v0:
        asked.note(
            f"max_num_batched_tokens {tokens} exceeds max_num_seqs * max_model_len = {seqs * length}: no step can use "
            "all of it"
        )
