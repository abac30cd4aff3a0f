"""A scenario of any length in bounded memory: `stream` is `simulator.simulate.simulate` without tables.

Memory grows with what is in flight (and, for lists and traces, with their 64 bytes a request), not with requests, steps
or tokens.  Counts, means, standard deviations, extremes and the engine's totals are those of `simulate`; percentiles
are wrong by at most 0.1 % (`simulator.streaming.sketch`), or exact if asked, by way of a temporary file
(`simulator.streaming.spilled`: 16 bytes a step and 48 a request).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator import footing
from simulator.compiled import keeping
from simulator.compiled.jit import is_available
from simulator.errors import InputError, UnsupportedError
from simulator.memory_terms import is_v0
from simulator.prepared import Prepared, prepare
from simulator.profile import Profile
from simulator.request_table import RequestTable
from simulator.result import SCHEMA_VERSION, UNITS, Provenance, plain
from simulator.scenario import Scenario
from simulator.streaming.sketch import RELATIVE_ERROR
from simulator.streaming.sources import Source, source
from simulator.streaming.tally import Tally
from simulator.traces import apply_over_length


@dataclass(frozen=True, eq=False)
class StreamedResult:
    """The summary of a run whose facts were not kept; *percentile_error* is the largest share a percentile is off."""

    scenario: Scenario
    numbers: Mapping[str, Any]
    provenance: Provenance
    memory: Mapping[str, Any]
    warnings: tuple[str, ...]
    dropped: int
    percentile_error: float

    def summary(self) -> dict[str, Any]:
        """Return what `simulator.result.Result.summary` returns, and the error of the percentiles."""
        found: dict[str, Any] = plain(
            {
                "schema_version": SCHEMA_VERSION,
                **self.numbers,
                "dropped": self.dropped,
                "percentile_error": self.percentile_error,
                "memory": self.memory,
                "intervals": None,
                "units": UNITS,
                "provenance": self.provenance.model_dump(),
                "warnings": list(dict.fromkeys(self.warnings)),
            }
        )
        return found

    def to_json(self, indent: int | None = 2) -> str:
        """Return the summary as JSON text."""
        return json.dumps(self.summary(), indent=indent, allow_nan=False, ensure_ascii=False)


def stream(
    scenario: Scenario,
    *,
    exact: bool = False,
    timed_by: Profile | None = None,
    progress: Callable[[int, int], None] = lambda _ended, _all: None,
) -> StreamedResult:
    """Return the summary of *scenario*; *progress* is told how many requests of all have ended, now and then.

    Raises what `simulate` raises, and `UnsupportedError` for what the compiled loop does not cover (module text of
    `simulator.fastest`) and without numba.
    """
    ready = prepare(scenario, timed_by)
    sent = source(scenario.workload, scenario.seed, ready.engine.max_model_len)
    _refuse_others(ready, sent)
    keeping.prepare()
    from simulator.compiled.run import CompiledServer
    from simulator.engine_parts import block_pool

    server = CompiledServer(
        ready.engine,
        block_pool(ready.engine, ready.plan.num_gpu_blocks),
        ready.cost,
        seed=scenario.seed,
        num_requests=sent.num_requests,
        longest_tokens=ready.engine.max_model_len,
        max_concurrency=sent.max_concurrency,
    )
    tally, pieces = Tally(exact=exact), _Fitting(sent, ready.engine.max_model_len, scenario.over_length)
    for table, is_last in _with_last(pieces.tables()):
        server.load(table, is_last=is_last)
        server.run(tally.take)
        progress(sum(tally.by_status.values()), sent.num_requests)
    tally.take(server.unfinished())
    return _result(ready, sent, server.state.world, tally, pieces.dropped, exact)


def _refuse_others(ready: Prepared, sent: Source) -> None:
    from simulator.compiled.covered import can_hold

    scenario, engine = ready.scenario, ready.engine
    what = ""
    if not is_available():
        what = "runs without numba (pip install numba)"
    elif scenario.is_fleet:
        what = "fleets"
    elif is_v0(engine):
        what = "V0 engines"
    elif ready.host is not None:
        what = "KV offload"
    elif not can_hold(engine, ready.plan.num_gpu_blocks, sent.num_requests, engine.max_model_len):
        what = "engines of this size"
    if what:
        raise UnsupportedError(f"streaming does not cover {what} yet; leave it out to simulate in memory")


class _Fitting:
    """The pieces of a source without requests that are over length, and how many those were."""

    def __init__(self, sent: Source, max_model_len: int, policy: str) -> None:
        self._sent, self._max_model_len, self._policy = sent, max_model_len, policy
        self.dropped = 0

    def tables(self) -> Iterator[RequestTable]:
        """Yield the pieces; `InputError` for requests that are over length, unless they are to be dropped."""
        kept = 0
        for table in self._sent.tables:
            fits = np.flatnonzero(table.prompt_tokens + table.output_tokens <= self._max_model_len)
            if len(fits) < len(table) and self._policy == "fail":
                apply_over_length(table, self._max_model_len, "fail")
            self.dropped += len(table) - len(fits)
            kept += len(fits)
            if len(fits):
                yield table if len(fits) == len(table) else table.take(fits)
        if not kept:
            raise InputError(f"every request needs more than max_model_len {self._max_model_len}; raise it")


def _with_last(tables: Iterator[RequestTable]) -> Iterator[tuple[RequestTable, bool]]:
    before = next(tables)
    for table in tables:
        yield before, False
        before = table
    yield before, True


def _result(ready: Prepared, sent: Source, world: Any, tally: Tally, dropped: int, exact: bool) -> StreamedResult:
    left = ready.cost.leaving_hull(int(world.most_tokens), int(world.most_decodes), int(world.longest_context))
    numbers = tally.numbers(world, sent.num_requests - dropped)
    warnings = [
        *ready.scenario.notes,
        *sent.notes,
        *ready.unmeasured,
        *footing.remarks(ready.scenario),
        *footing.outside(ready.profile, left),
    ]
    if failed := numbers["failed"]:
        warnings.append(f"{failed} requests were rejected or never finished; simulate without streaming to see which")
    return StreamedResult(
        scenario=ready.scenario,
        numbers=numbers,
        provenance=ready.provenance,
        memory=ready.memory,
        warnings=tuple(warnings),
        dropped=dropped,
        percentile_error=0.0 if exact else RELATIVE_ERROR,
    )
