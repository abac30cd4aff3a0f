"""vLLM's flags as data (0.6 to 0.24, some of 0.33): what is read, what is skipped in silence, what is mentioned.

Names are spelled with underscores.  `since` is the first version that has a flag, `until` the first one that has it no
more; `instead` is what to tell whoever uses it with another version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["int", "human_int", "float", "bool", "str", "json", "list", "int_list"]


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag that is read."""

    name: str
    kind: Kind
    since: tuple[int, int, int] | None = None
    until: tuple[int, int, int] | None = None
    instead: str = ""

    @property
    def spelled(self) -> str:
        """The flag as one types it."""
        return "--" + self.name.replace("_", "-")


_ASYNC = "async scheduling replaces it"
_SPECULATIVE = 'give --speculative-config \'{"method": ..., "num_speculative_tokens": ...}\''
_V1_RECOMPUTES = "V1 always recomputes"

_FLAGS = (
    # model
    Flag("model", "str"),
    Flag("hf_config_path", "str"),
    Flag("dtype", "str"),
    Flag("quantization", "str"),
    Flag("hf_overrides", "json"),
    Flag("rope_scaling", "json"),
    Flag("task", "str"),
    Flag("runner", "str"),
    Flag("convert", "str"),
    Flag("limit_mm_per_prompt", "json"),
    Flag("language_model_only", "bool"),
    Flag("disable_sliding_window", "bool"),
    Flag("max_model_len", "human_int"),
    # scheduler
    Flag("max_num_batched_tokens", "human_int"),
    Flag("max_num_seqs", "int"),
    Flag("scheduling_policy", "str"),
    Flag("enable_chunked_prefill", "bool"),
    Flag("async_scheduling", "bool", since=(0, 10, 0), instead="vLLM plans one step at a time there"),
    Flag("long_prefill_token_threshold", "int", since=(0, 7, 0)),
    Flag("max_num_partial_prefills", "int", since=(0, 7, 0)),
    Flag("max_long_partial_prefills", "int", since=(0, 7, 0)),
    Flag("scheduler_reserve_full_isl", "bool", since=(0, 19, 0), instead="admission looks at the first chunk only"),
    Flag("watermark", "float", since=(0, 24, 0), instead="V1 admits down to the last free block, V0 keeps 1 % free"),
    Flag("stream_interval", "int"),
    Flag("performance_mode", "str"),
    Flag("num_scheduler_steps", "int", until=(0, 10, 0), instead=_ASYNC),
    Flag("multi_step_stream_outputs", "bool", until=(0, 10, 0), instead=_ASYNC),
    Flag("scheduler_delay_factor", "float", until=(0, 11, 0), instead="V1 has no such delay"),
    Flag("num_lookahead_slots", "int", until=(0, 12, 0), instead=_SPECULATIVE),
    Flag("disable_async_output_proc", "bool", until=(0, 11, 0), instead="only V0 had it"),
    Flag("preemption_mode", "str", until=(0, 11, 0), instead=_V1_RECOMPUTES),
    # KV cache
    Flag("block_size", "int"),
    Flag("gpu_memory_utilization", "float"),
    Flag("enable_prefix_caching", "bool"),
    Flag("kv_cache_dtype", "str"),
    Flag("num_gpu_blocks_override", "int"),
    Flag("kv_cache_memory_bytes", "human_int", since=(0, 10, 2), instead="use --gpu-memory-utilization"),
    Flag(
        "swap_space",
        "float",
        until=(0, 18, 0),
        instead="did you mean --kv-offloading-size (GiB, total over TP)? It is a prefix-cache tier, not swap",
    ),
    Flag("kv_offloading_size", "float", since=(0, 11, 1), instead="V0's --swap-space is something else"),
    Flag("kv_offloading_backend", "str", since=(0, 11, 1)),
    Flag("kv_transfer_config", "json"),
    Flag("cpu_offload_gb", "float"),
    # parallelism
    Flag("tensor_parallel_size", "int"),
    Flag("pipeline_parallel_size", "int"),
    Flag("data_parallel_size", "int", since=(0, 8, 0), instead="start several servers"),
    Flag("decode_context_parallel_size", "int", since=(0, 10, 2)),
    Flag("prefill_context_parallel_size", "int", since=(0, 11, 1)),
    Flag("enable_expert_parallel", "bool", since=(0, 7, 3)),
    Flag("all2all_backend", "str"),
    Flag("distributed_executor_backend", "str"),
    # execution
    Flag("enforce_eager", "bool"),
    Flag("attention_backend", "str"),
    Flag("attention_config", "json"),
    Flag("optimization_level", "int"),
    Flag("compilation_config", "json"),
    Flag("cudagraph_capture_sizes", "int_list", since=(0, 11, 1), instead="did you mean --cuda-graph-sizes?"),
    Flag("max_cudagraph_capture_size", "int", since=(0, 11, 1), instead="did you mean --cuda-graph-sizes?"),
    Flag(
        "cuda_graph_sizes",
        "int_list",
        since=(0, 8, 0),
        until=(0, 12, 0),
        instead="did you mean --cudagraph-capture-sizes?",
    ),
    Flag("max_seq_len_to_capture", "int", until=(0, 11, 0), instead="only V0 had it: V1's graphs take any length"),
    # features
    Flag("speculative_config", "json", since=(0, 8, 0), instead="did you mean --speculative-model?"),
    Flag("speculative_model", "str", until=(0, 9, 0), instead=_SPECULATIVE),
    Flag("num_speculative_tokens", "int", until=(0, 9, 0), instead=_SPECULATIVE),
    Flag("enable_lora", "bool"),
    Flag("lora_modules", "list"),
    Flag("enable_prompt_adapter", "bool"),
    Flag("otlp_traces_endpoint", "str"),
    Flag("device", "str", until=(0, 11, 0), instead="the platform is found out"),
)

