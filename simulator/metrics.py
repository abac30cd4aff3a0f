"""All metrics, each defined once, as `vllm bench serve` (0.24) defines them.  Records in, numbers out.

Of a completed request, at the client, in seconds from sending it (`sent_s`):

    ttft    time of the first token
    e2el    time of the last token
    tpot    (e2el - ttft) / (output_tokens - 1); of no value for one token
    itl     gaps between successive messages, one message a token here; pooled over all requests, so that long
            requests weigh more than in tpot

Aggregates: mean, median, std (population), percentiles (numpy, linear) over completed requests;
duration = from before the first request is sent to the last response; request_throughput = completed / duration;
output_throughput = output tokens / duration; total_token_throughput = (prompt + output tokens) / duration;
goodput = completed requests that keep every given limit (<=; tpot of one token counts 0) / duration.

Pooled ITL is exact without a value per token: the gap between step j and j + 1 counts as often as requests got a token
in both.  Only gaps that touch a first token or a pause are kept one by one.  Memory: steps + runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.engine_state import cpu_usage, usage
from simulator.offload_records import OffloadRecords
from simulator.records import Records, Status
from simulator.swap_records import SwapRecords

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PERCENTILES = (50, 90, 95, 99)
LATENCIES = ("ttft", "tpot", "itl", "e2el")


class Distribution(Protocol):
    """What the aggregates need to know about the values of one latency, in seconds."""

    def mean(self) -> float:
        """Return the mean; nan if empty."""

    def std(self) -> float:
        """Return the population standard deviation; nan if empty."""

    def percentiles(self, percents: tuple[float, ...]) -> list[float]:
        """Return the percentiles; nan if empty."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Values with how often each occurs; stands for the expanded list."""

    values: Floats
    counts: NDArray[np.integer[Any]]

    @classmethod
    def of(cls, values: ArrayLike) -> Sample:
        """Return the sample in which each of *values* occurs once; NaN (no value) is left out."""
        array = np.asarray(values, dtype=np.float64)
        array = array[~np.isnan(array)]
        return cls(array, np.ones(len(array), dtype=np.int64))

    def __len__(self) -> int:
        return int(self.counts.sum())

    def expanded(self) -> Floats:
        """Return the list it stands for, in no particular order."""
        return np.repeat(self.values, self.counts)

    def mean(self) -> float:
        """Return the mean; nan if empty."""
        return float(np.dot(self.values, self.counts) / len(self)) if len(self) else math.nan

    def std(self) -> float:
        """Return the population standard deviation; nan if empty."""
        if not len(self):
            return math.nan
        apart = self.values - self.mean()
        return math.sqrt(float(np.dot(np.square(apart, out=apart), self.counts)) / len(self))

    def percentiles(self, percents: tuple[float, ...]) -> list[float]:
        """Return what ``numpy.percentile(expanded, percents)`` (linear) returns, to the last bit; nan if empty."""
        if not len(self):
            return [math.nan] * len(percents)
        order = np.argsort(self.values)
        last = np.cumsum(self.counts[order], dtype=np.int64)
        at = (len(self) - 1) * np.true_divide(percents, 100)
        below = np.floor(at)
        low = self.values[order[np.searchsorted(last, below, side="right")]]
        high = self.values[order[np.searchsorted(last, np.minimum(below + 1, len(self) - 1), side="right")]]
        share = at - below
        # The two forms are numpy's: each is exact at its own end.
        mixed = np.where(share >= 0.5, high - (high - low) * (1 - share), low + (high - low) * share)
        return [float(value) for value in mixed]


@dataclass(frozen=True, eq=False)
class Latencies:
    """What clients saw: one row per completed request, and the pooled gaps.  Seconds and tokens."""

    ttft_s: Floats
    e2el_s: Floats
    itl_s: Sample
    prompt_tokens: Ints
    output_tokens: Ints
    duration_s: float

    @property
    def tpot_s(self) -> Floats:
        """Time per output token after the first, per request; nan for one token."""
        return tpot_s(self.ttft_s, self.e2el_s, self.output_tokens)


def tpot_s(ttft: Floats, e2el: Floats, output_tokens: Ints) -> Floats:
    """(e2el - ttft) / (output_tokens - 1) per request, in seconds; nan for one token."""
    gaps = np.where(output_tokens > 1, output_tokens - 1, 1)
    return np.asarray(np.where(output_tokens > 1, (e2el - ttft) / gaps, np.nan))


