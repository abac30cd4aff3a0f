"""Servers with something on the CPU, a second a step: V0 with swap space, V1 with KV offload."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.engine_config import EngineConfig
from simulator.host_memory import HostMemory
from simulator.request_table import RequestTable
from simulator.server import Load, Server
from tests.simulator.second_world import Costs


class Copies:
    """Copies take *block_s* seconds a block, a job *job_s* more."""

    bytes_per_block = 1

    def __init__(self, block_s: float = 0.25, job_s: float = 0.0) -> None:
        self.block_s, self.job_s = block_s, job_s

    def seconds(self, blocks: int) -> float:
        return blocks * self.block_s


class ScheduleCosts(Costs):
    """Also a scheduler call takes half a second."""

    def schedule_s(self, _num_reqs) -> float:
        return 0.5


def server(
    prompts, outputs, arrivals=None, *, gpu=100, cpu=100, costs=None, copies=None, concurrency=None, segments=None,
    **engine: Any,
) -> Server:  # fmt: skip
    """Return a server over *gpu* and *cpu* blocks of 4 tokens."""
    limits = {"max_model_len": 200, "max_num_batched_tokens": 64, "max_num_seqs": 8, "block_size": 4}
    config = EngineConfig(model="m", **(limits | engine))
    table = RequestTable.build(
        prompt_tokens=np.asarray(prompts),
        output_tokens=np.asarray(outputs),
        arrival_s=None if arrivals is None else np.asarray(arrivals, float),
        segments=segments,
    )
    host = HostMemory(cpu, copies or Copies())
    load = Load(table=table, max_concurrency=concurrency)
    return Server(config, gpu, costs or Costs(), load, seed=None, host=host)


def v0(prompts, outputs, arrivals=None, **more: Any):
    """Return the records of a V0 server; output is processed at once unless asked otherwise."""
    settings = {
        "vllm_version": "0.6.3", "engine_generation": "V0", "async_scheduling": False,
        "disable_async_output_proc": True, "enable_chunked_prefill": False, "enable_prefix_caching": False,
        "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": (1, 2, 4, 8),
    }  # fmt: skip
    return server(prompts, outputs, arrivals, **(settings | more)).run()


def offload(prompts, outputs, arrivals=None, **more: Any):
    """Return the records of a V1 server with a CPU tier."""
    return server(prompts, outputs, arrivals, **({"kv_offloading_size": 1.0, "async_scheduling": False} | more)).run()
