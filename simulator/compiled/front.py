"""Clients, API server and deliveries of the compiled loop: `simulator.clients`, `front_end` and `delivery`, flat."""

from __future__ import annotations

from math import inf

from simulator.compiled import scheduling
from simulator.compiled.jit import compiled
from simulator.compiled.layout import (
    ARRIVAL,
    DONE,
    FREED,
    GONE,
    LATENCY,
    PLACE,
    READY,
    REJECTED,
    RESPONSE,
    TIME,
    WAITING,
    WOKEN,
    WORK,
    State,
)
from simulator.compiled.queues import announce, pop, push

# Clients --------------------------------------------------------------------------------------------------------------


@compiled
def client_turn(s: State) -> None:
    """Send the next request, or wait for its time or a place; its row is loaded if there is one."""
    w = s.world
    if w.next_row == w.rows_loaded:
        w.clients = GONE
        return
    wait_s = s.rows[w.next_row - w.rows_offset].arrival_s - w.now_s
    if w.clients == READY and wait_s > 0:
        _wake_client(s, TIME, wait_s)
        return
    if w.free_places == 0:
        w.clients = PLACE
        return
    w.free_places -= 1
    w.clients = READY
    _send(s)


@compiled
def _wake_client(s: State, why: int, delay_s: float) -> None:
    w = s.world
    w.clients, w.client_s, w.client_order = why, w.now_s + delay_s, w.order
    w.order += 1


@compiled
def response_complete(s: State) -> None:
    """A place is free for the next request."""
    w = s.world
    w.free_places += 1
    if w.clients == PLACE:
        _wake_client(s, FREED, 0.0)


@compiled
def _send(s: State) -> None:
    """Send the next row: it gets a slot, and the API server works on it."""
    w, p, requests = s.world, s.settings, s.requests
    row = s.rows[w.next_row - w.rows_offset]
    slot = w.free_slot
    request = requests[slot]
    w.free_slot = request.behind
    w.in_flight += 1
    request.row = w.next_row
    request.num_prompt = request.num_tokens = row.num_prompt
    request.guard_tokens = request.end_tokens = row.num_prompt + row.num_output
    request.priority = row.priority
    request.segment_start, request.segment_stop = row.segment_start, row.segment_stop
    request.status = WAITING
    request.num_computed = request.num_placeholders = request.planned = request.num_preemptions = 0
    request.capacity = request.num_blocks = request.num_hashed = 0
    request.hash_at = p.block_size
    request.cached_tokens = request.recomputed_tokens = 0
    request.run_start, request.last_step = -1, -2
    request.sent_s = w.now_s
    request.engine_s = request.scheduled_s = request.first_token_s = request.latest_s = float("nan")
    w.next_row += 1
    # Processor sharing in order of arrival: virtual time advances at 1/n of real time, nobody overtakes.
    demand_s = p.request_demand_s + p.request_demand_per_token_s * row.num_prompt
    _advance_jobs(s)
    w.job_order += 1
    w.last_job_s = max(w.last_job_s, w.virtual_s + demand_s)
    push(s.jobs, w.num_jobs, w.last_job_s, w.job_order, 0, slot)
    w.num_jobs += 1
    _arm(s)


# API server, requests -------------------------------------------------------------------------------------------------


@compiled
def _advance_jobs(s: State) -> None:
    w = s.world
    if w.num_jobs:
        w.virtual_s += (w.now_s - w.jobs_at_s) / w.num_jobs
    w.jobs_at_s = w.now_s


@compiled
def _arm(s: State) -> None:
    """Set the alarm for the next departure; there is one alarm only."""
    w = s.world
    w.alarm_s = inf
    if w.num_jobs:
        departure_s = w.jobs_at_s + (s.jobs[0].time_s - w.virtual_s) * w.num_jobs
        w.alarm_s = w.now_s + max(0.0, departure_s - w.now_s)
        w.alarm_order = w.order
        w.order += 1


@compiled
def depart(s: State) -> None:
    """The API server has served a request, which is on its way to the engine's input thread now."""
    w, p = s.world, s.settings
    end_s, slot = s.jobs[0].time_s, s.jobs[0].slot
    _advance_jobs(s)
    w.virtual_s = end_s
    pop(s.jobs, w.num_jobs)
    w.num_jobs -= 1
    latency_s = p.request_latency_s + p.request_latency_per_token_s * s.requests[slot].num_prompt
    w.sent_on_s = max(w.sent_on_s, w.now_s + latency_s)
    announce(s, w.sent_on_s - w.now_s, LATENCY, slot)
    _arm(s)


