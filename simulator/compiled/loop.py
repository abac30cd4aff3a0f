"""The engine loop of `simulator.engine` on the flat world, step by step, and the clock that drives everything.

`advance` goes on until something is for Python to do: take out facts, draw noise, make room, load requests.  It may
stop between any two events and goes on where it stopped.
"""

from __future__ import annotations

from math import inf
from typing import Any

from simulator import step_formula
from simulator.compiled import front, scheduling
from simulator.compiled.jit import compiled, digest_of_sources, keep
from simulator.compiled.layout import (
    ARRIVAL,
    CHUNK,
    FINISHED,
    FREED,
    LATENCY,
    LAUNCH,
    MOMENT_S,
    NOTHING,
    READY,
    RESULT,
    TICK_S,
    TIME,
    WORK,
    State,
)
from simulator.compiled.queues import pop
from simulator.step_formula import Costs

_gpu_s: Any = compiled(step_formula.gpu_s)
_decodes_alone_s: Any = compiled(step_formula.decodes_alone_s)
_decodes_mixed_s: Any = compiled(step_formula.decodes_mixed_s)
_launch_s: Any = compiled(step_formula.launch_s)


@compiled
def _wait(s: State, until_s: float, why: int) -> bool:
    """Let the engine sleep until a time; return whether it has come already."""
    w = s.world
    left_s = until_s - w.now_s
    if left_s <= TICK_S:
        return False
    w.engine, w.engine_s, w.engine_order = why, w.now_s + left_s, w.order
    w.order += 1
    return True


@compiled
def _engine_turn(s: State) -> None:
    """Go on with the loop from where it waited; see `simulator.engine.EngineCore`."""
    w, requests = s.world, s.requests
    depth = 2 if s.settings.is_async else 1
    if w.engine == RESULT:
        if not _wait(s, _result_s(s), RESULT):
            _take_results(s)
        return
    if w.engine == LAUNCH and _wait(s, w.cpu_free_s, LAUNCH):
        return
    w.engine = NOTHING
    while w.inbox:
        slot = w.inbox
        w.inbox = requests[slot].behind
        scheduling.add(s, slot)
    w.inbox_last = 0
    if w.num_plans < depth and (w.num_running or w.num_waiting):
        plan = (w.oldest + w.num_plans) & 1
        scheduling.schedule(s, plan)
        w.preempted += w.num_preempted
        if w.num_tokens:
            _launch(s, plan)
            if w.num_plans < depth:
                _wait(s, w.cpu_free_s, LAUNCH)
                return
        elif w.num_preempted and w.num_plans == 0:
            return  # what was thrown out may be admitted by the next plan
    if w.num_plans == 0:
        w.engine = WORK
    elif not _wait(s, _result_s(s), RESULT):
        _take_results(s)


@compiled
def _result_s(s: State) -> float:
    """Return when the oldest results have been taken in."""
    plan = s.plans[s.world.oldest]
    return float(max(plan.end_s, s.world.cpu_free_s) + plan.update_s)


@compiled
def _launch(s: State, number: int) -> None:
    """Start the plan *number* on the two time lines."""
    w, p, costs = s.world, s.settings, s.costs
    tokens, num_reqs = w.num_tokens, w.num_served
    mode, padded = 0, tokens
    if tokens <= p.max_capture_size:
        uniform = 1 if tokens == num_reqs else 0
        mode, padded = s.dispatch[uniform, tokens, 0], s.dispatch[uniform, tokens, 1]
    idle = w.num_plans == 0 and w.now_s > w.cpu_free_s + MOMENT_S
    gpu_s = _step_s(s, costs, padded, tokens, num_reqs)
    launch_s = _launch_s(costs, mode, num_reqs, idle)
    place = w.planned
    gpu_s *= s.noise[0, mode, place]
    launch_s *= s.noise[1, mode, place]
    plan = s.plans[number]
    launch_start_s = w.now_s + (costs.schedule_s + costs.schedule_per_request_s * num_reqs)
    launch_end_s = launch_start_s + launch_s
    gpu_start_s = max(w.gpu_end_s, launch_start_s + (costs.idle_start_s if idle else costs.start_s))
    w.gpu_end_s = max(gpu_start_s + gpu_s, launch_end_s + costs.tail_s[mode])
    w.cpu_free_s = launch_end_s
    w.tail_s = costs.tail_s[mode]
    plan.end_s = w.gpu_end_s
    plan.update_s = costs.update_s + costs.update_per_request_s * num_reqs
    plan.step = w.step
    plan.num_samplers = w.num_samplers
    w.num_plans += 1
    w.step += 1
    w.most_tokens = max(w.most_tokens, tokens)
    w.most_decodes = max(w.most_decodes, w.num_decodes)
    w.longest_context = max(w.longest_context, w.context_max)
    fact = s.planned[place]
    w.planned = place + 1
    fact.plan_s, fact.gpu_s, fact.mode, fact.padded_tokens = w.now_s, gpu_s, mode, padded
    fact.tokens, fact.decode_reqs, fact.preempted = tokens, w.num_decodes, w.preempted
    fact.running, fact.waiting, fact.free_blocks = w.num_running, w.num_waiting, w.num_free
    w.preempted = 0
    _note_usage(s, 1.0 - w.num_free / (s.settings.num_blocks - 1))


