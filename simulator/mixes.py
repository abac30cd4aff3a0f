"""Chats that begin at a rate or belong to users, and mixes of classes of them.

A class has a name, lengths, turns and think times (`simulator.sessions.Chat`), a priority, and an SLO of its own.
Chats begin at a common rate, or one after the other for each of some users; *weight* is then the share of the chats
(not of the requests) that are of the class.  Or every class has a rate of its own, changing over time by itself.

``num_prompts`` counts requests: turns, over all classes.  ``max_concurrency`` counts chats in progress.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from simulator import durations, rates
from simulator.errors import InputError
from simulator.request_table import Floats, Ints, Traffic
from simulator.sessions import Chat, as_requests, draw
from simulator.workload_parts import Count, Described, Positive, RateShape

_NAME = re.compile(r"[\w.-]{1,40}")


class TrafficClass(Chat):
    """One class of a mix; *slo* is what must hold for it, as the command line writes it (``ttft_p99=500ms``)."""

    name: str
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    rate_shape: RateShape | None = None
    priority: int = 0
    slo: str | None = None

    @field_validator("name")
    @classmethod
    def _is_a_word(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise InputError(f"class name {value!r} must be a word of letters, digits, '.', '-' and '_'; rename it")
        return value


class _Begun(Described):
    """When chats begin: at *rate* chats/s, or one after the other for each of *users*."""

    rate: Positive | None = None
    users: int | None = Field(default=None, ge=1)
    burstiness: Positive = 1.0
    rate_shape: RateShape | None = None
    num_prompts: Count = 1000
    #: Chats in progress at most; None for no limit.
    max_concurrency: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _users_have_no_rate(self) -> _Begun:
        if self.rate is not None and self.users is not None:
            raise InputError("workload: chats begin at a rate or belong to users; give one of them")
        for name in ("max_concurrency", "rate_shape"):
            if self.users is not None and getattr(self, name) is not None:
                raise InputError(f"workload: {name} does not go with users; leave it out")
        return self


class SessionsWorkload(_Begun, Chat):
    """Chats of one kind: *turns* each, the whole history in every prompt."""

    kind: Literal["sessions"] = "sessions"

    @model_validator(mode="after")
    def _begins(self) -> SessionsWorkload:
        if self.rate is None and self.users is None:
            raise InputError("workload: sessions need a rate (chats/s) or users; give one of them")
        return self


class MixWorkload(_Begun):
    """Several classes at once."""

    kind: Literal["mix"] = "mix"
    classes: tuple[TrafficClass, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> MixWorkload:
        names = [one.name for one in self.classes]
        if len(set(names)) < len(names):
            raise InputError(f"workload: two classes of the mix are called alike ({', '.join(names)}); rename one")
        own = [one.name for one in self.classes if one.rate is not None]
        common = self.rate is not None or self.users is not None
        if common and own:
            raise InputError(
                f"workload: class {own[0]} has a rate of its own beside the common rate or users; keep one"
            )
        if not common and len(own) < len(names):
            missing = next(name for name in names if name not in own)
            raise InputError(
                f"workload: class {missing} has no rate; give every class one, or the mix a common rate or users"
            )
        if common and any(one.rate_shape for one in self.classes):
            raise InputError("workload: a class without a rate of its own has no rate_shape; give the mix one")
        return self


def traffic(workload: SessionsWorkload | MixWorkload, seed: int, max_context: int | None) -> Traffic:
    """Return what *workload* sends; histories are cut to *max_context* tokens (`simulator.sessions`)."""
    kinds = workload.classes if isinstance(workload, MixWorkload) else (workload,)
    arrivals, choices, *_ = seeds = np.random.SeedSequence(seed).spawn(4)
    rng, n = np.random.default_rng(arrivals), workload.num_prompts
    arrival_s: Floats | None = None
    notes: tuple[str, ...] = ()
    if isinstance(workload, MixWorkload) and workload.rate is None and workload.users is None:
        kind, arrival_s = _own_rates(workload, n, arrivals)
    else:
        kind = _chosen(kinds, n, np.random.default_rng(choices))
    chats = draw(kinds, kind, n, seeds[2])
    if workload.rate is not None:
        shape = None if workload.rate_shape is None else rates.parse_shape(workload.rate_shape)
        arrival_s = rates.arrival_times(len(chats), workload.rate, workload.burstiness, rng, shape)
    if arrival_s is not None:
        arrival_s = rates.checked_sent(arrival_s, len(chats))
    if workload.rate is not None and arrival_s is not None:
        notes = rates.remarks(shape, arrival_s)
    table = as_requests(
        chats,
        arrival_s=arrival_s,
        max_context=max_context,
        priority=[one.priority for one in kinds if isinstance(one, TrafficClass)],
        class_names=tuple(one.name for one in kinds if isinstance(one, TrafficClass)),
    )
    if workload.users is None:
        return Traffic(table, workload.max_concurrency, notes)
    starts = durations.residual(table.think_s, workload.users, rng) if table.think_s.any() else None
    return Traffic(table, workload.users, (*notes, *durations.in_step(table.think_s, workload.users)), starts)


def _chosen(kinds: tuple[Chat, ...], n: int, rng: np.random.Generator) -> Ints:
    """Return the kinds of *n* chats, by their weights."""
    weights = np.array([one.weight if isinstance(one, TrafficClass) else 1.0 for one in kinds])
    edges = np.cumsum(weights / weights.sum())[:-1]
    return np.searchsorted(edges, rng.random(n), side="right").astype(np.int64)


def _own_rates(workload: MixWorkload, n: int, seed: np.random.SeedSequence) -> tuple[Ints, Floats]:
    """Return the kinds and the times of the first *n* chats of classes that each have a rate."""
    times = []
    for one, part in zip(workload.classes, seed.spawn(len(workload.classes)), strict=True):
        assert one.rate is not None
        shape = None if one.rate_shape is None else rates.parse_shape(one.rate_shape)
        times.append(rates.arrival_times(n, one.rate, workload.burstiness, np.random.default_rng(part), shape))
    kind = np.repeat(np.arange(len(times)), n)
    merged = np.concatenate(times)
    order = np.argsort(merged, kind="stable")[:n]
    return kind[order], merged[order]
