"""vLLM V1's scheduler: pure decisions, no clock, no costs.

`V1Scheduler.schedule` makes the plan of the next step, `V1Scheduler.update` takes in the tokens of a finished one.
With async scheduling the engine calls `schedule` for step n + 1 before `update` for step n; the placeholders of the
requests bridge the gap.  The order of service is the order of admission; the victim of a block shortage is the newest
admission (or the least important request); whoever waits is admitted from the head only, and never in a step that
preempted.

Source: vllm/v1/core/sched/scheduler.py and async_scheduler.py, read in 0.24.0, earlier versions by `SchedulerRules`;
checked against golden traces of the real classes.  Not modelled: drafts, LoRA slots, encoder budgets, remote KV.
"""

from __future__ import annotations

from collections.abc import Iterable

from simulator.blocks import BlockPool
from simulator.plan import Plan
from simulator.request import Request, Status
from simulator.rules import SchedulerRules
from simulator.waiting import WaitingQueue


class V1Scheduler:
    """The V1 policy over one block pool."""

    def __init__(self, rules: SchedulerRules, blocks: BlockPool) -> None:
        self.rules = rules
        self.blocks = blocks
        self.running: list[Request] = []
        self.waiting = WaitingQueue(priority=rules.priority_policy)
        self._admissions = 0
        self._threshold = rules.long_prefill_token_threshold
        self.watermark_blocks = int(rules.watermark * blocks.num_blocks)
        #: Prefix lookups in tokens, as vllm:prefix_cache_queries and _hits count them.
        self.prefix_queries_tokens = 0
        self.prefix_hits_tokens = 0

    @property
    def has_requests(self) -> bool:
        """Whether anything is waiting or running."""
        return bool(self.running) or len(self.waiting) > 0

    def counts(self) -> tuple[int, int, int]:
        """Return (running requests, waiting requests, free blocks)."""
        return len(self.running), len(self.waiting), self.blocks.num_free

    def can_ever_run(self, request: Request) -> bool:
        """Return whether an empty engine could serve *request* to its end."""
        last = min(request.end_tokens, self.rules.max_model_len) - 1
        needed = -(-max(last, request.num_prompt_tokens) // self.blocks.block_size)
        return needed <= self.blocks.num_blocks - 1 and request.num_prompt_tokens < self.rules.max_model_len

    def add(self, requests: Iterable[Request]) -> None:
        """Queue new requests, in the order in which the engine takes them in."""
        for request in requests:
            request.end_tokens = min(request.end_tokens, self.rules.max_model_len)
            self.waiting.append(request)

    # -- planning -------------------------------------------------------------------------------------------------

    def schedule(self) -> Plan:
        """Return the plan of the next step (its `num_tokens` is 0 if nothing can be done)."""
        plan = Plan()
        self._choose_threshold()
        budget = self._serve_running(plan, 0, self.rules.max_num_batched_tokens)
        if not plan.preempted and self.waiting and budget > 0:
            self._admit_waiting(plan, budget)
        self._account(plan)
        return plan

    def _choose_threshold(self) -> None:
        rules = self.rules
        alone = rules.lone_request_ignores_threshold and len(self.running) + len(self.waiting) == 1
        self._threshold = 0 if alone else rules.long_prefill_token_threshold

    def _serve_running(self, plan: Plan, index: int, budget: int) -> int:
        """Give tokens to the running requests from *index* on, in order of admission; return the budget left."""
        rules, blocks, running = self.rules, self.blocks, self.running
        threshold, longest, guarded = self._threshold, rules.max_model_len - 1, rules.async_length_guard
        caching, block_size = blocks.caching, blocks.block_size
        served, tokens = plan.requests, plan.tokens
        while index < len(running) and budget > 0:
            request = running[index]
            computed, placeholders = request.num_computed_tokens, request.num_placeholders
            # Async: do not plan a step that could only produce a token beyond max_tokens.
            if (
                placeholders
                and guarded
                and computed + 2 - placeholders >= request.num_prompt_tokens + request.max_tokens
            ):
                index += 1
                continue
            n = request.num_tokens + placeholders - computed
            if n != 1:
                if threshold:
                    n = min(n, threshold)
                n = min(n, budget)
            n = min(n, longest - computed)
            if n <= 0:
                index += 1
                continue
            end = computed + n
            if end > request.capacity:
                index, budget = self._make_room(plan, request, end, index, budget)
                if request.status is not Status.RUNNING:
                    if rules.self_victim_ends_loop:
                        break
                    continue
            if caching and end // block_size > request.num_hashed_blocks:
                blocks.register(request, min(end, request.num_tokens))
            request.planned_tokens = n
            served.append(request)
            tokens.append(n)
            budget -= n
            index += 1
        return budget

    def _make_room(self, plan: Plan, request: Request, end: int, index: int, budget: int) -> tuple[int, int]:
        """Get blocks for *end* tokens of a running request, throwing out victims until it fits or is one itself."""
        blocks = self.blocks
        needed = -(-end // blocks.block_size) - len(request.blocks)
        while needed > blocks.num_free:
            victim = self._choose_victim()
            if victim.planned_tokens:  # it was served earlier in this plan: undo
                at = plan.requests.index(victim)
                budget += plan.tokens[at]
                del plan.requests[at], plan.tokens[at]
                index -= 1
            self._preempt(victim)
            plan.preempted.append(victim)
            if victim is request:
                return index, budget
        blocks.grow(request, needed)
        return index, budget

    def _choose_victim(self) -> Request:
        running = self.running
        if not self.rules.priority_policy:
            return running.pop()
        victim = max(running, key=lambda request: (request.priority, request.arrival))
        running.remove(victim)
        return victim

    def _preempt(self, victim: Request) -> None:
        """Take a victim's KV, keep its tokens, and put it at the head of the queue."""
        self.blocks.free(victim, comes_back=True)
        victim.num_computed_tokens = 0
        victim.planned_tokens = 0
        victim.num_preemptions += 1
        victim.status = Status.PREEMPTED
        self.waiting.put_back(victim)

    def _admit_waiting(self, plan: Plan, budget: int) -> None:
        """Admit from the head of the queue until a limit is met or somebody does not fit."""
        rules, blocks, running, waiting = self.rules, self.blocks, self.running, self.waiting
        passed_over: list[Request] = []
        while waiting and budget > 0 and len(running) < rules.max_num_seqs:
            request = waiting.head()
            hits = blocks.find_hits(request)
            cached = len(hits) * blocks.block_size
            if blocks.caching and request.num_preemptions == 0:
                self.prefix_queries_tokens += request.num_tokens
                self.prefix_hits_tokens += cached
            n = request.num_tokens - cached
            if self._threshold:
                n = min(n, self._threshold)
            if not rules.enable_chunked_prefill and n > budget:
                if rules.unfit_prompt_blocks_queue:
                    break
                passed_over.append(waiting.pop())
                continue
            n = min(n, budget)
            if not self._can_admit(request, hits, cached + n):
                break
            waiting.pop()
            self._admit(plan, request, hits, n)
            budget -= n
        for request in passed_over:  # which turns their order round, as vLLM did up to 0.11.2
            waiting.put_back(request)

    def _can_admit(self, request: Request, hits: list[int], num_tokens: int) -> bool:
        """Return whether the blocks for *num_tokens* (and, if so ruled, for the whole sequence) are free."""
        rules, blocks = self.rules, self.blocks
        free = blocks.num_free - (self.watermark_blocks if self.running else 0)
        # Hits that nobody uses stand in the free queue and will leave it.
        needed = blocks.count_idle(hits) - len(hits)
        if rules.scheduler_reserve_full_isl:
            num_tokens = max(num_tokens, min(request.num_tokens, rules.max_model_len))
        return needed - (-min(num_tokens, rules.max_model_len) // blocks.block_size) <= free

    def _admit(self, plan: Plan, request: Request, hits: list[int], n: int) -> None:
        blocks = self.blocks
        if hits:
            blocks.take_hits(request, hits)
        cached = len(hits) * blocks.block_size
        needed = -(-(cached + n) // blocks.block_size) - len(hits)
        if needed > 0:
            blocks.grow(request, needed)
        if blocks.caching:
            blocks.register(request, min(cached + n, request.num_tokens))
        request.num_computed_tokens = cached
        if request.num_cached_tokens < 0:
            request.num_cached_tokens = cached
        request.status = Status.RUNNING
        request.planned_tokens = n
        request.order = self._admissions
        self._admissions += 1
        self.running.append(request)
        plan.admitted.append((request, cached))
        plan.requests.append(request)
        plan.tokens.append(n)

    def _account(self, plan: Plan) -> None:
        """Advance the computed counts at plan time, choose who samples, and sum up what the step costs depend on."""
        is_async = self.rules.async_scheduling
        samplers = plan.samplers
        context_sum = context_max = decodes = total = 0
        attention = 0.0
        for request, n in zip(plan.requests, plan.tokens, strict=True):
            context = request.num_computed_tokens
            end = context + n
            request.num_computed_tokens = end
            request.planned_tokens = 0
            total += n
            if n == 1:
                decodes += 1
                context_sum += context
                if context > context_max:
                    context_max = context
            else:
                attention += n * (context + 0.5 * n)
            if end >= request.num_tokens + request.num_placeholders:
                samplers.append(request)
                if is_async:
                    request.num_placeholders += 1
        plan.num_tokens = total
        plan.decode_reqs = decodes
        plan.decode_context_sum = context_sum
        plan.decode_context_max = context_max
        plan.prefill_attention = attention

    # -- results --------------------------------------------------------------------------------------------------

    def update(self, plan: Plan) -> tuple[list[Request], list[Request]]:
        """Take in the results of *plan*; return the requests that got a token and those that ended with it."""
        if self.rules.async_scheduling:
            yielded = self._receive_async(plan)
        else:
            yielded = plan.samplers
            for request in yielded:
                request.num_tokens += 1
        ended = [request for request in yielded if request.num_tokens >= request.end_tokens or self.is_eos(request)]
        for request in ended:
            self._finish(request)
        return yielded, ended

    def _receive_async(self, plan: Plan) -> list[Request]:
        """Like the sync bookkeeping, but a request may have ended or been preempted since the plan was made."""
        caching, block_size = self.blocks.caching, self.blocks.block_size
        yielded = [request for request in plan.samplers if request.status is not Status.FINISHED]
        for request in yielded:
            request.num_tokens += 1
            request.num_placeholders -= 1
            if caching and request.status is Status.RUNNING:
                known = request.num_computed_tokens - request.num_placeholders
                if known // block_size > request.num_hashed_blocks:
                    self.blocks.register(request, known)
        return yielded

    @staticmethod
    def is_eos(request: Request) -> bool:
        """Whether the latest token of *request* is its end-of-sequence token."""
        return request.eos_at > 0 and request.num_tokens - request.num_prompt_tokens == request.eos_at

    def _finish(self, request: Request) -> None:
        if request.status is Status.RUNNING:
            self.running.remove(request)
        else:  # async: preempted after its last token was planned
            self._leave_queue(request)
        self.blocks.free(request)
        request.status = Status.FINISHED

    def _leave_queue(self, request: Request) -> None:
        kept = [other for other in self.waiting.in_order() if other is not request]
        self.waiting = WaitingQueue(priority=self.rules.priority_policy)
        for other in kept:
            self.waiting.append(other)
