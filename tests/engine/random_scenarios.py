"""Random scenarios in the golden format, without events: small engines under every kind of stress.

``python -m tests.engine.random_scenarios SEED COUNT OUT.json [KIND [noties]]`` writes what `tests/engine/drive_v1.py`
adds events to; ``python -m tests.golden`` replays the result.  KIND is ``mixed`` (default), ``fcfs`` (sync, FCFS),
``async`` or ``pressure`` (PRIORITY, hardly any memory, a small budget).  Scenario i of a seed does not depend on how
many are asked for.

Every request fits into an empty engine, so that nothing waits for ever.  Output tokens are unique in the fake model, so
prompts share prefixes with prompts, never with answers.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

Scenario = dict[str, Any]
TOKENS = 30_000


def random_config(rng: random.Random, kind: str) -> dict[str, Any]:
    """Return an engine's settings; those that are at their default are often left out, as in the golden files."""
    block_size = rng.choice([1, 2, 4, 4, 4, 8, 8, 16, 16])
    mml = rng.choice([24, 48, 64, 100, 128, 160, 200, 255, 256])
    chunked = kind == "fcfs" or rng.random() < 0.85
    mbt = rng.choice([8, 12, 16] if kind == "pressure" else [16, 24, 32, 48, 64, 64, 100, 128])
    if not chunked:
        mbt = mml + rng.choice([0, 0, 1, 16, 64])
    seqs = min(rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 16, 32]), mbt)
    config: dict[str, Any] = {"seqs": seqs, "mbt": mbt, "B": block_size, "mml": mml}
    # From just enough for one sequence of full length (heavy preemption) to plenty.
    least = -(-mml // block_size) + 1
    spare = rng.choice([0, 0.1, 0.3] if kind == "pressure" else [0, 0, 0.1, 0.1, 0.3, 0.3, 0.6, 1, 2, 10])
    config["blocks"] = least + int(least * spare) + rng.randint(0, 3)
    if kind == "async" or (kind != "fcfs" and rng.random() < 0.55):
        config["is_async"] = True
    if rng.random() < 0.35:
        config["pc"] = False
    if kind == "pressure" or (kind != "fcfs" and rng.random() < 0.35):
        config["policy"] = "priority"
    if rng.random() < 0.3:
        config["reserve"] = False
    if rng.random() < 0.25:
        config["watermark"] = rng.choice([0.01, 0.05, 0.1, 0.3])
    if rng.random() < 0.3:
        config["lpt"] = min(rng.choice([1, 3, 4, 7, 8, 12, 16, 20, 40]), mml)
    if not chunked:
        config["chunked"] = False
    return config


class Prompts:
    """Prompts that share prefixes: fresh ones, common heads, copies, and earlier ones made longer or shorter."""

    def __init__(self, rng: random.Random, longest: int, block_size: int) -> None:
        self.rng = rng
        self.longest = longest
        self.block_size = block_size
        self.seen: list[list[int]] = []
        self.heads = [self._fresh(rng.randint(1, longest)) for _ in range(rng.choice([1, 1, 2, 4]))]
        self.sharing = rng.choice([0.0, 0.3, 0.7, 0.95])

    def _fresh(self, length: int) -> list[int]:
        return [self.rng.randint(3, TOKENS) for _ in range(length)]

    def __call__(self, length: int) -> list[int]:
        """Return a prompt of about *length* tokens (an exact multiple of the block now and then)."""
        rng = self.rng
        if rng.random() < 0.15:
            length = max(1, length // self.block_size) * self.block_size
        prompt = self._fresh(length)
        if rng.random() < self.sharing:
            how = rng.random()
            if how < 0.5 or not self.seen:
                head = rng.choice(self.heads)
                prompt = head[: rng.randint(1, len(head))] + prompt
            elif how < 0.7:
                prompt = list(rng.choice(self.seen))
            elif how < 0.85:
                prompt = rng.choice(self.seen) + prompt
            else:
                old = rng.choice(self.seen)
                prompt = old[: rng.randint(1, len(old))] + prompt[: rng.choice([0, 1, len(prompt)])]
        prompt = prompt[: self.longest]
        self.seen.append(prompt)
        return prompt


def random_requests(rng: random.Random, config: dict[str, Any], most: int, *, ties: bool) -> list[dict[str, Any]]:
    """Return requests for *config*, in the order of their delivery; without *ties* no two arrivals are equal."""
    mml, priority_policy = config["mml"], config.get("policy") == "priority"
    count = rng.randint(1, most)
    prompts = Prompts(rng, mml - 1, config["B"])
    usual_prompt = rng.choice([4, 10, 20, mml // 8, mml // 4, mml // 2, mml - 1])
    usual_output = rng.choice([1, 3, 8, 15, 30, mml // 2, mml])
    eos_share = rng.choice([0, 0, 0.3, 0.8])
    widest_gap = rng.choice([0, 1, 1, 3, 8, 40])
    burst = rng.choice([0.0, 0.3, 0.6, 0.9])
    levels = rng.choice([1, 2, 3, 10])
    padded = rng.random() < 0.5
    after_step, arrival = rng.choice([0, 0, 3]), 0.0
    requests: list[dict[str, Any]] = []
    for index in range(count):
        if index and rng.random() >= burst:
            after_step += rng.randint(0, widest_gap)
        arrival += rng.choice([0, 0, 0.5, 1]) if priority_policy else 1
        prompt = prompts(rng.choice([usual_prompt, rng.randint(1, max(1, min(2 * usual_prompt, mml - 1)))]))
        request: dict[str, Any] = {
            "id": f"r{index:03}" if padded else f"r{index}",
            "after_step": after_step,
            "prompt": prompt,
            # more than fit into max_model_len now and then
            "max_tokens": rng.choice([usual_output, rng.randint(1, 2 * usual_output)]),
            # not in the order of delivery now and then, as behind several front ends
            "arrival": max(0.0, arrival - (rng.choice([0, 0, 0, 2]) if priority_policy else 0))
            + (0 if ties else index / 1024),
        }
        if priority_policy:
            request["priority"] = rng.randint(0, levels - 1)
        if rng.random() < eos_share:
            request["eos_at"] = rng.randint(1, request["max_tokens"] + 1)
        requests.append(request)
    return requests


def random_scenario(
    seed: int, index: int, kind: str = "mixed", most_requests: int = 40, *, ties: bool = True
) -> Scenario:
    """Return scenario *index* of *seed*.

    ties: requests of equal priority may have equal arrivals (up to 0.11.2 the real queue dies of it).
    """
    rng = random.Random(f"{seed}/{index}/{kind}")
    config = random_config(rng, kind)
    return {
        "name": f"{kind}_{seed}_{index}",
        "config": config,
        "requests": random_requests(rng, config, most_requests, ties=ties),
    }


def random_scenarios(
    seed: int, count: int, kind: str = "mixed", most_requests: int = 40, *, ties: bool = True
) -> list[Scenario]:
    """Return the first *count* scenarios of *seed*."""
    return [random_scenario(seed, index, kind, most_requests, ties=ties) for index in range(count)]


def main(seed: str, count: str, target: str, kind: str = "mixed", ties: str = "ties") -> None:
    """Write scenarios to a file."""
    scenarios = random_scenarios(int(seed), int(count), kind, ties=ties == "ties")
    golden = {"format": "golden, without events", "scenarios": scenarios}
    Path(target).write_text(json.dumps(golden))


if __name__ == "__main__":
    main(*sys.argv[1:])
