"""Small worlds for scheduler tests: requests by (prompt, max_tokens), plans as ``{name: tokens}``."""

from __future__ import annotations

from typing import Any

from simulator.blocks import BlockPool
from simulator.plan import Plan
from simulator.request import Request
from simulator.rules import SchedulerRules
from simulator.scheduler import V1Scheduler


class World:
    """A scheduler with named requests; steps are planned and finished by hand."""

    def __init__(
        self,
        *,
        usable_blocks: int = 1000,
        block_size: int = 4,
        caching: bool = False,
        scheduler: type[V1Scheduler] = V1Scheduler,
        **rules: Any,
    ) -> None:
        limits = {"max_num_seqs": 16, "max_num_batched_tokens": 64, "max_model_len": 1024} | rules
        self.blocks = BlockPool(usable_blocks + 1, block_size, caching=caching)
        self.scheduler = scheduler(SchedulerRules(**limits), self.blocks)
        self.requests: dict[str, Request] = {}

    def add(self, **lengths: tuple[int, int]) -> None:
        """Deliver requests: name=(prompt_tokens, max_tokens)."""
        new = {name: Request(len(self.requests) + i, *pair) for i, (name, pair) in enumerate(lengths.items())}
        self.requests |= new
        self.scheduler.add(new.values())

    def add_request(self, name: str, prompt: int, max_tokens: int, **more: Any) -> None:
        """Deliver one request with priority, arrival, eos_at or shared_keys."""
        request = Request(len(self.requests), prompt, max_tokens, **more)
        self.requests[name] = request
        self.scheduler.add([request])

    def name(self, request: Request) -> str:
        return next(name for name, other in self.requests.items() if other is request)

    def plan(self) -> tuple[Plan, dict[str, int]]:
        """Plan a step: the plan and who gets how many tokens."""
        plan = self.scheduler.schedule()
        return plan, {self.name(r): n for r, n in zip(plan.requests, plan.tokens, strict=True)}

    def step(self) -> dict[str, int]:
        """Plan and finish a step (sync)."""
        plan, grants = self.plan()
        self.scheduler.update(plan)
        return grants
