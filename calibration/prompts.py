"""Token ids for the requests of a table: unique, except where the table says that prefixes are shared.

Ids come from the middle of the vocabulary, where no special token lives.  The same seed gives the same ids; another
``run`` gives others, so that a prefix cache filled by one run does not help the next one.
"""

from __future__ import annotations

import json

import numpy as np

from simulator.errors import InputError
from simulator.request_table import Ints, RequestTable

#: Smallest vocabulary from which prompts can be drawn that differ.
LEAST_VOCABULARY = 64
_OWN, _SHARED = 0, 1


def shared_prefix(table: RequestTable, row: int) -> tuple[int, int] | None:
    """Return number and tokens of the longest prefix that the prompt of *row* shares with others; None without one."""
    last = int(table.segment_start[row + 1]) - 1
    if last < table.segment_start[row]:
        return None
    return int(table.segment_id[last]), min(int(table.segment_end[last]), int(table.prompt_tokens[row]))


class Prompts:
    """Makes the prompt of each row."""

    def __init__(self, table: RequestTable, vocab_size: int, seed: int, run: int = 0) -> None:
        if vocab_size < LEAST_VOCABULARY:
            raise InputError(f"vocab_size {vocab_size} is too small for unique prompts; it must be {LEAST_VOCABULARY}")
        self._table, self._seed, self._run = table, seed, run
        self._low, self._high = min(1000, vocab_size // 4), vocab_size - vocab_size // 8

    def token_ids(self, row: int) -> Ints:
        """Return the prompt of *row*: its shared segments, then tokens of its own.

        Segments of one id have the same tokens at the same places (all rows that carry an id are expected to carry the
        same ids before it).
        """
        table = self._table
        parts: list[Ints] = []
        begin = 0
        for segment in range(int(table.segment_start[row]), int(table.segment_start[row + 1])):
            end = int(table.segment_end[segment])
            parts.append(self._draw(end, _SHARED, int(table.segment_id[segment]))[begin:])
            begin = end
        parts.append(self._draw(int(table.prompt_tokens[row]) - begin, _OWN, row))
        return np.concatenate(parts)

    def _draw(self, count: int, kind: int, number: int) -> Ints:
        rng = np.random.default_rng([self._seed, self._run, kind, number])
        return rng.integers(self._low, self._high, size=count, dtype=np.int64)

    def body(self, row: int, model: str) -> bytes:
        """Return the JSON body of the request of *row* for ``/v1/completions``."""
        table = self._table
        fields: dict[str, object] = {
            "model": model,
            "max_tokens": int(table.output_tokens[row]),
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if table.priority.any():
            fields["priority"] = int(table.priority[row])
        ids = ",".join(map(str, self.token_ids(row).tolist()))
        return f'{json.dumps(fields)[:-1]}, "prompt": [{ids}]}}'.encode()
