"""The load that is turned up: requests/s, clients in a closed loop, or users who think; a scenario at any of them.

    rate          open loop; of a list or a trace its mean rate, reached by sending it faster or slower; of chats and
                  mixes how many begin a second (classes with rates of their own keep their proportions)
    concurrency   closed loop without think time
    users         closed loop with think time between an answer and the next request, or chats one after the other

Everything else of the load stays as it was: a seed gives the same lengths at every load, and the same pattern of
arrivals, stretched in time (common random numbers).
"""

from __future__ import annotations

import math
from typing import Literal

from simulator.errors import InputError
from simulator.mixes import MixWorkload, SessionsWorkload
from simulator.scenario import Scenario
from simulator.workload import ConcurrencyWorkload, RateWorkload, RequestsWorkload, TraceWorkload, table

Axis = Literal["rate", "concurrency", "users"]

UNITS: dict[Axis, str] = {"rate": "requests/s", "concurrency": "clients", "users": "users"}


def unit_of(scenario: Scenario, axis: Axis) -> str:
    """Return the unit of loads on *axis*."""
    chats = isinstance(scenario.workload, (SessionsWorkload, MixWorkload))
    return "chats/s" if axis == "rate" and chats else UNITS[axis]


def is_whole(axis: Axis) -> bool:
    """Whether loads on *axis* are whole numbers."""
    return axis != "rate"


def is_recorded(scenario: Scenario) -> bool:
    """Whether the requests are a list or a trace: finite, judged as a whole."""
    return isinstance(scenario.workload, (RequestsWorkload, TraceWorkload))


def axis_of(scenario: Scenario) -> Axis:
    """Return the axis on which the load of *scenario* lies."""
    workload = scenario.workload
    if isinstance(workload, ConcurrencyWorkload):
        return "users" if think_time_s(scenario) > 0 else "concurrency"
    if isinstance(workload, (SessionsWorkload, MixWorkload)):
        return "rate" if workload.users is None else "users"
    if isinstance(workload, RequestsWorkload) and not table(workload, scenario.seed).arrival_s.any():
        return "concurrency"
    return "rate"


def think_time_s(scenario: Scenario) -> float:
    """Return the mean think time between the requests of *scenario* in seconds; 0 without."""
    return float(table(scenario.workload, scenario.seed).think_s.mean())


def requests_per_arrival(scenario: Scenario) -> float:
    """Return how many requests follow from one that begins by itself: the turns of a chat, else 1."""
    follows = table(scenario.workload, scenario.seed).follows
    return len(follows) / max(1, int((follows < 0).sum()))


def saturating(scenario: Scenario) -> Scenario:
    """Return *scenario* without think times and without changes of the rate: what can be pushed to its limit."""
    workload, calm = scenario.workload, {"think_time_s": 0.0, "rate_shape": None}
    if isinstance(workload, MixWorkload):
        classes = tuple(one.model_copy(update=calm) for one in workload.classes)
        workload = workload.model_copy(update={"classes": classes, "rate_shape": None})
    else:
        known = {name: value for name, value in calm.items() if name in type(workload).model_fields}
        workload = workload.model_copy(update=known)
    return scenario.model_copy(update={"workload": workload})


def native_rate(scenario: Scenario) -> float:
    """Return the mean rate in requests/s of a list or a trace as it was recorded."""
    workload = scenario.workload.model_copy(update={"rate_scale": 1.0})
    arrival_s = table(workload, scenario.seed).arrival_s
    span = float(arrival_s[-1] - arrival_s[0])
    if span <= 0:
        raise InputError("these requests are all sent at once, so they have no rate; search over concurrency instead")
    return (len(arrival_s) - 1) / span


def load_of(scenario: Scenario) -> float:
    """Return the load that *scenario* has on its own axis (`axis_of`)."""
    workload = scenario.workload
    if isinstance(workload, RateWorkload):
        return float(workload.rate)
    if isinstance(workload, ConcurrencyWorkload):
        return float(workload.concurrency)
    if isinstance(workload, (SessionsWorkload, MixWorkload)):
        own = [one.rate or 0.0 for one in workload.classes] if isinstance(workload, MixWorkload) else []
        return float(workload.users or workload.rate or sum(own))
    if axis_of(scenario) == "concurrency":
        return float(workload.max_concurrency or 1)
    return native_rate(scenario) * workload.rate_scale


def at_load(scenario: Scenario, axis: Axis, load: float, requests: int | None = None) -> Scenario:
    """Return *scenario* under *load* on *axis*, with *requests* drawn if they are drawn (None: as many as before).

    Raises `InputError` where the workload has no such axis.
    """
    workload = scenario.workload
    if isinstance(workload, (RateWorkload, ConcurrencyWorkload)):
        drawn = {
            "num_prompts": requests or workload.num_prompts,
            "prompt_tokens": workload.prompt_tokens,
            "output_tokens": workload.output_tokens,
        }
        if axis == "rate":
            open_loop = workload if isinstance(workload, RateWorkload) else RateWorkload(rate=load)
            changed = open_loop.model_copy(update={**drawn, "rate": float(load)})
            return scenario.model_copy(update={"workload": changed})
        think = workload.think_time_s if isinstance(workload, ConcurrencyWorkload) and axis == "users" else 0.0
        closed = ConcurrencyWorkload(**drawn, concurrency=math.floor(load), think_time_s=think)
        return scenario.model_copy(update={"workload": closed})
    if isinstance(workload, (SessionsWorkload, MixWorkload)):
        return scenario.model_copy(update={"workload": _chats_at(workload, axis, load, requests)})
    if axis == "users":
        raise InputError("a list or a trace has no think time; search over rate or concurrency, or draw the lengths")
    if axis == "concurrency":
        if isinstance(workload, TraceWorkload):
            raise InputError("a trace has its own arrivals; search over rate (how much faster it can be sent)")
        changed_list = workload.model_copy(update={"max_concurrency": math.floor(load)})
        return scenario.model_copy(update={"workload": changed_list})
    changed_speed = workload.model_copy(update={"rate_scale": load / native_rate(scenario)})
    return scenario.model_copy(update={"workload": changed_speed})


def _chats_at(
    workload: SessionsWorkload | MixWorkload, axis: Axis, load: float, requests: int | None
) -> SessionsWorkload | MixWorkload:
    if axis == "concurrency":
        raise InputError("chats have users or a rate; search over one of these")
    changes: dict[str, object] = {"num_prompts": requests or workload.num_prompts}
    own = [one.rate for one in workload.classes if one.rate is not None] if isinstance(workload, MixWorkload) else []
    if axis == "users":
        if own:
            raise InputError("the classes of this mix have rates of their own, so it has no users; search over rate")
        changes |= {"users": math.floor(load), "rate": None, "max_concurrency": None, "rate_shape": None}
    elif own and isinstance(workload, MixWorkload):
        faster = load / sum(own)
        changes["classes"] = tuple(
            one.model_copy(update={"rate": (one.rate or 0) * faster}) for one in workload.classes
        )
    else:
        changes |= {"rate": float(load), "users": None}
    return workload.model_copy(update=changes)
