"""The requests of a workload, in columns: when each is sent, how long it is, and which prefix it shares.

Content is described without tokens.  A request's prompt begins with zero or more *segments*; segment k of a request
ends at token ``segment_end`` and carries a ``segment_id``.  Two requests whose segments carry the same id have the
same tokens from 0 up to the smaller of the two ends.  What lies behind the last segment is unique to the request.
The last segment may reach beyond the prompt: then it names the generated tokens too, which a later turn of the same
session finds in its prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RequestTable:
    """Columns of equal length n, in order of sending.

    Attributes
    ----------
    arrival_s: (n,) planned send time in seconds from the start; zeros in a closed loop.  A request that follows
        another one is sent after its response, and carries the time of the first of them.
    prompt_tokens, output_tokens: (n,) lengths in tokens, both at least 1.
    segment_start: (n + 1,) request i owns segments ``segment_start[i]:segment_start[i + 1]``.
    segment_id, segment_end: (m,) shared-prefix segments; ends ascend within a request.
    priority: (n,) smaller is more important.
    session_id: (n,) -1 where there is none.
    follows: (n,) the row whose response must be complete before this one is sent, -1 for none; one follower at most.
    think_s: (n,) time in seconds from the response to a request until its client sends the next one.
    class_id: (n,) index into *class_names*, -1 where there is none.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    segment_start: Ints
    segment_id: Ints
    segment_end: Ints
    priority: Ints
    session_id: Ints
    follows: Ints
    think_s: Floats
    class_id: Ints
    class_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @classmethod
    def build(
        cls,
        *,
        prompt_tokens: Ints,
        output_tokens: Ints,
        arrival_s: Floats | None = None,
        segments: tuple[Ints, Ints, Ints] | None = None,
        priority: Ints | None = None,
        session_id: Ints | None = None,
        follows: Ints | None = None,
        think_s: Floats | None = None,
        class_id: Ints | None = None,
        class_names: tuple[str, ...] = (),
    ) -> RequestTable:
        """Fill in what is not given (arrivals, priority, waits 0; no prefix, session, class) and check the columns.

        Raises `InputError` for an empty table, for lengths below 1 and for arrivals that are not finite or negative.
        """
        n = len(prompt_tokens)
        if n == 0:
            raise InputError("the workload holds no request; give at least one")
        arrival = np.zeros(n) if arrival_s is None else np.asarray(arrival_s, dtype=np.float64)
        empty = np.zeros(0, dtype=np.int64)
        start, ids, ends = segments if segments is not None else (np.zeros(n + 1, dtype=np.int64), empty, empty)
        table = cls(
            arrival_s=arrival,
            prompt_tokens=np.asarray(prompt_tokens, dtype=np.int64),
            output_tokens=np.asarray(output_tokens, dtype=np.int64),
            segment_start=start,
            segment_id=ids,
            segment_end=ends,
            priority=np.zeros(n, dtype=np.int64) if priority is None else priority,
            session_id=np.full(n, -1, dtype=np.int64) if session_id is None else session_id,
            follows=np.full(n, -1, dtype=np.int64) if follows is None else follows,
            think_s=np.zeros(n) if think_s is None else think_s,
            class_id=np.full(n, -1, dtype=np.int64) if class_id is None else class_id,
            class_names=class_names,
        )
        table._check()
        return table

    def take(self, rows: Ints) -> RequestTable:
        """Return the requests at *rows*, in that order; prefixes keep their ids.  *rows* must not be empty."""
        counts = np.diff(self.segment_start)[rows]
        start = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        segments = np.repeat(self.segment_start[rows] - start[:-1], counts) + np.arange(start[-1])
        return RequestTable.build(
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            arrival_s=self.arrival_s[rows],
            segments=(start, self.segment_id[segments], self.segment_end[segments]),
            priority=self.priority[rows],
            session_id=self.session_id[rows],
            follows=self._followed(rows),
            think_s=self.think_s[rows],
            class_id=self.class_id[rows],
            class_names=self.class_names,
        )

    @property
    def has_waits(self) -> bool:
        """Whether somebody thinks, or waits for a certain response, before sending."""
        return bool(self.think_s.any()) or bool((self.follows >= 0).any())

    def _followed(self, rows: Ints) -> Ints:
        """Return `follows` of *rows* among themselves; for a row that is missing stands the one that it followed."""
        place = np.full(len(self) + 1, -1, dtype=np.int64)  # the last one stands for -1
        place[rows] = np.arange(len(rows))
        before = self.follows[rows]
        while (gone := (before >= 0) & (place[before] < 0)).any():
            before = np.where(gone, self.follows[before], before)
        return place[before]

    def _check(self) -> None:
        n = len(self)
        for name in ("arrival_s", "output_tokens", "priority", "session_id", "follows", "think_s", "class_id"):
            if len(getattr(self, name)) != n:
                raise InputError(f"{name} has {len(getattr(self, name))} rows, prompt_tokens has {n}; they must agree")
        for name in ("prompt_tokens", "output_tokens"):
            column = getattr(self, name)
            if column.min() < 1:
                row = int(np.argmin(column))
                raise InputError(f"{name} must be at least 1, got {column[row]} in request {row}")
        if not np.isfinite(self.arrival_s).all() or self.arrival_s.min() < 0:
            row = int(np.argmin(np.where(np.isfinite(self.arrival_s), self.arrival_s, -np.inf)))
            raise InputError(f"arrival_s must be finite and not negative, got {self.arrival_s[row]} in request {row}")


@dataclass(frozen=True, eq=False)
class Traffic:
    """A workload made concrete: the requests, how many may be in flight (None: any number), what to tell the user.

    With chats *max_concurrency* counts those in progress.  *user_start_s* says when each of ``max_concurrency`` users
    of a closed loop begins; None: all at 0.
    """

    table: RequestTable
    max_concurrency: int | None
    notes: tuple[str, ...] = ()
    user_start_s: Floats | None = None
