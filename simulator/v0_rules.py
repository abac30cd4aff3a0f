"""What the decisions of vLLM V0's scheduler depend on, and the words it dies with."""

from __future__ import annotations

from dataclasses import dataclass

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
