"""The policy of `simulator.scheduler`, line by line, on the flat world: the plan of the next step, and its results."""

from __future__ import annotations

from simulator.compiled import pool
from simulator.compiled.jit import compiled
from simulator.compiled.layout import FINISHED, PREEMPTED, RUNNING, State
from simulator.compiled.queues import append_waiting, leave_queue, put_back, waiting_head


@compiled
def schedule(s: State, plan: int) -> None:
    """Make the plan of the next step; its sums stand in the world, its samplers under the number *plan*."""
    w, p = s.world, s.settings
    w.num_served = w.num_preempted = 0
    alone = p.lone_ignores_threshold and w.num_running + w.num_waiting == 1
    w.threshold = 0 if alone else p.long_prefill_token_threshold
    budget = _serve_running(s)
    if w.num_preempted == 0 and w.num_waiting and budget > 0:
        _admit_waiting(s, budget)
    _account(s, plan)


@compiled
def _serve_running(s: State) -> int:
    """Give tokens to the running requests in order of admission; return the budget left."""
    w, p, requests, running = s.world, s.settings, s.requests, s.running
    budget, index, longest = p.max_num_batched_tokens, 0, p.max_model_len - 1
    while index < w.num_running and budget > 0:
        slot = running[index]
        request = requests[slot]
        computed, placeholders = request.num_computed, request.num_placeholders
        if placeholders and p.length_guard and computed + 2 - placeholders >= request.guard_tokens:
            index += 1
            continue
        n = request.num_tokens + placeholders - computed
        if n != 1:
            if w.threshold:
                n = min(n, w.threshold)
            n = min(n, budget)
        n = min(n, longest - computed)
        if n <= 0:
            index += 1
            continue
        end = computed + n
        if end > request.capacity:
            w.planned_index, w.planned_budget = index, budget
            _make_room(s, slot, end)
            index, budget = w.planned_index, w.planned_budget
            if request.status != RUNNING:
                if p.self_victim_ends_loop:
                    break
                continue
        if p.caching and end >= request.hash_at:
            pool.register(s, slot, min(end, request.num_tokens))
        _grant(s, slot, n)
        budget -= n
        index += 1
    return budget


@compiled
def _grant(s: State, slot: int, n: int) -> None:
    w = s.world
    s.requests[slot].planned = n
    s.served[w.num_served] = slot
    s.granted[w.num_served] = n
    w.num_served += 1


@compiled
def _make_room(s: State, slot: int, end: int) -> None:
    """Get blocks for *end* tokens of a running request, throwing out victims until it fits or is one itself."""
    w, requests, size = s.world, s.requests, s.settings.block_size
    needed = (end + size - 1) // size - requests[slot].num_blocks
    while needed > w.num_free:
        victim = _choose_victim(s)
        if requests[victim].planned:  # it was served earlier in this plan: undo
            at = 0
            while s.served[at] != victim:
                at += 1
            w.planned_budget += s.granted[at]
            w.num_served -= 1
            for place in range(at, w.num_served):
                s.served[place], s.granted[place] = s.served[place + 1], s.granted[place + 1]
            w.planned_index -= 1
        _preempt(s, victim)
        w.num_preempted += 1
        if victim == slot:
            return
    pool.grow(s, slot, needed)


@compiled
def _choose_victim(s: State) -> int:
    """Take the victim out of the running list: the newest admission, or the least important one."""
    w, requests, running = s.world, s.requests, s.running
    if not s.settings.priority_policy:
        w.num_running -= 1
        return running[w.num_running]
    worst = 0
    for place in range(1, w.num_running):
        one, other = requests[running[place]], requests[running[worst]]
        if one.priority > other.priority or (one.priority == other.priority and one.sent_s > other.sent_s):
            worst = place
    victim = running[worst]
    _stop_running(s, victim)
    return victim


@compiled
def _stop_running(s: State, slot: int) -> None:
    w, running = s.world, s.running
    place = 0
    while running[place] != slot:
        place += 1
    w.num_running -= 1
    for later in range(place, w.num_running):
        running[later] = running[later + 1]


@compiled
def _preempt(s: State, slot: int) -> None:
    """Take a victim's KV, keep its tokens, and put it at the head of the queue."""
    request = s.requests[slot]
    pool.free(s, slot, True)
    _leave_lane(s, slot)
    request.num_computed = request.planned = 0
    request.num_preemptions += 1
    request.status = PREEMPTED
    put_back(s, slot)