def latencies(records: Records) -> Latencies:
    """Return what the clients of a simulation saw."""
    done = _status(records) == Status.FINISHED
    sent = np.asarray(records.sent_s)[done]
    return Latencies(
        ttft_s=np.asarray(records.first_token_s)[done] - sent,
        e2el_s=np.asarray(records.last_token_s)[done] - sent,
        itl_s=itl_sample(records),
        prompt_tokens=np.asarray(records.prompt_tokens)[done],
        output_tokens=np.asarray(records.output_tokens)[done],
        duration_s=records.end_s - records.start_s,
    )


def _status(records: Records) -> NDArray[np.uint8]:
    return np.asarray(records.status, dtype=np.uint8)


def itl_sample(records: Records) -> Sample:
    """Return the gaps between successive tokens of every completed request, in seconds, exact (module text)."""
    if records.parts:
        return pooled([_itl_sample(part, _status(records)[rows]) for rows, part in records.parts])
    return _itl_sample(records, _status(records))


def pooled(samples: Sequence[Sample]) -> Sample:
    """Return all *samples* as one."""
    values = np.concatenate([sample.values for sample in samples])
    return Sample(values, np.concatenate([sample.counts for sample in samples]))


def _itl_sample(records: Records, status: NDArray[np.uint8]) -> Sample:
    request, first, steps = (np.asarray(c) for c in _runs(records))
    kept = status[request] == Status.FINISHED
    request, first, steps = request[kept], first[kept], steps[kept]
    order = np.lexsort((first, request))
    request, first, steps = request[order], first[order], steps[order]
    end = first + steps  # the step after the run's last
    deliver = np.asarray(records.step_deliver_s, dtype=np.float64)
    opens = np.diff(request, prepend=-1) != 0  # the first run of its request

    # No token overtakes the first one: those of steps before `ahead` arrive together with it.
    begin = np.asarray(records.first_token_s)[request]
    ahead = np.clip(np.searchsorted(deliver, begin, side="left"), first + opens, end)
    together = int((ahead - first - opens).sum())

    # Gaps between two later tokens: step j to j + 1 for j from ahead to end - 2.
    inner = end - 1 > ahead
    counts = np.zeros(len(deliver) + 1, dtype=np.int32)
    np.add.at(counts, ahead[inner], 1)
    np.add.at(counts, end[inner] - 1, -1)
    counts = np.cumsum(counts, out=counts)[: max(0, len(deliver) - 1)]

    leave = (first < ahead) & (ahead < end)  # from the first token's time to the next one
    from_first = deliver[ahead[leave]] - begin[leave]
    latest = np.where(ahead == end, begin, deliver[end - 1]) if len(end) else begin
    resumed = ~opens[1:] & (ahead == first)[1:]
    pauses = (deliver[first[1:]] - latest[:-1])[resumed]

    singles = np.concatenate((from_first, pauses, [0.0] if together else []))
    single_counts = np.ones(len(singles), dtype=np.int32)
    if together:
        single_counts[-1] = together
    kept = counts > 0
    counts = np.concatenate((counts[kept], single_counts))
    gaps = np.diff(deliver)[kept]
    return Sample(np.concatenate((gaps, singles)), counts)


def _runs(records: Records) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
    return records.run_request, records.run_first_step, records.run_steps


def aggregate(seen: Latencies) -> dict[str, Any]:
    """Return the aggregates of the module text under the keys of the result: seconds only in the duration, else ms."""
    samples: dict[str, Distribution] = {"itl": seen.itl_s}
    samples |= {name: Sample.of(getattr(seen, f"{name}_s")) for name in LATENCIES if name != "itl"}
    tokens = int(seen.prompt_tokens.sum()), int(seen.output_tokens.sum())
    return aggregate_of(len(seen.ttft_s), *tokens, seen.duration_s, samples)


def aggregate_of(
    completed: int, prompt: int, output: int, duration: float, samples: Mapping[str, Distribution]
) -> dict[str, Any]:
    """Return the aggregates of *completed* requests with so many tokens; *samples* has one entry for each latency."""

    def per_second(count: float) -> float:
        return count / duration if duration > 0 else math.nan

    numbers: dict[str, Any] = {
        "completed": completed,
        "duration_s": duration,
        "total_input_tokens": prompt,
        "total_output_tokens": output,
        "request_throughput": per_second(completed),
        "output_throughput": per_second(output),
        "total_token_throughput": per_second(prompt + output),
    }
    for name in LATENCIES:
        numbers |= _described(name, samples[name])
    return numbers


def _described(name: str, sample: Distribution) -> dict[str, float]:
    percentiles = dict(zip(PERCENTILES, sample.percentiles(PERCENTILES), strict=True))
    numbers = {"mean": sample.mean(), "median": percentiles[50], "std": sample.std()}
    numbers |= {f"p{percent}": value for percent, value in percentiles.items()}
    return {f"{key}_{name}_ms": 1e3 * value for key, value in numbers.items()}


