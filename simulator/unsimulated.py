"""Features that vLLM has and the simulation does not: it refuses them by these names; memory covers some of them."""

from __future__ import annotations

from typing import Any

from simulator.asked import Asked


def unsimulated_features(asked: Asked, max_model_len: int) -> tuple[str, ...]:
    """Return the names of the features in use that are not simulated, in a fixed order."""
    model = asked.model
    transfer = asked.get("kv_transfer_config", {})
    extra = transfer.get("kv_connector_extra_config") or {}
    window = model.sliding_window is not None and model.sliding_window < max_model_len
    partial = asked.get("max_num_partial_prefills", 1) > 1
    ranks = (asked.get("decode_context_parallel_size", 1), asked.get("prefill_context_parallel_size", 1))
    features = {
        "speculative decoding": asked.speculative_method is not None,
        "LoRA": asked.uses_lora,
        "prompt adapters": bool(asked.get("enable_prompt_adapter")),
        "pooling models": asked.is_pooling,
        "multimodal encoder": model.is_multimodal and not _text_only(asked),
        "mixture of experts": model.num_experts > 0,
        "MLA": model.kv_lora_rank > 0,
        "sliding window": window and not asked.get("disable_sliding_window"),
        "hybrid layers": model.is_hybrid,
        "pipeline parallelism": asked.get("pipeline_parallel_size", 1) > 1,
        "data parallelism": asked.get("data_parallel_size", 1) > 1,
        "decode context parallelism": ranks[0] > 1,
        "prefill context parallelism": ranks[1] > 1,
        "KV offloading by lmcache": asked.get("kv_offloading_backend", "native") != "native",
        "KV transfer": bool(transfer) and transfer.get("kv_connector") != "OffloadingConnector",
        "KV offloading of generated tokens": extra.get("offload_prompt_only", True) is not True,
        "KV offloading other than LRU on the CPU": not _plain_tier(extra),
        "CPU weight offload": asked.get("cpu_offload_gb", 0) > 0,
        "float32": asked.get("dtype")
        in ("float", "float32"),  # its peak rate is not that of 16 bit: prompts 10 x slower
        "concurrent partial prefills": partial,
    }
    return tuple(name for name, used in features.items() if used)


def _plain_tier(extra: dict[str, Any]) -> bool:
    """Is the tier of KV offload the native one of 0.24 with its defaults?"""
    kind, policy = extra.get("spec_name", "CPUOffloadingSpec"), extra.get("eviction_policy", "lru")
    return kind == "CPUOffloadingSpec" and policy == "lru" and int(extra.get("store_threshold", 0)) < 2


def _text_only(asked: Asked) -> bool:
    """Is the encoder left out (``--language-model-only``, or no image, video or audio allowed)?"""
    limits = asked.get("limit_mm_per_prompt", {})
    return bool(asked.get("language_model_only")) or (
        bool(limits) and all(str(each) == "0" for each in limits.values())
    )
