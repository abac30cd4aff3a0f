"""What a plan of V1 with KV offload orders besides tokens: copies between the GPU's blocks and the CPU tier."""

from __future__ import annotations

from simulator.blocks import BlockPool
from simulator.plan import Plan
from simulator.request import Request


class Transfer:
    """Copies of one request's blocks in one direction."""

    __slots__ = ("blocks", "is_store", "keys", "num_blocks", "request")

    def __init__(self, request: Request, keys: list[int], blocks: list[int], *, is_store: bool) -> None:
        self.request = request
        self.keys = keys
        self.blocks = blocks  # of the GPU
        self.num_blocks = len(blocks)
        self.is_store = is_store


class OffloadPlan(Plan):
    """A plan with copies: *loads* begin with the step, *stores* with the next one, *flush* must be done before it."""

    __slots__ = ("flush", "loads", "stores")

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[Transfer] = []
        self.stores: list[Transfer] = []
        self.flush: list[Transfer] = []


class WatchedPool(BlockPool):
    """A pool that notes which blocks were handed out in this plan."""

    __slots__ = ("handed_out",)

    def __init__(self, num_blocks: int, block_size: int, *, caching: bool, unhashed_to_head: bool = True) -> None:
        super().__init__(num_blocks, block_size, caching=caching, unhashed_to_head=unhashed_to_head)
        self.handed_out: list[int] = []

    def grow(self, request: Request, count: int) -> None:
        """See `BlockPool.grow`."""
        before = len(request.blocks)
        super().grow(request, count)
        self.handed_out += request.blocks[before:]