@compiled
def _note_usage(s: State, share: float) -> None:
    """Keep the integral and the maximum of the used share of the blocks over time."""
    w = s.world
    w.used_integral_s += w.used_share * (w.now_s - w.used_since_s)
    w.used_share, w.used_since_s = share, w.now_s
    w.used_most = max(w.used_most, share)


@compiled
def _step_s(s: State, costs: Costs, padded: int, tokens: int, num_reqs: int) -> float:
    """GPU time of the plan just made, without noise."""
    w = s.world
    decodes_s = 0.0
    if w.num_decodes > 0:
        if tokens > w.num_decodes:
            decodes_s = _decodes_mixed_s(costs, w.num_decodes, float(w.context_sum))
        else:
            decodes_s = _decodes_alone_s(costs, w.num_decodes, float(w.context_sum), float(w.context_max))
    linear_s, head_s = s.linear_s[padded], s.head_s[w.num_samplers]
    seconds: float = _gpu_s(costs, linear_s, head_s, num_reqs, decodes_s, w.prefill_attention)
    return seconds


@compiled
def _take_results(s: State) -> None:
    """The oldest results have been processed: who got a token, who ended, what the clients see."""
    w, requests = s.world, s.requests
    number = w.oldest
    plan = s.plans[number]
    w.oldest = (w.oldest + 1) & 1
    w.num_plans -= 1
    w.cpu_free_s = w.now_s
    w.engine = NOTHING
    yielded = ended = 0
    for index in range(plan.num_samplers):
        slot = s.samplers[number, index]
        if requests[slot].row != s.sampler_rows[number, index] or requests[slot].status == FINISHED:
            continue  # async: it has ended since the plan was made
        s.served[yielded] = slot
        yielded += 1
        if scheduling.receive(s, slot):
            s.granted[ended] = slot
            ended += 1
    for index in range(ended):
        scheduling.finish(s, s.granted[index])
    front.deliver(s, number, yielded, ended)
    if w.num_running == 0 and w.num_plans == 0:
        _note_usage(s, 0.0)  # nobody holds a block, although no plan says so


@compiled
def _must_stop(s: State) -> bool:
    """Whether Python has something to do before the next event."""
    w, width = s.world, 2 * len(s.running) + 2
    return bool(
        w.planned == CHUNK
        or w.emitted >= CHUNK
        or w.ended + width > len(s.ended)
        or w.runs + width > len(s.runs)
        or w.pauses + width > len(s.pauses)
        or w.num_events + width > len(s.events)
        or w.free_slot == 0
        or (w.next_row == w.rows_loaded and not w.all_loaded)
    )


def _with_digest(digest: int) -> Any:
    def advance(s: State) -> int:
        """Go on until Python has something to do; `finished` tells whether nothing will happen any more."""
        w = s.world
        while not _must_stop(s):
            if w.engine == NOTHING:
                _engine_turn(s)
                continue
            if w.clients == READY:
                front.client_turn(s)
                continue
            # Of all that may come next: engine, client, alarm, event; at the same time in the order of their making.
            time_s, order, what = inf, 0, 0
            if w.engine != WORK:
                time_s, order, what = w.engine_s, w.engine_order, 1
            if (w.clients in (TIME, FREED)) and (
                w.client_s < time_s or (w.client_s == time_s and w.client_order < order)
            ):
                time_s, order, what = w.client_s, w.client_order, 2
            if w.alarm_s < time_s or (w.alarm_s == time_s and w.alarm_s < inf and w.alarm_order < order):
                time_s, order, what = w.alarm_s, w.alarm_order, 3
            if w.num_events:
                event = s.events[0]
                if event.time_s < time_s or (event.time_s == time_s and event.order < order):
                    time_s, order, what = event.time_s, event.order, 4
            if what == 0:
                w.finished = 1
                break
            w.now_s = time_s
            if what == 1:
                _engine_turn(s)
            elif what == 2:
                front.client_turn(s)
            elif what == 3:
                front.depart(s)
            else:
                kind, slot = s.events[0].kind, s.events[0].slot
                pop(s.events, w.num_events)
                w.num_events -= 1
                if kind == LATENCY:
                    front.decode(s, slot)
                elif kind == ARRIVAL:
                    front.arrive(s, slot)
                else:
                    front.response_complete(s)
        return digest  # part of the key under which the compiled code is kept

    return advance


advance = keep(_with_digest(digest_of_sources()))
