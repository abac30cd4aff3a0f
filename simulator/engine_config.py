"""The engine's settings after all defaults are applied, under vLLM's own names.

`EngineConfig` is what a running server would log as its resolved configuration.  It is made by
`simulator.resolve.resolve` from what the user set, the vLLM version, the model and the GPU.  Sizes in tokens, memory in
bytes, fractions 0..1.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

CudagraphMode = Literal["FULL_AND_PIECEWISE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "NONE"]


class EngineConfig(BaseModel):
    """Resolved settings of one engine; every field is spelled as its flag."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    vllm_version: str = "0.24.0"
    usage_context: Literal["serve", "llm"] = "serve"
    engine_generation: Literal["V0", "V1"] | None = None  # None: by vllm_version

    # batch limits
    max_model_len: int = Field(gt=0)
    auto_max_model_len: bool = False  # --max-model-len -1: the memory may shrink it
    max_num_batched_tokens: int = Field(gt=0)
    max_num_seqs: int = Field(gt=0)

    # scheduler
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    async_scheduling: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = Field(default=0, ge=0)
    scheduler_reserve_full_isl: bool = True
    watermark: float = Field(default=0.0, ge=0.0, lt=1.0)
    stream_interval: int = Field(default=1, gt=0)
    num_scheduler_steps: int = Field(default=1, gt=0)  # V0 only, as are the next five
    scheduler_delay_factor: float = Field(default=0.0, ge=0.0)
    num_lookahead_slots: int = Field(default=0, ge=0)
    disable_async_output_proc: bool = False
    multi_step_stream_outputs: bool = True  # V0, several scheduler steps: tokens as they come, or all at the end
    max_seq_len_to_capture: int = Field(default=8192, gt=0)  # V0: decodes with longer contexts run without graphs

    # KV cache
    block_size: int = Field(default=16, gt=0)
    gpu_memory_utilization: float = Field(default=0.92, gt=0, le=1)
    enable_prefix_caching: bool = True
    kv_cache_dtype: str = "auto"
    num_gpu_blocks_override: int | None = Field(default=None, gt=0)
    kv_cache_memory_bytes: int | None = Field(default=None, gt=0)
    swap_space: float | None = None  # GiB per GPU, V0 only
    preemption_mode: Literal["recompute", "swap"] | None = None  # V0 only
    kv_offloading_size: float | None = None  # GiB over all ranks, V1
    kv_offloading_block_factor: int = Field(default=1, gt=0)  # GPU blocks in a block of the CPU tier
    cpu_offload_gb: float = 0.0

    # model execution
    dtype: str = "auto"
    quantization: str | None = None
    tensor_parallel_size: int = Field(default=1, gt=0)
    pipeline_parallel_size: int = Field(default=1, gt=0)
    data_parallel_size: int = Field(default=1, gt=0)
    enable_expert_parallel: bool = False
    enforce_eager: bool = False
    cudagraph_mode: CudagraphMode = "FULL_AND_PIECEWISE"
    cudagraph_capture_sizes: tuple[int, ...] = ()
    attention_backend: str | None = None  # as asked for; None: vLLM chooses
    #: Features the simulation refuses by name (memory covers more): e.g. ("speculative decoding", "LoRA").
    unsimulated: tuple[str, ...] = ()
