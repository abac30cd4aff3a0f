"""What only V1's KV offload has: look-ups in the CPU tier, copies, and what they meant to each request."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class OffloadRecords:
    """Beside `simulator.records.Records`.

    Attributes
    ----------
    num_cpu_blocks: blocks of the tier.
    queries_tokens, hits_tokens: tokens looked up beyond the GPU's hit, and found: vllm:external_prefix_cache_queries
        and _hits; counted once an admission, not for requests that come back after a preemption.
    stored_blocks, loaded_blocks, store_s, load_s: blocks copied each way and the time of the copies, vllm:kv_offload_*.
    skipped_stores: stores that found no room.
    flush_s: time the engine waited for copies out of blocks it needed again.
    external_tokens: by request: tokens loaded at its first admission.
    load_start_s: by request: when its latest load was ordered; nan without.
    """

    num_cpu_blocks: int
    external_tokens: array[int]
    load_start_s: array[float]
    queries_tokens: int = 0
    hits_tokens: int = 0
    stored_blocks: int = 0
    loaded_blocks: int = 0
    store_s: float = 0.0
    load_s: float = 0.0
    skipped_stores: int = 0
    flush_s: float = 0.0
    step_stored_blocks: array[int] = field(default_factory=lambda: array("q"))
    step_loaded_blocks: array[int] = field(default_factory=lambda: array("q"))

    @classmethod
    def for_requests(cls, count: int, num_cpu_blocks: int) -> OffloadRecords:
        """Return empty records of *count* requests."""
        return cls(num_cpu_blocks, array("q", [0]) * count, array("d", [float("nan")]) * count)

    def append_request(self) -> None:
        """Add a row for one more request."""
        self.external_tokens.append(0)
        self.load_start_s.append(float("nan"))
