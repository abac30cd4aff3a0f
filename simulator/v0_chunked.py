"""V0's chunked prefill policy: decodes and parts of prompts share a step.

    serve running (a decode 1 token, a prompt what is left of the budget); if nobody was thrown out, bring back swapped
    requests; admit prompts, the last of which may be cut.  All blocks of a prompt are taken at once.
    New order of running: those not served, swapped-in decodes and prompts, decodes, parts of prompts, newcomers.

So decodes come before prompts in the next step.  With prefix caching chunks are cut to whole blocks.  With multi-step
scheduling prompts are not cut at all.  Priorities have no effect here.  A delay factor has hardly any: it is asked when
`running` has been emptied by serving it, and then lets everybody pass.

Source: vllm/core/scheduler.py of 0.6.3, _schedule_chunked_prefill.
"""

from __future__ import annotations

from simulator.plan import Plan
from simulator.request import Request
from simulator.v0_queues import Budget
from simulator.v0_scheduler import V0Scheduler


class ChunkedScheduler(V0Scheduler):
    """V0 with ``--enable-chunked-prefill``."""

    def _decide(self, plan: Plan, now_s: float) -> None:
        budget = Budget(self.rules.max_num_batched_tokens, self.rules.max_num_seqs)
        decodes, prefills = self._serve_running(plan, budget, chunking=True)
        budget.seqs -= len(decodes) + len(prefills)
        back: list[Request] = []
        back_prefills: list[Request] = []
        if not plan.preempted and self.swapped:
            back, back_prefills = self._swap_in(plan, budget)
        given_up, plan.ignored = plan.ignored, []
        newcomers = self._admit(plan, budget, now_s, chunking=True)
        plan.ignored = [*plan.ignored, *given_up]
        self._queue_victims(plan)
        self.running += [*back, *back_prefills, *decodes, *prefills, *newcomers]
        plan.requests = [*newcomers, *prefills, *back_prefills, *decodes, *back]
        plan.num_prefills = len(newcomers) + len(prefills) + len(back_prefills)
