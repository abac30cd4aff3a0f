"""vLLM V0's scheduler (0.6.x) as the engine loop sees it.  Pure decisions, no clock, no costs.

`V0Scheduler.schedule` makes the plan of the next model step, `V0Scheduler.update` takes in its tokens.  How requests
move between the queues is in `simulator.v0_queues`; the policies are `simulator.v0_prefill_first` (the default) and
`simulator.v0_chunked`.

* Multi-step: a plan is followed by ``num_scheduler_steps - 1`` continuations of the same requests; `schedule` returns
  them one by one, nothing is decided in between, and whoever ends inside keeps its slot.
* Async output processing: the engine learns that a request has ended while the next step runs.  Until then it stands in
  `running`, is scheduled like any other (the extra decode) and keeps its blocks, unless it would pass max_model_len.
* The engine dies of a swap that does not fit (`EngineDiedError`), with vLLM's message.

Source: vllm/core/scheduler.py and vllm/engine/llm_engine.py of 0.6.3, checked against the real classes.  Not modelled:
several sequences a request, LoRA, drafts (only their slots), encoders; a multi-step run that is cut short because all
its requests have ended; multi-step with async output and priorities (vLLM dies of the first victim of a priority).
"""

from __future__ import annotations

from collections.abc import Iterable

from simulator.errors import EngineDiedError
from simulator.plan import Plan
from simulator.request import Request, Status
from simulator.v0_blocks import V0Blocks
from simulator.v0_queues import V0Queues
from simulator.v0_rules import LIVELOCK, V0Rules

#: Plans in a row that throw out somebody and give nobody a token, per request in the engine, that mean a livelock.
FRUITLESS_PER_REQUEST = 50


