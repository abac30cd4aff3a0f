"""A server whose every step takes a second: round numbers, exact times."""

from __future__ import annotations

import numpy as np

from simulator.engine_config import EngineConfig
from simulator.profile import FrontEnd
from simulator.records import Records
from simulator.request_table import RequestTable
from simulator.server import Load, Server

INSTANT = FrontEnd(
    request_latency_s=0, request_demand_s=0, request_demand_per_token_s=0, first_token_s=0,
    first_token_per_prompt_token_s=0, token_s=0, token_per_stream_s=0,
)  # fmt: skip


class Costs:
    """A step takes a second on the GPU, a launch *launch* seconds; everything else is free unless said."""

    def __init__(self, *, launch: float = 0.0, update: float = 0.0, front_end: FrontEnd = INSTANT) -> None:
        self.front_end = front_end
        self.gpu_start_s = 0.0
        self._launch, self._update = launch, update

    def gpu_s(self, *_shape) -> float:
        return 1.0

    def decode_stretch_s(self, _padded, _size, _context_sum, _context_max, count) -> list[float]:
        return [1.0] * count

    def launch_s(self, *_shape) -> float:
        return self._launch

    def start_s(self, idle) -> float:
        return 0.0

    tail_s = schedule_s = lambda self, _what: 0.0

    def update_s(self, _num_reqs) -> float:
        return self._update


def serve(prompts, outputs, arrivals=None, *, costs=None, concurrency=None, blocks=10_000, **engine) -> Records:
    """Run a server of a second a step."""
    table = RequestTable.build(
        prompt_tokens=np.asarray(prompts),
        output_tokens=np.asarray(outputs),
        arrival_s=None if arrivals is None else np.asarray(arrivals, float),
    )
    return serve_load(Load(table=table, max_concurrency=concurrency), costs=costs, blocks=blocks, **engine)


def serve_load(load: Load, *, costs=None, blocks=10_000, **engine) -> Records:
    """Run a server of a second a step under *load*."""
    limits = {"max_model_len": 1000, "max_num_batched_tokens": 64, "max_num_seqs": 8, "async_scheduling": False}
    config = EngineConfig(model="m", **(limits | engine))
    return Server(config, blocks, costs or Costs(), load, seed=None).run()