def goodput(seen: Latencies, limits_ms: Mapping[str, float]) -> float:
    """Return requests/s that keep every limit, e.g. ``{"ttft": 500, "tpot": 50}``; names of `LATENCIES` but itl."""
    good = np.ones(len(seen.ttft_s), dtype=bool)
    for name, limit in limits_ms.items():
        good &= np.nan_to_num(getattr(seen, f"{name}_s"), nan=0.0) * 1e3 <= limit
    return float(good.sum()) / seen.duration_s if seen.duration_s > 0 else math.nan


def engine_totals(records: Records) -> dict[str, Any]:
    """Return what the engine counted: preemptions, prefix hits (share of tokens looked up), KV use (0..1), steps.

    Of several replicas: sums, the highest KV use, and its mean over the time each was there.
    """
    if records.parts:
        return _totals_of_parts([part for _, part in records.parts])
    level = usage(records)
    queries = records.prefix_queries_tokens
    totals: dict[str, Any] = {
        "preemptions": int(np.sum(records.step_preempted, dtype=np.int64)),
        "recomputed_tokens": int(np.sum(records.recomputed_tokens, dtype=np.int64)),
        "prefix_cache_hit_rate": records.prefix_hits_tokens / queries if queries else 0.0,
        "kv_cache_usage_max": level.maximum(),
        "kv_cache_usage_mean": level.mean(records.start_s, records.end_s),
        "steps": records.num_steps,
    }
    if records.swap is not None:
        totals |= swap_totals(records, records.swap)
    if records.offload is not None:
        totals |= offload_totals(records, records.offload)
    return totals


def _totals_of_parts(parts: Sequence[Records]) -> dict[str, Any]:
    totals = [engine_totals(part) for part in parts]
    spans = [part.end_s - part.start_s for part in parts]
    queries = sum(part.prefix_queries_tokens for part in parts)
    used = sum(span * one["kv_cache_usage_mean"] for span, one in zip(spans, totals, strict=True))
    counts = ("preemptions", "recomputed_tokens", "steps")
    return {
        **{name: sum(one[name] for one in totals) for name in counts},
        "prefix_cache_hit_rate": sum(part.prefix_hits_tokens for part in parts) / queries if queries else 0.0,
        "kv_cache_usage_max": max(one["kv_cache_usage_max"] for one in totals),
        "kv_cache_usage_mean": used / sum(spans) if sum(spans) > 0 else 0.0,
    }


def offload_totals(records: Records, offload: OffloadRecords) -> dict[str, Any]:
    """Return what V1's KV offload did, and TTFT of completed requests that began with a load apart from the others."""
    done = _status(records) == Status.FINISHED
    loaded = np.asarray(offload.external_tokens)[done] > 0
    ttft_s = (np.asarray(records.first_token_s) - np.asarray(records.sent_s))[done]
    wait_s = (np.asarray(records.first_scheduled_s) - np.asarray(offload.load_start_s))[done][loaded]
    return {
        "external_prefix_cache_hit_rate": offload.hits_tokens / offload.queries_tokens
        if offload.queries_tokens
        else 0.0,
        "external_prefix_cache_hits_tokens": offload.hits_tokens,
        "stored_blocks": offload.stored_blocks,
        "loaded_blocks": offload.loaded_blocks,
        "skipped_stores": offload.skipped_stores,
        "flush_s": offload.flush_s,
        "requests_loaded": int(loaded.sum()),
        "mean_load_ms": 1e3 * float(wait_s.mean()) if len(wait_s) else math.nan,
        "mean_ttft_loaded_ms": 1e3 * float(ttft_s[loaded].mean()) if loaded.any() else math.nan,
        "mean_ttft_not_loaded_ms": 1e3 * float(ttft_s[~loaded].mean()) if (~loaded).any() else math.nan,
    }


def swap_totals(records: Records, swap: SwapRecords) -> dict[str, Any]:
    """Return what V0's swapping did: blocks copied each way, time the steps waited for them, use of the swap space."""
    level = cpu_usage(records, swap)
    return {
        "swapped_in_blocks": int(sum(swap.step_swapped_in)),
        "swapped_out_blocks": int(sum(swap.step_swapped_out)),
        "swap_s": float(sum(swap.step_swap_s)),
        "requests_swapped_max": int(max(swap.step_swapped, default=0)),
        "cpu_cache_usage_max": level.maximum(),
    }
