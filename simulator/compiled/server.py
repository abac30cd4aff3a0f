"""A load through the compiled loop into `Records`, and which loads it covers."""

from __future__ import annotations

from array import array

import numpy as np

from simulator import catalogue
from simulator.compiled.run import CompiledServer, Facts
from simulator.engine_config import EngineConfig
from simulator.engine_parts import block_pool
from simulator.profile import load_profile
from simulator.records import REQUEST_COUNTS, REQUEST_TIMES, Records
from simulator.request_table import RequestTable
from simulator.server import Load
from simulator.step_cost import StepCost

PLANNED = ("plan_s", "running", "waiting", "free_blocks", "tokens", "decode_reqs", "preempted", "mode",
           "padded_tokens", "gpu_s")  # fmt: skip
EMITTED = ("emit_s", "deliver_s")
RUNS = ("request", "first_step", "steps")


def simulate_load(
    engine: EngineConfig, num_gpu_blocks: int, cost: StepCost, load: Load, *, seed: int | None
) -> tuple[Records, CompiledServer]:
    """Return the records of *load*, as `simulator.server.Server` would write them, and the server afterwards."""
    table = load.table
    server = CompiledServer(
        engine,
        block_pool(engine, num_gpu_blocks),
        cost,
        seed=seed,
        num_requests=len(table),
        longest_tokens=int((table.prompt_tokens + table.output_tokens).max()),
        max_concurrency=load.max_concurrency,
    )
    records = Records.for_requests(
        table.prompt_tokens, num_gpu_blocks=num_gpu_blocks, block_size=engine.block_size, null_blocks=1
    )
    times = {name: np.asarray(getattr(records, name)) for name in REQUEST_TIMES}
    counts = {name: np.asarray(getattr(records, name)) for name in REQUEST_COUNTS if name != "prompt_tokens"}
    status = np.asarray(records.status)

    def take(facts: Facts) -> None:
        planned, emitted, ended, runs, _pauses = facts
        for names, found, kind in ((PLANNED, planned, "step"), (EMITTED, emitted, "step"), (RUNS, runs, "run")):
            for name in names:
                column: array[float] = getattr(records, f"{kind}_{name}")
                column.frombytes(found[name].astype(column.typecode).tobytes())
        for name, values in (times | counts).items():
            values[ended["row"]] = ended[name]
        status[ended["row"]] = ended["status"]

    server.load(table, is_last=True)
    server.run(take)
    take(server.unfinished())
    w = server.state.world
    records.prefix_queries_tokens, records.prefix_hits_tokens = int(w.queries_tokens), int(w.hits_tokens)
    records.end_s = float(w.end_s) if np.isfinite(times["last_token_s"]).any() else float(w.now_s)
    return records, server


def warm_up() -> None:
    """Run a smallest world, so that the loop is compiled or loaded."""
    engine = EngineConfig(model="none", max_model_len=64, max_num_batched_tokens=64, max_num_seqs=1)
    profile, gpu = load_profile("h200-llama-3.1-8b"), catalogue.gpu("H200-SXM-141GB")
    model = catalogue.model("meta-llama/Llama-3.1-8B")
    assert model is not None
    one = np.ones(1, dtype=np.int64)
    table = RequestTable.build(prompt_tokens=one, output_tokens=one)
    simulate_load(engine, 16, StepCost(profile, model, gpu, engine), Load(table=table), seed=None)
