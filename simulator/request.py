"""A request as the scheduler sees it: counts of tokens and a list of blocks, no text and no clock.

Content is known by *block keys*, integers that are equal if and only if two blocks hold the same tokens after the same
prefix (they stand for vLLM's chained block hashes).  The first blocks of a request may carry shared keys; every later
block is unique to it and its key is ``own_key_base + index``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

#: Distance between the own keys of two requests: more blocks than a request can hold.
KEYS_PER_REQUEST = 1 << 24


class Status(IntEnum):
    """Where a request is; V1's names, and V0's SWAPPED."""

    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    FINISHED = 3
    SWAPPED = 4
    WAITING_FOR_REMOTE_KVS = 5


class Request:
    """Mutable state of one request inside an engine.

    Attributes
    ----------
    row: index into the workload's table (and into the records).
    num_prompt_tokens, max_tokens: lengths; the request ends by length after *max_tokens* outputs.
    eos_at: the output (1-based) that is an end-of-sequence token, 0 for none.
    num_tokens: prompt and outputs whose values are known.
    num_computed_tokens: positions whose KV exists or is planned.
    num_placeholders: outputs that are planned, but not known yet (async scheduling).
    capacity: tokens its blocks can hold.
    blocks: ids of its blocks, in order.
    num_hashed_blocks: leading blocks that are registered in the prefix cache.
    num_cached_tokens: prefix hit at its first admission, -1 before.
    table_tokens, prefix_tokens, last_access: V0 only: tokens written into its block table, tokens found in the prefix
        cache at its latest admission, the scheduler call that served it last.
    """

    __slots__ = (
        "arrival",
        "blocks",
        "capacity",
        "cohort_computed",
        "cohort_step",
        "end_tokens",
        "eos_at",
        "last_access",
        "last_step",
        "max_tokens",
        "next_block_step",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_hashed_blocks",
        "num_placeholders",
        "num_preemptions",
        "num_prompt_tokens",
        "num_tokens",
        "order",
        "own_key_base",
        "planned_tokens",
        "prefix_tokens",
        "priority",
        "row",
        "run_start",
        "sampled_step",
        "shared_keys",
        "status",
        "table_tokens",
        "tie_break",
    )

    def __init__(
        self,
        row: int,
        num_prompt_tokens: int,
        max_tokens: int,
        *,
        priority: int = 0,
        arrival: float = 0.0,
        eos_at: int = 0,
        shared_keys: Sequence[int] = (),
        tie_break: int | str | None = None,
    ) -> None:
        self.row = row
        self.num_prompt_tokens = num_prompt_tokens
        self.max_tokens = max_tokens
        self.priority = priority
        #: Third key of the PRIORITY queue: vLLM compares request ids.
        self.tie_break = row if tie_break is None else tie_break
        self.arrival = arrival
        self.eos_at = eos_at
        self.shared_keys = shared_keys
        self.own_key_base = -(row + 1) * KEYS_PER_REQUEST
        self.num_tokens = num_prompt_tokens
        #: Known tokens at which the request ends for sure; min'd with max_model_len by the scheduler that takes it.
        self.end_tokens = num_prompt_tokens + max_tokens
        self.num_computed_tokens = 0
        self.num_placeholders = 0
        self.num_preemptions = 0
        self.num_cached_tokens = -1
        self.num_hashed_blocks = 0
        self.capacity = 0
        self.blocks: list[int] = []
        self.status = Status.WAITING
        self.planned_tokens = 0  # tokens granted in the plan being made
        self.order = 0  # position in the order of admissions
        # While it is one of many that decode in lock-step (simulator.cohort) the counts above stand still:
        self.cohort_step = -1  # step in which it joined them, -1 if it is not one
        self.cohort_computed = 0  # its computed tokens before that step
        self.sampled_step = -2  # step of the latest plan that yields a token and lists it
        self.next_block_step = -1  # the step that needs its next block
        self.table_tokens = 0
        self.prefix_tokens = 0
        self.last_access = -1
        self.run_start = -1  # first step of the current run of consecutive tokens
        self.last_step = -2  # step that gave the latest token

    def block_key(self, index: int) -> int:
        """Key of block *index* of this request's content."""
        shared = self.shared_keys
        return shared[index] if index < len(shared) else self.own_key_base + index

    def __repr__(self) -> str:
        return f"Request({self.row}, {self.num_computed_tokens}/{self.num_tokens} tokens, {self.status.name})"
