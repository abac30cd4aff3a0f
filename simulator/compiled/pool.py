"""The block pool of `simulator.blocks` on links: the same rules, the same blocks, O(1) an operation.

The free queue is a stack (blocks put at the head), a counter (blocks never used, in order) and a doubly linked list
(the tail), so that a pool of any size costs nothing to begin with.  Contents are found through a hash table with
chains; of blocks with one content only the first stands in it, the others hang on that one in order of registration.
Request ``row`` owns the keys ``-(row + 1) * 2**24 + index``; segment ``id`` those of ``(id + 1) * 2**24``.
"""

from __future__ import annotations

from typing import Any

from simulator.compiled.jit import compiled
from simulator.compiled.layout import State

KEY_BITS = 24  # simulator.request.KEYS_PER_REQUEST
_MIX = 2654435761


@compiled
def _bucket(key: int, mask: int) -> int:
    return ((key >> KEY_BITS) * _MIX + (key & ((1 << KEY_BITS) - 1))) & mask


@compiled
def find(blocks: Any, buckets: Any, mask: int, key: int) -> int:
    """Return the first block registered for *key*, 0 if there is none."""
    block = buckets[_bucket(key, mask)]
    while block and blocks[block].key != key:
        block = blocks[block].chain
    return block


@compiled
def enter(blocks: Any, buckets: Any, mask: int, key: int, block: int) -> None:
    """Register *block* for *key*."""
    entry = blocks[block]
    if entry.keyed:
        return  # its request has come back and goes again
    entry.keyed, entry.key = 1, key
    entry.twin_ahead = entry.twin_behind = entry.twin_last = 0
    first = find(blocks, buckets, mask, key)
    if first == 0:
        place = _bucket(key, mask)
        entry.chain = buckets[place]
        buckets[place] = block
        return
    last = blocks[first].twin_last if blocks[first].twin_last else first
    blocks[last].twin_behind = block
    entry.twin_ahead = last
    blocks[first].twin_last = block


@compiled
def forget(blocks: Any, buckets: Any, mask: int, block: int) -> None:
    """Take *block* out of the cache; the next one of the same content takes its place."""
    entry = blocks[block]
    entry.keyed = 0
    heir = entry.twin_behind
    if entry.twin_ahead:
        blocks[entry.twin_ahead].twin_behind = heir
        if heir:
            blocks[heir].twin_ahead = entry.twin_ahead
        else:
            first = find(blocks, buckets, mask, entry.key)
            blocks[first].twin_last = 0 if entry.twin_ahead == first else entry.twin_ahead
        return
    replacement = entry.chain
    if heir:
        blocks[heir].twin_ahead = 0
        blocks[heir].twin_last = 0 if entry.twin_last == heir else entry.twin_last
        blocks[heir].chain = entry.chain
        replacement = heir
    place = _bucket(entry.key, mask)
    if buckets[place] == block:
        buckets[place] = replacement
        return
    before = buckets[place]
    while blocks[before].chain != block:
        before = blocks[before].chain
    blocks[before].chain = replacement


@compiled
def _unlink(w: Any, blocks: Any, block: int) -> None:
    """Take *block* out of the tail of the free queue."""
    entry = blocks[block]
    if entry.ahead:
        blocks[entry.ahead].behind = entry.behind
    else:
        w.tail = entry.behind
    if entry.behind:
        blocks[entry.behind].ahead = entry.ahead
    else:
        w.tail_last = entry.ahead


@compiled
def grow(s: State, slot: int, count: int) -> None:
    """Give the request *count* more blocks from the head of the free queue."""
    w, blocks, request = s.world, s.blocks, s.requests[slot]
    num_blocks, mask = s.settings.num_blocks, s.settings.bucket_mask
    lane, held = request.lane, request.num_blocks
    for _ in range(count):
        if w.head:
            block = w.head
            w.head = blocks[block].behind
        elif w.fresh < num_blocks:
            block = w.fresh
            w.fresh += 1
        else:
            block = w.tail
            _unlink(w, blocks, block)
            if blocks[block].keyed:
                forget(blocks, s.buckets, mask, block)
        blocks[block].refs = 1
        s.lanes[lane, held] = block
        held += 1
    w.num_free -= count
    request.num_blocks = held
    request.capacity = held * s.settings.block_size


