"""How many replicas there should be: the Horizontal Pod Autoscaler's rule, on signals as a scrape sees them.

Every *interval_s* the signal of each ready replica is read and summed up; what was read *delay_s* ago decides:

    wanted = ceil(sum / target), unless sum / (target * replicas) is within *tolerance* of 1; then as many as there are

More are started at once, and are ready *startup_s* later, with empty caches.  Fewer only if nothing higher was wanted
in the last *cooldown_s* (the HPA's stabilization window); those still starting go first, then the newest.  They get no
more requests, answer those they have, and stop.  Defaults of interval, cool-down and tolerance are those of Kubernetes
(1.30); the start-up time is an assumption: measure yours.

Signals: ``waiting`` and ``running`` requests in the engine, ``outstanding`` both, ``kv_cache_usage`` (0..1).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from simulator import durations
from simulator.errors import InputError
from simulator.workload_parts import Described

Signal = Literal["waiting", "running", "outstanding", "kv_cache_usage"]

_TIMES = ("interval", "delay", "startup", "cooldown")


class Autoscaler(Described):
    """When replicas come and go; see the module text."""

    about: ClassVar[str] = "autoscale"

    min: int = Field(default=1, ge=1)
    max: int = Field(ge=1)
    signal: Signal = "outstanding"
    target: float = Field(gt=0, allow_inf_nan=False)
    interval_s: float = Field(default=15.0, gt=0, allow_inf_nan=False)
    delay_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    startup_s: float = Field(default=120.0, ge=0, allow_inf_nan=False)
    cooldown_s: float = Field(default=300.0, ge=0, allow_inf_nan=False)
    tolerance: float = Field(default=0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _ordered(self) -> Autoscaler:
        if self.min > self.max:
            raise InputError(f"autoscale: min {self.min} is above max {self.max}; swap them")
        return self

    @classmethod
    def parse(cls, text: str) -> Autoscaler:
        """Return the autoscaler of *text*, e.g. ``min=1,max=8,signal=waiting,target=4,startup=90s,cooldown=5min``."""
        told: dict[str, Any] = {}
        for option in filter(None, text.split(",")):
            name, _, value = (part.strip() for part in option.partition("="))
            if name.removesuffix("_s") in _TIMES:
                told[f"{name.removesuffix('_s')}_s"] = durations.seconds(value, f"autoscale {name}")
            else:
                told[name] = value
        return cls(**told)


class Decisions:
    """What an autoscaler wants over time; pure arithmetic, no clock."""

    def __init__(self, settings: Autoscaler, replicas: int) -> None:
        self._settings = settings
        self._read: list[tuple[float, float]] = []  # (when, sum of the signal)
        self._wanted: list[tuple[float, int]] = [(0.0, replicas)]

    def read(self, now_s: float, total: float) -> None:
        """Note the sum of the signal over the ready replicas."""
        self._read.append((now_s, total))

    def wanted(self, now_s: float, replicas: int) -> int:
        """Return how many there should be, of *replicas* that are ready or starting."""
        settings = self._settings
        known = [total for at_s, total in self._read if at_s <= now_s - settings.delay_s + 1e-9]
        if not known:
            return replicas
        del self._read[: len(known) - 1]
        share = known[-1] / (settings.target * replicas)
        ideal = replicas if abs(share - 1) <= settings.tolerance else math.ceil(known[-1] / settings.target)
        ideal = min(max(ideal, settings.min), settings.max)
        self._wanted = [(at_s, count) for at_s, count in self._wanted if at_s > now_s - settings.cooldown_s - 1e-9]
        self._wanted.append((now_s, ideal))
        return ideal if ideal >= replicas else min(replicas, max(count for _, count in self._wanted))
