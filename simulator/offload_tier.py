"""The CPU tier of V1's prefix cache: which contents lie there, which are in transit, and which one goes first.

Rules (vLLM 0.24, kv_offload/cpu, checked against the text of the real classes):

* A block enters when its copy is ordered; it is *ready* when the copy is done, and cannot be evicted before.
* A block that is being read cannot be evicted.  The others go least recently used first; reading, finding and writing
  count as use, and of one request the deepest block counts as the oldest.
* A store that finds no room (everything else is in transit, or belongs to the same store) is not made.

Not modelled: the ARC policy, a store threshold above 1, further tiers (disk).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from enum import IntEnum

_IN_TRANSIT = -1


class Found(IntEnum):
    """What a look-up says."""

    MISS = 0
    HIT = 1
    LATER = 2  # its copy is not done yet


class CpuTier:
    """Blocks by content key, with a count of readers (-1 while the block is being written)."""

    __slots__ = ("_evictable", "_readers", "num_blocks")

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._readers: dict[int, int] = {}
        self._evictable: OrderedDict[int, None] = OrderedDict()  # oldest first

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, key: int) -> bool:
        return key in self._readers

    def order(self) -> list[int]:
        """Return the keys that may be evicted, next one first (for tests)."""
        return list(self._evictable)

    def find(self, key: int) -> Found:
        """Return whether the content *key* can be read."""
        readers = self._readers.get(key)
        if readers is None:
            return Found.MISS
        return Found.LATER if readers == _IN_TRANSIT else Found.HIT

    def touch(self, keys: Sequence[int]) -> None:
        """Note a use of *keys*, a chain; those in transit come to the end when that is over."""
        evictable = self._evictable
        for key in reversed(keys):
            if key in evictable:
                evictable.move_to_end(key)

    def begin_store(self, keys: Sequence[int]) -> list[int] | None:
        """Take in those of *keys* that are not there, and return them; None if there is no room for all of them."""
        new = [key for key in keys if key not in self._readers]
        missing = len(new) - (self.num_blocks - len(self._readers))
        if missing > 0:
            kept = set(keys)
            victims = [key for key in self._evictable if key not in kept][:missing]
            if len(victims) < missing:
                return None
            for key in victims:
                del self._evictable[key], self._readers[key]
        self._readers.update(dict.fromkeys(new, _IN_TRANSIT))
        return new

    def end_store(self, keys: Iterable[int]) -> None:
        """The copies of *keys* are done."""
        for key in keys:
            self._readers[key] = 0
            self._evictable[key] = None

    def begin_load(self, keys: Iterable[int]) -> None:
        """Read *keys*, which are ready: they stay."""
        for key in keys:
            self._readers[key] += 1
            self._evictable.pop(key, None)

    def end_load(self, keys: Iterable[int]) -> None:
        """The reading of *keys* is over."""
        for key in keys:
            self._readers[key] -= 1
            if not self._readers[key]:
                self._evictable[key] = None
