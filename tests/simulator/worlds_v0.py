"""Small worlds for V0's schedulers: requests by (prompt, max_tokens), plans as ``{name: tokens}``."""

from __future__ import annotations

from typing import Any

from simulator.plan import Plan
from simulator.request import Request
from simulator.v0_blocks import V0Blocks
from simulator.v0_policies import v0_scheduler
from simulator.v0_rules import V0Rules


class V0World:
    """A V0 scheduler with named requests; steps are planned and finished by hand."""

    def __init__(
        self,
        *,
        gpu: int = 90,
        cpu: int = 90,
        block_size: int = 4,
        caching: bool = False,
        chunked: bool = False,
        **rules: Any,
    ) -> None:
        limits = {"max_num_seqs": 16, "max_num_batched_tokens": 256, "max_model_len": 200} | rules
        self.blocks = V0Blocks(gpu, cpu, block_size, caching=caching)
        self.scheduler = v0_scheduler(V0Rules(enable_chunked_prefill=chunked, **limits), self.blocks)
        self.requests: dict[str, Request] = {}

    def add(self, **lengths: tuple[int, int]) -> None:
        """Deliver requests: name=(prompt_tokens, max_tokens)."""
        for name, (prompt, max_tokens) in lengths.items():
            self.add_request(name, prompt, max_tokens)

    def add_request(self, name: str, prompt: int, max_tokens: int, **more: Any) -> Request:
        """Deliver one request with priority, arrival, eos_at or shared_keys."""
        request = self.requests[name] = Request(len(self.requests), prompt, max_tokens, **more)
        self.scheduler.add([request])
        return request

    def names(self, requests: Any) -> list[str]:
        """Return the names of requests."""
        by_row = {request.row: name for name, request in self.requests.items()}
        return [by_row[request.row] for request in requests]

    def plan(self, now_s: float = 0.0) -> tuple[Plan, dict[str, int]]:
        """Plan a step: the plan and who computes how many tokens."""
        plan = self.scheduler.schedule(now_s)
        return plan, dict(zip(self.names(plan.requests), plan.tokens, strict=True))

    def step(self, now_s: float = 0.0) -> dict[str, int]:
        """Plan and finish a step."""
        plan, grants = self.plan(now_s)
        self.scheduler.update(plan)
        return grants

    def steps(self, count: int) -> None:
        """Make *count* steps."""
        for _ in range(count):
            self.step()

    @property
    def free(self) -> tuple[int, int]:
        """Free blocks on the GPU and on the CPU."""
        return self.blocks.gpu.num_free, self.blocks.cpu.num_free
