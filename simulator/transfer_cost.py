"""How long KV blocks take between GPU and host memory, one way.

    seconds = blocks * (bytes_per_block / (pcie_bytes_per_s * pcie_efficiency) + copies_per_block * copy_s)

Both engines copy block by block and layer by layer, keys and values apart: ``copies_per_block`` = 2 * layers (layers
with a latent cache).  V1 hands all copies of a job over at once (``batched_copy_s`` each: swap_blocks_batch), V0 one by
one (``copy_s``).  Bytes and layers are those of one rank: each rank has its own link.  Source: swap_blocks of
vllm/worker/cache_engine.py and csrc/cache_kernels.cu (0.6.3); rates: `simulator.profile.Transfer`, `GpuSpec`.  Not
modelled: links that GPUs share, memory that is not pinned, both directions at once.
"""

from __future__ import annotations

from simulator.gpu_spec import GpuSpec
from simulator.kv_layout import KvLayout
from simulator.profile import Transfer


class TransferCost:
    """Seconds per block, and of a job."""

    def __init__(self, transfer: Transfer, gpu: GpuSpec, layout: KvLayout, *, batched: bool = False) -> None:
        self.bytes_per_block = layout.bytes_per_block
        copies = layout.layers * (1 if layout.latent else 2)
        bytes_per_s = gpu.pcie_bytes_per_s * transfer.pcie_efficiency
        self.block_s = layout.bytes_per_block / bytes_per_s + copies * (
            transfer.batched_copy_s if batched else transfer.copy_s
        )
        #: What a job of V1's offload costs besides its blocks.
        self.job_s = transfer.copy_job_s

    def seconds(self, blocks: int) -> float:
        """Return the time that copies of *blocks* blocks take, one after the other."""
        return blocks * self.block_s
