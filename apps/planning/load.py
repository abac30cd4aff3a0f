"""The load that is turned up: requests/s, clients in a closed loop, or users who think; a scenario at any of them.

    rate          open loop; of a list or a trace its mean rate, reached by sending it faster or slower
    concurrency   closed loop without think time
    users         closed loop with think time between an answer and the next request

Everything else of the load stays as it was: a seed gives the same lengths at every load, and the same pattern of
arrivals, stretched in time (common random numbers).
"""

from __future__ import annotations

import math
from typing import Literal

from simulator import durations
from simulator.errors import InputError
from simulator.scenario import Scenario
from simulator.workload import ConcurrencyWorkload, RateWorkload, RequestsWorkload, TraceWorkload, table

Axis = Literal["rate", "concurrency", "users"]

UNITS: dict[Axis, str] = {"rate": "requests/s", "concurrency": "clients", "users": "users"}


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
    if isinstance(workload, RequestsWorkload) and not table(workload, scenario.seed).arrival_s.any():
        return "concurrency"
    return "rate"


def think_time_s(scenario: Scenario) -> float:
    """Return the mean think time of the users of *scenario* in seconds; 0 without."""
    workload = scenario.workload
    return durations.parse(str(workload.think_time_s)).mean_s if isinstance(workload, ConcurrencyWorkload) else 0.0


def native_rate(scenario: Scenario) -> float:
    """Return the mean rate in requests/s of a list or a trace as it was recorded."""
    workload = scenario.workload.model_copy(update={"rate_scale": 1.0})
    arrival_s = table(workload, scenario.seed).arrival_s
    span = float(arrival_s[-1] - arrival_s[0])
    if span <= 0:
        raise InputError("these requests are all sent at once, so they have no rate; search over concurrency instead")
    return (len(arrival_s) - 1) / span


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
    if axis == "users":
        raise InputError("a list or a trace has no think time; search over rate or concurrency, or draw the lengths")
    if axis == "concurrency":
        if isinstance(workload, TraceWorkload):
            raise InputError("a trace has its own arrivals; search over rate (how much faster it can be sent)")
        changed_list = workload.model_copy(update={"max_concurrency": math.floor(load)})
        return scenario.model_copy(update={"workload": changed_list})
    changed_speed = workload.model_copy(update={"rate_scale": load / native_rate(scenario)})
    return scenario.model_copy(update={"workload": changed_speed})
