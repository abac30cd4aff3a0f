"""Measured runs of real servers: the requests as they were sent, and what their clients saw.

A file holds ``name``, ``workload`` (words), ``provenance`` (GPU, vLLM version, command, date ...), ``duration_s``,
``concurrency`` (clients of a closed loop, else null) and ``requests``: arrival_s (planned), sent_s, prompt_tokens,
output_tokens, ttft_s, e2el_s (both from sending) and itl_ms (gaps between messages), and where prompts were shared
prefix: [its number, its tokens].  The recorder's own files (``isl``, ``osl``, ``send``, ``ttft``, ``e2e``, ``n``,
``itl``) are read too.

Replay an open loop at the recorded send times, a closed loop with the recorded number of clients.  Where a client read
two messages at once there are fewer gaps than tokens, so a measured ITL is per message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simulator import metrics
from simulator.errors import InputError
from simulator.request_list import read_text, rows_of
from simulator.request_table import Floats, Ints, RequestTable
from simulator.workload import RequestsWorkload

SCHEMA_VERSION = 1
SUFFIX = ".json.gz"

#: Our name of a column: its name in the recorder's files.
_RECORDED = {
    "arrival_s": "t",
    "sent_s": "send",
    "prompt_tokens": "isl",
    "output_tokens": "n",
    "ttft_s": "ttft",
    "e2el_s": "e2e",
    "itl_ms": "itl",
}


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """One run, in the order of its requests.

    Attributes
    ----------
    table: requests with their recorded send times; zeros in a closed loop.
    concurrency: clients of a closed loop; None for an open loop.
    sent_s: recorded send times, closed loop included.
    planned_s: when they should have been sent; 0 in a closed loop, where a client sends when it was answered.
    seen: latencies, lengths and duration; ``seen.itl_s`` is pooled over all messages.
    provenance: where the numbers come from, in words.
    """

    name: str
    workload_text: str
    provenance: Mapping[str, str]
    table: RequestTable
    concurrency: int | None
    sent_s: Floats
    seen: metrics.Latencies
    planned_s: Floats

    def summary(self) -> dict[str, Any]:
        """Return the aggregates by the same definitions as a simulation's (`simulator.metrics`)."""
        return metrics.aggregate(self.seen)

    def replay(self) -> RequestsWorkload:
        """Return the workload that sends the same requests again."""
        return RequestsWorkload(rows=rows_of(self.table), max_concurrency=self.concurrency)


def names() -> list[str]:
    """Return the names of the shipped runs."""
    from simulator import shipped

    folder = Path(str(shipped.path("workloads", "measured")))
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))


def load_measured(name_or_path: str | Path) -> MeasuredRun:
    """Return a shipped run by its name, or the run in a file; `InputError` of one line if there is none."""
    from simulator import shipped

    name = str(name_or_path)
    if name in names():
        return parse(read_text(str(shipped.path("workloads", "measured", name + SUFFIX))), name)
    if not Path(name).exists():
        raise InputError(f"no measured run is called {name!r} and no such file exists; choose {', '.join(names())}")
    return parse(read_text(name), Path(name).name.removesuffix(".gz").removesuffix(".json"))


def parse(text: str, name: str) -> MeasuredRun:
    """Return the run that the JSON *text* describes; *name* stands in front of every error."""
    try:
        data = json.loads(text)
        version = data.get("schema_version", SCHEMA_VERSION)
        if version > SCHEMA_VERSION:
            raise InputError(f"{name}: schema_version {version} is newer than {SCHEMA_VERSION}; update servecast")
        return _run(data, name)
    except json.JSONDecodeError as error:
        raise InputError(f"{name}: is not JSON ({error.msg} in line {error.lineno}); copy the file again") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise InputError(f"{name}: is not a measured run ({reason}); see docs/schemas.md for the format") from None


def _run(data: Mapping[str, Any], name: str) -> MeasuredRun:
    requests = data["requests"]
    recorder = bool(requests) and "isl" in requests[0]
    columns = {ours: [row[theirs if recorder else ours] for row in requests] for ours, theirs in _RECORDED.items()}
    sent = np.array(columns["sent_s"], dtype=np.float64)
    concurrency = data.get("conc" if recorder else "concurrency")
    table = RequestTable.build(
        arrival_s=sent if concurrency is None else None,
        prompt_tokens=np.array(columns["prompt_tokens"], dtype=np.int64),
        output_tokens=np.array(columns["output_tokens"], dtype=np.int64),
        segments=_segments([row.get("prefix") for row in requests]),
    )
    order = np.argsort(table.arrival_s, kind="stable")
    pooled = np.concatenate([np.asarray(gaps, dtype=np.float64) for gaps in columns["itl_ms"]]) / 1e3
    seen = metrics.Latencies(
        ttft_s=np.array(columns["ttft_s"], dtype=np.float64)[order],
        e2el_s=np.array(columns["e2el_s"], dtype=np.float64)[order],
        itl_s=metrics.Sample.of(pooled),
        prompt_tokens=table.prompt_tokens[order],
        output_tokens=table.output_tokens[order],
        duration_s=float(data["duration" if recorder else "duration_s"]),
    )
    return MeasuredRun(
        name=str(data.get("name", name)),
        workload_text=str(data.get("workload", "")),
        provenance=dict(data.get("provenance", {})),
        table=table.take(order),
        concurrency=concurrency,
        sent_s=sent[order],
        seen=seen,
        planned_s=np.array(columns["arrival_s"], dtype=np.float64)[order],
    )


def _segments(prefixes: list[tuple[int, int] | None]) -> tuple[Ints, Ints, Ints]:
    """Return the segments of a table from [number, tokens] of each request, None where nothing is shared."""
    known = [prefix for prefix in prefixes if prefix is not None]
    start = np.cumsum([0, *(prefix is not None for prefix in prefixes)])
    ids, ends = (np.array([prefix[k] for prefix in known], dtype=np.int64) for k in (0, 1))
    return start, ids, ends
