"""The ways to run a load through a server, all with the same records, bit by bit; the fastest that covers it is taken.

compiled (`simulator.compiled`)             V1 without offload, requests that wait for nothing but time and places
cohort and stretches (`simulator.cohort`)   V1, pure Python
plain (`simulator.scheduler`)               step by step: the reference
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.cohort import CohortScheduler
from simulator.compiled import keeping
from simulator.engine_config import EngineConfig
from simulator.host_memory import HostMemory
from simulator.memory_terms import is_v0
from simulator.records import Records
from simulator.scheduler import V1Scheduler
from simulator.server import Load, Server
from simulator.step_cost import StepCost


@dataclass(frozen=True)
class Served:
    """What a server did, and the largest steps it made (tokens, decodes, tokens of context)."""

    records: Records
    most_tokens: int
    most_decode_reqs: int
    longest_context: int


def serve(
    engine: EngineConfig,
    num_gpu_blocks: int,
    cost: StepCost,
    load: Load,
    *,
    seed: int | None,
    scheduler: type[V1Scheduler] | None = None,
    host: HostMemory | None = None,
) -> Served:
    """Run *load* through a server; *scheduler* asks for one of the Python paths."""
    if scheduler is None and host is None and not is_v0(engine) and keeping.is_ready(len(load.table)):
        from simulator.compiled.covered import covers
        from simulator.compiled.server import simulate_load

        if covers(engine, cost, load, num_gpu_blocks):
            records, compiled = simulate_load(engine, num_gpu_blocks, cost, load, seed=seed)
            w = compiled.state.world
            return Served(records, int(w.most_tokens), int(w.most_decodes), int(w.longest_context))
    kind = scheduler or CohortScheduler
    server = Server(engine, num_gpu_blocks, cost, load, seed=seed, scheduler=kind, host=host)
    timer = server.timer
    return Served(server.run(), timer.most_tokens, timer.most_decode_reqs, timer.longest_context)
