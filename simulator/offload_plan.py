"""What a plan of V1 with KV offload orders besides tokens: copies between the GPU's blocks and the CPU tier."""

from __future__ import annotations

from collections import deque

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
    """A pool that notes which blocks were handed out in this plan, and gives back none that a step still writes to.

    With overlapping steps (`begin_step`, `end_step`; 0.24 and later) blocks of a request that is in a step in flight
    come back when the latest step has ended: a copy into them would not wait for it.
    """

    __slots__ = ("_begun", "_ended", "_in_flight", "_later", "handed_out")

    def __init__(self, num_blocks: int, block_size: int, *, caching: bool, unhashed_to_head: bool = True) -> None:
        super().__init__(num_blocks, block_size, caching=caching, unhashed_to_head=unhashed_to_head)
        self.handed_out: list[int] = []
        self._begun = self._ended = 0
        self._in_flight: deque[set[int]] = deque()  # rows of each step
        self._later: deque[tuple[int, Request]] = deque()  # (step, who stands for the blocks until its end)

    def begin_step(self, rows: set[int]) -> None:
        """A step with the requests *rows* was planned."""
        self._begun += 1
        self._in_flight.append(rows)

    def end_step(self) -> None:
        """The oldest step in flight is over."""
        self._ended += 1
        self._in_flight.popleft()
        while self._later and self._later[0][0] <= self._ended:
            super().free(self._later.popleft()[1])

    def free(self, request: Request, *, comes_back: bool = False) -> None:
        """See `BlockPool.free`."""
        if request.blocks and any(request.row in rows for rows in self._in_flight):
            self._later.append((self._begun, self._part(request, comes_back=comes_back)))
        else:
            super().free(request, comes_back=comes_back)

    def grow(self, request: Request, count: int) -> None:
        """See `BlockPool.grow`."""
        before = len(request.blocks)
        super().grow(request, count)
        self.handed_out += request.blocks[before:]

    def _part(self, request: Request, *, comes_back: bool) -> Request:
        """Take all blocks from *request* without freeing them; return a stand-in that holds them and can be freed."""
        shared, hashed = len(request.shared_keys), request.num_hashed_blocks
        if comes_back and self.caching and hashed > shared:
            base = request.own_key_base
            self._enter(range(base + shared, base + hashed), request.blocks[shared:hashed])
        stand_in = Request(request.row, request.num_prompt_tokens, request.max_tokens, shared_keys=request.shared_keys)
        stand_in.blocks, stand_in.num_hashed_blocks = request.blocks, hashed
        request.blocks = []
        request.capacity = request.num_hashed_blocks = 0
        return stand_in
