"""KV-cache arithmetic: bytes and blocks, exact.

    page_bytes      = block_size * kv_heads_per_rank * (head_size_k + head_size_v) * bytes(kv dtype)      one layer
    MLA             = block_size * (kv_lora_rank + qk_rope_head_dim) * bytes      one latent, whole on every rank
    bytes_per_block = page_bytes * layers of the fullest rank
    num_gpu_blocks  = floor(kv_bytes / bytes_per_block)
    one request     = ceil(max_model_len / block_size) blocks

Source: vLLM's ``v1/core/kv_cache_utils.py`` (0.8.5 to 0.24.0) and ``worker/cache_engine.py`` (0.6.3).  Checked against
the logs in ``tests/data/kv_memory.csv`` within their rounding of 0.01 GiB.

Not modelled: hybrid models (several cache groups) and sliding windows, which are counted as full attention: the number
of blocks of a uniform model is right, the need of one long request is an upper bound.  Context parallelism neither.
"""

from __future__ import annotations

from math import ceil

from pydantic import BaseModel, ConfigDict

from simulator.engine_config import EngineConfig
from simulator.errors import ConfigError
from simulator.gpu_spec import GIB
from simulator.model_spec import ModelSpec
from simulator.versions import facts, release

_DTYPE_BYTES = {
    "bf16": 2, "fp16": 2, "fp32": 4, "bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4,
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1, "int8": 1, "int8_per_token_head": 1, "fp8_per_token_head": 1,
}  # fmt: skip


class KvLayout(BaseModel):
    """How one rank lays out its KV cache; sizes in bytes."""

    model_config = ConfigDict(frozen=True)

    block_size: int  # tokens
    layers: int  # on the rank that holds most of them
    kv_heads: int  # per rank; replicated when there are more ranks than heads
    latent: bool  # MLA: one latent instead of heads
    page_bytes: int  # one block of one layer
    bytes_per_block: int

    @property
    def bytes_per_token(self) -> float:
        """KV bytes of one token on one rank."""
        return self.bytes_per_block / self.block_size

    def blocks_of(self, tokens: int) -> int:
        """Blocks that a request of that many tokens occupies."""
        return ceil(tokens / self.block_size)


def dtype_bytes(engine: EngineConfig) -> int:
    """Bytes of one activation or unquantised weight; under ``auto`` vLLM runs a fp32 checkpoint in 16 bit too."""
    if engine.dtype == "auto":
        return 2
    if engine.dtype not in _DTYPE_BYTES:
        raise ConfigError(f"dtype must be one of auto, half, float16, bfloat16, float32, got {engine.dtype!r}")
    return _DTYPE_BYTES[engine.dtype]


def layers_per_rank(engine: EngineConfig, model: ModelSpec) -> int:
    """Decoder layers of the rank that holds most of them."""
    if engine.pipeline_parallel_size > model.num_hidden_layers:
        raise ConfigError(
            f"pipeline_parallel_size must not exceed the model's {model.num_hidden_layers} layers, "
            f"got {engine.pipeline_parallel_size}"
        )
    return ceil(model.num_hidden_layers / engine.pipeline_parallel_size)


def kv_heads_per_rank(engine: EngineConfig, model: ModelSpec) -> int:
    """KV heads of one rank, at least one: with more ranks than heads they are replicated."""
    heads, ranks = model.num_key_value_heads, engine.tensor_parallel_size
    if heads % ranks and ranks % heads:
        raise ConfigError(
            f"tensor_parallel_size must divide the model's {heads} KV heads or be a multiple of them, got {ranks}"
        )
    return max(1, heads // ranks)


def _page_bytes(model: ModelSpec, engine: EngineConfig, heads: int) -> int:
    dtype, block = engine.kv_cache_dtype, engine.block_size
    if dtype == "fp8_ds_mla":  # DeepSeek sparse attention: latent in fp8, scales, rope part in bf16
        return block * 656
    if dtype == "nvfp4":  # packed nibbles and one scale per 16
        return block * heads * 2 * (model.head_dim // 2 + model.head_dim // 16)
    if dtype != "auto" and dtype not in _DTYPE_BYTES:
        raise ConfigError(f"kv_cache_dtype must be auto, fp8, fp8_e4m3, fp8_e5m2 or bfloat16, got {dtype!r}")
    size = dtype_bytes(engine) if dtype == "auto" else _DTYPE_BYTES[dtype]
    if model.kv_lora_rank:
        return block * (model.kv_lora_rank + model.qk_rope_head_dim) * size
    scales = 2 * block * heads * 4 if dtype.endswith("per_token_head") else 0
    return block * heads * 2 * model.head_dim * size + scales


def kv_layout(model: ModelSpec, engine: EngineConfig) -> KvLayout:
    """Return the layout of one rank.  Raises ConfigError when the ranks do not divide the model."""
    layers, heads = layers_per_rank(engine, model), kv_heads_per_rank(engine, model)
    page = _page_bytes(model, engine, heads)
    return KvLayout(
        block_size=engine.block_size,
        layers=layers,
        kv_heads=heads,
        latent=model.kv_lora_rank > 0,
        page_bytes=page,
        bytes_per_block=page * layers,
    )


def num_gpu_blocks(kv_bytes: float, layout: KvLayout) -> int:
    """Blocks that fit in *kv_bytes* of one rank, never negative (V1 keeps one of them as the null block)."""
    return max(0, int(kv_bytes // layout.bytes_per_block))


def num_cpu_blocks(swap_space_gib: float | None, layout: KvLayout) -> int:
    """Blocks of V0's swap space (GiB per GPU)."""
    return int((swap_space_gib or 0.0) * GIB // layout.bytes_per_block)


def max_concurrency(blocks: int, max_model_len: int, layout: KvLayout, version: str, *, v0: bool = False) -> float:
    """Requests of *max_model_len* tokens that fit at once, as vLLM's log says it (rounded to 0.01 there).

    Whole blocks per request since V1 knows cache groups (0.9), plain tokens before.
    """
    if v0 or release(version) < (0, 9, 0):
        return blocks * layout.block_size / max_model_len
    return blocks / layout.blocks_of(max_model_len)


def kv_tokens(blocks: int, max_model_len: int, layout: KvLayout, version: str, *, v0: bool = False) -> int:
    """Tokens of the line "GPU KV cache size": blocks * block_size, from 0.22 on floor(concurrency * max_model_len)."""
    if v0 or not facts(version).kv_log_is_concurrency_times_length:
        return blocks * layout.block_size
    return int(max_concurrency(blocks, max_model_len, layout, version) * max_model_len)


def largest_model_len(kv_bytes: float, layout: KvLayout) -> int:
    """Longest request whose blocks fit in *kv_bytes*: what vLLM calls the estimated maximum model length."""
    return num_gpu_blocks(kv_bytes, layout) * layout.block_size
