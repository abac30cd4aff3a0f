"""What a dashboard would have shown: one row a second, under vLLM's metric names.  O(steps + runs + requests).

    time_s                          end of the interval, seconds from the start
    vllm:num_requests_running       gauge at the end of the interval: requests in the running list
    vllm:num_requests_waiting       gauge: requests that wait in the engine
    vllm:kv_cache_usage_perc        gauge, 0..1 (vLLM's name says percent): used share of the blocks
    vllm:num_preemptions            counter since the start (exported as ``..._total``)
    vllm:prompt_tokens              counter: prompt tokens of requests whose first token came (cached ones included)
    vllm:generation_tokens          counter: tokens generated
    vllm:request_success            counter: requests that ended well
    vllm:num_requests_swapped       V0 only: gauge, requests whose KV lies on the CPU
    vllm:cpu_cache_usage_perc       V0 only: gauge, 0..1, used share of the swap space
    swapped_in_blocks, swapped_out_blocks   V0 only: counters of the blocks copied
    stored_blocks, loaded_blocks    KV offload only: counters of the blocks ordered to be copied
    prompt_tokens_per_s, generation_tokens_per_s   increase of the counters per second, as in vLLM's log line

All by the engine's clock.  The last interval is as long as the others, although the run may end inside it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simulator.engine_state import cpu_usage, running, swapped, usage, waiting
from simulator.errors import InputError
from simulator.records import Records, Status
from simulator.swap_records import SwapRecords

Floats = NDArray[np.float64]

#: More rows than this help nobody and would fill the memory.
MAX_ROWS = 1_000_000


def timeline(records: Records, interval_s: float = 1.0) -> dict[str, Floats]:
    """Return the columns of the module text; `InputError` for an interval that is not positive or far too short."""
    if not 0 < interval_s < math.inf:
        raise InputError(f"the interval of a timeline must be a positive number of seconds, got {interval_s}")
    length_s = records.end_s - records.start_s
    if length_s / interval_s > MAX_ROWS:
        raise InputError(
            f"an interval of {interval_s} s cuts {length_s:.0f} s into more than {MAX_ROWS:,} rows: "
            "the requests are spread over too long a time"
        )
    rows = max(1, math.ceil(length_s / interval_s - 1e-9))
    ends: Floats = records.start_s + interval_s * np.arange(1, rows + 1, dtype=np.float64)
    emit = np.asarray(records.step_emit_s, dtype=np.float64)
    tokens, prompts = _tokens_of_steps(records)
    finished = np.asarray(records.status, dtype=np.uint8) == Status.FINISHED
    last_step = _last_step(records)[finished]
    plan = np.asarray(records.step_plan_s, dtype=np.float64)
    columns = {
        "time_s": ends,
        "vllm:num_requests_running": running(records).at(ends),
        "vllm:num_requests_waiting": waiting(records).at(ends),
        "vllm:kv_cache_usage_perc": usage(records).at(ends),
        "vllm:num_preemptions": _counter(plan, np.asarray(records.step_preempted, dtype=np.float64), ends),
        "vllm:prompt_tokens": _counter(emit, prompts[: len(emit)], ends),
        "vllm:generation_tokens": _counter(emit, tokens[: len(emit)], ends),
        "vllm:request_success": np.searchsorted(np.sort(emit[last_step]), ends, side="right").astype(np.float64),
    }
    if records.swap is not None:
        columns |= _swapping(records, records.swap, ends)
    if records.offload is not None:
        for name in ("stored_blocks", "loaded_blocks"):
            blocks = np.asarray(getattr(records.offload, f"step_{name}"), dtype=np.float64)
            columns[name] = _counter(plan, blocks, ends)
    for kind in ("prompt", "generation"):
        columns[f"{kind}_tokens_per_s"] = np.diff(columns[f"vllm:{kind}_tokens"], prepend=0.0) / interval_s
    return columns


def _swapping(records: Records, swap: SwapRecords, ends: Floats) -> dict[str, Floats]:
    """Return the columns that only V0 has."""
    plan = np.asarray(records.step_plan_s, dtype=np.float64)
    columns = {
        "vllm:num_requests_swapped": swapped(records, swap).at(ends),
        "vllm:cpu_cache_usage_perc": cpu_usage(records, swap).at(ends),
    }
    for name in ("swapped_in", "swapped_out"):
        blocks = np.asarray(getattr(swap, f"step_{name}"), dtype=np.float64)
        columns[f"{name}_blocks"] = _counter(plan, blocks, ends)
    return columns


def _counter(times_s: Floats, increments: Floats, at_s: Floats) -> Floats:
    """Return the sum of *increments* up to each of *at_s*."""
    total = np.concatenate(([0.0], np.cumsum(increments)))
    return np.asarray(total[np.searchsorted(times_s, at_s, side="right")])


def _tokens_of_steps(records: Records) -> tuple[Floats, Floats]:
    """Return per step the tokens it yielded, and the prompt tokens of requests whose first token it yielded."""
    request, first, steps = _runs(records)
    change = np.zeros(records.num_steps + 1)
    np.add.at(change, first, 1)
    np.add.at(change, first + steps, -1)
    begin = np.full(records.num_requests, records.num_steps, dtype=np.int64)
    np.minimum.at(begin, request, first)
    prompts = np.zeros(records.num_steps + 1)
    np.add.at(prompts, begin, np.asarray(records.prompt_tokens, dtype=np.float64))
    return np.cumsum(change)[:-1], prompts[:-1]


def _last_step(records: Records) -> NDArray[np.int64]:
    request, first, steps = _runs(records)
    last = np.zeros(records.num_requests, dtype=np.int64)
    np.maximum.at(last, request, first + steps - 1)
    return last


def _runs(records: Records) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    return (
        np.asarray(records.run_request, dtype=np.int64),
        np.asarray(records.run_first_step, dtype=np.int64),
        np.asarray(records.run_steps, dtype=np.int64),
    )
