"""The cohort is a way of counting, not a policy: the same plans, blocks and sums as the plain scheduler."""

from __future__ import annotations

import random
from itertools import islice, zip_longest
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cohort import CohortScheduler
from simulator.scheduler import V1Scheduler
from tests.golden.replay import Replay
from tests.simulator.worlds import World

SUMS = ("num_tokens", "num_reqs", "num_samplers", "decode_reqs", "decode_context_sum", "decode_context_max",
        "prefill_attention")  # fmt: skip


def random_scenario(seed: int) -> dict[str, Any]:
    """A small engine under pressure in the golden format: every switch drawn at random."""
    draw = random.Random(seed)
    block_size, longest = draw.choice([2, 4, 4, 8, 16]), draw.choice([40, 80, 160])
    blocks = draw.choice([longest // block_size + 2, 2 * longest // block_size, 5 * longest // block_size, 400]) + 1
    budget = draw.choice([16, 32, 64, 128])
    config = {
        "seqs": min(budget, draw.choice([1, 2, 4, 8, 16])), "mbt": budget, "blocks": blocks, "B": block_size,
        "mml": longest, "pc": draw.random() < 0.6, "is_async": draw.random() < 0.6,
        "policy": draw.choice(["fcfs", "fcfs", "priority"]), "reserve": draw.random() < 0.7,
        "watermark": draw.choice([0, 0, 0.1]), "lpt": draw.choice([0, 0, 0, 6]),
    }  # fmt: skip
    prefixes = [[draw.randrange(1000) for _ in range(longest)] for _ in range(3)]
    requests, step = [], 0
    for index in range(draw.randint(3, 40)):
        step += draw.choice([0, 0, 0, 1, 2, 5, 15])
        prompt, outputs = draw.randint(1, longest - 2), draw.randint(1, 30)
        shared = draw.randint(0, prompt) if draw.random() < 0.5 else 0
        tokens = draw.choice(prefixes)[:shared] + [draw.randrange(10**6) for _ in range(prompt - shared)]
        requests.append({
            "id": f"r{index}", "after_step": step, "prompt": tokens, "max_tokens": outputs,
            "priority": draw.randint(0, 3), "arrival": float(index // 2),
            "eos_at": draw.randint(1, outputs) if draw.random() < 0.1 else None,
        })  # fmt: skip
    return {"name": str(seed), "config": config, "requests": requests}


class Watched(Replay):
    """A replay that also tells the sums of each plan, the free queue and the counters."""

    def _plan_event(self, step: int, plan: Any) -> list[Any]:
        sums = [getattr(plan, name) for name in SUMS]
        blocks = self.scheduler.blocks
        counters = [self.scheduler.prefix_queries_tokens, self.scheduler.prefix_hits_tokens]
        return [*super()._plan_event(step, plan), sums, counters, blocks.free_order(), sorted(blocks.cached)]


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_plans_blocks_and_sums_equal_those_of_the_plain_scheduler(seed):
    scenario = random_scenario(seed)
    plain = Watched(scenario, "0.24.0", V1Scheduler).events()
    cohort = Watched(scenario, "0.24.0", CohortScheduler).events()
    for expected, got in islice(zip_longest(plain, cohort), 3000):  # a request that never fits waits for ever
        assert got == expected
        if expected[0] == "plan":
            assert list(got[2]) == list(expected[2])  # in the same order of service


def test_a_step_of_pure_decode_lists_nobody():
    world = World(scheduler=CohortScheduler)
    world.add(a=(8, 9), b=(8, 9))
    world.step()
    plan, listed = world.plan()
    assert (listed, plan.cohort_size, plan.decode_context_sum, plan.decode_context_max) == ({}, 2, 16, 8)