@compiled
def decode(s: State, slot: int) -> None:
    """The input thread takes one request after the other, at the expense of a launch in progress."""
    w, p = s.world, s.settings
    work_s = p.input_s + p.input_per_token_s * s.requests[slot].num_prompt
    w.input_free_s = max(w.input_free_s, w.now_s) + work_s
    if w.num_plans and w.now_s < w.cpu_free_s:
        newest = s.plans[(w.oldest + w.num_plans - 1) & 1]
        w.cpu_free_s += work_s
        newest.end_s = max(newest.end_s, w.cpu_free_s + w.tail_s)
        w.gpu_end_s = newest.end_s
    announce(s, w.input_free_s - w.now_s, ARRIVAL, slot)


@compiled
def arrive(s: State, slot: int) -> None:
    """A request reaches the engine's queue, or is refused because it can never run."""
    w, requests = s.world, s.requests
    if not scheduling.can_ever_run(s, slot):
        leave(s, slot, REJECTED, float("nan"))
        response_complete(s)
        return
    requests[slot].behind = 0
    if w.inbox_last:
        requests[w.inbox_last].behind = slot
    else:
        w.inbox = slot
    w.inbox_last = slot
    requests[slot].engine_s = w.now_s
    if w.engine == WORK:
        w.engine, w.engine_s, w.engine_order = WOKEN, w.now_s, w.order
        w.order += 1


# API server, tokens ---------------------------------------------------------------------------------------------------


@compiled
def deliver(s: State, plan: int, num_yielded: int, num_ended: int) -> None:
    """Deliver the tokens of a step, emitted now; *served* holds who got one, *granted* who ended with it."""
    w, p, requests = s.world, s.settings, s.requests
    step = s.plans[plan].step
    service_s = p.token_per_stream_s * num_yielded + p.finish_s * num_ended
    continued, old_pauses = 0, w.pauses
    for index in range(num_yielded):
        slot = s.served[index]
        request = requests[slot]
        if request.last_step == step - 1:
            continued += 1
        else:
            if request.run_start >= 0:
                _close_run(s, slot)
                s.pauses[w.pauses] = request.latest_s  # until the new time is known
                w.pauses += 1
            else:
                service_s += p.first_s + p.first_token_per_prompt_token_s * request.num_prompt
            request.run_start = step
        request.last_step = step
    w.delivered_s = max(w.delivered_s, w.now_s) + service_s
    deliver_s = w.delivered_s + p.token_s
    for index in range(num_yielded):
        request = requests[s.served[index]]
        if request.run_start == step and request.first_token_s != request.first_token_s:
            request.first_token_s = deliver_s
        request.latest_s = deliver_s
    for index in range(old_pauses, w.pauses):
        s.pauses[index] = deliver_s - s.pauses[index]
    fact = s.emitted[w.emitted]
    w.emitted += 1
    fact.emit_s, fact.deliver_s, fact.continued = w.now_s, deliver_s, continued
    for index in range(num_ended):
        slot = s.granted[index]
        _close_run(s, slot)
        leave(s, slot, DONE, deliver_s)
        if p.listens:
            announce(s, deliver_s - w.now_s, RESPONSE, 0)


@compiled
def _close_run(s: State, slot: int) -> None:
    w, request = s.world, s.requests[slot]
    run = s.runs[w.runs]
    w.runs += 1
    run.request, run.first_step = request.row, request.run_start
    run.steps = request.last_step - request.run_start + 1


@compiled
def leave(s: State, slot: int, status: int, last_token_s: float) -> None:
    """The request is over: its facts leave, and its slot is free."""
    w, request = s.world, s.requests[slot]
    fact = s.ended[w.ended]
    w.ended += 1
    fact.row, fact.status = request.row, status
    fact.prompt_tokens = request.num_prompt
    fact.output_tokens = request.num_tokens - request.num_prompt
    fact.preemptions = request.num_preemptions
    fact.cached_tokens, fact.recomputed_tokens = request.cached_tokens, request.recomputed_tokens
    fact.sent_s, fact.engine_arrival_s, fact.first_scheduled_s = request.sent_s, request.engine_s, request.scheduled_s
    fact.first_token_s, fact.last_token_s = request.first_token_s, last_token_s
    if last_token_s > w.end_s:
        w.end_s = last_token_s
    request.behind = w.free_slot
    request.row = -1
    w.free_slot = slot
    w.in_flight -= 1
