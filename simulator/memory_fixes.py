"""What to change so that a server that does not start would start: concrete flags, cheapest for the user first.

Every fix is checked by planning again with it; what does not help is not offered.  Order: a limit of the user's own
lifted, more of the card, a shorter max_model_len (free for whoever does not need the length), an 8-bit KV cache (small
loss of quality), smaller batches (slower prompts), more GPUs, quantised weights (another checkpoint, some quality), a
bigger GPU.  Two at a time where one does not do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from simulator.engine_config import EngineConfig
from simulator.errors import ServecastError
from simulator.gpu_spec import GpuSpec
from simulator.kv_layout import kv_layout
from simulator.memory_plan import Fix, MemoryPlan, largest_that_starts, plan_once, with_max_model_len
from simulator.memory_terms import weight_format
from simulator.model_spec import ModelSpec

#: Above this share start-up on a card that also drives a display, or has another process, fails.
_HIGHEST_UTILIZATION = 0.95
#: A max_model_len below this is no server anyone wants, unless it was asked for.
_SHORTEST = 2048

_Change = tuple[str, str, dict[str, Any]]  # flags, what it costs, fields of EngineConfig


def suggest_fixes(
    engine: EngineConfig, model: ModelSpec, gpu: GpuSpec, gpus: Sequence[GpuSpec] = (), *, wanted: int = 3
) -> tuple[Fix, ...]:
    """Return up to *wanted* fixes that were verified, best first; *gpus* are the bigger ones one could move to."""
    found = _limits_lifted(engine, model, gpu)
    single = list(_changes(engine, model, gpu))
    found += _verified(engine, model, gpu, single)
    found += _bigger_gpus(engine, model, gpu, gpus)
    if len(found) < wanted:
        found += _shortened(engine, model, gpu, single)
    if len(found) < wanted:
        found = _without_supersets(found + _with_more_of_the_card(engine, model, gpu))
    if len(found) < wanted:
        found += _several_bigger_gpus(engine, model, gpu, gpus)
    longest = largest_that_starts(engine, model, gpu) if len(found) < wanted else 0
    if longest and all(_kind(fix.flags) != "--max-model-len" for fix in found):
        plan = plan_once(with_max_model_len(engine, longest), model, gpu, search=False)
        found.append(_fix(f"--max-model-len {longest}", "only very short requests are served", plan))
    return tuple(found[:wanted])


def _without_supersets(fixes: list[Fix]) -> list[Fix]:
    """Leave out what another fix does with fewer flags."""
    flags = [set(_pairs(fix.flags)) for fix in fixes]
    return [fix for fix, mine in zip(fixes, flags, strict=True) if not any(other < mine for other in flags)]


def _pairs(flags: str) -> list[str]:
    """Return ``--flag value`` pairs."""
    return ["--" + part.strip() for part in flags.split("--") if part.strip()]


def _with_more_of_the_card(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec) -> list[Fix]:
    """Changes that help only together with most of the card."""
    if engine.gpu_memory_utilization >= _HIGHEST_UTILIZATION or engine.kv_cache_memory_bytes is not None:
        return []
    most = engine.model_copy(update={"gpu_memory_utilization": _HIGHEST_UTILIZATION})
    both = [
        (
            f"--gpu-memory-utilization {_HIGHEST_UTILIZATION} {flags}",
            cost,
            {**update, "gpu_memory_utilization": _HIGHEST_UTILIZATION},
        )
        for flags, cost, update in _changes(most, model, gpu)
        if "max_model_len" not in update
    ]
    return [fix for change in both for fix in _verified(engine, model, gpu, [change])]


def _limits_lifted(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec) -> list[Fix]:
    """Without the KV size that the user set, or with one that is large enough."""
    layout, found = kv_layout(model, engine), []
    blocks = layout.blocks_of(engine.max_model_len)
    for name, enough in (
        ("num_gpu_blocks_override", blocks),
        ("kv_cache_memory_bytes", blocks * layout.bytes_per_block),
    ):
        if getattr(engine, name) is None:
            continue
        flag = "--" + name.replace("_", "-")
        plan = _planned(engine.model_copy(update={name: None}), model, gpu)
        if plan is not None and plan.fits:
            found.append(_fix(f"drop {flag}", "nothing: vLLM sizes the KV cache itself", plan))
            plan = plan_once(engine.model_copy(update={name: enough}), model, gpu, search=False)
            found.append(_fix(f"{flag} {enough}", "one request of max_model_len at a time", plan))
    return found


def _changes(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec) -> Iterator[_Change]:
    """Single changes, cheapest first."""
    if engine.gpu_memory_utilization < _HIGHEST_UTILIZATION and engine.kv_cache_memory_bytes is None:
        yield from _utilizations(engine, model, gpu)
    longest = largest_that_starts(engine, model, gpu)
    longest -= longest % engine.block_size
    if min(_SHORTEST, engine.max_model_len) <= longest < engine.max_model_len:
        update = dict(with_max_model_len(engine, longest))
        yield f"--max-model-len {longest}", "longer requests are refused", update
    if engine.kv_cache_dtype == "auto" and gpu.compute_capability >= 8.0:
        yield "--kv-cache-dtype fp8", "slightly less exact attention", {"kv_cache_dtype": "fp8"}
    if engine.enable_chunked_prefill and engine.max_num_batched_tokens > 2048:
        update = {"max_num_batched_tokens": 2048, "max_num_seqs": min(engine.max_num_seqs, 256)}
        yield f"--max-num-batched-tokens 2048 --max-num-seqs {update['max_num_seqs']}", "slower prompts", update
    yield from _more_ranks(engine, model)
    if weight_format(engine, model) is None:
        if gpu.compute_capability >= 8.0:
            yield "--quantization fp8", "8-bit weights: slightly less exact", {"quantization": "fp8"}
        yield "--quantization awq", "needs a 4-bit checkpoint of the model", {"quantization": "awq"}


def _utilizations(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec) -> Iterator[_Change]:
    """The smallest utilization in steps of 0.01 that is enough."""
    for hundredths in range(int(engine.gpu_memory_utilization * 100) + 1, int(_HIGHEST_UTILIZATION * 100) + 1):
        update = {"gpu_memory_utilization": hundredths / 100}
        plan = _planned(engine.model_copy(update=update), model, gpu)
        if plan is not None and plan.fits:
            yield f"--gpu-memory-utilization {hundredths / 100:.2f}", "less room beside vLLM on the card", update
            return


def _more_ranks(engine: EngineConfig, model: ModelSpec) -> Iterator[_Change]:
    for ranks in (2, 4, 8, 16):
        if ranks > engine.tensor_parallel_size and model.num_attention_heads % ranks == 0:
            update = {"tensor_parallel_size": ranks}
            yield f"--tensor-parallel-size {ranks}", f"{ranks} GPUs instead of {engine.tensor_parallel_size}", update


def _planned(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec) -> MemoryPlan | None:
    try:
        return plan_once(engine, model, gpu, search=False)
    except ServecastError:  # e.g. ranks that do not divide the KV heads: not a fix
        return None


def _fix(flags: str, cost: str, plan: MemoryPlan) -> Fix:
    return Fix(
        flags=flags,
        cost=cost,
        kv_tokens=plan.kv_tokens,
        max_concurrency=round(plan.max_concurrency, 2),
        max_model_len=plan.max_model_len,
    )


def _kind(flags: str) -> str:
    """Name of the first flag: of several values of one flag only the cheapest is offered."""
    return flags.split()[0]


def _verified(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec, changes: Iterable[_Change]) -> list[Fix]:
    found: dict[str, Fix] = {}
    for flags, cost, update in changes:
        plan = _planned(engine.model_copy(update=update), model, gpu) if _kind(flags) not in found else None
        if plan is not None and plan.fits:
            found[_kind(flags)] = _fix(flags, cost, plan)
    return list(found.values())


def _bigger_gpus(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec, gpus: Sequence[GpuSpec]) -> list[Fix]:
    """The smallest bigger GPU that is enough."""
    bigger = sorted((other for other in gpus if other.visible_memory_gib > gpu.visible_memory_gib), key=_memory)
    for other in bigger:
        plan = _planned(engine, model, other)
        if plan is not None and plan.fits:
            return [_fix(f"--gpu {_quoted(other.name)}", f"a GPU of {other.visible_memory_gib:.0f} GiB", plan)]
    return []


def _several_bigger_gpus(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec, gpus: Sequence[GpuSpec]) -> list[Fix]:
    """The fewest of the bigger GPUs that are enough together, also with 8-bit and 4-bit weights."""
    bigger = sorted((other for other in gpus if other.visible_memory_gib > gpu.visible_memory_gib), key=_memory)
    found: list[Fix] = []
    formats = [("", engine)]
    if weight_format(engine, model) is None:
        formats += [
            (f" --quantization {name}", engine.model_copy(update={"quantization": name})) for name in ("fp8", "awq")
        ]
    for flag, base in formats:
        for ranks, cost, update in _more_ranks(base, model):
            plans = [(other, _planned(base.model_copy(update=update), model, other)) for other in bigger]
            enough = [(other, plan) for other, plan in plans if plan is not None and plan.fits]
            if enough:
                other, plan = enough[0]
                found.append(_fix(f"--gpu {_quoted(other.name)} {ranks}{flag}", f"{cost}, bigger ones", plan))
                break
    return found


def _quoted(name: str) -> str:
    return f"'{name}'" if " " in name else name


def _memory(gpu: GpuSpec) -> float:
    return gpu.visible_memory_gib


def _shortened(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec, changes: Iterable[_Change]) -> list[Fix]:
    """Changes that help only together with a shorter max_model_len."""
    found: dict[str, Fix] = {}
    for flags, cost, update in changes:
        if "max_model_len" in update or _kind(flags) in found:
            continue
        changed = engine.model_copy(update=update)
        plan = _planned(changed, model, gpu)
        if plan is None or plan.fits:
            continue
        longest = largest_that_starts(changed, model, gpu) // engine.block_size * engine.block_size
        if longest >= min(_SHORTEST, engine.max_model_len):
            plan = plan_once(with_max_model_len(changed, longest), model, gpu, search=False)
            found[_kind(flags)] = _fix(f"{flags} --max-model-len {longest}", f"{cost}; longer requests refused", plan)
    return list(found.values())
