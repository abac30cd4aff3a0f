"""The same decisions as `V1Scheduler`, at O(1) a step for everybody who simply decodes.

Requests that decode in lock-step form the *cohort*, a prefix of `running`.  Each gets one token in every step, so their
counts need not be touched: at step s a member has ``cohort_computed + (s - cohort_step)`` computed tokens.  What does
happen to a member is known when it joins, and stands in a calendar: the steps that need its next block (every
``block_size`` steps) and the step that yields its last token.  Everything unusual (a block shortage, a budget smaller
than the cohort) dissolves the cohort back into plain requests, and the plain code decides.

Equality with the plain scheduler, plan by plan, is tested on random scenarios and on the golden traces.
"""

from __future__ import annotations

from heapq import heappop, heappush
from operator import attrgetter

from simulator.blocks import BlockPool
from simulator.plan import Plan
from simulator.request import Request
from simulator.rules import SchedulerRules
from simulator.scheduler import V1Scheduler

_by_order = attrgetter("order")


class CohortScheduler(V1Scheduler):
    """V1's policy with a cohort; `plan.requests` lists only those outside of it."""

    def __init__(self, rules: SchedulerRules, blocks: BlockPool) -> None:
        super().__init__(rules, blocks)
        self._step = 0  # of the next plan with tokens
        self._settled = 0  # running[:_settled] are members, or leavers whose last result is not in
        self._leaving = 0
        self._context_sum = 0  # of the members, before the next step
        self._block_calendar: dict[int, list[Request]] = {}
        self._leave_calendar: dict[int, list[Request]] = {}
        self._leave_steps: list[int] = []  # heap of its keys
        self._longest: list[tuple[int, int, Request]] = []  # heap by -(context - step)
        self._latest = Plan()  # the one that may be in flight when the next is made (async)

    # -- planning -------------------------------------------------------------------------------------------------

    def schedule(self) -> Plan:
        """Return the plan of the next step; see `V1Scheduler.schedule`."""
        plan = Plan()
        budget = self.rules.max_num_batched_tokens
        self._choose_threshold()
        self._promote(budget)
        size = self._settled - self._leaving
        if size and (size > budget or not self._can_step()):
            self._dissolve()
            size = 0
        if size:
            self._step_cohort(plan, size)
        budget = self._serve_running(plan, self._settled, budget - size)
        if not plan.preempted and self.waiting and budget > 0:
            self._admit_waiting(plan, budget)
        self._account(plan)
        if plan.cohort_size:
            self._account_cohort(plan)
        for request in plan.samplers:
            request.sampled_step = self._step
        if plan.num_tokens:
            self._latest = plan
            self._step += 1
        return plan

    def _promote(self, budget: int) -> None:
        """Let the next requests of `running` that have nothing left but to decode join the cohort."""
        running, index, lag = self.running, self._settled, int(self.rules.async_scheduling)
        if lag and not self.rules.async_length_guard:
            return  # steps beyond the last token have no place in the calendar
        while index < len(running):
            request = running[index]
            in_flight = request.num_placeholders
            pending = request.num_tokens + in_flight - request.num_computed_tokens
            if pending != 1 or in_flight != lag or request.sampled_step != self._step - 1:
                break  # it is not one that decodes in every step
            if request.eos_at or index - self._leaving >= budget:
                break
            outputs = request.num_computed_tokens + 1 - request.num_prompt_tokens
            remaining = request.end_tokens - request.num_prompt_tokens - outputs
            if remaining <= 0:  # its last token is planned already
                break
            self._join(request, remaining)
            index += 1
        self._settled = index

    def _join(self, request: Request, remaining: int) -> None:
        step, computed = self._step, request.num_computed_tokens
        request.cohort_step = step
        request.cohort_computed = computed
        self._context_sum += computed
        heappush(self._longest, (step - computed, request.row, request))
        last = step + remaining - 1
        if last not in self._leave_calendar:
            self._leave_calendar[last] = []
            heappush(self._leave_steps, last)
        self._leave_calendar[last].append(request)
        self._note_block(request, step + request.capacity - computed)

    def _note_block(self, request: Request, step: int) -> None:
        """Enter the step whose plan needs the next block of *request* (sync: and registers the one before it)."""
        if self.blocks.caching and not self.rules.async_scheduling:
            step -= 1  # the block that becomes full is registered one step before the next one is needed
        step = max(step, self._step)
        request.next_block_step = step
        self._block_calendar.setdefault(step, []).append(request)

    def _can_step(self) -> bool:
        """Whether there are blocks for every member that needs one now."""
        due = self._block_calendar.get(self._step)
        return due is None or len(due) <= self.blocks.num_free or self._needed(due) <= self.blocks.num_free

    def _needed(self, due: list[Request]) -> int:
        step = self._step
        return sum(1 for r in due if self._is_due(r) and r.cohort_computed + step - r.cohort_step >= r.capacity)

    def _is_due(self, request: Request) -> bool:
        """Whether an entry of the calendar for this step still holds."""
        return request.next_block_step == self._step and request.cohort_step >= 0

    def _step_cohort(self, plan: Plan, size: int) -> None:
        """Give every member its token: blocks for those who need one, nothing to do for the others."""
        plan.cohort_size = size
        due = self._block_calendar.pop(self._step, None)
        if due is not None:
            self._block_events(due)

    def _block_events(self, due: list[Request]) -> None:
        """Give members that are *due* their next block, in order of admission, and register what has become full."""
        blocks, step = self.blocks, self._step
        overlapped, caching = self.rules.async_scheduling, blocks.caching
        if len(due) > 1:
            due.sort(key=_by_order)
        for request in due:
            if request.next_block_step != step or request.cohort_step < 0:
                continue
            computed = request.cohort_computed + step - request.cohort_step
            if computed >= request.capacity:
                blocks.grow(request, 1)
            if caching:
                blocks.register(request, computed if overlapped else computed + 1)
            # Sync with caching: the step that fills a block registers it, the next one needs another block.
            filled = caching and not overlapped and computed + 1 == request.capacity
            later = step + (1 if filled else request.capacity - computed - (caching and not overlapped))
            request.next_block_step = later
            if later in self._block_calendar:
                self._block_calendar[later].append(request)
            else:
                self._block_calendar[later] = [request]

    def _account_cohort(self, plan: Plan) -> None:
        """Add the members to the sums of *plan* and say good-bye to those whose last token this is."""
        size = plan.cohort_size
        plan.num_tokens += size
        plan.decode_reqs += size
        plan.decode_context_sum += self._context_sum
        longest = self._longest_context()
        if longest > plan.decode_context_max:
            plan.decode_context_max = longest
        self._context_sum += size
        self._say_goodbye(plan, self._step)

    def _say_goodbye(self, plan: Plan, step: int) -> None:
        """Note in *plan*, that of *step*, whose last token it gives; they are served no more."""
        leavers = self._leave_calendar.pop(step, None)
        if leavers:
            plan.leavers = [r for r in leavers if r.cohort_step >= 0 and self._ends_at(r) == step]
            plan.leavers.sort(key=lambda request: request.order)
            for request in plan.leavers:
                self._context_sum -= request.end_tokens - 1
                request.next_block_step = -1
            self._leaving += len(plan.leavers)

    def _longest_context(self) -> int:
        heap = self._longest
        while not self._is_member(heap[0][2], heap[0][0]):
            heappop(heap)
        return self._step - heap[0][0]

    def _is_member(self, request: Request, key: int) -> bool:
        """Whether an entry of the heap of contexts is about a member that is served in this step."""
        joined = request.cohort_step
        return joined >= 0 and key == joined - request.cohort_computed and self._ends_at(request) >= self._step

    @staticmethod
    def _ends_at(request: Request) -> int:
        """The step of the last token of a member."""
        return request.cohort_step + request.end_tokens - request.cohort_computed - 2

    # -- stretches of steps in which nothing else happens ---------------------------------------------------------

    def quiet_steps(self, *, ends_matter: bool) -> int:
        """Return how many of the next plans give one token to each member and nothing else; 0 if not sure.

        They end with the step in which somebody gets the last token (sync: before it, for that request is gone after
        its update).  Blocks are not looked at; `advance` does that.  *ends_matter*: a response that ends with the plan
        in flight may lead to the next request.
        """
        budget = self.rules.max_num_batched_tokens
        self._promote(budget)
        running, waiting = len(self.running), len(self.waiting)
        size = running - self._leaving
        if not size or self._settled != running or size > budget:
            return 0
        if self._leaving and (waiting or ends_matter):
            return 0
        if waiting and size < self.rules.max_num_seqs:
            return 0
        calendar, heap = self._leave_calendar, self._leave_steps
        while heap and heap[0] not in calendar:
            heappop(heap)
        return heap[0] - self._step + int(self.rules.async_scheduling)

    def stretch_sums(self) -> tuple[int, int, int]:
        """Return (members, sum and maximum of their contexts) of the next plan, if `quiet_steps` is not 0."""
        return self._settled - self._leaving, self._context_sum, self._longest_context()

    def advance(self, count: int) -> list[int]:
        """Make the next *count* plans, fewer at a shortage of blocks; return the free blocks after each of them."""
        calendar, blocks = self._block_calendar, self.blocks
        free: list[int] = []
        for _ in range(count):
            due = calendar.get(self._step)
            if due is not None:
                if not self._can_step():
                    break
                self._block_events(calendar.pop(self._step))
            free.append(blocks.num_free)
            self._step += 1
        self._context_sum += (self._settled - self._leaving) * len(free)
        return free

    def latest_quiet_plan(self) -> Plan:
        """Return the plan of the last step that `advance` made; only its results are still to come."""
        plan = Plan()
        plan.cohort_size = plan.num_tokens = plan.decode_reqs = self._settled
        self._say_goodbye(plan, self._step - 1)
        self._latest = plan
        return plan

    # -- back to plain requests -----------------------------------------------------------------------------------

    def _dissolve(self) -> None:
        """Write the counts back into the members, as they stand before the step that is being planned."""
        step, latest = self._step, self._latest
        in_flight = int(latest.cohort_size > 0)
        sampled: list[Request] = []
        for request in self.running[: self._settled]:
            if request.cohort_step < step:  # else it joined just now and its counts are still right
                last = min(step - 1, self._ends_at(request))
                request.num_computed_tokens = request.cohort_computed + last + 1 - request.cohort_step
                request.num_placeholders = in_flight
                request.num_tokens = request.num_computed_tokens + 1 - in_flight
                request.last_step = step - 1 - in_flight
                sampled.append(request)
            request.cohort_step = -1
        if in_flight:
            latest.samplers[0:0] = sampled
            latest.cohort_size = 0
            latest.leavers = []
        self._forget()

    def _forget(self) -> None:
        self._settled = self._leaving = self._context_sum = 0
        self._block_calendar.clear()
        self._leave_calendar.clear()
        self._leave_steps.clear()
        self._longest.clear()

    def _make_room(self, plan: Plan, request: Request, end: int, index: int, budget: int) -> tuple[int, int]:
        needed = -(-end // self.blocks.block_size) - len(request.blocks)
        if needed > self.blocks.num_free and plan.cohort_size:
            self._list_members(plan)
        elif needed > self.blocks.num_free and self._settled:
            self._dissolve()
        return super()._make_room(plan, request, end, index, budget)

    def _list_members(self, plan: Plan) -> None:
        """A shortage in the middle of planning: name the members in *plan*, as if it had served them plainly."""
        members = [r for r in self.running[: self._settled] if self._ends_at(r) >= self._step]
        self._dissolve()
        for request in members:
            request.planned_tokens = 1
        plan.cohort_size = 0
        plan.requests[0:0] = members
        plan.tokens[0:0] = [1] * len(members)

    # -- results --------------------------------------------------------------------------------------------------

    def update(self, plan: Plan) -> tuple[list[Request], list[Request]]:
        """Take in the results of *plan*; the first list holds only requests outside the cohort."""
        leavers = plan.leavers
        for request in leavers:
            self._leave(request)
        if plan is self._latest:
            self._latest = Plan()  # nothing is in flight
        yielded, ended = super().update(plan)
        return yielded, leavers + ended

    def members(self) -> list[Request]:
        """Return the members that the latest plan serves, in order (for tests; O(members))."""
        return [r for r in self.running[: self._settled] if self._ends_at(r) >= self._step - 1]

    def _leave(self, request: Request) -> None:
        """A member has got its last token."""
        end = request.end_tokens
        request.last_step = self._ends_at(request)
        request.num_tokens = end
        request.num_computed_tokens = end - 1
        request.num_placeholders = 0
        request.cohort_step = -1
        if self.blocks.caching:
            self.blocks.register(request, end - 1)
        self._settled -= 1
        self._leaving -= 1
        self._finish(request)
