"""One pool of V0's KV blocks (GPU or CPU) with V0's prefix cache; blocks are counted, only cached ones have a name.

Rules (vLLM 0.6.3, prefix_caching_block.py and evictor_v2.py, checked against the real classes):

* A full block is known by its content and exists once; whoever needs the same content shares it.
* A shared block that nobody uses goes to the evictor and stays available.  Blocks without content are used first, then
  the evictor gives up one: of the oldest run of equal access times the block with the most tokens before it.  Like the
  real one it looks only at the front: a block that was put there late with an old time does not overtake.
* A block taken from the evictor, or filled again, forgets its access time; it gets one when a user *ends*, not when it
  is swapped out.
* A block counts as computed from the end of the scheduler call that filled it.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush

from simulator.errors import EngineDiedError
from simulator.v0_rules import NO_FREE_BLOCKS


class _Shared:
    """A cached block in use."""

    __slots__ = ("accessed", "computed", "users")

    def __init__(self, *, computed: bool) -> None:
        self.users = 1
        self.computed = computed
        self.accessed = -1


class _Run:
    """Consecutive additions to the evictor with the same access time."""

    __slots__ = ("accessed", "heap", "live")

    def __init__(self, accessed: int) -> None:
        self.accessed = accessed
        self.heap: list[tuple[int, int, int]] = []  # (-tokens, number of the addition, key)
        self.live = 0


class Evictor:
    """Unused cached blocks, in the order in which they lose their content; O(log blocks) an operation."""

    __slots__ = ("_additions", "_latest", "_runs", "_where")

    def __init__(self) -> None:
        self._runs: OrderedDict[int, _Run] = OrderedDict()  # number of its first addition -> run
        self._where: dict[int, tuple[int, int]] = {}  # key -> (run, number of the addition)
        self._additions = 0
        self._latest = -1  # the run that may still grow

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, key: int) -> bool:
        return key in self._where

    def add(self, key: int, tokens: int, accessed: int) -> None:
        """Put in block *key*, the last of *tokens* tokens of its content."""
        number = self._additions
        self._additions += 1
        run = self._runs.get(self._latest)
        if run is None or run.accessed != accessed:
            self._latest = number
            run = self._runs[number] = _Run(accessed)
        heappush(run.heap, (-tokens, number, key))
        run.live += 1
        self._where[key] = (self._latest, number)

    def remove(self, key: int) -> None:
        """Take block *key* out for use."""
        start, _number = self._where.pop(key)
        run = self._runs[start]
        run.live -= 1
        if not run.live:
            del self._runs[start]

    def evict(self) -> int:
        """Take out the block whose content is to be lost next, and return its key."""
        best: tuple[int, int, int] | None = None
        accessed = 0
        for run in self._runs.values():
            if best is not None and accessed < run.accessed:
                break
            top = self._top(run)
            if best is None or top[0] < best[0]:
                best, accessed = top, run.accessed
        assert best is not None
        self.remove(best[2])
        return best[2]

    def _top(self, run: _Run) -> tuple[int, int, int]:
        heap, where = run.heap, self._where
        while True:
            top = heap[0]
            place = where.get(top[2])
            if place is not None and place[1] == top[1]:
                return top
            heappop(heap)


class BlockTier:
    """The blocks of one device."""

    __slots__ = ("_filled", "_shared", "caching", "evictor", "hits", "num_blocks", "num_free", "queries")

    def __init__(self, num_blocks: int, *, caching: bool) -> None:
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self.caching = caching
        self.evictor = Evictor()
        self._shared: dict[int, _Shared] = {}
        self._filled: list[int] = []  # filled in this scheduler call
        #: Full blocks looked up and found; their ratio is vllm:gpu_prefix_cache_hit_rate.
        self.queries = 0
        self.hits = 0

    @property
    def usage(self) -> float:
        """Share of blocks in use, 0..1 (vllm:gpu_cache_usage_perc, vllm:cpu_cache_usage_perc)."""
        return 1.0 - self.num_free / self.num_blocks if self.num_blocks else 0.0

    # -- questions ------------------------------------------------------------------------------------------------

    def would_move(self, key: int) -> bool:
        """Return whether getting the full block *key* takes a free block (one that nobody uses counts as free)."""
        return key not in self._shared

    def is_computed(self, key: int) -> bool:
        """Return whether the shared block *key* holds its KV before this step."""
        shared = self._shared.get(key)
        return shared is not None and shared.computed

    # -- actions --------------------------------------------------------------------------------------------------

    def take(self, count: int) -> None:
        """Use *count* more blocks without content."""
        if count > self.num_free:
            raise EngineDiedError(NO_FREE_BLOCKS)
        evictor = self.evictor
        for _ in range(count - (self.num_free - len(evictor)) if evictor else 0):
            evictor.evict()
        self.num_free -= count

    def give_back(self, count: int) -> None:
        """Free *count* blocks without content."""
        self.num_free += count

    def take_full(self, key: int) -> None:
        """Use the full block *key*: the cached one, or a new one that will hold this content."""
        self.queries += 1
        if self._join(key):
            self.hits += 1
        else:
            self.take(1)
            self._fill(key)

    def fill(self, key: int) -> None:
        """Give content *key* to a block in use that has none; if that content exists, share it and free the block."""
        if self._join(key):
            self.num_free += 1
        else:
            self._fill(key)

    def release_full(self, key: int, tokens: int) -> None:
        """Stop using the full block *key*, which ends at token *tokens* of its content."""
        shared = self._shared[key]
        shared.users -= 1
        if not shared.users:
            del self._shared[key]
            self.evictor.add(key, tokens, shared.accessed)
            self.num_free += 1

    def touch(self, key: int, accessed: int) -> None:
        """Note an access to the full block *key*, which is in use."""
        self._shared[key].accessed = accessed

    def mark_computed(self) -> None:
        """End a scheduler call: what it filled is computed for everybody who comes later."""
        for key in self._filled:
            self._shared[key].computed = True
        self._filled.clear()

    def _join(self, key: int) -> bool:
        shared = self._shared.get(key)
        if shared is not None:
            shared.users += 1
            return True
        if key in self.evictor:
            self.evictor.remove(key)
            self.num_free -= 1
            self._shared[key] = _Shared(computed=True)
            return True
        return False

    def _fill(self, key: int) -> None:
        self._shared[key] = _Shared(computed=False)
        self._filled.append(key)
