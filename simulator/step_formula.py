"""The time of one step as a formula over plain numbers: one text for Python and for the compiled loop.

What the terms mean and where they come from: `simulator.step_cost`, which works out the constants of one engine.
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: KV tokens of a block, the unit in which FlashAttention 3 deals out contexts (kBlockN of paged KV, heads of 128).
KV_BLOCK = 128.0
#: How much more than an even share of all blocks a tile may get before its context is split; most parts of one.
SPLIT_MARGIN, MOST_SPLITS = 1.1, 32.0
#: Contexts whose longest is this much above the mean are uneven: their tiles end one by one, not in waves.
UNEVEN = 0.5
#: Then this part of a tile's time, alone, is left over at the end.
STRAGGLER = 0.3

#: One value for each CUDA-graph mode: none, piecewise, full.
ByMode = tuple[float, float, float]


class Costs(NamedTuple):
    """Constants of one engine in seconds (per request, token, ...); *slots* and *kv_heads* are counts.

    As many fields as can be: with one more, the compiled loop hands its state over in memory and takes twice the time.
    """

    per_request_s: float
    per_decode_s: float
    kv_alone_s: float
    kv_mixed_s: float
    kv_heads: float
    slots: float
    kv_block_s: float
    kv_split_s: float
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
    decodes_s: float,
    prefill_attention: float,
) -> float:
    """GPU time of one step in seconds; *linear_s* and *head_s* depend on padded tokens and on sampled rows alone.

    *decodes_s*: the attention of its decodes (`decodes_alone_s`, `decodes_mixed_s`).
    """
    return linear_s + head_s + costs.per_request_s * num_reqs + decodes_s + costs.attention_s * prefill_attention


def decodes_mixed_s(costs: Costs, decode_reqs: int, context_sum: float) -> float:
    """Attention of the decodes of a step that has prompts too."""
    return costs.per_decode_s * decode_reqs + costs.kv_mixed_s * context_sum


def decodes_alone_s(costs: Costs, decode_reqs: int, context_sum: float, context_max: float) -> float:
    """Attention of a step of decodes only: see `simulator.decode_attention`."""
    heads, slots = costs.kv_heads, costs.slots
    wave_s = slots * costs.per_decode_s / heads
    mean = context_sum / decode_reqs
    uneven = (context_max - mean) / (UNEVEN * mean + 1.0)
    if uneven > 1.0:
        uneven = 1.0
    total = costs.kv_alone_s * context_sum
    if uneven < 1.0:  # as if all contexts were the mean
        blocks = math.floor(mean / KV_BLOCK) + 1.0
        share = math.ceil(SPLIT_MARGIN * heads * decode_reqs * blocks / slots)
        parts = min(math.ceil(blocks / share), MOST_SPLITS)
        tiles = heads * decode_reqs * parts
        waves = math.ceil(tiles / slots) - 1.0
        alone_s = costs.kv_block_s - (tiles - slots * waves) * costs.kv_alone_s * KV_BLOCK / heads
        time_s = wave_s * waves
        if parts > 1.0:
            time_s += costs.kv_split_s
        if alone_s > 0.0:
            time_s += math.ceil(blocks / parts) * alone_s
        total += (1.0 - uneven) * time_s
    if uneven > 0.0:  # tiles of all sizes
        blocks = context_sum / KV_BLOCK + 0.5 * decode_reqs
        longest = math.floor(context_max / KV_BLOCK) + 1.0
        share = math.ceil(SPLIT_MARGIN * heads * blocks / slots)
        tiles = heads * max(float(decode_reqs), blocks / share + 0.5 * decode_reqs)
        time_s = wave_s * (math.ceil(tiles / slots) - 1.0)
        if longest > share:
            time_s += costs.kv_split_s
        total += uneven * (time_s + STRAGGLER * min(float(share), longest) * costs.kv_block_s)
    return total


def launch_s(costs: Costs, mode: int, num_reqs: int, idle: bool) -> float:
    """CPU time for which launching a step blocks the engine loop; *idle*: the loop had been asleep."""
    base = costs.launch_s[mode] + costs.launch_per_request_s[mode] * num_reqs
    return base * costs.launch_idle[mode] if idle else base


def decode_stretch_s(
    costs: Costs, linear_s: float, head_s: float, size: int, context_sum: int, context_max: int, count: int
) -> list[float]:
    """Return `gpu_s` of *count* steps with the same *size* decodes, to the last bit; contexts grow by one a step."""
    sums, longest = range(context_sum, context_sum + size * count, size), range(context_max, context_max + count)
    return [
        gpu_s(costs, linear_s, head_s, size, decodes_alone_s(costs, size, total, most), 0.0)
        for total, most in zip(sums, longest, strict=True)
    ]
