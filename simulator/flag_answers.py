"""Flags that guides name and vLLM does not have: never existed, removed before 0.6, or another server's.

Sources: the argument parsers of vLLM 0.2.0 to 0.33, SGLang's and TensorRT-LLM's documentation.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What to say about a flag, and whether a value follows it."""

    text: str
    takes_value: bool = True


_NEVER = "never existed in vLLM"
_SGLANG = "is SGLang's"
_TENSORRT = "is TensorRT-LLM's"

ANSWERS: dict[str, Answer] = {
    "max_paddings": Answer(
        "was removed in 0.4.0 when batches stopped being padded; nothing to set. To limit the batch use "
        "--max-num-batched-tokens / --max-num-seqs"
    ),
    "chunked_prefill_size": Answer(f"{_SGLANG}, {_NEVER}; did you mean --max-num-batched-tokens?"),
    "recompute_prefill": Answer(f"{_NEVER}; did you mean --preemption-mode (V0 only)? V1 always recomputes", False),
    "max_seqs_per_group": Answer(f"{_NEVER}; did you mean --max-num-seqs?"),
    "scheduler_policy": Answer(
        f"{_NEVER}; did you mean --scheduling-policy? Values: fcfs, priority. There is no fair policy"
    ),
    "quantization_param_group_size": Answer(
        f"{_NEVER}; the group size is read from the checkpoint's quantization_config"
    ),
    "use_v2_block_manager": Answer(
        "has no effect: block manager v2 is the only one since 0.7, and the flag is gone after 0.8.5", False
    ),
    "kv_cache_free_gpu_memory_fraction": Answer(f"{_TENSORRT}; did you mean --gpu-memory-utilization?"),
    "kv_cache_free_gpu_mem_fraction": Answer(f"{_TENSORRT}; did you mean --gpu-memory-utilization?"),
    "max_batch_size": Answer(f"{_TENSORRT}; did you mean --max-num-seqs?"),
    "max_num_tokens": Answer(f"{_TENSORRT}; did you mean --max-num-batched-tokens?"),
    "max_seq_len": Answer(f"{_TENSORRT}; did you mean --max-model-len?"),
    "tp_size": Answer("is SGLang's and TensorRT-LLM's; did you mean --tensor-parallel-size?"),
    "mem_fraction_static": Answer(f"{_SGLANG}; did you mean --gpu-memory-utilization?"),
    "max_running_requests": Answer(f"{_SGLANG}; did you mean --max-num-seqs?"),
    "schedule_policy": Answer(f"{_SGLANG}; did you mean --scheduling-policy? Values: fcfs, priority"),
    "schedule_conservativeness": Answer(f"{_SGLANG}; vLLM has no such setting"),
    "context_length": Answer(f"{_SGLANG}; did you mean --max-model-len?"),
    "max_prefill_tokens": Answer(f"{_SGLANG}; did you mean --max-num-batched-tokens?"),
    "max_total_tokens": Answer(f"{_SGLANG}; did you mean --num-gpu-blocks-override (in blocks)?"),
    "model_path": Answer(f"{_SGLANG}; did you mean --model?"),
    "disable_radix_cache": Answer(f"{_SGLANG}; did you mean --no-enable-prefix-caching?", False),
    "disable_cuda_graph": Answer(f"{_SGLANG}; did you mean --enforce-eager?", False),
    "cuda_graph_max_bs": Answer(f"{_SGLANG}; did you mean --max-cudagraph-capture-size?"),
    "page_size": Answer(f"{_SGLANG}; did you mean --block-size?"),
    "max_batch_prefill_tokens": Answer("is TGI's; did you mean --max-num-batched-tokens?"),
    "max_concurrent_requests": Answer("is TGI's; did you mean --max-num-seqs?"),
    "max_total_requests": Answer(f"{_NEVER}; did you mean --max-num-seqs?"),
    "max_batch_tokens": Answer(f"{_NEVER}; did you mean --max-num-batched-tokens?"),
    "gpu_memory_fraction": Answer(f"{_NEVER}; did you mean --gpu-memory-utilization?"),
    "enable_cuda_graph": Answer(f"{_NEVER}: graphs are on; --enforce-eager turns them off", False),
    "disable_prefix_caching": Answer(f"{_NEVER}; did you mean --no-enable-prefix-caching?", False),
    "disable_chunked_prefill": Answer(f"{_NEVER}; did you mean --no-enable-chunked-prefill?", False),
    "ctx_size": Answer("is llama.cpp's; did you mean --max-model-len?"),
    "n_gpu_layers": Answer("is llama.cpp's; vLLM puts all layers on the GPU (--cpu-offload-gb keeps some weights off)"),
}
