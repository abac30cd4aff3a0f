"""Who asks for what, when: kinds of workload, frozen and with a JSON round trip.  All of them become one table of
requests with planned send times, and a limit of requests in flight.

    rate          open loop: gamma arrivals as `vllm bench serve --request-rate R --burstiness B` sends them
    concurrency   closed loop: N clients, each sends its next request when the last response is complete
    sessions, mix chats of several turns, and mixes of classes of them (`simulator.mixes`)
    requests      a list of your own: a CSV file (`simulator.request_list`) or rows
    trace         a shipped trace (`simulator.traces`); it and lists optionally faster or slower

Send times, and rates that change over time: `simulator.rates`.  ``max_concurrency`` is the bench's semaphore: a request
whose time has come waits in the client, and its timings start after that wait.

Think time: a client waits so long, from the complete response to its request, until it sends the next one; it counts
in no latency.  Each of the N users of a closed loop with think time begins in the middle of one (what is left of it at
a random instant), so that they do not come all at once.

Seeds: arrivals, prompt and output lengths and think times have a random stream each, so that changing one leaves the
others alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from simulator import durations, lengths, mixes, rates, request_list, traces
from simulator.errors import InputError
from simulator.mixes import MixWorkload, SessionsWorkload
from simulator.request_list import Row
from simulator.request_table import RequestTable
from simulator.request_table import Traffic as Traffic  # what `traffic` returns
from simulator.workload_parts import Count, Described, Duration, Length, Positive, RateShape


class _Base(Described):
    #: Requests in flight at most; None for no limit.
    max_concurrency: int | None = Field(default=None, ge=1)


class _Generated(_Base):
    """Lengths drawn at random; specs as in `simulator.lengths`."""

    num_prompts: Count = 1000
    prompt_tokens: Length = "512"
    output_tokens: Length = "128"


class RateWorkload(_Generated):
    """Open loop at *rate* requests/s, times the factor of *rate_shape* (`simulator.rates`)."""

    kind: Literal["rate"] = "rate"
    rate: Positive
    burstiness: Positive = 1.0
    rate_shape: RateShape | None = None


class ConcurrencyWorkload(_Generated):
    """Closed loop of *concurrency* users, each of whom thinks between a response and the next request.

    *think_time_s* is a number of seconds, or a distribution as in `simulator.durations`.
    """

    kind: Literal["concurrency"] = "concurrency"
    concurrency: int = Field(ge=1)
    think_time_s: Duration = 0.0
    max_concurrency: None = None


class RequestsWorkload(_Base):
    """A list of requests, from the file at *path* or given as *rows*; *limit* keeps the first ones.

    *rate_scale* 2 sends them twice as fast.  Closed loop if no row has an arrival; *max_concurrency* then is the number
    of clients.
    """

    kind: Literal["requests"] = "requests"
    path: str | None = None
    rows: tuple[Row, ...] | None = None
    rate_scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    limit: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _one_source(self) -> RequestsWorkload:
        if (self.path is None) == (self.rows is None):
            raise InputError("workload: requests come from a path or from rows; give exactly one of them")
        return self


class TraceWorkload(_Base):
    """A shipped trace; *rate_scale* 2 sends it twice as fast, *limit* keeps its first requests."""

    kind: Literal["trace"] = "trace"
    name: str
    rate_scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    limit: int | None = Field(default=None, ge=1)

    @field_validator("name")
    @classmethod
    def _known(cls, value: str) -> str:
        return traces.checked_name(value)


Workload = Annotated[
    RateWorkload | ConcurrencyWorkload | SessionsWorkload | MixWorkload | RequestsWorkload | TraceWorkload,
    Field(discriminator="kind"),
]


def traffic(workload: Workload, seed: int, max_context: int | None = None) -> Traffic:
    """Return what *workload* sends; the same *seed* (at least 0) gives the same requests.

    The history of chats is cut to *max_context* tokens (a server's max_model_len), if given.

    Raises `InputError` for files that cannot be read, and for missing arrivals without a limit of concurrency.
    """
    if isinstance(workload, RequestsWorkload):
        return _listed(workload)
    if isinstance(workload, TraceWorkload):
        found = traces.load(workload.name, limit=workload.limit)
        return Traffic(_at_speed(found, workload.rate_scale), workload.max_concurrency)
    if seed < 0:
        raise InputError(f"seed must not be negative, got {seed}")
    if isinstance(workload, (SessionsWorkload, MixWorkload)):
        return mixes.traffic(workload, seed, max_context)
    return _generated(workload, seed)


def _generated(workload: RateWorkload | ConcurrencyWorkload, seed: int) -> Traffic:
    arrivals, prompts, outputs, thoughts = (
        np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(4)
    )
    n = workload.num_prompts
    notes: tuple[str, ...] = ()
    arrival_s = think_s = user_start_s = None
    if isinstance(workload, ConcurrencyWorkload):
        limit: int | None = workload.concurrency
        thinking = durations.parse(str(workload.think_time_s))
        if thinking.mean_s > 0:
            user_start_s, think_s = thinking.residual(workload.concurrency, arrivals), thinking.sample(n, thoughts)
            notes = durations.in_step(think_s, workload.concurrency)
    else:
        shape = None if workload.rate_shape is None else rates.parse_shape(workload.rate_shape)
        arrival_s = rates.checked_sent(rates.arrival_times(n, workload.rate, workload.burstiness, arrivals, shape), n)
        limit, notes = workload.max_concurrency, rates.remarks(shape, arrival_s)
    requests = RequestTable.build(
        prompt_tokens=lengths.parse(workload.prompt_tokens).sample(n, prompts),
        output_tokens=lengths.parse(workload.output_tokens).sample(n, outputs),
        arrival_s=arrival_s,
        think_s=think_s,
    )
    return Traffic(requests, limit, notes, user_start_s)


def table(workload: Workload, seed: int) -> RequestTable:
    """Return the requests of *workload* in order of sending; see `traffic`."""
    return traffic(workload, seed).table


def _listed(workload: RequestsWorkload) -> Traffic:
    name = workload.path or "rows"
    found = request_list.read(name) if workload.rows is None else request_list.from_rows(workload.rows, name)
    notes = found.notes
    requests = (
        found.table if workload.limit is None else found.table.take(np.arange(len(found.table))[: workload.limit])
    )
    if workload.max_concurrency is None and not found.has_arrivals:
        raise InputError(f"{name}: no request has an arrival_s; add the times, or give --concurrency for a closed loop")
    if workload.max_concurrency is None and len(requests) > 1 and not requests.arrival_s.any():
        notes = (*notes, f"{name}: every arrival_s is 0, so all requests are sent at once (no --concurrency was given)")
    return Traffic(_at_speed(requests, workload.rate_scale), workload.max_concurrency, notes)


def _at_speed(found: RequestTable, rate_scale: float) -> RequestTable:
    return found if rate_scale == 1 else replace(found, arrival_s=found.arrival_s / rate_scale)
