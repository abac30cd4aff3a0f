"""Decode attention as FlashAttention 3 deals it out, for many steps at once (`step_formula.decodes_alone_s` for one).

From flash_prepare_scheduler.cu of vLLM's fork (0.24.0): a context c has n = ceil((c + 1) / 128) blocks; a
multiprocessor should get b = ceil(1.1 * kv_heads * sum n / slots) of them; contexts with more are split in ceil(n / b)
parts, at most 32; a tile is a part of one KV head, and ``slots`` tiles run at once.  A tile alone takes ``kv_block_s``
a block; from some 70 tiles on they share the bandwidth.  So beyond reading all bytes a layer costs

    slots * per_kv_tile_s * (waves - 1) + kv_split_s if any is split
      + blocks of a tile * max(0, kv_block_s - tiles of the last wave * block bytes / (bandwidth * kv efficiency))

A step knows the sum and the maximum of its contexts only.  As the maximum goes from the mean to 1.5 times the mean,
contexts pass from equal (as above: 1.5 % off 329 kernel times, median) to uneven, where tiles end one by one and 0.3 of
a tile is left over at the end (4 % off 66).  Beside prompts all tiles are one launch: per_kv_tile_s a tile, no waves.
Blocks of 128 tokens are those of head dimension 128; other kernels (FlashAttention 2, FlashInfer) were not looked at.
The kernel times: recordings/h200-vllm-0.24.0/kernels, made by `calibration.attention_probe`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.step_formula import KV_BLOCK, MOST_SPLITS, SPLIT_MARGIN, STRAGGLER, UNEVEN, Costs

Floats = NDArray[np.float64]


def decodes_alone_s_array(costs: Costs, decodes: Floats, context_sum: Floats, context_max: Floats) -> Floats:
    """Attention of steps of *decodes* (at least 1) alone, in seconds; all arrays have one shape."""
    heads, slots = costs.kv_heads, costs.slots
    wave_s = slots * costs.per_decode_s / heads
    mean = context_sum / decodes
    uneven = np.clip((context_max - mean) / (UNEVEN * mean + 1.0), 0.0, 1.0)

    blocks = np.floor(mean / KV_BLOCK) + 1.0
    share = np.ceil(SPLIT_MARGIN * heads * decodes * blocks / slots)
    parts = np.minimum(np.ceil(blocks / share), MOST_SPLITS)
    tiles = heads * decodes * parts
    waves = np.ceil(tiles / slots) - 1.0
    alone = costs.kv_block_s - (tiles - slots * waves) * costs.kv_alone_s * KV_BLOCK / heads
    equal = wave_s * waves + np.where(parts > 1.0, costs.kv_split_s, 0.0)
    equal = equal + np.ceil(blocks / parts) * np.maximum(alone, 0.0)

    blocks = context_sum / KV_BLOCK + 0.5 * decodes
    longest = np.floor(context_max / KV_BLOCK) + 1.0
    share = np.ceil(SPLIT_MARGIN * heads * blocks / slots)
    tiles = heads * np.maximum(decodes, blocks / share + 0.5 * decodes)
    spread = wave_s * (np.ceil(tiles / slots) - 1.0) + np.where(longest > share, costs.kv_split_s, 0.0)
    spread = spread + STRAGGLER * np.minimum(share, longest) * costs.kv_block_s

    return np.asarray(costs.kv_alone_s * context_sum + (1.0 - uneven) * equal + uneven * spread)
