"""Which engines and loads the compiled loop covers; the other paths answer for the rest."""

from __future__ import annotations

from simulator.engine_config import EngineConfig
from simulator.server import Load
from simulator.step_cost import StepCost

#: Numbers that 32 bits, memory and block keys can hold.
_MOST_BLOCKS, _MOST_TOKENS, _MOST_LANES, _MOST_KEYS = 1 << 30, 1 << 20, 1 << 28, 1 << 31


def covers(engine: EngineConfig, cost: StepCost, load: Load, num_gpu_blocks: int) -> bool:
    """Return whether a V1 engine without offload under *load* is a case for the compiled loop."""
    table = load.table
    longest = int((table.prompt_tokens + table.output_tokens).max())
    ids = table.segment_id
    return (
        type(cost) is StepCost
        and load.is_plain
        and can_hold(engine, num_gpu_blocks, len(table), longest)
        and (len(ids) == 0 or 0 <= ids.min() <= ids.max() < _MOST_KEYS)
    )


def can_hold(engine: EngineConfig, num_gpu_blocks: int, num_requests: int, longest_tokens: int) -> bool:
    """Return whether the arrays of the compiled loop can hold so many blocks and requests of such a length."""
    running = min(engine.max_num_seqs, num_requests)
    width = min(longest_tokens, engine.max_model_len) // engine.block_size + 2
    return (
        num_gpu_blocks < _MOST_BLOCKS
        and engine.max_num_batched_tokens < _MOST_TOKENS
        and running * width < _MOST_LANES
        and num_requests < _MOST_KEYS
    )
