"""What each vLLM version does, as data: one table of change points, from 0.6 to 0.33.

`facts(version)` applies every change up to that version.  Read in the wheels of 0.6.3, 0.7.3, 0.8.5, 0.9.2, 0.10.2,
0.11.2, 0.13.0, 0.14.0, 0.17.1 to 0.20.0, 0.22.0 to 0.24.0 and 0.33.0; a change between two of them is dated by the
release notes, or by the later one.  A newer version is taken as the newest known, with a note that says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from simulator.engine_config import CudagraphMode
from simulator.errors import ConfigError

DEFAULT_VERSION = "0.24.0"
NEWEST_KNOWN = (0, 33, 0)
OLDEST_KNOWN = (0, 6, 0)

#: How the tokens captured in CUDA graphs are chosen, see `simulator.cuda_graphs`.
CaptureRule = Literal["v0", "step8_to_512", "step8_to_2x", "step8_then_16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """The switches of one version; the defaults are those of 0.6."""

    version: tuple[int, ...] = OLDEST_KNOWN
    note: str | None = None

    # which engine
    engine: Literal["V0", "V1"] = "V0"  # without VLLM_USE_V1
    v1_available: bool = False
    v0_available: bool = True
    v1_priority_policy: bool = False  # else V1 falls back to V0 for --scheduling-policy priority

    # scheduler
    async_scheduling_available: bool = False
    async_scheduling_default: bool = False
    full_sequence_check: bool = False  # scheduler_reserve_full_isl; before: V1 looks at the first chunk only
    watermark_available: bool = False
    unfit_prompt_blocks_queue: bool = False  # chunking off: a prompt that does not fit blocks the queue, or is passed
    self_victim_ends_loop: bool = True  # priority: a request that is its own victim ends the running loop
    unhashed_blocks_to_head: bool = False  # freed blocks without a hash go to the head of the free queue
    lone_request_ignores_long_prefill_threshold: bool = False
    async_length_guard: bool = False  # no step is planned that could only yield a token beyond max_tokens
    length_before_eos: bool = True  # an end-of-sequence token that is also the last one allowed says "length"
    partial_prefill_limits: bool = False  # --max-num-partial-prefills exists

    # batch limits of the devices with 70 GiB and more
    big_device_max_num_seqs: int = 256
    excludes_a100: bool = False
    has_160_gib_tier: bool = False

    # memory
    gpu_memory_utilization: float = 0.90
    graphs_in_memory_budget: bool = False
    kv_log_is_concurrency_times_length: bool = False  # "GPU KV cache size" = concurrency * max_model_len, else blocks*B
    swap_space_flag: bool = True
    kv_offload_flag: bool = False
    kv_offload_defers_frees: bool = False  # blocks of a request in a step in flight come back when that is over
    block_sizes: tuple[int, ...] | None = (8, 16, 32)  # values the parser accepts; None: any, the backend decides

    # CUDA graphs, of V1 where there is one
    cudagraph_mode: CudagraphMode = "FULL_DECODE_ONLY"
    capture_rule: CaptureRule = "v0"
    optimization_levels: bool = False  # -O is an optimization level (O2 default), else a compilation level (3 in V1)


_V1_BLOCKS = (1, 8, 16, 32, 64, 128)

#: (first version, what changes from there on).
CHANGES: tuple[tuple[tuple[int, int, int], dict[str, Any]], ...] = (
    (
        (0, 7, 0),
        {
            "v1_available": True,
            "block_sizes": (8, 16, 32, 64, 128),
            "partial_prefill_limits": True,
            "cudagraph_mode": "PIECEWISE",
            "capture_rule": "step8_to_512",
        },
    ),
    ((0, 8, 0), {"engine": "V1", "block_sizes": _V1_BLOCKS, "big_device_max_num_seqs": 1024}),
    ((0, 9, 2), {"v1_priority_policy": True, "excludes_a100": True}),
    ((0, 10, 0), {"async_scheduling_available": True, "capture_rule": "step8_to_2x"}),
    ((0, 11, 0), {"v0_available": False, "cudagraph_mode": "FULL_AND_PIECEWISE"}),
    (
        (0, 11, 1),
        {
            "block_sizes": (*_V1_BLOCKS, 256),
            "kv_offload_flag": True,
            "capture_rule": "step8_then_16",
            "async_length_guard": True,
            "length_before_eos": False,
        },
    ),
    ((0, 12, 0), {"optimization_levels": True, "unfit_prompt_blocks_queue": True}),
    ((0, 14, 0), {"async_scheduling_default": True}),
    ((0, 18, 0), {"swap_space_flag": False, "block_sizes": None}),
    ((0, 19, 0), {"full_sequence_check": True}),
    ((0, 20, 0), {"gpu_memory_utilization": 0.92, "graphs_in_memory_budget": True}),
    ((0, 22, 0), {"kv_log_is_concurrency_times_length": True}),
    # Blocks without a hash: 0.23 does it for sliding windows only.
    ((0, 24, 0), {"watermark_available": True, "kv_offload_defers_frees": True, "unhashed_blocks_to_head": True}),
    ((0, 31, 0), {"lone_request_ignores_long_prefill_threshold": True}),
    ((0, 33, 0), {"self_victim_ends_loop": False, "has_160_gib_tier": True}),
)


def release(version: str) -> tuple[int, int, int]:
    """Return the numbers of a version: ``v0.8.5.post1`` and ``0.8.5+cu124`` are (0, 8, 5).  Raises `ConfigError`."""
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?![\d])", version.strip(), re.ASCII)
    if found is None:
        raise ConfigError(
            f"vllm_version {version.strip()[:40]!r} is not a version; write it like {DEFAULT_VERSION} (0.6 to 0.33)"
        )
    return int(found[1]), int(found[2]), int(found[3] or 0)


@lru_cache(maxsize=64)
def facts(version: str) -> VersionFacts:
    """Return what *version* does; `note` is set when it is outside the known range.  Raises `ConfigError`."""
    asked = release(version)
    note = None
    if asked[:2] > NEWEST_KNOWN[:2]:
        note = f"vLLM {version} is newer than the newest version known (0.33): simulated with the rules of 0.33"
    elif asked < OLDEST_KNOWN:
        note = f"vLLM {version} is older than the oldest version known (0.6): simulated with the rules of 0.6"
    known = VersionFacts(version=asked, note=note)
    for since, changes in CHANGES:
        if asked >= since:
            known = replace(known, **changes)
    return known
