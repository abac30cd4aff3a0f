"""The simulated requests as a trace that ``vllm bench serve --dataset-name timed_trace`` sends (vLLM 0.23 and later).

One JSON object a line: ``timestamp`` (s), ``input_length``, ``output_length`` (tokens) and ``hash_ids``: an id stands
for `CHUNK` prompt tokens, the last one for the rest; equal ids become equal tokens, so shared prefixes are shared there
too, in whole chunks.  The bench makes no prompt without ids.  Source: class TimedTrace of vllm/benchmarks (0.32).

The bench cannot wait for an answer before it sends the next turn of a chat, so where requests do, the trace holds the
times at which they were sent in the simulation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from simulator.request_table import Floats, RequestTable
from simulator.result import Result

#: Prompt tokens an id stands for: vLLM's default block size, the grain of its prefix cache.
CHUNK = 16


def waits_for_answers(table: RequestTable) -> bool:
    """Whether requests are sent some time after an answer, which no trace can say."""
    return bool((table.follows >= 0).any() or table.think_s.any())


def timed_trace(result: Result) -> Iterator[str]:
    """Yield one line for each request of *result* that was sent, in order of time, without line ends."""
    table, sent_s = result.table, np.asarray(result.records.sent_s, dtype=np.float64)
    if waits_for_answers(table):
        order = np.argsort(sent_s, kind="stable")  # nan, never sent, comes last
        rows = order[np.isfinite(sent_s[order])]
        yield from trace_lines(table.take(rows), sent_s[rows])
    else:
        yield from trace_lines(table, table.arrival_s)


def trace_lines(table: RequestTable, sent_s: Floats) -> Iterator[str]:
    """Yield one line a request, sent at *sent_s*."""
    ids: dict[tuple[int, int], int] = {}  # (segment, chunk): its id
    fresh = 0
    for row in range(len(table)):
        prompt = int(table.prompt_tokens[row])
        hash_ids: list[int] = []
        for segment in range(int(table.segment_start[row]), int(table.segment_start[row + 1])):
            for chunk in range(len(hash_ids), int(table.segment_end[segment]) // CHUNK):
                key = (int(table.segment_id[segment]), chunk)
                if key not in ids:
                    ids[key], fresh = fresh, fresh + 1
                hash_ids.append(ids[key])
        own = -(-prompt // CHUNK) - len(hash_ids)
        hash_ids += range(fresh, fresh + own)
        fresh += own
        yield json.dumps(
            {
                "timestamp": float(sent_s[row]),
                "input_length": prompt,
                "output_length": int(table.output_tokens[row]),
                "hash_ids": hash_ids,
            },
            separators=(",", ":"),
        )
