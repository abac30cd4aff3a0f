"""`simulator.step_formula.decodes_alone_s` for many steps at once; equal to it to rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.step_formula import KV_BLOCK, MOST_SPLITS, SPLIT_MARGIN, STRAGGLER, UNEVEN, Costs

Floats = NDArray[np.float64]


def decodes_alone_s_array(costs: Costs, decodes: Floats, context_sum: Floats, context_max: Floats) -> Floats:
    """Attention of steps of *decodes* (at least 1) alone, in seconds; all arrays have one shape."""
    heads, slots = costs.kv_heads, costs.slots
    mean = context_sum / decodes
    uneven = np.clip((context_max - mean) / (UNEVEN * mean + 1.0), 0.0, 1.0)

    blocks = np.floor(mean / KV_BLOCK) + 1.0
    share = np.ceil(SPLIT_MARGIN * heads * decodes * blocks / slots)
    parts = np.minimum(np.ceil(blocks / share), MOST_SPLITS)
    tiles = heads * decodes * parts
    waves = np.ceil(tiles / slots) - 1.0
    alone = costs.kv_block_s - (tiles - slots * waves) * costs.kv_alone_s * KV_BLOCK / heads
    equal = costs.kv_wave_s * waves + np.where(parts > 1.0, costs.kv_split_s, 0.0)
    equal = equal + np.ceil(blocks / parts) * np.maximum(alone, 0.0)

    blocks = context_sum / KV_BLOCK + 0.5 * decodes
    longest = np.floor(context_max / KV_BLOCK) + 1.0
    share = np.ceil(SPLIT_MARGIN * heads * blocks / slots)
    tiles = heads * np.maximum(decodes, blocks / share + 0.5 * decodes)
    spread = costs.kv_wave_s * (np.ceil(tiles / slots) - 1.0) + np.where(longest > share, costs.kv_split_s, 0.0)
    spread = spread + STRAGGLER * np.minimum(share, longest) * costs.kv_block_s

    return np.asarray(costs.kv_alone_s * context_sum + (1.0 - uneven) * equal + uneven * spread)