FLAGS: dict[str, Flag] = {flag.name: flag for flag in _FLAGS}

#: Short and old spellings of flags that are read.
ALIASES: dict[str, str] = {
    "-tp": "tensor_parallel_size", "-pp": "pipeline_parallel_size", "-dp": "data_parallel_size",
    "-dcp": "decode_context_parallel_size", "-pcp": "prefill_context_parallel_size", "-ep": "enable_expert_parallel",
    "-q": "quantization", "-O": "optimization_level", "-cc": "compilation_config", "-sc": "speculative_config",
    "-ac": "attention_config", "-n": "nnodes", "-r": "node_rank", "-asc": "api_server_count",
    "-dpn": "data_parallel_rank", "-dpr": "data_parallel_start_rank", "-dpl": "data_parallel_size_local",
    "-dpa": "data_parallel_address", "-dpp": "data_parallel_rpc_port", "-dpb": "data_parallel_backend",
    "-dph": "data_parallel_hybrid_lb", "-dpe": "data_parallel_external_lb",
    "kv_cache_memory": "kv_cache_memory_bytes", "model_tag": "model",
}  # fmt: skip


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Do not touch performance; switches without a value.
SILENT_SWITCHES = _words(
    """aggregate_engine_logging allow_credentials allow_deprecated_quantization calculate_kv_scales
    cohere_is_reasoning_model cudagraph_metrics data_parallel_external_lb data_parallel_hybrid_lb
    disable_access_log disable_cascade_attn disable_chunked_mm_input disable_fastapi_docs
    disable_frontend_multiprocessing disable_guided_decoding_fallback disable_hybrid_kv_cache_manager
    disable_log_requests disable_log_stats disable_logprobs_during_spec_decoding disable_mm_preprocessor_cache
    disable_nccl_for_dp_synchronization disable_uvicorn_access_log enable_auto_tool_choice
    enable_cumem_allocator enable_flash_late_interaction enable_force_include_usage enable_kv_cache_events
    enable_layerwise_nvtx_tracing enable_log_deltas enable_log_outputs enable_log_requests
    enable_logging_iteration_details enable_lora_bias enable_mfu_metrics enable_mm_embeds enable_offline_docs
    enable_per_request_metrics enable_prompt_embeds enable_prompt_tokens_details enable_reasoning
    enable_request_id_headers enable_return_routed_experts enable_server_load_tracking enable_sleep_mode
    enable_ssl_refresh enable_step_marker enable_tokenizer_info_endpoint engine_use_ray
    exclude_tools_when_tool_choice_none fully_sharded_loras h headless help interleave_mm_strings
    kv_cache_metrics log_error_stack log_non_default_args numa_bind ray_workers_use_nsight
    return_tokens_as_token_ids skip_mm_profiling skip_tokenizer_init tokens_only trust_remote_code
    trust_request_chat_template use_tqdm_on_load worker_use_ray"""
)

