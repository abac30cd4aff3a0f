"""The KV block pool: who holds which block, in which order free blocks are used again, which contents can be hit.

Rules (vLLM V1, kv_cache_manager and block_pool; read in 0.24 and checked against the real classes):

* Block 0 is the null block, so ``num_blocks - 1`` are usable.  Free blocks form one queue; allocation takes its head.
* Freed blocks go back last to first: those without a hash to the head (0.23 and later), the others to the tail.
  Before 0.23 all of them go to the tail.
* A cached block keeps its hash until it is taken from the queue for new content (that is the eviction).
* A hit takes a block out of the queue from wherever it stands.

A key that only its own request can ask for is entered when that can happen: after a preemption.

The queue is kept in three parts, which makes every operation O(blocks moved) and start-up O(1) for any pool size: a
stack (blocks put at the head), a counter (blocks never used, in order) and an ordered set (blocks put at the tail).
"""

from __future__ import annotations

from collections import OrderedDict

from simulator.request import Request


class BlockPool:
    """All KV blocks of one engine.  Questions are pure; actions assume that the question was answered with yes."""

    __slots__ = ("_fresh", "_head", "_key_of", "_refs", "_tail", "_twins", "block_size", "cached", "caching",
                 "num_blocks", "num_free", "unhashed_to_head")  # fmt: skip

    def __init__(self, num_blocks: int, block_size: int, *, caching: bool, unhashed_to_head: bool = True) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.caching = caching
        self.unhashed_to_head = unhashed_to_head
        self.num_free = num_blocks - 1
        self.cached: dict[int, int] = {}  # key -> block, the first registered one
        self._twins: dict[int, list[int]] = {}  # key -> further blocks of the same content, as they were registered
        self._key_of: dict[int, int] = {}  # block -> key
        self._refs: dict[int, int] = {}  # block -> users; absent means one or none
        self._head: list[int] = []
        self._fresh = 1
        self._tail: OrderedDict[int, None] = OrderedDict()

    # -- questions ------------------------------------------------------------------------------------------------

    @property
    def usage(self) -> float:
        """Share of usable blocks in use, 0..1 (cached but unused blocks count as free)."""
        usable = self.num_blocks - 1
        return 1.0 - self.num_free / usable if usable else 0.0

    def find_hits(self, request: Request) -> list[int]:
        """Return the longest chain of cached blocks of *request*, whole blocks, at most ``num_tokens - 1`` tokens."""
        cached = self.cached
        if not self.caching or not cached:
            return []
        hits: list[int] = []
        most = (request.num_tokens - 1) // self.block_size
        shared = request.shared_keys
        for key in shared[:most]:
            block = cached.get(key)
            if block is None:
                return hits
            hits.append(block)
        for key in range(request.own_key_base + len(shared), request.own_key_base + most):
            block = cached.get(key)
            if block is None:
                break
            hits.append(block)
        return hits

    def count_idle(self, blocks: list[int]) -> int:
        """Return how many of *blocks* stand in the free queue."""
        tail = self._tail
        return sum(1 for block in blocks if block in tail)

    def free_order(self) -> list[int]:
        """Return the free queue from head to tail (for tests and for the curious; O(blocks))."""
        return [*reversed(self._head), *range(self._fresh, self.num_blocks), *self._tail]

    # -- actions --------------------------------------------------------------------------------------------------

    def take_hits(self, request: Request, hits: list[int]) -> None:
        """Let *request* share the cached blocks *hits*, the first ones of its content."""
        refs, tail = self._refs, self._tail
        for block in hits:
            if block in tail:
                del tail[block]
                self.num_free -= 1
            else:
                refs[block] = refs.get(block, 1) + 1
        request.blocks.extend(hits)
        request.num_hashed_blocks = len(request.blocks)
        request.capacity = len(request.blocks) * self.block_size

    def grow(self, request: Request, count: int) -> None:
        """Give *request* *count* more blocks from the head of the free queue."""
        self.num_free -= count
        request.capacity += count * self.block_size
        blocks, head = request.blocks, self._head
        while count and head:
            blocks.append(head.pop())
            count -= 1
        fresh = min(count, self.num_blocks - self._fresh)
        if fresh:
            blocks.extend(range(self._fresh, self._fresh + fresh))
            self._fresh += fresh
            count -= fresh
        if count:
            oldest = self._tail.popitem
            taken = [oldest(False)[0] for _ in range(count)]
            if self._key_of:
                for block in taken:
                    self._evict(block)
            blocks.extend(taken)

    def register(self, request: Request, num_tokens: int) -> None:
        """Make the full blocks among the first *num_tokens* tokens of *request* available for hits."""
        full, hashed = num_tokens // self.block_size, request.num_hashed_blocks
        if full > hashed:
            request.num_hashed_blocks = full
            if hashed < len(request.shared_keys):
                self._enter(request, hashed, min(full, len(request.shared_keys)))

    def _enter(self, request: Request, first: int, end: int) -> None:
        """Enter the keys of the blocks *first* to *end* (exclusive)."""
        blocks, cached, key_of = request.blocks, self.cached, self._key_of
        for index in range(first, end):
            key, block = request.block_key(index), blocks[index]
            key_of[block] = key
            if cached.setdefault(key, block) != block:
                self._twins.setdefault(key, []).append(block)

    def free(self, request: Request, *, comes_back: bool = False) -> None:
        """Take all blocks from *request*; contents stay cached until a block is needed for something else.

        A request that *comes back* (preempted) will look for all of its content.
        """
        blocks, hashed = request.blocks, request.num_hashed_blocks
        if comes_back and self.caching:
            self._enter(request, min(len(request.shared_keys), hashed), hashed)
        refs, tail = self._refs, self._tail
        released = [] if refs else blocks[::-1]
        for block in reversed(blocks) if refs else ():
            if block in refs:
                if refs[block] == 2:
                    del refs[block]
                else:
                    refs[block] -= 1
            else:
                released.append(block)
        self.num_free += len(released)
        if self.unhashed_to_head:
            unhashed = len(blocks) - hashed
            # Put at the head as a run that keeps its order: the deepest block becomes the new head.
            self._head.extend(reversed(released[:unhashed]))
            released = released[unhashed:]
        tail.update(dict.fromkeys(released))
        request.blocks = []
        request.capacity = 0
        request.num_hashed_blocks = 0

    def _evict(self, block: int) -> None:
        key = self._key_of.pop(block, None)
        if key is None:
            return
        twins = self._twins.get(key)
        if self.cached[key] != block:
            assert twins is not None
            twins.remove(block)
        elif twins:
            self.cached[key] = twins.pop(0)
        else:
            del self.cached[key]
        if twins is not None and not twins:
            del self._twins[key]
