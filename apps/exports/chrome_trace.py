"""A simulation as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing: why was this token late?

The JSON object format of Chrome's Trace Event Format: complete events ``X`` (ts, dur in microseconds), counters ``C``,
metadata ``M``.

    process "engine"     steps, from schedule() to the outputs; two rows, because with async scheduling step n + 1
                         begins before step n has ended; counters of running and waiting requests, of the KV cache
    process "requests"   each request from its sending to its last token, in the first row that is free, and inside it
                         front end, queue, prefill, decode and pauses

Times of requests are the client's, those of steps the engine's; both run on one clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np

from simulator.engine_state import running, usage, waiting
from simulator.records import Records
from simulator.result import Result

ENGINE, REQUESTS = 1, 2
MODES = {0: "no graph", 1: "piecewise graph", 2: "full graph"}

Event = dict[str, Any]


def chrome_trace(result: Result) -> dict[str, Any]:
    """Return the trace document; ``otherData`` says what was simulated."""
    source = result.provenance
    return {
        "displayTimeUnit": "ms",
        "otherData": {key: str(value) for key, value in source.model_dump().items()},
        "traceEvents": [*_names(result), *_steps(result), *_counters(result.records), *_requests(result)],
    }


def _micro(seconds: float) -> float:
    return round(1e6 * seconds, 3)


def _slice(name: str, pid: int, tid: int, start_s: float, end_s: float, **args: Any) -> Event:
    ts = _micro(start_s)
    return {
        "name": name,
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": round(_micro(end_s) - ts, 3),
        "args": args,
    }


def _names(result: Result) -> Iterator[Event]:
    model = f"engine: {result.provenance.model} on {result.provenance.gpu}"
    for pid, name in ((ENGINE, model), (REQUESTS, "requests")):
        yield {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": name}}
    for tid, name in ((0, "steps, even"), (1, "steps, odd")):
        yield {"name": "thread_name", "ph": "M", "pid": ENGINE, "tid": tid, "args": {"name": name}}


def _steps(result: Result) -> Iterator[Event]:
    table = result.steps
    for step, row in enumerate(table.to_dict("records")):
        prefill = row["tokens"] - row["decode_reqs"]
        name = "decode" if prefill <= 0 else "prefill" if not row["decode_reqs"] else "prefill + decode"
        end_s = row["emit_s"] if row["emit_s"] == row["emit_s"] else row["plan_s"]
        yield _slice(
            name, ENGINE, step % 2, row["plan_s"], end_s,
            step=step, tokens=row["tokens"], prefill_tokens=prefill, decode_reqs=row["decode_reqs"],
            running=row["running"], waiting=row["waiting"], preempted=row["preempted"],
            graph=MODES[row["mode"]], gpu_ms=round(1e3 * row["gpu_s"], 4),
        )  # fmt: skip


def _counters(records: Records) -> Iterator[Event]:
    for name, state in (
        ("vllm:num_requests_running", running(records)),
        ("vllm:num_requests_waiting", waiting(records)),
        ("vllm:kv_cache_usage_perc", usage(records)),
    ):
        last = None
        for at_s, value in zip(state.times_s.tolist(), state.values.tolist(), strict=True):
            if value != last:
                yield {"name": name, "ph": "C", "pid": ENGINE, "tid": 0, "ts": _micro(at_s), "args": {"value": value}}
                last = value


def _requests(result: Result) -> Iterator[Event]:
    """Yield the slices of every request that was sent and answered, packed into rows that never overlap."""
    records = result.records
    sent, queued, scheduled, first, last = (
        np.asarray(getattr(records, name), dtype=np.float64)
        for name in ("sent_s", "engine_arrival_s", "first_scheduled_s", "first_token_s", "last_token_s")
    )
    whole = np.flatnonzero(~np.isnan(first) & ~np.isnan(last))
    pauses = _pauses(records)
    busy: list[tuple[float, int]] = []  # (end, row)
    free: list[int] = []
    rows = 0
    for request in whole[np.argsort(sent[whole], kind="stable")].tolist():
        while busy and busy[0][0] <= sent[request]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            tid = heapq.heappop(free)
        else:
            tid, rows = rows, rows + 1
        heapq.heappush(busy, (float(last[request]), tid))
        about = {
            "request": request, "prompt_tokens": records.prompt_tokens[request],
            "output_tokens": records.output_tokens[request], "cached_tokens": records.cached_tokens[request],
            "preemptions": records.preemptions[request],
            "ttft_ms": round(1e3 * float(first[request] - sent[request]), 3),
        }  # fmt: skip
        yield _slice(f"request {request}", REQUESTS, tid, sent[request], last[request], **about)
        edges = (("front end", sent, queued), ("queue", queued, scheduled), ("prefill", scheduled, first))
        for name, start, end in edges:
            yield _slice(name, REQUESTS, tid, start[request], end[request], request=request)
        yield _slice("decode", REQUESTS, tid, first[request], last[request], request=request)
        for start_s, end_s in pauses.get(request, ()):
            yield _slice("no token", REQUESTS, tid, start_s, end_s, request=request)
    for tid in range(rows):
        yield {"name": "thread_name", "ph": "M", "pid": REQUESTS, "tid": tid, "args": {"name": f"in flight {tid + 1}"}}


def _pauses(records: Records) -> dict[int, list[tuple[float, float]]]:
    """Return when requests got no token although others did: between two runs (preempted, or left out of a step)."""
    request, first, steps = (
        np.asarray(column, dtype=np.int64)
        for column in (records.run_request, records.run_first_step, records.run_steps)
    )
    order = np.lexsort((first, request))
    deliver, begun = np.asarray(records.step_deliver_s), np.asarray(records.first_token_s)
    found: dict[int, list[tuple[float, float]]] = {}
    for before, after in zip(order[:-1].tolist(), order[1:].tolist(), strict=True):
        row = int(request[before])
        if row == request[after]:
            start_s = max(float(deliver[first[before] + steps[before] - 1]), float(begun[row]))
            found.setdefault(row, []).append((start_s, max(float(deliver[first[after]]), start_s)))
    return found
