"""Queues of the compiled loop: events by time, jobs by virtual end, and the waiting requests.

Events at one time come in the order in which they were announced, as in SimPy.  The waiting queue is that of
`simulator.waiting`: FCFS a linked list through the requests, PRIORITY a heap by (priority, arrival, row).
"""

from __future__ import annotations

from typing import Any

from simulator.compiled.jit import compiled
from simulator.compiled.layout import State

# Events, and the jobs of the API server by the virtual time of their end ----------------------------------------------


@compiled
def push(heap: Any, size: int, time_s: float, order: int, kind: int, slot: int) -> None:
    """Enter what happens at *time_s*, ties by *order*, into a heap of *size* entries."""
    place = size
    while place:
        above = heap[(place - 1) >> 1]
        if above.time_s < time_s or (above.time_s == time_s and above.order < order):
            break
        _put(heap[place], above.time_s, above.order, above.kind, above.slot)
        place = (place - 1) >> 1
    _put(heap[place], time_s, order, kind, slot)


@compiled
def pop(heap: Any, size: int) -> None:
    """Remove what comes first from a heap of *size* entries."""
    size -= 1
    last, place = heap[size], 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _sooner(heap[child + 1], heap[child]):
            child += 1
        low = heap[child]
        if _sooner(last, low):
            break
        _put(heap[place], low.time_s, low.order, low.kind, low.slot)
        place = child
    _put(heap[place], last.time_s, last.order, last.kind, last.slot)


@compiled
def _sooner(one: Any, other: Any) -> bool:
    return bool(one.time_s < other.time_s or (one.time_s == other.time_s and one.order < other.order))


@compiled
def _put(entry: Any, time_s: float, order: int, kind: int, slot: int) -> None:
    entry.time_s, entry.order, entry.kind, entry.slot = time_s, order, kind, slot


@compiled
def announce(s: State, delay_s: float, kind: int, slot: int) -> None:
    """Let an event happen in *delay_s* seconds."""
    w = s.world
    push(s.events, w.num_events, w.now_s + delay_s, w.order, kind, slot)
    w.order += 1
    w.num_events += 1


# Waiting requests -----------------------------------------------------------------------------------------------------


@compiled
def _before(requests: Any, one: int, other: int) -> bool:
    a, b = requests[one], requests[other]
    if a.priority != b.priority:
        return a.priority < b.priority
    if a.sent_s != b.sent_s:
        return a.sent_s < b.sent_s
    return a.row < b.row


@compiled
def _rise(queue: Any, requests: Any, place: int, slot: int) -> None:
    while place and _before(requests, slot, queue[(place - 1) >> 1]):
        queue[place] = queue[(place - 1) >> 1]
        place = (place - 1) >> 1
    queue[place] = slot


@compiled
def _sink(queue: Any, requests: Any, size: int, place: int, slot: int) -> None:
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _before(requests, queue[child + 1], queue[child]):
            child += 1
        if _before(requests, slot, queue[child]):
            break
        queue[place] = queue[child]
        place = child
    queue[place] = slot


@compiled
def waiting_head(s: State) -> int:
    """Return the next request; the queue must not be empty."""
    return s.queue[0] if s.settings.priority_policy else s.world.queue


@compiled
def append_waiting(s: State, slot: int) -> None:
    """Add a new request."""
    w, requests = s.world, s.requests
    if s.settings.priority_policy:
        _rise(s.queue, requests, w.num_waiting, slot)
    else:
        requests[slot].ahead, requests[slot].behind = w.queue_last, 0
        if w.queue_last:
            requests[w.queue_last].behind = slot
        else:
            w.queue = slot
        w.queue_last = slot
    w.num_waiting += 1


@compiled
def put_back(s: State, slot: int) -> None:
    """Return a request to the head (FCFS) or to its place (PRIORITY)."""
    w, requests = s.world, s.requests
    if s.settings.priority_policy:
        _rise(s.queue, requests, w.num_waiting, slot)
    else:
        requests[slot].ahead, requests[slot].behind = 0, w.queue
        if w.queue:
            requests[w.queue].ahead = slot
        else:
            w.queue_last = slot
        w.queue = slot
    w.num_waiting += 1


@compiled
def leave_queue(s: State, slot: int) -> None:
    """Remove a request from wherever it waits."""
    w, requests = s.world, s.requests
    w.num_waiting -= 1
    if s.settings.priority_policy:
        place = 0
        while s.queue[place] != slot:
            place += 1
        last = s.queue[w.num_waiting]
        if last != slot:
            if place and _before(requests, last, s.queue[(place - 1) >> 1]):
                _rise(s.queue, requests, place, last)
            else:
                _sink(s.queue, requests, w.num_waiting, place, last)
        return
    request = requests[slot]
    if request.ahead:
        requests[request.ahead].behind = request.behind
    else:
        w.queue = request.behind
    if request.behind:
        requests[request.behind].ahead = request.ahead
    else:
        w.queue_last = request.ahead
