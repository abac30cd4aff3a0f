"""A small world for the tests of what is derived from records: three steps of one second, two requests."""

from array import array

import numpy as np

from simulator.records import Records, Status


def add_step(records: Records, plan: float, emit: float, deliver: float, **state: float) -> None:
    defaults = {"running": 1, "waiting": 0, "free_blocks": 10, "tokens": 1, "decode_reqs": 1, "preempted": 0, "mode": 2}
    row = {**defaults, "padded_tokens": 1, "gpu_s": emit - plan, **state}
    for name, value in {"plan_s": plan, "emit_s": emit, "deliver_s": deliver, **row}.items():
        getattr(records, f"step_{name}").append(value)


def add_run(records: Records, request: int, first_step: int, steps: int) -> None:
    records.run_request.append(request)
    records.run_first_step.append(first_step)
    records.run_steps.append(steps)


def small_world() -> Records:
    """Request 0 (P 16): sent 0, tokens of steps 0, 1, 2.  Request 1 (P 8): sent 0.5, tokens of step 1, pause, step 3.

    Steps 0..2 are planned at 0, 1, 2 and emitted 1 s later; step 3 runs from 4 to 5.  Clients see later tokens 0.1 s
    after emission, first tokens 0.2 s after it.  11 blocks: 10 can be used.
    """
    records = Records.for_requests(np.array([16, 8]), num_gpu_blocks=11, block_size=16)
    add_step(records, 0, 1, 1.1, running=1, waiting=0, free_blocks=8)
    add_step(records, 1, 2, 2.1, running=2, waiting=0, free_blocks=6)
    add_step(records, 2, 3, 3.1, running=1, waiting=1, free_blocks=5, preempted=1)
    add_step(records, 4, 5, 5.1, running=1, waiting=0, free_blocks=9)
    add_run(records, 1, 1, 1)
    add_run(records, 0, 0, 3)
    add_run(records, 1, 3, 1)
    records.sent_s = array("d", [0.0, 0.5])
    records.engine_arrival_s = array("d", [0.0, 0.6])
    records.first_scheduled_s = array("d", [0.0, 1.0])
    records.first_token_s = array("d", [1.2, 2.2])
    records.last_token_s = array("d", [3.1, 5.1])
    records.output_tokens = array("q", [3, 2])
    records.preemptions = array("q", [0, 1])
    records.recomputed_tokens = array("q", [0, 9])
    records.status = array("B", [Status.FINISHED, Status.FINISHED])
    records.prefix_queries_tokens, records.prefix_hits_tokens = 40, 10
    records.end_s = 5.1
    return records
