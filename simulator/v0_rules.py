"""What the decisions of vLLM V0's scheduler depend on, and the words it dies with."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.engine_config import EngineConfig
from simulator.errors import ConfigError

NO_SWAP_SPACE = (
    "RuntimeError: Aborted due to the lack of CPU swap space. Please increase the swap space to avoid this error."
)
NO_FREE_BLOCKS = "NoFreeBlocksError"
UNKNOWN_BLOCK = "KeyError"
LIVELOCK = "vLLM hangs: requests throw each other, or themselves, out of the KV cache and none of them gets a token."
NOT_A_PROMPT = "AssertionError: Waiting sequence group should have only one prompt sequence."


@dataclass(frozen=True, slots=True, kw_only=True)
class V0Rules:
    """Limits in tokens and requests, and the switches of the command line, named as vLLM 0.6.3 names them."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    enable_chunked_prefill: bool = False
    #: "swap" copies the victim's blocks to the CPU; None and "recompute" throw them away (one sequence a request).
    preemption_mode: str | None = None
    priority_policy: bool = False
    scheduler_delay_factor: float = 0.0
    num_lookahead_slots: int = 0
    num_scheduler_steps: int = 1
    #: Default on with CUDA graphs; a request that has ended is scheduled once more before the engine knows.
    async_output_processing: bool = False

    @classmethod
    def of(cls, engine: EngineConfig) -> V0Rules:
        """Return the rules of a resolved configuration."""
        is_async = not (engine.disable_async_output_proc or engine.enforce_eager or engine.pipeline_parallel_size > 1)
        return cls(
            max_num_seqs=engine.max_num_seqs,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            max_model_len=engine.max_model_len,
            enable_chunked_prefill=engine.enable_chunked_prefill,
            preemption_mode=engine.preemption_mode,
            priority_policy=engine.scheduling_policy == "priority",
            scheduler_delay_factor=engine.scheduler_delay_factor,
            num_lookahead_slots=engine.num_lookahead_slots,
            num_scheduler_steps=engine.num_scheduler_steps,
            async_output_processing=is_async,
        )

    def __post_init__(self) -> None:
        if self.num_scheduler_steps < 1:
            raise ConfigError(f"num_scheduler_steps must be at least 1, got {self.num_scheduler_steps}")

    @property
    def swaps(self) -> bool:
        """Whether a victim's blocks go to the CPU."""
        return self.preemption_mode == "swap"

    @property
    def lookahead(self) -> int:
        """Slots beyond the known tokens that a decode takes."""
        return max(self.num_lookahead_slots, self.num_scheduler_steps - 1)

    @property
    def prompt_limit(self) -> int:
        """Most tokens of a prompt (after a preemption: with its outputs); longer ones are ignored."""
        if self.enable_chunked_prefill and self.num_scheduler_steps == 1:
            return self.max_model_len
        return min(self.max_model_len, self.max_num_batched_tokens)
