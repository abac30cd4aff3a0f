"""The KV block pool: who holds which block, in which order free blocks are used again, which contents can be hit.

Rules (vLLM V1, kv_cache_manager and block_pool; read in 0.24 and checked against the real classes):

* Block 0 is the null block, so ``num_blocks - 1`` are usable.  Free blocks form one queue; allocation takes its head.
* Freed blocks go back last to first: those without a hash to the head (0.24 and later), the others to the tail.
  Before that all of them go to the tail.
* A cached block keeps its hash until it is taken from the queue for new content (that is the eviction).
* A hit takes a block out of the queue from wherever it stands.

A key that only its own request can ask for is entered when that can happen: after a preemption.

The queue is kept in three parts, which makes every operation O(blocks moved) and start-up O(1) for any pool size: a
stack (blocks put at the head), a counter (blocks never used, in order) and a line of batches (blocks put at the tail,
a batch for each request that gave them back).  A hit leaves a hole in its batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import filterfalse, repeat

from simulator.request import Request

#: Keys that are looked up in one go.
_CHUNK = 64


def _exhaust(calls: Iterator[object]) -> None:
    """Make all *calls*, at the speed of C."""
    deque(calls, maxlen=0)


class BlockPool:
    """All KV blocks of one engine.  Questions are pure; actions assume that the question was answered with yes."""

    __slots__ = ("_batches", "_fresh", "_head", "_holes", "_idle", "_key_of", "_next_batch", "_refs", "_twins",
                 "block_size", "cached", "caching", "num_blocks", "num_free", "unhashed_to_head")  # fmt: skip

    def __init__(self, num_blocks: int, block_size: int, *, caching: bool, unhashed_to_head: bool = True) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.caching = caching
        self.unhashed_to_head = unhashed_to_head
        self.num_free = num_blocks - 1
        self.cached: dict[int, int] = {}  # key -> block, the first registered one
        self._twins: dict[int, list[int]] = {}  # key -> further blocks of the same content, as they were registered
        self._key_of: dict[int, int] = {}  # block -> key
        self._refs: dict[int, int] = {}  # block -> users, if there are at least two
        self._head: list[int] = []
        self._fresh = 1
        self._batches: deque[tuple[int, list[int]]] = deque()  # (number, blocks; the next one to use stands last)
        self._next_batch = 0
        self._idle: dict[int, int] = {}  # block at the tail -> number of its batch
        self._holes: set[int] = set()  # batches of which some blocks were hit

    # -- questions ------------------------------------------------------------------------------------------------

    @property
    def usage(self) -> float:
        """Share of usable blocks in use, 0..1 (cached but unused blocks count as free)."""
        usable = self.num_blocks - 1
        return 1.0 - self.num_free / usable if usable else 0.0

    def find_hits(self, request: Request) -> list[int]:
        """Return the longest chain of cached blocks of *request*, whole blocks, at most ``num_tokens - 1`` tokens."""
        hits: list[int] = []
        if not self.caching or not self.cached:
            return hits
        most, shared = (request.num_tokens - 1) // self.block_size, request.shared_keys
        if self._chain(shared[:most], hits) and most > len(shared):
            self._chain(range(request.own_key_base + len(shared), request.own_key_base + most), hits)
        return hits

    def _chain(self, keys: Sequence[int], hits: list[int]) -> bool:
        """Append the blocks of *keys* to *hits* up to the first that is not cached; return whether all are."""
        find = self.cached.get
        for start in range(0, len(keys), _CHUNK):
            found = list(map(find, keys[start : start + _CHUNK]))
            if None in found:
                hits.extend(block for block in found[: found.index(None)] if block is not None)
                return False
            hits.extend(found)  # type: ignore[arg-type]
        return True

    def count_idle(self, blocks: list[int]) -> int:
        """Return how many of *blocks* stand in the free queue."""
        return sum(map(self._idle.__contains__, blocks))

    def free_order(self) -> list[int]:
        """Return the free queue from head to tail (for tests and for the curious; O(blocks))."""
        tail = [b for number, batch in self._batches for b in reversed(batch) if self._idle.get(b) == number]
        return [*reversed(self._head), *range(self._fresh, self.num_blocks), *tail]

    # -- actions --------------------------------------------------------------------------------------------------

    def take_hits(self, request: Request, hits: list[int]) -> None:
        """Let *request* share the cached blocks *hits*, the first ones of its content."""
        refs, idle = self._refs, self._idle
        for block in hits:
            number = idle.pop(block, None)
            if number is None:
                refs[block] = refs.get(block, 1) + 1
            else:
                self._holes.add(number)
                self.num_free -= 1
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
        if count == 1 and self._fresh < self.num_blocks:
            blocks.append(self._fresh)
            self._fresh += 1
        elif count:
            fresh = min(count, self.num_blocks - self._fresh)
            if fresh:
                blocks.extend(range(self._fresh, self._fresh + fresh))
                self._fresh += fresh
            if count > fresh:
                blocks.extend(self._take_oldest(count - fresh))

    def _take_oldest(self, count: int) -> list[int]:
        """Remove *count* blocks from the tail's front, and what they held from the cache."""
        batches, idle, taken = self._batches, self._idle, []
        if count == 1 and batches[0][0] not in self._holes and len(batches[0][1]) > 1:
            block = batches[0][1].pop()
            del idle[block]
            taken, count = [block], 0
        while count:
            number, batch = batches[0]
            if number in self._holes:
                batch[:] = [block for block in batch if idle.get(block) == number]
                self._holes.discard(number)
            some = batch[: -count - 1 : -1]
            del batch[-len(some) :]
            if not batch:
                batches.popleft()
            _exhaust(map(idle.pop, some))
            taken += some
            count -= len(some)
        if self._key_of:
            self._evict(taken)
        return taken

    def _evict(self, blocks: list[int]) -> None:
        """Forget the contents of *blocks*."""
        keys = map(self._key_of.pop, blocks, repeat(None))
        if not self._twins:
            _exhaust(map(self.cached.pop, filter(None, keys)))
            return
        for block, key in zip(blocks, keys, strict=True):
            if key is not None:
                self._forget(key, block)

    def _forget(self, key: int, block: int) -> None:
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

    def register(self, request: Request, num_tokens: int) -> None:
        """Make the full blocks among the first *num_tokens* tokens of *request* available for hits."""
        full, hashed = num_tokens // self.block_size, request.num_hashed_blocks
        if full > hashed:
            request.num_hashed_blocks = full
            shared = request.shared_keys
            if hashed < len(shared):
                self._enter(shared[hashed:full], request.blocks[hashed : min(full, len(shared))])

    def _enter(self, keys: Sequence[int], blocks: list[int]) -> None:
        """Enter *keys* for *blocks*."""
        cached = self.cached
        self._key_of.update(zip(blocks, keys, strict=True))
        if cached.keys().isdisjoint(keys):
            cached.update(zip(keys, blocks, strict=True))
            return
        for key, block in zip(keys, blocks, strict=True):
            if cached.setdefault(key, block) != block:
                self._twins.setdefault(key, []).append(block)

    def free(self, request: Request, *, comes_back: bool = False) -> None:
        """Take all blocks from *request*; contents stay cached until a block is needed for something else.

        A request that *comes back* (preempted) will look for all of its content.
        """
        blocks, hashed, refs = request.blocks, request.num_hashed_blocks, self._refs
        shared = len(request.shared_keys)
        if comes_back and self.caching and hashed > shared:
            self._enter(range(request.own_key_base + shared, request.own_key_base + hashed), blocks[shared:hashed])
        unhashed = blocks[hashed:] if self.unhashed_to_head else []
        released = blocks[:hashed] if self.unhashed_to_head else blocks
        if not refs.keys().isdisjoint(released):
            released = self._leave_shared(released)
        self.num_free += len(unhashed) + len(released)
        # Put at the head as a run that keeps its order: the deepest block becomes the new head.
        self._head.extend(unhashed)
        if released:
            self._idle.update(dict.fromkeys(released, self._next_batch))
            self._batches.append((self._next_batch, released))  # the deepest stands last, and is used first
            self._next_batch += 1
        request.blocks = []
        request.capacity = 0
        request.num_hashed_blocks = 0

    def _leave_shared(self, blocks: list[int]) -> list[int]:
        """Give up one use of each block; return those that nobody else uses."""
        refs = self._refs
        alone = list(filterfalse(refs.__contains__, blocks))
        for block in filter(refs.__contains__, blocks):
            if refs[block] == 2:
                del refs[block]
            else:
                refs[block] -= 1
        return alone
