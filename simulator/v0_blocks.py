"""V0's block manager: the block tables of requests over a GPU pool and a CPU pool, and what fits.

Rules (vLLM 0.6.3, block_manager_v2.py and block_table.py, checked against the real classes):

* All blocks of a prompt are taken at its admission, which looks at free blocks only and ignores prefix hits, and leaves
  ``watermark_blocks`` (1 % of the pool) free.  Decodes may use those.
* Before a request is served it must find as many free blocks as it *touches*: 1 for a plain decode, even if its last
  block has room; 0 or 1 for the rest of a prompt, whose blocks it has.
* A swap needs the full blocks (those that do not lie in the other pool anyway) and the touched ones; into the GPU it
  leaves the watermark free.  The check for the CPU forgets lookahead blocks, so that the copy itself may fail.
* Both pools cache prefixes if caching is on.

A request's table is two numbers here: ``capacity`` (tokens its blocks can hold) and ``table_tokens`` (tokens written
into it).  Not modelled: sliding windows, several sequences a request (copy on write), block manager v1.
"""

from __future__ import annotations

from enum import IntEnum

from simulator.errors import EngineDiedError
from simulator.request import Request, Status
from simulator.v0_rules import UNKNOWN_BLOCK
from simulator.v0_tier import BlockTier

#: Share of the GPU's blocks that admission and swapping in leave free.
WATERMARK = 0.01


class Fit(IntEnum):
    """Whether something fits into the pool."""

    OK = 0
    LATER = 1
    NEVER = 2


class V0Blocks:
    """All KV blocks of one V0 engine.  Questions are pure; actions assume that the question was answered with yes."""

    __slots__ = ("block_size", "caching", "cpu", "gpu", "watermark_blocks")

    def __init__(self, num_gpu_blocks: int, num_cpu_blocks: int, block_size: int, *, caching: bool = False) -> None:
        self.block_size = block_size
        self.caching = caching
        self.gpu = BlockTier(num_gpu_blocks, caching=caching)
        self.cpu = BlockTier(num_cpu_blocks, caching=caching)
        self.watermark_blocks = int(WATERMARK * num_gpu_blocks)

    # -- questions ------------------------------------------------------------------------------------------------

    def can_allocate(self, request: Request, lookahead: int = 0) -> Fit:
        """Return whether all tokens of a waiting request fit, and *lookahead* more."""
        needed = -(-(request.num_tokens + lookahead) // self.block_size)
        if self.gpu.num_blocks - needed < self.watermark_blocks:
            return Fit.NEVER
        return Fit.OK if self.gpu.num_free - needed >= self.watermark_blocks else Fit.LATER

    def touched(self, request: Request, lookahead: int) -> int:
        """Return how many blocks the tokens that are not in the table yet, and *lookahead* more, lie in."""
        table, size = request.table_tokens, self.block_size
        return 1 - (size - table % size - (request.num_tokens - table + lookahead)) // size

    def can_append(self, request: Request, lookahead: int) -> bool:
        """Return whether a running request can be served without a victim."""
        return self.touched(request, lookahead) <= self.gpu.num_free

    def can_swap_in(self, request: Request, lookahead: int) -> Fit:
        """Return whether a swapped request fits into the GPU pool and can be served there."""
        needed = self.touched(request, lookahead) + self._full_blocks_to_move(request, self.gpu)
        if self.gpu.num_blocks < needed:
            return Fit.NEVER
        return Fit.OK if self.gpu.num_free - needed >= self.watermark_blocks else Fit.LATER

    def can_swap_out(self, request: Request) -> bool:
        """Return whether the CPU pool takes a running request, as vLLM asks it."""
        return self.touched(request, 0) + self._full_blocks_to_move(request, self.cpu) <= self.cpu.num_free

    def computed_blocks(self, request: Request) -> int:
        """Return how many blocks of a request that was just admitted need no computing; never the last one.

        Like the real tracker this counts computed blocks behind a gap, too.
        """
        full = min(request.table_tokens, request.capacity - self.block_size) // self.block_size
        is_computed, key = self.gpu.is_computed, request.block_key
        return sum(1 for index in range(full) if is_computed(key(index)))

    def _full_blocks_to_move(self, request: Request, target: BlockTier) -> int:
        full = request.table_tokens // self.block_size
        if not self.caching:
            return full
        return sum(1 for index in range(full) if target.would_move(request.block_key(index)))

    # -- actions --------------------------------------------------------------------------------------------------

    def allocate(self, request: Request) -> None:
        """Give a waiting request the blocks of all its tokens."""
        self._take_all(request, self.gpu, request.num_tokens)
        request.table_tokens = request.num_tokens

    def append(self, request: Request, lookahead: int) -> None:
        """Write the new tokens of a request into its table, with *lookahead* slots behind them."""
        size, table, tokens = self.block_size, request.table_tokens, request.num_tokens
        missing = tokens + lookahead - request.capacity
        if missing > 0:
            count = -(-missing // size)
            self.gpu.take(count)
            request.capacity += count * size
        if self.caching:
            for index in range(table // size, tokens // size):
                self.gpu.fill(request.block_key(index))
        request.table_tokens = tokens

    def swap_out(self, request: Request) -> int:
        """Move a request to the CPU pool; return the number of blocks copied."""
        return self._move(request, self.gpu, self.cpu)

    def swap_in(self, request: Request) -> int:
        """Move a request to the GPU pool; return the number of blocks copied."""
        return self._move(request, self.cpu, self.gpu)

    def free(self, request: Request) -> None:
        """Take all blocks from a request."""
        on_cpu = request.status is Status.SWAPPED
        if (
            on_cpu and self.caching
        ):  # only after a priority's victim had ended: the GPU's cache does not know its blocks
            raise EngineDiedError(UNKNOWN_BLOCK)
        if self.caching and request.last_access >= 0:
            for index in range(request.table_tokens // self.block_size):
                self.gpu.touch(request.block_key(index), request.last_access)
        self._release_all(request, self.cpu if on_cpu else self.gpu)
        request.capacity = 0
        request.table_tokens = 0
        request.last_access = -1

    def end_call(self) -> None:
        """End a scheduler call: the blocks that it filled are computed for everybody who comes later."""
        self.gpu.mark_computed()
        self.cpu.mark_computed()

    def _move(self, request: Request, source: BlockTier, target: BlockTier) -> int:
        count = request.capacity // self.block_size
        self._release_all(request, source)
        self._take_all(request, target, request.table_tokens, count)
        return count

    def _take_all(self, request: Request, tier: BlockTier, tokens: int, count: int | None = None) -> None:
        """Take *count* blocks for *tokens* tokens (default: as many as they need), one after the other."""
        size = self.block_size
        if count is None:
            count = -(-tokens // size)
        if self.caching:
            full = tokens // size
            for index in range(full):
                tier.take_full(request.block_key(index))
            tier.take(count - full)
        else:
            tier.take(count)
        request.capacity = count * size

    def _release_all(self, request: Request, tier: BlockTier) -> None:
        size, count = self.block_size, request.capacity // self.block_size
        if self.caching:
            full = request.table_tokens // size
            for index in range(full):
                tier.release_full(request.block_key(index), (index + 1) * size)
            count -= full
        tier.give_back(count)