@compiled
def _admit_waiting(s: State, budget: int) -> None:
    """Admit from the head of the queue until a limit is met or somebody does not fit."""
    w, p, requests = s.world, s.settings, s.requests
    passed, passed_last = 0, 0
    while w.num_waiting and budget > 0 and w.num_running < p.max_num_seqs:
        slot = waiting_head(s)
        request = requests[slot]
        hits = pool.find_hits(s, slot)
        cached = hits * p.block_size
        if p.caching and request.num_preemptions == 0:
            w.queries_tokens += request.num_tokens
            w.hits_tokens += cached
        n = request.num_tokens - cached
        if w.threshold:
            n = min(n, w.threshold)
        if not p.enable_chunked_prefill and n > budget:
            if p.unfit_blocks_queue:
                break
            leave_queue(s, slot)
            request.behind = 0
            if passed_last:
                requests[passed_last].behind = slot
            else:
                passed = slot
            passed_last = slot
            continue
        n = min(n, budget)
        if not _can_admit(s, slot, hits, cached + n):
            break
        leave_queue(s, slot)
        _admit(s, slot, hits, n)
        budget -= n
    while passed:  # which turns their order round, as vLLM did up to 0.11.2
        following = requests[passed].behind
        put_back(s, passed)
        passed = following


@compiled
def _can_admit(s: State, slot: int, hits: int, num_tokens: int) -> bool:
    """Return whether the blocks for *num_tokens* (and, if so ruled, for the whole sequence) are free."""
    w, p = s.world, s.settings
    free = w.num_free - (p.watermark_blocks if w.num_running else 0)
    needed = pool.count_idle(s, hits) - hits
    if p.reserve_full:
        num_tokens = max(num_tokens, min(s.requests[slot].num_tokens, p.max_model_len))
    return bool(needed + (min(num_tokens, p.max_model_len) + p.block_size - 1) // p.block_size <= free)


@compiled
def _admit(s: State, slot: int, hits: int, n: int) -> None:
    w, p, request = s.world, s.settings, s.requests[slot]
    lane = w.free_lane
    w.free_lane = s.lanes[lane, 0]
    request.lane = lane
    if hits:
        pool.take_hits(s, slot, hits)
    cached = hits * p.block_size
    needed = (cached + n + p.block_size - 1) // p.block_size - hits
    if needed > 0:
        pool.grow(s, slot, needed)
    if p.caching:
        pool.register(s, slot, min(cached + n, request.num_tokens))
    request.num_computed = cached
    request.status = RUNNING
    s.running[w.num_running] = slot
    w.num_running += 1
    if request.num_preemptions == 0:
        request.scheduled_s = w.now_s
        request.cached_tokens = cached
    else:
        request.recomputed_tokens += request.num_tokens - cached
    _grant(s, slot, n)


@compiled
def _leave_lane(s: State, slot: int) -> None:
    lane = s.requests[slot].lane
    s.lanes[lane, 0] = s.world.free_lane
    s.world.free_lane = lane


@compiled
def _account(s: State, plan: int) -> None:
    """Advance the computed counts at plan time, choose who samples, and sum up what the step costs depend on."""
    w, requests, is_async = s.world, s.requests, s.settings.is_async
    total = decodes = context_sum = context_max = samplers = 0
    attention = 0.0
    for index in range(w.num_served):
        slot, n = s.served[index], s.granted[index]
        request = requests[slot]
        context = request.num_computed
        end = context + n
        request.num_computed = end
        request.planned = 0
        total += n
        if n == 1:
            decodes += 1
            context_sum += context
            context_max = max(context_max, context)
        else:
            attention += n * (context + 0.5 * n)
        if end >= request.num_tokens + request.num_placeholders:
            s.samplers[plan, samplers] = slot
            s.sampler_rows[plan, samplers] = request.row
            samplers += 1
            if is_async:
                request.num_placeholders += 1
    w.num_tokens, w.num_decodes, w.num_samplers = total, decodes, samplers
    w.context_sum, w.context_max, w.prefill_attention = context_sum, context_max, attention


@compiled
def receive(s: State, slot: int) -> bool:
    """Take in a token of the request; return whether it has ended with it."""
    p, request = s.settings, s.requests[slot]
    request.num_tokens += 1
    if p.is_async:
        request.num_placeholders -= 1
        if p.caching and request.status == RUNNING:
            known = request.num_computed - request.num_placeholders
            if known >= request.hash_at:
                pool.register(s, slot, known)
    return bool(request.num_tokens >= request.end_tokens)


@compiled
def finish(s: State, slot: int) -> None:
    """The request has got its last token: its blocks are free."""
    request = s.requests[slot]
    if request.status == RUNNING:
        _stop_running(s, slot)
        pool.free(s, slot, False)
        _leave_lane(s, slot)
    else:  # async: preempted after its last token was planned
        leave_queue(s, slot)
    request.status = FINISHED


@compiled
def add(s: State, slot: int) -> None:
    """Queue a new request."""
    request = s.requests[slot]
    request.end_tokens = min(request.end_tokens, s.settings.max_model_len)
    append_waiting(s, slot)


@compiled
def can_ever_run(s: State, slot: int) -> bool:
    """Return whether an empty engine could serve the request to its end."""
    p, request = s.settings, s.requests[slot]
    last = min(request.end_tokens, p.max_model_len) - 1
    needed = (max(last, request.num_prompt) + p.block_size - 1) // p.block_size
    return bool(needed <= p.num_blocks - 1 and request.num_prompt < p.max_model_len)
