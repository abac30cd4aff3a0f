"""The time of one step as a formula over plain numbers: one text for Python and for the compiled loop.

What the terms mean and where they come from: `simulator.step_cost`, which works out the constants of one engine.
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: Fraction of the slots above which FlashAttention 3 does not split a context (its num_splits heuristic).
NO_SPLIT = 0.8

#: One value for each CUDA-graph mode: none, piecewise, full.
ByMode = tuple[float, float, float]


class Costs(NamedTuple):
    """Constants of one engine in seconds (per request, token, ...); *slots* and *kv_heads* are counts."""

    per_request_s: float
    per_decode_s: float
    kv_alone_s: float
    kv_mixed_s: float
    kv_heads: float
    slots: float
    partial_wave: float
    imbalance_s: float
    attention_s: float
    launch_s: ByMode
    launch_per_request_s: ByMode
    launch_idle: ByMode
    tail_s: ByMode
    start_s: float
    idle_start_s: float
    schedule_s: float
    schedule_per_request_s: float
    update_s: float
    update_per_request_s: float


def gpu_s(
    costs: Costs,
    linear_s: float,
    head_s: float,
    num_reqs: int,
    decode_reqs: int,
    decode_context_sum: float,
    decode_context_max: float,
    prefill_attention: float,
    prefill_tokens: int,
) -> float:
    """GPU time of one step in seconds; *linear_s* and *head_s* depend on padded tokens and on sampled rows alone."""
    total = linear_s + head_s + costs.per_request_s * num_reqs
    if decode_reqs > 0:
        kv = costs.kv_mixed_s if prefill_tokens > 0 else costs.kv_alone_s
        tiles, slots = decode_reqs * costs.kv_heads, costs.slots
        if tiles >= NO_SPLIT * slots:
            kv *= 1.0 + costs.partial_wave * (slots * math.ceil(tiles / slots) / tiles - 1.0)
        total += costs.per_decode_s * decode_reqs + kv * decode_context_sum
        total += costs.imbalance_s * (decode_context_max - decode_context_sum / decode_reqs)
    if prefill_tokens > 0:
        total += costs.attention_s * prefill_attention
    return total


def launch_s(costs: Costs, mode: int, num_reqs: int, idle: bool) -> float:
    """CPU time for which launching a step blocks the engine loop; *idle*: the loop had been asleep."""
    base = costs.launch_s[mode] + costs.launch_per_request_s[mode] * num_reqs
    return base * costs.launch_idle[mode] if idle else base


def decode_stretch_s(
    costs: Costs, linear_s: float, head_s: float, size: int, context_sum: int, context_max: int, count: int
) -> list[float]:
    """Return `gpu_s` of *count* steps with the same *size* decodes, to the last bit; contexts grow by one a step."""
    base, kv, slots = linear_s + head_s + costs.per_request_s * size, costs.kv_alone_s, costs.slots
    tiles = size * costs.kv_heads
    if tiles >= NO_SPLIT * slots:
        kv *= 1.0 + costs.partial_wave * (slots * math.ceil(tiles / slots) / tiles - 1.0)
    decodes_s, imbalance_s = costs.per_decode_s * size, costs.imbalance_s
    sums, longest = range(context_sum, context_sum + size * count, size), range(context_max, context_max + count)
    return [
        base + (decodes_s + kv * total) + imbalance_s * (most - total / size)
        for total, most in zip(sums, longest, strict=True)
    ]
