"""From a capacity to GPUs and dollars.

    replicas  = ceil(target load / capacity of one replica)
    GPUs      = replicas * tensor_parallel_size * pipeline_parallel_size * data_parallel_size
    $ per million tokens = dollars per hour of one replica / (tokens per hour at its capacity) * 1e6

Replicas are taken to share the load evenly (`simulator.fleet` can simulate them); with the low end of the capacity's
interval instead of the capacity the plan is safe against slow hosts.  Tokens in and out share one GPU, so a price for
each is a convention: *blended* spreads the cost over all tokens; *output_only* puts it all on the output tokens;
*input* and *output* are the two prices, one `OUTPUT_TO_INPUT` times the other, that add up to the cost.

Growth: the target of month m is target * (1 + growth) ** m.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from apps.planning.capacity import Capacity
from apps.planning.prices import Price
from simulator.engine_config import EngineConfig
from simulator.errors import InputError

#: How many times more an output token is priced than an input token: usual in price lists; an assumption.
OUTPUT_TO_INPUT = 4.0
HOURS_PER_MONTH = 730.0
_MOST_MONTHS = 600


@dataclass(frozen=True)
class TokenPrices:
    """Dollars per million tokens at the capacity (module text)."""

    blended: float
    output_only: float
    input: float
    output: float
    output_to_input: float


@dataclass(frozen=True)
class Fleet:
    """Replicas and GPUs for one load; *safe_gpus* at the low end of the capacity's interval."""

    load: float
    replicas: int
    gpus: int
    safe_gpus: int
    usd_per_month: float | None = None
    month: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def gpus_of(engine: EngineConfig) -> int:
    """Return the GPUs of one replica."""
    return engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.data_parallel_size


def token_prices(found: Capacity, price: Price, output_to_input: float = OUTPUT_TO_INPUT) -> TokenPrices | None:
    """Return what tokens cost at the capacity; None if there is none or nothing was answered."""
    point = found.point
    if point is None:
        return None
    outputs, both = (point.metrics.get(name) or 0.0 for name in ("output_throughput", "total_token_throughput"))
    if outputs <= 0:
        return None
    per_second = price.usd_per_gpu_hour * gpus_of(found.scenario.engine) / 3600
    inputs = both - outputs
    unit = per_second / (inputs + output_to_input * outputs)
    return TokenPrices(
        blended=1e6 * per_second / both,
        output_only=1e6 * per_second / outputs,
        input=1e6 * unit,
        output=1e6 * unit * output_to_input,
        output_to_input=output_to_input,
    )


def fleet_for(found: Capacity, load: float, price: Price | None = None, month: int = 0) -> Fleet | None:
    """Return the replicas and GPUs that carry *load* in the capacity's unit; None if one replica carries nothing."""
    if not 0 < load < math.inf:
        raise InputError(f"the target load must be a positive number of {found.unit}, got {load:g}")
    if not found.load:
        return None
    each = gpus_of(found.scenario.engine)
    low = min(found.interval[0], found.load) if found.interval else found.load
    replicas, safe = (math.ceil(load / one - 1e-9) for one in (found.load, low))
    cost = None if price is None else price.usd_per_gpu_hour * replicas * each * HOURS_PER_MONTH
    return Fleet(load, replicas, replicas * each, safe * each, cost, month)


def growing(found: Capacity, load: float, growth: float, months: int, price: Price | None = None) -> list[Fleet]:
    """Return the fleet of each month from 0 (now) to *months*, the load growing by the share *growth* a month."""
    if not 1 <= months <= _MOST_MONTHS:
        raise InputError(f"the horizon must be from 1 to {_MOST_MONTHS} months, got {months}")
    plan = (fleet_for(found, load * (1 + growth) ** month, price, month) for month in range(months + 1))
    return [fleet for fleet in plan if fleet is not None]


def parse_growth(text: str) -> float:
    """Return the growth per month of ``5%/month``, ``0.05/month`` or ``60%/year`` (compounded); `InputError` else."""
    found = re.fullmatch(r"([+-]?\d*\.?\d+)\s*(%?)\s*(?:/|per)\s*(month|year)", text.strip().lower())
    if found is None:
        raise InputError(f"growth {text[:40]!r} cannot be read; write e.g. 5%/month or 60%/year")
    share = float(found[1]) / (100 if found[2] else 1)
    if not -1 < share <= 100:
        raise InputError(f"growth {text[:40]!r} must be above -100 % and at most 10000 %")
    return share if found[3] == "month" else (1 + share) ** (1 / 12) - 1