#: Do not touch performance; each takes one value.
SILENT_VALUES = _words(
    """allowed_headers allowed_local_media_path allowed_media_domains allowed_methods allowed_origins
    chat_template chat_template_content_format code_revision cohere_format collect_detailed_traces config
    config_format cpu_distributed_timeout_seconds data_parallel_address data_parallel_backend
    data_parallel_rank data_parallel_rpc_port data_parallel_size_local data_parallel_start_rank
    data_parallel_supervisor_port default_chat_template_kwargs default_mm_loras
    disable_access_log_for_endpoints distributed_timeout_seconds download_dir
    dp_supervisor_probe_failure_threshold dp_supervisor_probe_interval_s dp_supervisor_probe_timeout_s
    engine_id fingerprint_mode fingerprint_value generation_config grpc_port guided_decoding_backend
    h11_max_header_count h11_max_incomplete_event_size hf_token host ignore_patterns
    intial_incremental_detokenization_offset io_processor_plugin kv_cache_metrics_sample kv_events_config
    load_format log_config_file logits_processor_pattern logits_processors logprobs_mode
    long_lora_scaling_factors lora_dtype lora_extra_vocab_size lora_target_modules master_addr master_port
    max_cpu_loras max_log_len max_logprobs max_lora_rank max_loras max_parallel_loading_workers
    max_prompt_adapter_token max_prompt_adapters media_io_kwargs mm_encoder_attn_backend mm_processor_cache_gb
    mm_processor_cache_type mm_processor_kwargs mm_shm_cache_max_object_size_mb mm_tensor_ipc
    model_class_overrides model_impl model_loader_extra_config ngram_prompt_lookup_max ngram_prompt_lookup_min
    nnodes node_rank numa_bind_cpus numa_bind_nodes observability_config override_attention_dtype
    override_generation_config override_neuron_config override_pooler_config pooler_config port
    prefix_caching_hash_algo profiler_config pt_load_map_location qlora_adapter_name_or_path
    ray_adag_tensor_type reasoning_config reasoning_parser reasoning_parser_plugin response_role revision
    root_path rope_theta safetensors_load_strategy scheduler_cls seed show_hidden_metrics_for_version
    shutdown_timeout spec_decoding_acceptance_method speculative_disable_by_batch_size
    speculative_disable_mqa_scorer speculative_draft_tensor_parallel_size speculative_max_model_len
    speculative_model_quantization ssl_ca_certs ssl_cert_reqs ssl_certfile ssl_ciphers ssl_keyfile
    structured_outputs_config tokenizer tokenizer_mode tokenizer_pool_extra_config tokenizer_pool_size
    tokenizer_pool_type tokenizer_revision tool_call_parser tool_parser_plugin tool_server
    typical_acceptance_sampler_posterior_alpha typical_acceptance_sampler_posterior_threshold uds
    uvicorn_log_level video_pruning_rate weight_transfer_config worker_cls worker_extension_cls"""
)

#: Do not touch performance; each takes the words up to the next flag.
SILENT_LISTS = _words("served_model_name api_key middleware prompt_adapters loggers plugins stat_loggers")

#: May touch performance, but the simulation does not know how; mentioned once.  True: takes a value.
NOT_MODELLED: dict[str, bool] = {
    "additional_config": True, "api_server_count": True, "aux_output_config": True,
    "cp_kv_cache_interleave_size": True, "dbo_decode_token_threshold": True,
    "dbo_prefill_token_threshold": True, "dcp_comm_backend": True, "dcp_kv_cache_interleave_size": True,
    "disable_custom_all_reduce": False, "enable_dbo": False, "enable_elastic_ep": False,
    "enable_ep_weight_filter": False, "enable_eplb": False, "enable_flashinfer_autotune": False,
    "enable_multimodal_encoder_data_parallel": False, "eplb_config": True, "eplb_log_balancedness": False,
    "eplb_step_interval": True, "eplb_window_size": True, "expert_placement_strategy": True,
    "fail_on_environ_validation": False, "ir_op_priority": True, "kernel_config": True,
    "kv_cache_dtype_skip_layers": True, "kv_sharing_fast_prefill": False, "linear_backend": True,
    "mamba_backend": True, "mamba_block_size": True, "mamba_cache_dtype": True, "mamba_cache_mode": True,
    "mamba_ssm_cache_dtype": True, "max_num_active_seqs": True, "max_num_queued_reqs": True,
    "max_num_queued_tokens": True, "mm_encoder_tp_mode": True, "moe_backend": True,
    "num_redundant_experts": True, "offload_backend": True, "offload_group_size": True,
    "offload_num_in_group": True, "offload_params": True, "offload_prefetch_step": True,
    "prefill_schedule_interval": True, "quantization_config": True, "quantization_param_path": True,
    "renderer_num_workers": True, "ubatch_size": True,
}  # fmt: skip
