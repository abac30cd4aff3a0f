"""The memory of a server as its own log tells it: the same terms and blocks as `simulator.memory`, but measured.

Blocks are counted from what the log holds, best first: the block count itself, the tokens of "GPU KV cache size", or
the KV bytes over the bytes of a block (needs the model; the log rounds to 0.01 GiB, so the count is +- a few blocks).
From 0.22 on the tokens are floor(blocks / blocks of a request * max_model_len), which is turned back exactly.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from simulator.engine_config import EngineConfig
from simulator.gpu_spec import GIB
from simulator.kv_layout import KvLayout, kv_layout, num_gpu_blocks
from simulator.memory_plan import Term
from simulator.model_spec import ModelSpec
from simulator.startup_log import StartupLog
from simulator.versions import facts

_ROUNDING = 0.005 * GIB


class LoggedMemory(BaseModel):
    """What a log says about memory; None where it says nothing.  Bytes of the fullest rank, blocks of all engines."""

    model_config = ConfigDict(frozen=True)

    vllm_version: str | None
    engines: int
    requested_bytes: int | None
    terms: tuple[Term, ...]
    available_kv_bytes: int | None
    block_size: int
    num_gpu_blocks: int | None
    usable_blocks: int | None  # without the null block of each V1 engine
    num_cpu_blocks: int | None
    kv_tokens: int | None
    max_model_len: int | None
    max_concurrency: float | None
    fits: bool
    refusal: str | None
    notes: tuple[str, ...] = ()


def blocks_agree(kv_bytes: float, blocks: int, layout: KvLayout) -> bool:
    """Do that many blocks follow from KV bytes that were rounded to 0.01 GiB?"""
    low, high = num_gpu_blocks(kv_bytes - _ROUNDING, layout), num_gpu_blocks(kv_bytes + _ROUNDING, layout)
    return low <= blocks <= high


def blocks_of_tokens(tokens: int, max_model_len: int | None, block_size: int, version: str | None) -> int:
    """Blocks behind the line "GPU KV cache size: *tokens* tokens"."""
    if max_model_len is None or (version is not None and not facts(version).kv_log_is_concurrency_times_length):
        return tokens // block_size
    per_request = -(-max_model_len // block_size)
    return -(-tokens * per_request // max_model_len)


def memory_from_log(
    log: StartupLog, model: ModelSpec | None = None, engine: EngineConfig | None = None
) -> LoggedMemory:
    """Return the terms and blocks that *log* holds; *model* and *engine* fill gaps and are checked against it."""
    block_size = log.block_size or (engine.block_size if engine else 16)
    length = log.concurrency_len or log.max_model_len or (engine.max_model_len if engine else None)
    available = None if log.available_kv_gib is None else int(log.available_kv_gib * GIB)
    layout = kv_layout(model, engine) if model and engine else None
    blocks = log.num_gpu_blocks or log.num_gpu_blocks_override
    if log.kv_tokens is not None:
        blocks = blocks_of_tokens(log.kv_tokens, length, block_size, log.vllm_version)
    elif blocks is None and available is not None and layout is not None:
        blocks = num_gpu_blocks(available, layout) * log.engines
    concurrency = log.max_concurrency
    if concurrency is None and blocks is not None and length is not None:
        concurrency = round(blocks * block_size / length, 2)
    tokens = log.kv_tokens if log.kv_tokens is not None or blocks is None else blocks * block_size
    too_long = log.v0 and tokens is not None and length is not None and length > tokens
    return LoggedMemory(
        vllm_version=log.vllm_version,
        engines=log.engines,
        requested_bytes=_requested(log),
        terms=_terms(log),
        available_kv_bytes=available,
        block_size=block_size,
        num_gpu_blocks=blocks,
        usable_blocks=None if blocks is None else blocks if log.v0 else max(0, blocks - log.engines),
        num_cpu_blocks=log.num_cpu_blocks,
        kv_tokens=tokens,
        max_model_len=length,
        max_concurrency=concurrency,
        fits=log.refusal is None and not too_long and (available is None or available > 0),
        refusal=log.refusal,
        notes=_notes(log, available, blocks, layout),
    )


def _requested(log: StartupLog) -> int | None:
    if log.requested_gib is not None:
        return int(log.requested_gib * GIB)
    if log.total_gib is not None and log.gpu_memory_utilization is not None:
        return int(log.total_gib * log.gpu_memory_utilization * GIB)
    return None


def _terms(log: StartupLog) -> tuple[Term, ...]:
    estimated = log.graph_estimate_gib is not None
    graphs = log.graph_estimate_gib if estimated else log.graph_gib
    inside = estimated and log.vllm_version is not None and facts(log.vllm_version).graphs_in_memory_budget
    wanted = (
        ("weights", "Model loading took", log.weights_gib, True),
        ("activation", "peak activation", log.activation_gib, True),
        ("non_torch", "non-torch memory", log.non_torch_gib, True),
        ("cuda_graphs", "CUDA graph memory", graphs, inside),
        ("kv_cache", "Available KV cache memory", log.available_kv_gib, log.num_gpu_blocks_override is None),
    )
    return tuple(
        Term(name=name, label=label, bytes=int(size * GIB), inside_budget=budget, source="logged")
        for name, label, size, budget in wanted
        if size is not None
    )


def _notes(log: StartupLog, available: int | None, blocks: int | None, layout: KvLayout | None) -> tuple[str, ...]:
    notes = []
    if log.engines > 1:
        notes.append(f"{log.engines} engines (data parallel): tokens, blocks and concurrency are their sum")
    countable = log.num_gpu_blocks_override is None and log.engines == 1
    if not (layout and available is not None and blocks is not None and countable):
        return tuple(notes)
    if not blocks_agree(available, blocks, layout):
        expected = num_gpu_blocks(available, layout)
        notes.append(
            f"the log has {blocks} blocks, this model and these settings give {expected} from the same bytes: "
            "another model, KV dtype or block size than the log's, or a hybrid model"
        )
    return tuple(notes)
