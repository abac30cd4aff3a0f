"""The simulated requests as a trace that ``vllm bench serve --dataset-name timed_trace`` sends (vLLM 0.23 and later).

One JSON object a line: ``timestamp`` (s), ``input_length``, ``output_length`` (tokens) and ``hash_ids``: an id stands
for `CHUNK` prompt tokens, the last one for the rest; equal ids become equal tokens, so shared prefixes are shared there
too, in whole chunks.  The bench makes no prompt without ids.  Source: class TimedTrace of vllm/benchmarks (0.32).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from simulator.request_table import RequestTable

#: Prompt tokens an id stands for: vLLM's default block size, the grain of its prefix cache.
CHUNK = 16


def timed_trace(table: RequestTable) -> Iterator[str]:
    """Yield one line a request, in order of sending, without line ends."""
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
                "timestamp": float(table.arrival_s[row]),
                "input_length": prompt,
                "output_length": int(table.output_tokens[row]),
                "hash_ids": hash_ids,
            },
            separators=(",", ":"),
        )