class V0Scheduler(V0Queues):
    """What the engine loop talks to; `_decide` is the policy's."""

    def __init__(self, rules: V0Rules, blocks: V0Blocks) -> None:
        super().__init__(rules, blocks)
        self.steps_left = 0  # of the multi-step run
        self._multi_step: Plan | None = None
        self._calls = 0
        self._fruitless = 0  # requests thrown out since the latest token

    # -- what the engine loop needs -------------------------------------------------------------------------------

    @property
    def has_requests(self) -> bool:
        """Whether anything is waiting, running or swapped (or ended without being known)."""
        return bool(self.running or self.waiting or self.swapped or self._pending)

    def counts(self) -> tuple[int, int, int]:
        """Return (running requests, waiting requests, free GPU blocks)."""
        return len(self.running), len(self.waiting), self.blocks.gpu.num_free

    @property
    def prefix_queries_tokens(self) -> int:
        """Tokens of full blocks that were looked up in the GPU's prefix cache."""
        return self.blocks.gpu.queries * self.blocks.block_size

    @property
    def prefix_hits_tokens(self) -> int:
        """Tokens of full blocks that were found."""
        return self.blocks.gpu.hits * self.blocks.block_size

    def can_ever_run(self, request: Request) -> bool:
        """Return whether *request* is served at all: V0 ignores a prompt beyond its limit or beyond the pool."""
        blocks, prompt = self.blocks, request.num_prompt_tokens
        slots = self.rules.num_scheduler_steps if self.rules.enable_chunked_prefill else 1
        needed = -(-(prompt + (slots if slots > 1 else 0)) // blocks.block_size)
        return prompt <= self.rules.prompt_limit and blocks.gpu.num_blocks - needed >= blocks.watermark_blocks

    def add(self, requests: Iterable[Request]) -> None:
        """Queue new requests.  V0 ends a request when it is *longer* than max_model_len."""
        self._waiting_is_sorted = False
        for request in requests:
            request.end_tokens = min(request.end_tokens, self.rules.max_model_len + 1)
            self.waiting.append(request)

    # -- planning -------------------------------------------------------------------------------------------------

    def schedule(self, now_s: float = 0.0) -> Plan:
        """Return the plan of the next model step; it is empty if nothing can be done.

        A scheduler call that only throws out or ignores somebody costs the engine next to nothing, and it calls again:
        such calls are added to the plan that follows them.
        """
        if self.steps_left:
            return self._continue()
        plan: Plan | None = None
        while True:
            frees = bool(self._pending)  # with nobody to serve the engine learns of ends at once
            latest = self.plan_once(now_s)
            self._watch(latest)
            is_done = not (frees or latest.preempted or latest.ignored)
            plan = latest if plan is None else _joined(plan, latest)
            if plan.requests:
                return plan
            self._learn_of_ends()
            if is_done or not self.has_requests:
                return plan

    def _watch(self, plan: Plan) -> None:
        """Notice when requests go round in circles, like a prompt that fills the pool and is not done in one chunk."""
        if plan.samplers:
            self._fruitless = 0
        elif plan.preempted:
            self._fruitless += 1
            present = len(self.running) + len(self.waiting) + len(self.swapped)
            if self._fruitless > FRUITLESS_PER_REQUEST * (2 + present):
                raise EngineDiedError(LIVELOCK)

    @property
    def stuck(self) -> str | None:
        """Why nothing will ever move again (ask after an empty plan), as far as vLLM's rules go; else None."""
        if self.running or not self.swapped or self._pending:
            return None
        return f"vLLM hangs: swapped request {self.swapped[0].row} never fits into the GPU's blocks again"

    def plan_once(self, now_s: float = 0.0) -> Plan:
        """Return the result of one scheduler call."""
        plan = Plan()
        plan.ignored = []
        self._calls += 1
        self._decide(plan, now_s)
        if self.blocks.caching:
            self._look_up_prefixes(plan)
        self._account(plan)
        steps, is_whole_run = self.rules.num_scheduler_steps, self.rules.enable_chunked_prefill or not plan.num_prefills
        if steps > 1 and plan.requests and is_whole_run:  # of the default policy's steps, those with prompts are single
            self._multi_step = plan
            self.steps_left = steps - 1
        return plan

    def _decide(self, plan: Plan, now_s: float) -> None:
        """Fill in `plan.requests` (prefills first, their number in `num_prefills`) and move requests in the queues."""
        raise NotImplementedError

    def _continue(self) -> Plan:
        """Return the next model step of a multi-step run: one token for everybody, whether it has ended or not."""
        assert self._multi_step is not None
        plan = Plan()
        plan.is_continuation = True
        plan.requests = self._multi_step.requests
        self.steps_left -= 1
        self._account(plan)
        return plan

    # -- sums -----------------------------------------------------------------------------------------------------

    def _look_up_prefixes(self, plan: Plan) -> None:
        """Note what the cache saves the newly admitted, and the access to everybody's blocks."""
        blocks = self.blocks
        for request in plan.requests:
            if request.last_access < 0:
                request.prefix_tokens = blocks.computed_blocks(request) * blocks.block_size
            request.last_access = self._calls
        blocks.end_call()

    def _account(self, plan: Plan) -> None:
        """Choose who samples, and sum up what the step costs depend on."""
        requests, count = plan.requests, plan.num_prefills
        for request in requests[:count]:
            self._account_prefill(plan, request)
        decodes = requests[count:] if count else requests
        if decodes:
            contexts = [request.num_tokens for request in decodes]
            number = len(decodes)
            plan.num_tokens += number
            plan.decode_reqs += number
            plan.decode_context_sum += sum(contexts) - number
            plan.decode_context_max = max(plan.decode_context_max, max(contexts) - 1)
            plan.tokens += [1] * number
            plan.samplers += decodes

    def _account_prefill(self, plan: Plan, request: Request) -> None:
        """Add a (part of a) prompt: what the cache holds is not computed, but at least one token is."""
        context = request.num_computed_tokens
        end = context + request.planned_tokens
        if not context:
            cached = min(request.prefix_tokens, request.num_tokens - 1)
            if request.num_cached_tokens < 0:
                request.num_cached_tokens = cached
            plan.admitted.append((request, cached))
        if request.prefix_tokens > context:
            context = min(request.prefix_tokens, end - 1)
        n = end - context
        plan.num_tokens += n
        plan.tokens.append(n)
        if n == 1:
            plan.decode_reqs += 1
            plan.decode_context_sum += context
            plan.decode_context_max = max(plan.decode_context_max, context)
        else:
            plan.prefill_attention += n * (context + 0.5 * n)
        if end >= request.num_tokens:
            plan.samplers.append(request)

    # -- results --------------------------------------------------------------------------------------------------

    def update(self, plan: Plan) -> tuple[list[Request], list[Request]]:
        """Take in the results of *plan*; return the requests that got a token and those that ended with it."""
        is_async = self.rules.async_output_processing
        if is_async and self._pending:
            self._learn_of_ends()
        yielded = plan.samplers
        if is_async or plan.is_continuation:
            yielded = [request for request in yielded if request.status is not Status.FINISHED]
        for request in plan.requests[: plan.num_prefills]:
            request.num_computed_tokens += request.planned_tokens
        for request in yielded:
            request.num_computed_tokens = request.num_tokens
            request.num_tokens += 1
        ended = [request for request in yielded if request.num_tokens >= request.end_tokens or self.is_eos(request)]
        self._pending.update((request.row, request) for request in ended)
        if is_async and self.steps_left:  # inside a multi-step run the output of a step is processed during the next
            self._learn_of_ends()
        elif not is_async:
            for request in ended:
                request.status = Status.FINISHED
            if self._pending and not self.steps_left:
                self._learn_of_ends()
        return yielded, ended

    @staticmethod
    def is_eos(request: Request) -> bool:
        """Return whether the latest token is the end-of-sequence token."""
        return request.eos_at > 0 and request.num_tokens - request.num_prompt_tokens == request.eos_at

    def _learn_of_ends(self) -> None:
        """Let go of the requests that have ended: of multi-step runs in the order of `running`, else of service."""
        pending, self._pending = self._pending, {}
        if self.rules.num_scheduler_steps > 1:
            running = {request.row: request for request in self.running if request.row in pending}
            pending = running | pending
        for request in pending.values():
            self._finish(request)
        self.running = [request for request in self.running if request.status is not Status.FINISHED]


def _joined(earlier: Plan, later: Plan) -> Plan:
    """Return *later* with what *earlier*, a plan that serves nobody, did."""
    later.preempted = earlier.preempted + later.preempted
    later.ignored = [*earlier.ignored, *later.ignored]
    later.swapped_in += earlier.swapped_in
    later.swapped_out += earlier.swapped_out
    later.forced += earlier.forced
    return later
