"""V0's three queues and how requests move between them: admission, service, preemption, swapping.

* ``waiting``: prompts, and the victims of recompute in front of them.  Admission goes from the head and stops at the
  first request that does not fit; what can never fit is ignored (ended without a token).
* ``running``: served in order; each needs as many free blocks as it touches, and the last of the queue is thrown out
  until it has them, or until it is alone and goes itself.
* ``swapped``: victims whose blocks lie on the CPU; they come back in order, in steps in which nobody is thrown out.

The policies put these moves together.  Source: vllm/core/scheduler.py of 0.6.3; see `simulator.v0_scheduler`.
"""

from __future__ import annotations

from collections import deque

from simulator.errors import ConfigError, EngineDiedError
from simulator.plan import Plan
from simulator.request import Request, Status
from simulator.v0_blocks import Fit, V0Blocks
from simulator.v0_rules import NO_SWAP_SPACE, NOT_A_PROMPT, V0Rules


class Budget:
    """What is left for the step: tokens and sequences."""

    __slots__ = ("seqs", "tokens")

    def __init__(self, tokens: int, seqs: int) -> None:
        self.tokens = tokens
        self.seqs = seqs


class V0Queues:
    """The queues of one engine."""

    def __init__(self, rules: V0Rules, blocks: V0Blocks) -> None:
        if rules.enable_chunked_prefill and blocks.caching and rules.num_scheduler_steps == 1:
            tokens, size = rules.max_num_batched_tokens, blocks.block_size
            if tokens % size:
                raise ConfigError(
                    f"max_num_batched_tokens must be a multiple of the block size {size} with chunked prefill and "
                    f"prefix caching, got {tokens}"
                )
        self.rules = rules
        self.blocks = blocks
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.swapped: deque[Request] = deque()
        self._waiting_is_sorted = True  # by importance; only the priority policy sorts
        #: Blocks on the CPU of requests that vLLM gave up without freeing them.
        self.lost_cpu_blocks = 0
        self._pending: dict[int, Request] = {}  # row -> ended, but still in the queues
        self._latest_call_s = 0.0
        self._latest_was_prompt = False
        self._prompt_duration_s = 0.0
        # A decode cannot touch more blocks than this:
        fresh = rules.num_scheduler_steps + rules.lookahead - 1
        self._most_touched = 1 - (-fresh // blocks.block_size)

    def _serve_running(self, plan: Plan, budget: Budget, *, chunking: bool) -> tuple[list[Request], list[Request]]:
        """Serve `running` in order; return the decodes and the (parts of) prompts; `running` keeps the others."""
        running, blocks, tier = self.running, self.blocks, self.blocks.gpu
        caching, lookahead, most = blocks.caching, self.rules.lookahead, self._most_touched
        longest = self.rules.max_model_len if self._pending else 1 << 62
        decodes: list[Request] = []
        prefills: list[Request] = []
        at = n = 0
        while at < len(running):
            request = running[at]
            tokens, table = request.num_tokens, request.table_tokens
            if chunking:
                n = self._share(1 if tokens > table else tokens - request.num_computed_tokens, budget)
                if not n:
                    break
            at += 1
            if tokens > longest:
                continue  # it has ended, and another token would be one too many: its blocks stay until that is known
            slots = lookahead if tokens > table else 0
            if tier.num_free < most and not self._make_room(plan, budget, request, slots, at):
                break
            if tokens + slots > request.capacity or caching:
                blocks.append(request, slots)
            if tokens > table:
                request.table_tokens = tokens
                decodes.append(request)
            else:
                request.planned_tokens = n
                prefills.append(request)
            budget.tokens -= n
        self.running = running[at:]
        if not chunking:
            budget.tokens -= len(decodes)
        return decodes, prefills

    def _make_room(self, plan: Plan, budget: Budget, request: Request, slots: int, at: int) -> bool:
        """Throw out the last of `running[at:]` until *request* has the blocks it touches; False: it went itself."""
        running, blocks = self.running, self.blocks
        if blocks.can_append(request, slots):
            return True
        if not self.rules.enable_chunked_prefill:
            budget.seqs += 1
        while not blocks.can_append(request, slots):
            victim = running.pop() if at < len(running) else request
            if self._pending.pop(victim.row, None) is not None:  # it has ended: the engine finds out in time
                self._finish(victim)
            else:
                self._preempt(victim, plan)
            if victim is request:
                return False
        return True

    def _share(self, n: int, budget: Budget) -> int:
        """Return how many of *n* tokens a request gets in a chunked step."""
        left = budget.tokens
        if self.rules.num_scheduler_steps > 1:  # prompts are not really cut
            return n if n <= left or n > self.rules.prompt_limit else 0
        if n <= left:
            return n
        return left // self.blocks.block_size * self.blocks.block_size if self.blocks.caching else left

    # -- throwing out, swapping -----------------------------------------------------------------------------------

    def _preempt(self, victim: Request, plan: Plan) -> None:
        """Take a victim's blocks; the caller queues it."""
        if self.rules.swaps:
            if not self.blocks.can_swap_out(victim):
                raise EngineDiedError(NO_SWAP_SPACE)
            plan.swapped_out += self.blocks.swap_out(victim)
            victim.status = Status.SWAPPED
        else:
            self.blocks.free(victim)
            victim.num_computed_tokens = 0
            victim.status = Status.PREEMPTED
        victim.num_preemptions += 1
        plan.preempted.append(victim)

    def _queue_victims(self, plan: Plan) -> None:
        """Queue those that the running loop threw out: to the end of `swapped` or to the front of `waiting`."""
        victims = plan.preempted[plan.forced :]
        if self.rules.swaps:
            self.swapped.extend(victims)
        else:
            self.waiting.extendleft(victims)
            self._waiting_is_sorted &= not victims

    def _swap_in(self, plan: Plan, budget: Budget) -> tuple[list[Request], list[Request]]:
        """Bring back swapped requests in order, as long as everything fits; return decodes and prompts.

        Prompts are not cut here: the rest of a prompt that exceeds the budget bars the queue.
        """
        decodes: list[Request] = []
        prefills: list[Request] = []
        swapped, blocks = self.swapped, self.blocks
        while swapped:
            request = swapped[0]
            is_decode = request.num_tokens > request.table_tokens
            slots = self.rules.lookahead if is_decode else 0
            fit = blocks.can_swap_in(request, slots)
            if fit is Fit.LATER:
                break
            if fit is Fit.NEVER:
                self._ignore(swapped.popleft(), plan)
                self.lost_cpu_blocks += request.capacity // blocks.block_size
                continue
            n = 1 if is_decode else request.num_tokens - request.num_computed_tokens
            if n > budget.tokens or budget.seqs < 1:
                break
            swapped.popleft()
            plan.swapped_in += blocks.swap_in(request)
            blocks.append(request, slots)
            request.status = Status.RUNNING
            request.planned_tokens = n
            (decodes if is_decode else prefills).append(request)
            budget.tokens -= n
            budget.seqs -= 1
        return decodes, prefills

    # -- admission ------------------------------------------------------------------------------------------------

    def _admit(self, plan: Plan, budget: Budget, now_s: float, *, chunking: bool) -> list[Request]:
        """Admit from the head of the queue until a limit is met or somebody does not fit."""
        rules, blocks, waiting = self.rules, self.blocks, self.waiting
        slots = rules.num_scheduler_steps if chunking and rules.num_scheduler_steps > 1 else 0
        admitted: list[Request] = []
        while self._delay_has_passed(now_s) and waiting:
            request = waiting[0]
            if request.status is not Status.WAITING and request.status is not Status.PREEMPTED:
                raise EngineDiedError(NOT_A_PROMPT)
            n = self._share(request.num_tokens, budget) if chunking else request.num_tokens
            fit = Fit.NEVER if n > rules.prompt_limit else blocks.can_allocate(request, slots)
            if fit is Fit.NEVER:
                self._ignore(waiting.popleft(), plan)
                continue
            if fit is Fit.LATER or not n or n > budget.tokens or budget.seqs < 1:
                break
            waiting.popleft()
            blocks.allocate(request)
            if slots:
                blocks.append(request, slots)
            request.status = Status.RUNNING
            request.planned_tokens = n
            request.prefix_tokens = 0
            admitted.append(request)
            budget.tokens -= n
            budget.seqs -= 1
        if admitted:
            self._latest_was_prompt = True
        return admitted

    def _delay_has_passed(self, now_s: float) -> bool:
        """Return whether prompts may be admitted; with a delay factor they gather while the last prompt step's time."""
        if not self.rules.scheduler_delay_factor:
            return True
        if self._latest_was_prompt:
            self._prompt_duration_s = now_s - self._latest_call_s
        self._latest_call_s, self._latest_was_prompt = now_s, False
        if not self.waiting or not self.running:
            return True
        delay_s = self.rules.scheduler_delay_factor * self._prompt_duration_s
        if now_s - self.waiting[0].arrival > delay_s:
            return True
        return now_s - min(request.arrival for request in self.waiting) > delay_s

    def _ignore(self, request: Request, plan: Plan) -> None:
        """End a request that can never run, as vLLM does: without a token and without an error."""
        request.status = Status.FINISHED
        assert isinstance(plan.ignored, list)
        plan.ignored.append(request)

    def _finish(self, request: Request) -> None:
        self.blocks.free(request)
        request.status = Status.FINISHED
