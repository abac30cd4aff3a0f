"""One memory plan: terms, budget, blocks, and whether vLLM would start.  Bytes of one rank.

    requested = ceil(visible memory * gpu_memory_utilization)
    available = requested - weights - activation - non-torch - CUDA graphs (inside the budget from 0.20, runner V1)
    blocks    = floor(available / bytes per block); num_gpu_blocks_override and kv_cache_memory_bytes replace available
    fits      = blocks of one request of max_model_len * bytes per block <= available

With several ranks the plan is that of the fullest one, because vLLM takes the minimum over ranks everywhere.  The
refusals are vLLM's own words of the version asked for (read in 0.6.3, 0.8.5, 0.19.0, 0.22.0 and 0.24.0).
"""

from __future__ import annotations

from math import ceil

from pydantic import BaseModel, ConfigDict

from simulator.engine_config import EngineConfig
from simulator.gpu_spec import GIB, GpuSpec
from simulator.kv_layout import (
    KvLayout,
    kv_layout,
    kv_tokens,
    largest_model_len,
    max_concurrency,
    num_cpu_blocks,
    num_gpu_blocks,
)
from simulator.memory_terms import (
    activation_bytes,
    graph_bytes,
    graphs_in_budget,
    is_v0,
    num_graphs,
    other_bytes,
    weight_bytes,
    weight_format,
)
from simulator.model_spec import ModelSpec
from simulator.versions import release

_SEE = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."


#: Error of the terms beside the KV cache, as a share of the GPU's memory.
_CLOSE = 0.01


class Term(BaseModel):
    """One thing that takes memory."""

    model_config = ConfigDict(frozen=True)

    name: str  # weights, activation, non_torch, cuda_graphs, kv_cache
    label: str  # in vLLM's words
    bytes: int
    inside_budget: bool  # does it count against gpu_memory_utilization?
    source: str  # where the number comes from


class Fix(BaseModel):
    """One way to make it fit, checked by planning again with it."""

    model_config = ConfigDict(frozen=True)

    flags: str  # what to add to the command line
    cost: str  # what the user pays for it
    kv_tokens: int
    max_concurrency: float
    max_model_len: int


class MemoryPlan(BaseModel):
    """What one rank does with its memory, and whether the server would start."""

    model_config = ConfigDict(frozen=True)

    model: str
    gpu: str
    vllm_version: str
    tensor_parallel_size: int
    gpu_memory_utilization: float
    visible_bytes: int
    requested_bytes: int
    terms: tuple[Term, ...]
    available_kv_bytes: int  # may be negative, as in vLLM's log
    block_size: int
    bytes_per_block: int
    num_gpu_blocks: int
    usable_blocks: int  # without V1's null block
    num_cpu_blocks: int  # V0's swap space
    kv_tokens: int  # as in vLLM's log
    max_model_len: int
    max_concurrency: float
    fits: bool
    refusal: str | None = None  # vLLM's own words
    largest_max_model_len: int  # the longest that would start, all else equal; 0: none
    fixes: tuple[Fix, ...] = ()
    notes: tuple[str, ...] = ()

    def term(self, name: str) -> Term:
        """Return the term of that name."""
        return next(term for term in self.terms if term.name == name)


def gib(size: float) -> str:
    """Format bytes as vLLM does: GiB rounded to 0.01, without trailing zeros (``3.0``, ``64.2``)."""
    return str(round(size / GIB, 2))


def _terms(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec) -> tuple[Term, ...]:
    form = weight_format(engine, model)
    split = f" / {engine.tensor_parallel_size} ranks" if engine.tensor_parallel_size > 1 else ""
    held = form or ("16 bit" if engine.dtype == "auto" else engine.dtype)
    weights = f"{model.num_parameters / 1e9:.2f} G weights{split}, {held}; rotary table included"
    run = f"profiling run: {engine.max_num_batched_tokens} tokens, {engine.max_num_seqs} sampled rows"
    graphs = f"{num_graphs(engine)} graphs, by layers"
    return (
        _term("weights", "Model loading took", weight_bytes(engine, model), weights),
        _term("activation", "peak activation", activation_bytes(engine, model, gpu), run),
        _term("non_torch", "non-torch memory", other_bytes(engine, model), "fitted constant of this kind of engine"),
        Term(
            name="cuda_graphs",
            label="CUDA graph memory",
            bytes=graph_bytes(engine, model),
            inside_budget=graphs_in_budget(engine, model),
            source=graphs,
        ),
    )


def _term(name: str, label: str, size: int, source: str) -> Term:
    return Term(name=name, label=label, bytes=size, inside_budget=True, source=source)


def available_bytes(engine: EngineConfig, terms: tuple[Term, ...], requested: int, layout: KvLayout) -> int:
    """Bytes for the KV cache, as vLLM would log them; negative when the rest does not fit."""
    if engine.num_gpu_blocks_override is not None:
        return engine.num_gpu_blocks_override * layout.bytes_per_block
    if engine.kv_cache_memory_bytes is not None:
        return engine.kv_cache_memory_bytes
    return requested - sum(term.bytes for term in terms if term.inside_budget)


