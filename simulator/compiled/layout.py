"""The world of the compiled loop, flat: one record a request, a block, an event, a step, and one of everything else.

Arrays of records, because what belongs to one request is used together.  Slot 0 of requests and block 0 (vLLM's null
block) stand for "none", so that links need no other mark.  A request has a slot from when it is sent until it has
ended, and a lane (its row of block ids) while it runs: memory is bounded by what is in flight.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simulator.step_formula import Costs

#: Steps between two visits to Python: one block of `simulator.noise`.
CHUNK = 4096

#: A slack of the engine's clock, as in `simulator.engine` and `simulator.pipeline`.
TICK_S = 1e-12
MOMENT_S = 1e-6

# What the engine waits for.
NOTHING, WORK, WOKEN, LAUNCH, RESULT = 0, 1, 2, 3, 4
# What the clients wait for: nothing, a planned time, a place, a place that is free, nothing any more.
READY, TIME, PLACE, FREED, GONE = 0, 1, 2, 3, 4
# Kinds of events.
LATENCY, ARRIVAL, RESPONSE = 0, 1, 2
# Where a request is (as `simulator.request.Status`).
WAITING, RUNNING, PREEMPTED, FINISHED = 0, 1, 2, 3
# How it ended (as `simulator.records.Status`).
DONE, REJECTED = 1, 2

_I, _F = np.int64, np.float64


def _fields(integers: str, floats: str = "") -> np.dtype[np.void]:
    return np.dtype([*((name, _I) for name in integers.split()), *((name, _F) for name in floats.split())], align=True)


#: One request in flight.  The names are those of `simulator.request.Request`; the first ones are used each step.
REQUEST = _fields(
    "num_computed num_placeholders num_tokens guard_tokens capacity hash_at end_tokens last_step "
    "planned lane num_blocks num_hashed row num_prompt priority status num_preemptions run_start "
    "ahead behind segment_start segment_stop cached_tokens recomputed_tokens",
    "sent_s engine_s scheduled_s first_token_s latest_s",
)

#: One KV block: users; its content's key and whether it is entered; links of the free queue, of the hash chain and of
#: blocks with the same content.
BLOCK = np.dtype(
    [("key", _I)]
    + [(n, np.int32) for n in ("refs", "keyed", "ahead", "behind", "chain", "twin_ahead", "twin_behind", "twin_last")],
    align=True,
)

#: Something to come: an event, or a job of the API server at the virtual time of its end.
EVENT = _fields("order kind slot", "time_s")
#: A plan in flight.
PLAN = _fields("step num_samplers", "update_s end_s")
#: What is sent: the columns of `simulator.request_table`.
ROW = _fields("num_prompt num_output priority segment_start segment_stop", "arrival_s")

#: Facts that leave for `simulator.records`.
PLANNED = _fields("tokens decode_reqs preempted running waiting free_blocks mode padded_tokens", "plan_s gpu_s")
EMITTED = _fields("continued", "emit_s deliver_s")
ENDED = _fields(
    "row status prompt_tokens output_tokens preemptions cached_tokens recomputed_tokens",
    "sent_s engine_arrival_s first_scheduled_s first_token_s last_token_s",
)
RUN = _fields("request first_step steps")

#: Settings, constant: `simulator.rules.SchedulerRules`, the pool, the front end.
SETTINGS = _fields(
    "max_num_seqs max_num_batched_tokens max_model_len is_async priority_policy enable_chunked_prefill "
    "long_prefill_token_threshold reserve_full watermark_blocks unfit_blocks_queue self_victim_ends_loop length_guard "
    "lone_ignores_threshold num_blocks block_size caching unhashed_to_head max_capture_size listens bucket_mask",
    "request_demand_s request_demand_per_token_s request_latency_s request_latency_per_token_s input_s "
    "input_per_token_s first_s first_token_per_prompt_token_s token_s token_per_stream_s finish_s",
)

#: Everything else that changes.
WORLD = _fields(
    # events and clients
    "order num_events num_jobs alarm_order clients client_order free_places next_row rows_loaded rows_offset "
    "all_loaded free_slot in_flight job_order "
    # the engine loop
    "engine engine_order inbox inbox_last step num_plans oldest preempted "
    # the scheduler
    "num_running num_waiting queue queue_last threshold queries_tokens hits_tokens num_served num_preempted "
    "planned_index planned_budget "
    # sums of the plan being made
    "num_tokens num_decodes context_sum context_max num_samplers "
    # the pool
    "num_free head fresh tail tail_last free_lane "
    # buffers
    "planned emitted ended runs pauses most_tokens most_decodes longest_context finished",
    "now_s alarm_s client_s engine_s virtual_s last_job_s jobs_at_s sent_on_s input_free_s cpu_free_s gpu_end_s tail_s "
    "delivered_s prefill_attention end_s used_share used_since_s used_integral_s used_most",
)


class State(NamedTuple):
    """All of it; the arrays are replaced by larger ones where more is in flight than they can hold."""

    world: Any
    settings: Any
    costs: Costs
    linear_s: Any  # by padded tokens
    head_s: Any  # by sampled rows
    dispatch: Any  # (uniform decodes?, tokens) -> mode and padded tokens
    noise: Any  # (GPU or launch, mode, step within the chunk)
    rows: Any
    segment_id: Any
    segment_tokens: Any
    requests: Any
    blocks: Any
    buckets: Any
    lanes: Any  # block ids of the running requests
    hits: Any
    running: Any
    queue: Any  # heap of slots, PRIORITY only
    served: Any
    granted: Any
    samplers: Any  # (plan, position): slots
    sampler_rows: Any
    plans: Any
    events: Any
    jobs: Any
    planned: Any
    emitted: Any
    ended: Any
    runs: Any
    pauses: Any


def records_of(kind: np.dtype[np.void], count: int) -> Any:
    """Return *count* records of zeros whose fields are attributes."""
    return np.zeros(count, kind).view(np.recarray)
