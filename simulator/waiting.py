"""The queue of waiting requests."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from simulator.request import Request


class WaitingQueue:
    """FCFS: a deque.  PRIORITY: a heap by (priority, arrival, request id), without a front to put anybody to."""

    __slots__ = ("_deque", "_heap")

    def __init__(self, *, priority: bool) -> None:
        self._deque: deque[Request] = deque()
        self._heap: list[tuple[int, float, int | str, Request]] | None = [] if priority else None

    def __len__(self) -> int:
        return len(self._deque) if self._heap is None else len(self._heap)

    def head(self) -> Request:
        """Return the next request; the queue must not be empty."""
        return self._deque[0] if self._heap is None else self._heap[0][3]

    def pop(self) -> Request:
        """Remove and return the head."""
        return self._deque.popleft() if self._heap is None else heappop(self._heap)[3]

    def append(self, request: Request) -> None:
        """Add a new request."""
        if self._heap is None:
            self._deque.append(request)
        else:
            heappush(self._heap, (request.priority, request.arrival, request.tie_break, request))

    def put_back(self, request: Request) -> None:
        """Return a request to the head (FCFS) or to its place (PRIORITY)."""
        if self._heap is None:
            self._deque.appendleft(request)
        else:
            self.append(request)

    def in_order(self) -> list[Request]:
        """Return the waiting requests, next one first."""
        return list(self._deque) if self._heap is None else [entry[3] for entry in sorted(self._heap)]
