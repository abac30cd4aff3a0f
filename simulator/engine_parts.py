"""The engine of a server, put together by what its configuration asks for: V1, V1 with KV offload, or V0.

All share the request, the clock, the costs and the records; the policy and its loop are what differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import simpy

from simulator.blocks import BlockPool
from simulator.cohort import CohortScheduler
from simulator.cuda_graphs import GraphDispatch
from simulator.delivery import Delivery
from simulator.engine import EngineCore
from simulator.engine_config import EngineConfig
from simulator.fast_forward import FastForward
from simulator.host_memory import HostMemory
from simulator.memory_terms import is_v0
from simulator.noise import StepNoise
from simulator.offload_engine import OffloadEngine
from simulator.offload_plan import WatchedPool
from simulator.offload_records import OffloadRecords
from simulator.offload_scheduler import OffloadScheduler
from simulator.offload_tier import CpuTier
from simulator.pipeline import Pipeline
from simulator.records import Records
from simulator.rules import SchedulerRules
from simulator.scheduler import V1Scheduler
from simulator.step_cost import StepCost
from simulator.step_timer import StepTimer
from simulator.swap_records import SwapRecords
from simulator.v0_blocks import V0Blocks
from simulator.v0_engine import V0Engine
from simulator.v0_policies import v0_scheduler
from simulator.v0_rules import V0Rules
from simulator.v0_scheduler import V0Scheduler
from simulator.v0_timer import V0Timer
from simulator.versions import facts


@dataclass(frozen=True)
class EngineParts:
    """What a server talks to."""

    scheduler: V1Scheduler | V0Scheduler
    timer: StepTimer | V0Timer
    pipeline: Pipeline
    core: EngineCore


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What every engine stands in."""

    env: simpy.Environment
    records: Records
    delivery: Delivery
    cost: StepCost
    noise: StepNoise | None
    horizon_s: Callable[[], float]


def build(
    engine: EngineConfig, around: Surroundings, scheduler: type[V1Scheduler], host: HostMemory | None
) -> EngineParts:
    """Return the engine that *engine* describes; *scheduler* is the class of V1's policy without offload."""
    if is_v0(engine):
        assert host is not None, "a V0 engine needs a host memory, if only of 0 blocks"
        return _v0(engine, around, host)
    if host is not None:
        return _v1_with_offload(engine, around, host)
    return _v1(engine, around, scheduler)


def block_pool(engine: EngineConfig, num_gpu_blocks: int) -> BlockPool:
    """Return V1's pool."""
    return BlockPool(
        num_gpu_blocks,
        engine.block_size,
        caching=engine.enable_prefix_caching,
        unhashed_to_head=facts(engine.vllm_version).unhashed_blocks_to_head,
    )


def _v1(engine: EngineConfig, around: Surroundings, kind: type[V1Scheduler]) -> EngineParts:
    env, records, delivery = around.env, around.records, around.delivery
    scheduler = kind(SchedulerRules.of(engine), block_pool(engine, records.num_gpu_blocks))
    timer = StepTimer(GraphDispatch(engine), around.cost, records, around.noise)
    pipeline = Pipeline(2 if engine.async_scheduling else 1)
    fast_forward = None
    if isinstance(scheduler, CohortScheduler):
        fast_forward = FastForward(scheduler, timer, pipeline, records, delivery)
    core = EngineCore(env, scheduler, timer, pipeline, records, delivery.emit, fast_forward, around.horizon_s)
    return EngineParts(scheduler, timer, pipeline, core)


def _v1_with_offload(engine: EngineConfig, around: Surroundings, host: HostMemory) -> EngineParts:
    records = around.records
    pool = WatchedPool(
        records.num_gpu_blocks,
        engine.block_size,
        caching=engine.enable_prefix_caching,
        unhashed_to_head=facts(engine.vllm_version).unhashed_blocks_to_head,
    )
    factor = engine.kv_offloading_block_factor
    defers = facts(engine.vllm_version).kv_offload_defers_frees
    tier = CpuTier(host.num_blocks)
    scheduler = OffloadScheduler(SchedulerRules.of(engine), pool, tier, factor=factor, defers_frees=defers)
    offload = records.offload = OffloadRecords.for_requests(records.num_requests, host.num_blocks)
    timer = StepTimer(GraphDispatch(engine), around.cost, records, around.noise)
    pipeline = Pipeline(2 if engine.async_scheduling else 1)
    core = OffloadEngine(
        around.env, scheduler, timer, pipeline, records, offload, around.delivery, host.transfer, around.horizon_s
    )
    return EngineParts(scheduler, timer, pipeline, core)


def _v0(engine: EngineConfig, around: Surroundings, host: HostMemory) -> EngineParts:
    records = around.records
    blocks = V0Blocks(records.num_gpu_blocks, host.num_blocks, engine.block_size, caching=engine.enable_prefix_caching)
    scheduler = v0_scheduler(V0Rules.of(engine), blocks)
    swap = records.swap = SwapRecords(host.num_blocks)
    timer = V0Timer(engine, around.cost, host.transfer, records, swap, around.noise)
    core = V0Engine(
        around.env, scheduler, timer, records, swap, around.delivery, streams_steps=engine.multi_step_stream_outputs
    )
    return EngineParts(scheduler, timer, core.pipeline, core)