def refusal(engine: EngineConfig, layout: KvLayout, available: int) -> str | None:
    """Return vLLM's words if it would not start with *available* bytes of KV cache, else None."""
    version, v0, longest = release(engine.vllm_version), is_v0(engine), largest_model_len(available, layout)
    needed = layout.blocks_of(engine.max_model_len) * layout.bytes_per_block
    if engine.auto_max_model_len and longest <= 0:
        return (
            "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. Try"
            " increasing `gpu_memory_utilization`."
        )
    if (longest if v0 else available) <= 0:
        cpu = " (this flag also controls CPU memory reservation on the CPU backend, despite its name)"
        words = "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing"
        words += f" the engine{cpu if version >= (0, 24, 0) else ''}."
    elif v0 and engine.max_model_len > longest:
        words = (
            f"The model's max seq len ({engine.max_model_len}) is larger than the maximum number of tokens that can be"
            f" stored in KV cache ({longest}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`"
            " when initializing the engine."
        )
    elif not v0 and needed > available:
        whose = "model's" if version >= (0, 22, 0) else "models's"
        also = " (which also controls CPU memory on the CPU backend)" if version >= (0, 24, 0) else ""
        words = (
            f"To serve at least one request with the {whose} max seq len ({engine.max_model_len}), ({gib(needed)} GiB"
            f" KV cache is needed, which is larger than the available KV cache memory ({gib(available)} GiB). "
            + (f"Based on the available memory, the estimated maximum model length is {longest}. " if longest else "")
            + f"Try increasing `gpu_memory_utilization`{also} or decreasing `max_model_len` when initializing the"
            " engine."
        )
    else:
        return None
    return f"{words} {_SEE}" if version >= (0, 19, 0) else words


def with_max_model_len(engine: EngineConfig, max_model_len: int) -> EngineConfig:
    """Return *engine* with another max_model_len; without chunked prefill the token budget's default follows it."""
    update: dict[str, object] = {"max_model_len": max_model_len}
    if not engine.enable_chunked_prefill and engine.max_num_batched_tokens == max(engine.max_model_len, 2048):
        update["max_num_batched_tokens"] = max(max_model_len, 2048)
    return engine.model_copy(update=update)


def largest_that_starts(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec) -> int:
    """Largest max_model_len up to the model's own with which the server would start; 0 if none would."""
    low, high = 0, max(engine.max_model_len, model.max_position_embeddings)
    while low < high:  # low starts (or is 0), nothing above high does
        middle = (low + high + 1) // 2
        if plan_once(with_max_model_len(engine, middle), model, gpu, search=False).fits:
            low = middle
        else:
            high = middle - 1
    return low


def plan_once(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec, *, search: bool = True) -> MemoryPlan:
    """Plan the memory of the fullest rank, without fixes; *search* looks for the largest max_model_len that starts."""
    layout, v0, version = kv_layout(model, engine), is_v0(engine), engine.vllm_version
    requested = ceil(gpu.visible_memory_bytes * engine.gpu_memory_utilization)
    terms = _terms(engine, model, gpu)
    available = available_bytes(engine, terms, requested, layout)
    blocks = num_gpu_blocks(available, layout)
    words = refusal(engine, layout, available)
    cache = Term(
        name="kv_cache",
        label="Available KV cache memory",
        bytes=available,
        inside_budget=engine.num_gpu_blocks_override is None and engine.kv_cache_memory_bytes is None,
        source=_kv_source(engine, blocks),
    )
    return MemoryPlan(
        model=model.name,
        gpu=gpu.name,
        vllm_version=version,
        tensor_parallel_size=engine.tensor_parallel_size,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        visible_bytes=gpu.visible_memory_bytes,
        requested_bytes=requested,
        terms=(*terms, cache),
        available_kv_bytes=available,
        block_size=layout.block_size,
        bytes_per_block=layout.bytes_per_block,
        num_gpu_blocks=blocks,
        usable_blocks=blocks if v0 else max(0, blocks - 1),
        num_cpu_blocks=num_cpu_blocks(engine.swap_space, layout) if v0 else 0,
        kv_tokens=kv_tokens(blocks, engine.max_model_len, layout, version, v0=v0),
        max_model_len=engine.max_model_len,
        max_concurrency=max_concurrency(blocks, engine.max_model_len, layout, version, v0=v0),
        fits=words is None,
        refusal=words,
        largest_max_model_len=largest_that_starts(engine, model, gpu) if search else 0,
        notes=_notes(engine, model, gpu, terms, available, layout),
    )


def _kv_source(engine: EngineConfig, blocks: int) -> str:
    if engine.num_gpu_blocks_override is not None:
        return f"num_gpu_blocks_override={engine.num_gpu_blocks_override}"
    if engine.kv_cache_memory_bytes is not None:
        return "kv_cache_memory_bytes; gpu_memory_utilization is ignored"
    return f"what is left: {blocks} blocks"


def _notes(
    engine: EngineConfig,
    model: ModelSpec,
    gpu: GpuSpec,
    terms: tuple[Term, ...],
    available: int,
    layout: KvLayout,
) -> tuple[str, ...]:
    """Doubts a reader should know."""
    notes = []
    if model.is_multimodal:
        notes.append("multimodal: the vision encoder's weights and activations are not counted; trust a start-up log")
    if model.sliding_window:
        notes.append("sliding-window layers are counted as full attention: long requests need less than shown")
    if model.is_hybrid:
        notes.append("hybrid: recurrent layers are counted as attention; blocks and KV tokens are rough")
    if available > 0 and sum(term.bytes for term in terms) + available > gpu.visible_memory_bytes:
        notes.append("more than the GPU has: expect CUDA out of memory at start-up or while serving")
    sized = engine.num_gpu_blocks_override is None and engine.kv_cache_memory_bytes is None
    needed = layout.blocks_of(engine.max_model_len) * layout.bytes_per_block
    if sized and abs(available - needed) < _CLOSE * gpu.visible_memory_bytes:
        notes.append(
            "close: whether one request of max_model_len fits is within this estimate's error (1 % of the GPU)"
        )
    return tuple(notes)
