"""The CPU's memory beside the GPU: V0's swap space, or the CPU tier of V1's prefix cache.

    V0   blocks = floor(swap_space GiB / bytes per block), per rank
    V1   blocks = floor(kv_offloading_size GiB / (bytes per block and rank * ranks * GPU blocks in a block of the tier))

Source: cache_engine.py (0.6.3) and kv_offload/cpu (0.24).
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.engine_config import EngineConfig
from simulator.gpu_spec import GIB, GpuSpec
from simulator.kv_layout import KvLayout, kv_layout, num_cpu_blocks
from simulator.memory_terms import is_v0
from simulator.model_spec import ModelSpec
from simulator.profile import Profile
from simulator.transfer_cost import TransferCost


@dataclass(frozen=True)
class HostMemory:
    """Blocks that fit there, and the time it takes to move one."""

    num_blocks: int
    transfer: TransferCost


def offload_blocks(kv_offloading_size_gib: float, layout: KvLayout, ranks: int, factor: int = 1) -> int:
    """Return the blocks of V1's CPU tier; the size counts over all *ranks*, *factor* GPU blocks make one of its own."""
    return int(kv_offloading_size_gib * GIB // (layout.bytes_per_block * ranks * factor))


def host_memory(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec, profile: Profile) -> HostMemory | None:
    """Return what an engine keeps on the CPU; None for a V1 engine without offload."""
    layout = kv_layout(model, engine)
    transfer = TransferCost(profile.transfer, gpu, layout, batched=not is_v0(engine))
    if is_v0(engine):
        return HostMemory(num_cpu_blocks(engine.swap_space, layout), transfer)
    if engine.kv_offloading_size:
        ranks, factor = engine.tensor_parallel_size, engine.kv_offloading_block_factor
        return HostMemory(offload_blocks(engine.kv_offloading_size, layout, ranks, factor), transfer)
    return None
