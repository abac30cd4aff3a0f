"""Who asks for what, when: four kinds of workload, frozen and with a JSON round trip.  All of them become one table of
requests with planned send times, and a limit of requests in flight.

    rate          open loop: gamma arrivals as `vllm bench serve --request-rate R --burstiness B` sends them
    concurrency   closed loop: N clients, each sends its next request when the last response is complete
    requests      a list of your own: a CSV file (`simulator.request_list`) or rows
    trace         a shipped trace (`simulator.traces`); it and lists optionally faster or slower

Arrivals (vLLM 0.24): gaps ~ Gamma(shape B, scale 1 / (R B)), the first request waits one gap too, and all send times
are scaled so that the last one is N / R.  R = inf sends everything at once, B = inf at even gaps.  ``max_concurrency``
is the bench's semaphore: a request whose time has come waits in the client, and its timings start after that wait.

Think time: a client waits so long, from the complete response to its request, until it sends the next one; it counts
in no latency.  Each of the N users of a closed loop with think time begins in the middle of one (what is left of it at
a random instant), so that they do not come all at once.

Seeds: arrivals, prompt and output lengths and think times have a random stream each, so that changing one leaves the
others alone.  Not modelled: ramps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, ValidationError, field_validator, model_validator

from simulator import durations, lengths, request_list, traces
from simulator.errors import InputError, input_error
from simulator.request_list import Row
from simulator.request_table import Floats, RequestTable


def _number_or_inf(value: float) -> float | str:
    return "inf" if math.isinf(value) else value


#: A positive number, infinity included; JSON has no infinity, so it is written "inf" there, as vLLM's bench does.
Positive = Annotated[float, Field(gt=0), PlainSerializer(_number_or_inf, when_used="json")]


def _length_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class _Base(BaseModel):
    """Frozen; bad values raise an `InputError` of one line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise input_error(error, "workload") from None

    #: Requests in flight at most; None for no limit.
    max_concurrency: int | None = Field(default=None, ge=1)


class _Generated(_Base):
    """Lengths drawn at random; specs as in `simulator.lengths`."""

    num_prompts: int = Field(default=1000, ge=1, le=10_000_000)
    prompt_tokens: str = "512"
    output_tokens: str = "128"

    @field_validator("prompt_tokens", "output_tokens", mode="before")
    @classmethod
    def _lengths(cls, value: Any) -> Any:
        text = _length_text(value)
        if isinstance(text, str):
            lengths.parse(text)
        return text


class RateWorkload(_Generated):
    """Open loop at *rate* requests/s."""

    kind: Literal["rate"] = "rate"
    rate: Positive
    burstiness: Positive = 1.0


class ConcurrencyWorkload(_Generated):
    """Closed loop of *concurrency* users, each of whom thinks between a response and the next request.

    *think_time_s* is a number of seconds, or a distribution as in `simulator.durations`.
    """

    kind: Literal["concurrency"] = "concurrency"
    concurrency: int = Field(ge=1)
    think_time_s: float | str = 0.0
    max_concurrency: None = None

    @field_validator("think_time_s")
    @classmethod
    def _known_time(cls, value: float | str) -> float | str:
        durations.parse(str(value))
        return value


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


Workload = Annotated[RateWorkload | ConcurrencyWorkload | RequestsWorkload | TraceWorkload, Field(discriminator="kind")]


@dataclass(frozen=True, eq=False)
class Traffic:
    """A workload made concrete: the requests, how many may be in flight (None: any number), what to tell the user.

    *user_start_s* says when each of ``max_concurrency`` users of a closed loop begins; None: all at 0.
    """

    table: RequestTable
    max_concurrency: int | None
    notes: tuple[str, ...] = ()
    user_start_s: Floats | None = None


def traffic(workload: Workload, seed: int) -> Traffic:
    """Return what *workload* sends; the same *seed* (at least 0) gives the same requests.

    Raises `InputError` for files that cannot be read, and for missing arrivals without a limit of concurrency.
    """
    if isinstance(workload, RequestsWorkload):
        return _listed(workload)
    if isinstance(workload, TraceWorkload):
        found = traces.load(workload.name, limit=workload.limit)
        return Traffic(_at_speed(found, workload.rate_scale), workload.max_concurrency)
    if seed < 0:
        raise InputError(f"seed must not be negative, got {seed}")
    arrivals, prompts, outputs, thoughts = (
        np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(4)
    )
    n = workload.num_prompts
    arrival_s = think_s = user_start_s = None
    if isinstance(workload, ConcurrencyWorkload):
        limit: int | None = workload.concurrency
        thinking = durations.parse(str(workload.think_time_s))
        if thinking.mean_s > 0:
            user_start_s, think_s = thinking.residual(workload.concurrency, arrivals), thinking.sample(n, thoughts)
    else:
        arrival_s, limit = arrival_times(n, workload.rate, workload.burstiness, arrivals), workload.max_concurrency
    requests = RequestTable.build(
        prompt_tokens=lengths.parse(workload.prompt_tokens).sample(n, prompts),
        output_tokens=lengths.parse(workload.output_tokens).sample(n, outputs),
        arrival_s=arrival_s,
        think_s=think_s,
    )
    return Traffic(requests, limit, user_start_s=user_start_s)


def table(workload: Workload, seed: int) -> RequestTable:
    """Return the requests of *workload* in order of sending; see `traffic`."""
    return traffic(workload, seed).table


def arrival_times(n: int, rate: float, burstiness: float, rng: np.random.Generator) -> Floats:
    """Return *n* send times in seconds, as `vllm bench serve` makes them (module text)."""
    if math.isinf(rate):
        return np.zeros(n)
    if math.isinf(burstiness):
        return np.arange(1, n + 1) / rate
    times = np.cumsum(rng.gamma(shape=burstiness, scale=1 / (rate * burstiness), size=n))
    if not 0 < times[-1] < math.inf:
        raise InputError(f"burstiness {burstiness} at rate {rate} leaves no time between requests; give a larger one")
    return np.asarray(times / times[-1] * (n / rate))


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
    if rate_scale == 1:
        return found
    return RequestTable.build(
        arrival_s=found.arrival_s / rate_scale,
        prompt_tokens=found.prompt_tokens,
        output_tokens=found.output_tokens,
        segments=(found.segment_start, found.segment_id, found.segment_end),
        priority=found.priority,
        session_id=found.session_id,
    )
