"""The block keys of a prompt: integers that are equal where two requests hold the same tokens after the same prefix."""

from __future__ import annotations

from simulator.request import KEYS_PER_REQUEST
from simulator.request_table import RequestTable


def shared_keys(table: RequestTable, row: int, block_size: int) -> list[int]:
    """Return the block keys of the shared prefix of request *row*: every block that ends inside a segment.

    They may reach beyond the prompt, over the tokens that the request will generate.
    """
    keys: list[int] = []
    for segment in range(table.segment_start[row], table.segment_start[row + 1]):
        base = (int(table.segment_id[segment]) + 1) * KEYS_PER_REQUEST
        keys.extend(range(base + len(keys), base + int(table.segment_end[segment]) // block_size))
    return keys
