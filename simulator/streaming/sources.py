"""The requests of a workload piece by piece: the same ones as `simulator.workload.traffic`, never all at once.

Generated loads without thinking or changes of rate are drawn in pieces (a generator draws on where it stopped).  Lists
and traces are read as a whole and handed out in pieces: 64 bytes a request.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simulator import lengths
from simulator.errors import InputError, UnsupportedError
from simulator.request_table import Floats, RequestTable
from simulator.workload import ConcurrencyWorkload, RateWorkload, Workload, traffic

#: Requests in a piece.
PIECE = 1 << 14


@dataclass(frozen=True)
class Source:
    """Pieces of a table in order of sending; *num_requests* in all, *max_concurrency* of them in flight."""

    num_requests: int
    max_concurrency: int | None
    tables: Iterator[RequestTable]
    notes: tuple[str, ...] = ()


def source(workload: Workload, seed: int, max_context: int | None = None) -> Source:
    """Return what *workload* sends; errors as those of `simulator.workload.traffic`."""
    if isinstance(workload, RateWorkload) and workload.rate_shape is None and seed >= 0:
        return Source(workload.num_prompts, workload.max_concurrency, _drawn(workload, seed))
    if isinstance(workload, ConcurrencyWorkload) and workload.think_time_s == 0 and seed >= 0:
        return Source(workload.num_prompts, workload.concurrency, _drawn(workload, seed))
    sent = traffic(workload, seed, max_context)
    if sent.user_start_s is not None or sent.table.has_waits:
        raise UnsupportedError("streaming covers no think times and no chats yet; leave --stream out")
    return Source(len(sent.table), sent.max_concurrency, _pieces(sent.table), sent.notes)


def _pieces(table: RequestTable) -> Iterator[RequestTable]:
    for start in range(0, len(table), PIECE):
        yield table.take(np.arange(start, min(start + PIECE, len(table))))


def _drawn(workload: RateWorkload | ConcurrencyWorkload, seed: int) -> Iterator[RequestTable]:
    arrivals, prompts, outputs, _thoughts = np.random.SeedSequence(seed).spawn(4)
    prompt_rng, output_rng = np.random.default_rng(prompts), np.random.default_rng(outputs)
    prompt, output = lengths.parse(workload.prompt_tokens), lengths.parse(workload.output_tokens)
    n = workload.num_prompts
    times = (
        _arrivals(n, workload.rate, workload.burstiness, arrivals)
        if isinstance(workload, RateWorkload)
        else (np.zeros(size) for size in _sizes(n))
    )
    for size, arrival_s in zip(_sizes(n), times, strict=True):
        yield RequestTable.build(
            prompt_tokens=prompt.sample(size, prompt_rng),
            output_tokens=output.sample(size, output_rng),
            arrival_s=arrival_s,
        )


def _sizes(n: int) -> list[int]:
    return [min(PIECE, n - start) for start in range(0, n, PIECE)]


def _arrivals(n: int, rate: float, burstiness: float, seed: np.random.SeedSequence) -> Iterator[Floats]:
    """Yield the send times of `simulator.rates.arrival_times`; drawn twice, for they are scaled by the last one."""
    if math.isinf(rate):
        yield from (np.zeros(size) for size in _sizes(n))
    elif math.isinf(burstiness):
        yield from (np.arange(start + 1, min(start + PIECE, n) + 1) / rate for start in range(0, n, PIECE))
    else:
        last = 0.0
        for times in _sums(n, rate, burstiness, seed):
            last = float(times[-1])
        if not 0 < last < math.inf:
            raise InputError(
                f"burstiness {burstiness} at rate {rate} leaves no time between requests; give a larger one"
            )
        yield from (times / last * (n / rate) for times in _sums(n, rate, burstiness, seed))


def _sums(n: int, rate: float, burstiness: float, seed: np.random.SeedSequence) -> Iterator[Floats]:
    rng, last = np.random.default_rng(seed), 0.0
    for size in _sizes(n):
        gaps = rng.gamma(shape=burstiness, scale=1 / (rate * burstiness), size=size)
        times = np.cumsum(np.concatenate(([last], gaps)))[1:]
        last = float(times[-1])
        yield times
