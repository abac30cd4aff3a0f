"""What vLLM refuses before it starts: every message names the value, the rule and the fix.

Checks that need a resolved default live beside it (`simulator.batch_limits`, `simulator.block_sizes`,
`simulator.graph_settings`).  Source: vllm/config and engine/arg_utils.py, read in 0.6.3, 0.8.5 and 0.24.0.
"""

from __future__ import annotations

from simulator.asked import Asked
from simulator.errors import ConfigError
from simulator.quantization import FORMATS, METHODS, ONLINE

#: (flag, smallest value): whole numbers and sizes that may not be below.
_SMALLEST: dict[str, float] = {
    "max_num_batched_tokens": 1, "max_num_seqs": 1, "tensor_parallel_size": 1, "pipeline_parallel_size": 1,
    "data_parallel_size": 1, "decode_context_parallel_size": 1, "prefill_context_parallel_size": 1,
    "num_gpu_blocks_override": 1, "kv_cache_memory_bytes": 1, "stream_interval": 1, "num_scheduler_steps": 1,
    "max_num_partial_prefills": 1, "max_long_partial_prefills": 1, "long_prefill_token_threshold": 0,
    "swap_space": 0, "cpu_offload_gb": 0, "kv_offloading_size": 0, "scheduler_delay_factor": 0,
    "num_lookahead_slots": 0, "max_seq_len_to_capture": 1, "max_cudagraph_capture_size": 0,
}  # fmt: skip

_CHOICES: dict[str, tuple[str, ...]] = {
    "scheduling_policy": ("fcfs", "priority"),
    "preemption_mode": ("recompute", "swap"),
    "performance_mode": ("balanced", "interactivity", "throughput"),
    "dtype": ("auto", "half", "float16", "bfloat16", "float", "float32"),
    "kv_cache_dtype": (
        "auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "nvfp4",
        "int8_per_token_head", "fp8_per_token_head",
    ),
    "distributed_executor_backend": ("ray", "mp", "uni", "external_launcher"),
}  # fmt: skip


def check(asked: Asked) -> None:
    """Raise `ConfigError` for the first setting that vLLM would refuse on this model and GPU."""
    for name, smallest in _SMALLEST.items():
        value = asked.get(name)
        if value is not None and value < smallest:
            rule = "positive" if smallest else "zero or more"
            raise ConfigError(f"{_flag(name)} must be {rule}, got {value}; leave it out for the default")
    for name, choices in _CHOICES.items():
        value = asked.get(name)
        if value is not None and value not in choices:
            more = "; there is no fair policy" if name == "scheduling_policy" else ""
            raise ConfigError(f"{_flag(name)} must be one of {', '.join(choices)}, got {str(value)[:40]!r}{more}")
    _check_fractions(asked)
    _check_parallelism(asked)
    _check_number_formats(asked)
    _check_partial_prefills(asked)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_fractions(asked: Asked) -> None:
    utilization, watermark = asked.get("gpu_memory_utilization"), asked.get("watermark")
    if utilization is not None and not 0 < utilization <= 1:
        fix = f"did you mean {utilization / 100:g}?" if 10 <= utilization <= 100 else "use e.g. 0.9"
        raise ConfigError(f"--gpu-memory-utilization must be in (0, 1], got {utilization:g}; {fix}")
    if watermark is not None and not 0 <= watermark < 1:
        raise ConfigError(f"--watermark must be in [0, 1), got {watermark:g}; it is a share of the blocks, e.g. 0.01")


def _check_parallelism(asked: Asked) -> None:
    model, ranks, stages = asked.model, asked.get("tensor_parallel_size", 1), asked.get("pipeline_parallel_size", 1)
    if model.num_attention_heads % ranks:
        good = sorted((n for n in range(1, 65) if not model.num_attention_heads % n), key=lambda n: abs(n - ranks))
        raise ConfigError(
            f"--tensor-parallel-size {ranks}: total number of attention heads ({model.num_attention_heads}) must be "
            f"divisible by tensor parallel size ({ranks}); use {' or '.join(str(n) for n in sorted(good[:2]))}"
        )
    heads = model.num_key_value_heads
    if not model.kv_lora_rank and heads % ranks and ranks % heads:
        raise ConfigError(
            f"--tensor-parallel-size {ranks}: the {heads} KV heads can neither be split nor replicated evenly; use a "
            "divisor or a multiple of them"
        )
    if model.intermediate_size % ranks:
        raise ConfigError(
            f"--tensor-parallel-size {ranks}: intermediate_size {model.intermediate_size} is not divisible by {ranks}; "
            "use a smaller power of two"
        )
    if stages > model.num_hidden_layers:
        raise ConfigError(
            f"--pipeline-parallel-size {stages}: the model has only {model.num_hidden_layers} layers; use at most that"
        )


def _check_number_formats(asked: Asked) -> None:
    capability, dtype, method = asked.gpu.compute_capability, asked.get("dtype"), asked.get("quantization")
    if dtype == "bfloat16" and capability < 8.0:
        raise ConfigError(
            f"--dtype bfloat16 needs compute capability 8.0, {asked.gpu.name} has {capability}; use --dtype float16"
        )
    if method is None:
        return
    if method not in METHODS:
        raise ConfigError(
            f"--quantization {str(method)[:40]!r} is not a method of vLLM; usual are fp8, awq, gptq, "
            "compressed-tensors, bitsandbytes, modelopt"
        )
    if capability < 8.0 and (method in ("fp8", "fbgemm_fp8") or method.endswith("marlin")):
        raise ConfigError(
            f"--quantization {method} needs compute capability 8.0, {asked.gpu.name} has {capability}; use awq or gptq"
        )
    own, asked_format = asked.model.quantization, FORMATS.get(method)
    if own is not None and asked_format not in (None, own) and not (own == "int8" and asked_format == "gptq"):
        raise ConfigError(
            f"--quantization {method} does not match the method in the model's config ({own}); leave the flag out"
        )
    if own is None and method not in ONLINE:
        asked.note(
            f"{asked.model.name} itself is not quantised: vLLM would not find the config of {method} there; taken as a "
            f"copy of it in {method}"
        )


def _check_partial_prefills(asked: Asked) -> None:
    count, long = asked.get("max_num_partial_prefills", 1), asked.get("max_long_partial_prefills", 1)
    if long > count:
        raise ConfigError(
            f"--max-long-partial-prefills {long} must not exceed --max-num-partial-prefills {count}; lower it"
        )
    if count != 1 and not asked.is_v0:
        raise ConfigError(
            f"--max-num-partial-prefills {count}: V1 does not support concurrent partial prefills; use 1 (the default)"
        )
