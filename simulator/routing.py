"""Which replica gets a request: policies of the router in front of them.

    round-robin         one after the other
    random              any
    least-outstanding   the one with the fewest requests in flight, in turn among equals
    power-of-two        the less busy of two random ones (Mitzenmacher 2001)
    prefix-hash         consistent hash of the first *prefix_tokens* tokens (whole blocks), with bounded loads
                        (Mirrokni et al. 2018): the next on the ring if the owner has *load_bound* times the mean
    prefix-match        the one that was sent the longest prefix of these blocks before; the least busy if none was, or
                        if that one has *load_bound* times the mean

The router counts requests in flight by itself, from sending to the complete response, without delay.  It does not know
what was evicted from the caches.  Two prompts have a prefix in common if their blocks have the same keys.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from pydantic import Field

from simulator.block_keys import shared_keys
from simulator.request_table import RequestTable
from simulator.workload_parts import Described, Positive

Policy = Literal["round-robin", "random", "least-outstanding", "power-of-two", "prefix-hash", "prefix-match"]

#: Points of a replica on the ring; the shares of the replicas then differ by about 10 %.
POINTS = 128


class Routing(Described):
    """How requests are spread; *load_bound* inf lets a prefix stay with its replica whatever the load."""

    about: ClassVar[str] = "router"

    policy: Policy = "round-robin"
    prefix_tokens: int = Field(default=256, ge=1)
    load_bound: Positive = Field(default=1.25, ge=1)

    @classmethod
    def parse(cls, text: str) -> Routing:
        """Return the routing of *text*: a policy, then options: ``prefix-hash:prefix_tokens=1024,load_bound=1.5``."""
        policy, _, rest = text.partition(":")
        options = [option.partition("=") for option in rest.split(",") if option]
        told: dict[str, Any] = {name.strip(): "inf" if value == "none" else value for name, _, value in options}
        return cls(policy=policy.strip(), **told)

    @property
    def is_static(self) -> bool:
        """Whether the choice does not depend on what the replicas are doing."""
        return self.policy in ("round-robin", "random") or (
            self.policy == "prefix-hash" and math.isinf(self.load_bound)
        )


class Router(Protocol):
    """Chooses for each request, in order of sending."""

    def choose(self, row: int, ready: Sequence[int], in_flight: Mapping[int, int]) -> int:
        """Return one of *ready* (numbers of replicas, ascending, at least one) for request *row*."""


def router(routing: Routing, table: RequestTable, block_size: int, seed: int) -> Router:
    """Return a router for the requests of *table*; the same *seed* makes the same random choices."""
    if routing.policy == "round-robin":
        return RoundRobin()
    if routing.policy == "least-outstanding":
        return LeastOutstanding()
    if routing.policy == "prefix-hash":
        return PrefixHash(table, block_size, routing.prefix_tokens, routing.load_bound)
    if routing.policy == "prefix-match":
        return PrefixMatch(table, block_size, routing.load_bound)
    draws = np.random.default_rng(np.random.SeedSequence([seed, 2])).random((len(table), 2)).tolist()
    return Random(draws) if routing.policy == "random" else PowerOfTwo(draws)


class RoundRobin:
    """One after the other, by number."""

    def __init__(self) -> None:
        self._last = -1

    def choose(self, row: int, ready: Sequence[int], in_flight: Mapping[int, int]) -> int:
        """Return the next ready one after the last choice."""
        at = bisect_right(ready, self._last)
        self._last = ready[at] if at < len(ready) else ready[0]
        return self._last


class Random:
    """Any of them; (rows, 2) numbers in 0..1, so that a request's choice does not depend on the others."""

    def __init__(self, draws: list[list[float]]) -> None:
        self._draws = draws

    def choose(self, row: int, ready: Sequence[int], in_flight: Mapping[int, int]) -> int:
        """Return a random one."""
        return ready[int(self._draws[row][0] * len(ready))]


class PowerOfTwo(Random):
    """The less busy of two different random ones."""

    def choose(self, row: int, ready: Sequence[int], in_flight: Mapping[int, int]) -> int:
        """Return the one of two random ones that has fewer requests in flight, the first if they are equal."""
        first = super().choose(row, ready, in_flight)
        if len(ready) == 1:
            return first
        others = [number for number in ready if number != first]
        second = others[int(self._draws[row][1] * len(others))]
        return second if in_flight[second] < in_flight[first] else first


class LeastOutstanding(RoundRobin):
    """The least busy; among equals the next after the last choice."""

    def choose(self, row: int, ready: Sequence[int], in_flight: Mapping[int, int]) -> int:
        """Return the one with the fewest requests in flight."""
        fewest = min(in_flight[number] for number in ready)
        return super().choose(row, [number for number in ready if in_flight[number] == fewest], in_flight)


def _has_room(number: int, ready: Sequence[int], in_flight: Mapping[int, int], bound: float) -> bool:
    """Return whether *number* may take one more: no more than ``ceil(bound * mean)``, the new request counted."""
    if math.isinf(bound):
        return True
    total = 1 + sum(in_flight[other] for other in ready)
    return in_flight[number] + 1 <= math.ceil(bound * total / len(ready))


class PrefixHash:
    """Consistent hashing of prefixes with bounded loads."""

    def __init__(self, table: RequestTable, block_size: int, prefix_tokens: int, bound: float) -> None:
        self._table = table
        self._block_size = block_size
        self._prefix_tokens = prefix_tokens
        self._bound = bound
        self._members: tuple[int, ...] = ()
        self._ring: list[tuple[int, int]] = []

    def choose(self, row: int, ready: Sequence[int], in_flight: Mapping[int, int]) -> int:
        """Return the first with room at or after the prefix's point on the ring."""
        if tuple(ready) != self._members:
            self._members = tuple(ready)
            self._ring = sorted((_point(f"replica {n} {k}"), n) for n in ready for k in range(POINTS))
        at = bisect_right(self._ring, (_point(f"prefix {self._prefix(row)}"), -1))
        for step in range(len(self._ring)):
            number = self._ring[(at + step) % len(self._ring)][1]
            if _has_room(number, ready, in_flight, self._bound):
                return number
        return self._ring[at % len(self._ring)][1]

    def _prefix(self, row: int) -> int:
        """Return the key of the last whole block among the first tokens; a number of its own if that is not shared."""
        blocks = min(self._prefix_tokens, int(self._table.prompt_tokens[row])) // self._block_size
        keys = shared_keys(self._table, row, self._block_size) if blocks else []
        return keys[blocks - 1] if blocks and blocks <= len(keys) else -1 - row


def _point(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


class PrefixMatch:
    """Back to where the longest prefix of the prompt was sent, unless it is too busy there."""

    def __init__(self, table: RequestTable, block_size: int, bound: float) -> None:
        self._table = table
        self._block_size = block_size
        self._bound = bound
        self._sent_to: dict[int, int] = {}
        self._otherwise = LeastOutstanding()

    def choose(self, row: int, ready: Sequence[int], in_flight: Mapping[int, int]) -> int:
        """Return the one that was sent the longest prefix, or the least busy one."""
        keys = shared_keys(self._table, row, self._block_size)
        whole = (int(self._table.prompt_tokens[row]) - 1) // self._block_size
        known = (self._sent_to.get(key) for key in reversed(keys[:whole]))
        best = next((number for number in known if number in ready), None)
        if best is None or not _has_room(best, ready, in_flight, self._bound):
            best = self._otherwise.choose(row, ready, in_flight)
        self._sent_to.update(dict.fromkeys(keys, best))
        return best
