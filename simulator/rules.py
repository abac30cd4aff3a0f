"""What the scheduling decisions depend on: the engine's limits and what its version does."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.engine_config import EngineConfig
from simulator.versions import facts


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRules:
    """Limits in tokens and requests, and the switches of the version (appendix A of its release history)."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    async_scheduling: bool = False
    priority_policy: bool = False
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    #: Chunked prefill off: a prompt that does not fit into the step blocks the queue (0.14 and later) or is passed.
    unfit_prompt_blocks_queue: bool = True
    #: PRIORITY: a request that is its own victim ends the running loop (up to 0.24) or only its own turn.
    self_victim_ends_loop: bool = True
    #: Async: no step is planned that could only yield a token beyond max_tokens (0.11.1 and later).
    async_length_guard: bool = True
    #: A request that is alone in the engine is not chunked by the threshold (0.31 and later).
    lone_request_ignores_threshold: bool = False

    @classmethod
    def of(cls, engine: EngineConfig) -> SchedulerRules:
        """Return the rules of a resolved configuration."""
        version = facts(engine.vllm_version)
        return cls(
            max_num_seqs=engine.max_num_seqs,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            max_model_len=engine.max_model_len,
            async_scheduling=engine.async_scheduling,
            priority_policy=engine.scheduling_policy == "priority",
            enable_chunked_prefill=engine.enable_chunked_prefill,
            long_prefill_token_threshold=engine.long_prefill_token_threshold,
            scheduler_reserve_full_isl=engine.scheduler_reserve_full_isl and version.full_sequence_check,
            watermark=engine.watermark if version.watermark_available else 0.0,
            unfit_prompt_blocks_queue=version.unfit_prompt_blocks_queue,
            self_victim_ends_loop=version.self_victim_ends_loop,
            async_length_guard=version.async_length_guard,
            lone_request_ignores_threshold=version.lone_request_ignores_long_prefill_threshold,
        )
