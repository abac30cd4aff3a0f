"""The policy of a V0 engine, by its rules."""

from __future__ import annotations

from simulator.v0_blocks import V0Blocks
from simulator.v0_chunked import ChunkedScheduler
from simulator.v0_prefill_first import PrefillFirstScheduler
from simulator.v0_rules import V0Rules
from simulator.v0_scheduler import V0Scheduler


def v0_scheduler(rules: V0Rules, blocks: V0Blocks) -> V0Scheduler:
    """Return the scheduler that vLLM V0 would use."""
    return (ChunkedScheduler if rules.enable_chunked_prefill else PrefillFirstScheduler)(rules, blocks)