@compiled
def find_hits(s: State, slot: int) -> int:
    """Put the longest chain of cached blocks of the request into *hits*; return how many they are."""
    if not s.settings.caching:
        return 0
    request, blocks, mask, size = s.requests[slot], s.blocks, s.settings.bucket_mask, s.settings.block_size
    most, index = (request.num_tokens - 1) // size, 0
    for segment in range(request.segment_start, request.segment_stop):
        base = (s.segment_id[segment] + 1) << KEY_BITS
        stop = min(s.segment_tokens[segment] // size, most)
        while index < stop:
            block = find(blocks, s.buckets, mask, base + index)
            if block == 0:
                return index
            s.hits[index] = block
            index += 1
    if request.num_preemptions:
        base = -(request.row + 1) << KEY_BITS
        while index < most:
            block = find(blocks, s.buckets, mask, base + index)
            if block == 0:
                return index
            s.hits[index] = block
            index += 1
    return index


@compiled
def count_idle(s: State, count: int) -> int:
    """Return how many of the first *count* hits stand in the free queue."""
    idle = 0
    for index in range(count):
        if s.blocks[s.hits[index]].refs == 0:
            idle += 1
    return idle


@compiled
def take_hits(s: State, slot: int, count: int) -> None:
    """Let the request share the first *count* hits, the first blocks of its content."""
    w, blocks, request = s.world, s.blocks, s.requests[slot]
    for index in range(count):
        block = s.hits[index]
        if blocks[block].refs == 0:
            _unlink(w, blocks, block)
            w.num_free -= 1
        blocks[block].refs += 1
        s.lanes[request.lane, index] = block
    request.num_blocks = request.num_hashed = count
    request.hash_at = (count + 1) * s.settings.block_size
    request.capacity = count * s.settings.block_size


@compiled
def _shared_blocks(s: State, slot: int) -> int:
    """Return how many leading blocks of the request have keys that others may ask for."""
    request = s.requests[slot]
    if request.segment_stop == request.segment_start:
        return 0
    return s.segment_tokens[request.segment_stop - 1] // s.settings.block_size


@compiled
def register(s: State, slot: int, num_tokens: int) -> None:
    """Make the full blocks among the first *num_tokens* tokens of the request available for hits."""
    request, size = s.requests[slot], s.settings.block_size
    full, index = num_tokens // size, request.num_hashed
    if full <= index:
        return
    request.num_hashed = full
    request.hash_at = (full + 1) * size
    for segment in range(request.segment_start, request.segment_stop):
        base = (s.segment_id[segment] + 1) << KEY_BITS
        stop = min(s.segment_tokens[segment] // size, full)
        while index < stop:
            enter(s.blocks, s.buckets, s.settings.bucket_mask, base + index, s.lanes[request.lane, index])
            index += 1


@compiled
def _append(w: Any, blocks: Any, block: int) -> None:
    """Put *block* at the tail of the free queue."""
    entry = blocks[block]
    entry.ahead, entry.behind = w.tail_last, 0
    if w.tail_last:
        blocks[w.tail_last].behind = block
    else:
        w.tail = block
    w.tail_last = block


@compiled
def free(s: State, slot: int, comes_back: bool) -> None:
    """Take all blocks from the request; contents stay cached until a block is needed for something else."""
    w, blocks, request = s.world, s.blocks, s.requests[slot]
    lane, held, hashed = request.lane, request.num_blocks, request.num_hashed
    if comes_back and s.settings.caching:
        base = -(request.row + 1) << KEY_BITS
        for index in range(_shared_blocks(s, slot), hashed):
            enter(blocks, s.buckets, s.settings.bucket_mask, base + index, s.lanes[lane, index])
    kept = held
    if s.settings.unhashed_to_head:
        kept = min(hashed, held)
        for index in range(kept, held):  # the deepest one becomes the new head
            block = s.lanes[lane, index]
            blocks[block].refs = 0
            blocks[block].behind = w.head
            w.head = block
            w.num_free += 1
    for index in range(kept - 1, -1, -1):
        block = s.lanes[lane, index]
        blocks[block].refs -= 1
        if blocks[block].refs == 0:
            _append(w, blocks, block)
            w.num_free += 1
    request.num_blocks = request.num_hashed = request.capacity = 0
    request.hash_at = s.settings.block_size
