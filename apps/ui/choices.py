"""What sliders and lists offer: round numbers, with the present value among them.  No Streamlit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from simulator.errors import ServecastError
from simulator.lengths import Clipped, Constant, parse

Number = TypeVar("Number", int, float)

RATES = (
    0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 24.0, 27.0, 30.0, 35.0,
    40.0, 45.0, 50.0, 60.0, 70.0, 80.0, 100.0, 120.0, 150.0, 200.0, math.inf,
)  # fmt: skip
CLIENTS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
TOKENS = (16, 32, 64, 96, 128, 180, 256, 300, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384, 32768)
MODEL_LENS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144)
SEQS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
BUDGETS = (512, 1024, 2048, 4096, 6144, 8192, 12288, 16384, 32768, 65536)
RANKS = (1, 2, 4, 8)
REQUESTS = (100, 200, 300, 500, 1000, 2000, 3000, 5000, 10_000, 20_000)


def among(choices: Sequence[Number], value: Number) -> list[Number]:
    """Return the choices with *value* among them, in order."""
    found: set[Number] = {value}
    return sorted(found.union(choices))


def middle(spec: str) -> int | None:
    """Return the tokens a slider shows for a length: its constant, median or mean; None if there is none to turn."""
    try:
        lengths = parse(spec)
    except ServecastError:
        return None
    if isinstance(lengths, Constant):
        return lengths.tokens
    return round(lengths.center) if isinstance(lengths, Clipped) else None


def with_middle(spec: str, tokens: int) -> str:
    """Return the length with another middle; limits that would cut it off are moved out of its way."""
    lengths = parse(spec)
    if not isinstance(lengths, Clipped):
        return str(tokens)
    kind, _center, sigma, *limits = spec.strip().split(":")
    if limits and not (lengths.low <= tokens <= lengths.high):
        limits = [str(min(lengths.low, tokens)), str(max(lengths.high, 8 * tokens))]
    return ":".join([kind, str(tokens), sigma, *limits])
