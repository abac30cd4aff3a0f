"""V0's default policy: prompts first and alone, decodes only in steps without a prompt.

    nobody swapped: admit prompts from the queue; if there are any, the step consists of them
    else:           (priorities: make room for the head of the queue, see below)
                    decode all of running; if nobody had to be thrown out, bring back swapped requests

Priorities (lower number first, then arrival) come into play only in steps without prompts: both queues are sorted, and
while the head cannot be admitted and the last of running is less important, that one is thrown out.  The head itself is
admitted by the next call.  With ``--preemption-mode swap`` such a victim lands in `waiting` as swapped, which kills the
engine when its turn comes: that is vLLM's.

Source: vllm/core/scheduler.py of 0.6.3, _schedule_default and _schedule_priority_preemption.
"""

from __future__ import annotations

from collections import deque

from simulator.errors import EngineDiedError
from simulator.plan import Plan
from simulator.request import Request, Status
from simulator.v0_blocks import Fit
from simulator.v0_queues import Budget
from simulator.v0_scheduler import V0Scheduler


def _importance(request: Request) -> tuple[int, float]:
    return request.priority, request.arrival


class PrefillFirstScheduler(V0Scheduler):
    """The default policy of V0."""

    def _decide(self, plan: Plan, now_s: float) -> None:
        rules = self.rules
        budget = Budget(rules.max_num_batched_tokens, rules.max_num_seqs - len(self.running))
        if not self.swapped:
            prefills = self._admit(plan, budget, now_s, chunking=False)
            if prefills:
                self.running += prefills
                plan.requests = prefills
                plan.num_prefills = len(prefills)
                return
        if rules.priority_policy:
            self._make_room_for_head(plan, budget)
        decodes, _prompts = self._serve_running(plan, budget, chunking=False)
        if len(plan.preempted) == plan.forced and self.swapped:
            decodes += self._swap_in(plan, budget)[0]
        self._queue_victims(plan)
        plan.requests = decodes
        self.running += decodes

    def _make_room_for_head(self, plan: Plan, budget: Budget) -> None:
        """Sort the queues and throw out less important requests until the head of the queue fits."""
        self.running.sort(key=_importance)
        if not self.waiting:
            return
        running, head, tokens = self.running, self.waiting.popleft(), budget.tokens
        if head.status is not Status.WAITING and head.status is not Status.PREEMPTED:
            raise EngineDiedError("AssertionError")
        victims: list[Request] = []
        while running and _importance(running[-1]) > _importance(head):
            if self.blocks.can_allocate(head) is Fit.OK and head.num_tokens <= tokens and budget.seqs >= 1:
                break
            victim = running.pop()
            budget.seqs += 1
            self._preempt(victim, plan)
            victims.append(victim)
        plan.forced = len(victims)
        if self.rules.swaps:
            plan.swapped_out = 0  # the copies are forgotten
        # vLLM sorts the head, the victims (latest first) and the others, every time; its sort is stable.
        self.waiting.extendleft([*victims, head])
        if victims or not self._waiting_is_sorted:
            self.waiting = deque(sorted(self.waiting, key=_importance))
            self._waiting_is_sorted = True
