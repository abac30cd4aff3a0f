"""KV block sizes: the default of the attention backend, and what parser and backend refuse.

Source: the parsers of 0.6.3 to 0.24.0 (`simulator.versions`), the backends of 0.24.0: FlashAttention, Triton and Flex
take multiples of 16; FlashInfer 16, 32, 64; the MLA backends by GPU.  Not modelled: hybrid models' enlarged blocks.
"""

from __future__ import annotations

from simulator.asked import Asked
from simulator.errors import ConfigError

#: Block sizes of a forced backend; None: multiples of 16.
_FORCED: dict[str, tuple[int, ...] | None] = {
    "FLASH_ATTN": None,
    "TRITON_ATTN": None,
    "FLEX_ATTENTION": None,
    "FLASHINFER": (16, 32, 64),
    "FLASHMLA": (64,),
    "CUTLASS_MLA": (128,),
    "FLASHINFER_MLA": (32, 64),
    "FLASH_ATTN_MLA": None,
    "TRITON_MLA": None,
}
_SPARSE_MLA = ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
_V0_LARGEST = 32


def block_size(asked: Asked) -> int:
    """Return the block size in tokens; raises `ConfigError` for one that parser or backend refuse."""
    given = asked.get("block_size")
    default, allowed, who = _backend(asked)
    if given is None:
        return default
    choices = asked.known.block_sizes
    if given < 1 or (choices is not None and given not in choices):
        shown = ", ".join(str(size) for size in choices or ()) or "a positive number"
        raise ConfigError(f"--block-size {given}: vLLM {asked.version} accepts {shown}; use 16 or 32")
    if asked.is_v0 and not asked.model.kv_lora_rank:
        if given > _V0_LARGEST or given == 1:
            raise ConfigError(f"--block-size {given}: V0's attention kernels take 8, 16 and 32 on CUDA; use 16 or 32")
        return int(given)
    if given not in allowed if allowed is not None else given % 16:
        takes = "multiples of 16" if allowed is None else " or ".join(str(size) for size in allowed)
        fix = "use 16 or 32" if allowed is None or 16 in allowed else f"use {allowed[0]}"
        raise ConfigError(f"--block-size {given}: no valid attention backend found, {who} take {takes}; {fix}")
    if given > _V0_LARGEST and asked.known.version < (0, 11, 0) and not asked.model.kv_lora_rank:
        asked.note(f"block size {given}: vLLM {asked.version} documents sizes up to 32 on CUDA only")
    return int(given)


def _backend(asked: Asked) -> tuple[int, tuple[int, ...] | None, str]:
    """Return (default, sizes or None for multiples of 16, who says so)."""
    forced = asked.attention_backend
    if forced in _FORCED:
        sizes = _FORCED[forced]
        return (16 if sizes is None or 16 in sizes else sizes[-1]), sizes, f"{forced} blocks"
    if not asked.model.kv_lora_rank:
        return 16, None, "the CUDA backends (FlashAttention, FlashInfer, Triton)"
    if asked.model.architecture in _SPARSE_MLA:
        return 64, (64,), "the sparse MLA backends"
    if asked.gpu.compute_capability >= 10:
        return 64, (32, 64, 128), "the MLA backends of this GPU"
    old_flashmla = asked.gpu.compute_capability >= 9 and asked.known.version < (0, 11, 1)
    return (64 if old_flashmla else 16), None, "the MLA backends"
