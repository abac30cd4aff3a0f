"""Random worlds with KV offload, and one loop that drives the real scheduler or ours through them."""

from __future__ import annotations

import random
from typing import Any

from simulator.offload_plan import WatchedPool
from simulator.offload_scheduler import OffloadScheduler
from simulator.offload_tier import CpuTier
from simulator.request import Request
from simulator.rules import SchedulerRules

MOST_STEPS = 3000


def scenario(seed: int) -> dict[str, Any]:
    """Return a scenario; every switch is drawn."""
    draw = random.Random(seed)
    longest, seqs = draw.choice([24, 60]), draw.choice([1, 2, 4, 16])
    config = {
        "B": 4, "mml": 100, "seqs": seqs, "mbt": max(seqs, draw.choice([8, 16, 64, 200])),
        "blocks": draw.randint(26, 60), "cpu": draw.choice([0, 3, 10, 30, 200]), "factor": draw.choice([1, 1, 1, 2, 3]),
        "is_async": draw.random() < 0.5, "reserve": draw.random() < 0.7, "lpt": draw.choice([0, 0, 8]),
        "policy": draw.choice(["fcfs", "fcfs", "priority"]), "watermark": draw.choice([0.0, 0.0, 0.1]),
        "out": draw.choice([0, 1, 3, 12]), "in": draw.choice([0, 1, 2, 6]),
    }  # fmt: skip
    requests = []
    for _ in range(draw.randint(2, 25)):
        prompt = draw.randint(1, longest)
        requests.append({
            "after_step": draw.randint(0, 60), "prompt_length": prompt, "group": draw.randrange(3),
            "shared": min(prompt, draw.randint(0, longest)), "max_tokens": draw.randint(1, 30),
            "priority": draw.randrange(3),
        })  # fmt: skip
    requests.sort(key=lambda entry: entry["after_step"])
    for number, entry in enumerate(requests):
        entry["arrival"] = float(number)
    return {"seed": seed, "config": config, "requests": requests}


def prompt_tokens(row: int, entry: dict[str, Any]) -> list[int]:
    """Return the prompt: tokens of its group, then its own."""
    shared = [1000 * (entry["group"] + 1) + place for place in range(entry["shared"])]
    return shared + [100_000 + 1000 * row + place for place in range(entry["prompt_length"] - entry["shared"])]


class Loop:
    """The engine's loop by numbers of steps: a copy is reported with the result of a step *latency* after its own."""

    def __init__(self, side: Any, world: dict[str, Any]) -> None:
        self.side, self.world = side, world
        self.turn = 0
        self.on_the_way: list[tuple[int, Any]] = []  # (turn from which it is done, job)
        self.ordered: list[Any] = []

    def run(self) -> list[dict[str, Any]]:
        """Return what every plan says."""
        side, config, entries = self.side, self.world["config"], list(enumerate(self.world["requests"]))
        depth = 2 if config["is_async"] else 1
        in_flight: list[tuple[Any, list[Any]]] = []
        events: list[dict[str, Any]] = []
        while (entries or in_flight or side.has_requests()) and self.turn < MOST_STEPS:
            if not in_flight and not side.has_requests():
                self.turn = max(self.turn, entries[0][1]["after_step"])
            while entries and entries[0][1]["after_step"] <= self.turn:
                side.add(*entries.pop(0))
            if len(in_flight) < depth and side.has_requests():
                plan = side.schedule()
                self.turn += 1
                events.append(side.describe(plan))
                in_flight.append((plan, self._copies(plan)))
                if len(in_flight) < depth and side.num_tokens(plan):
                    continue
            plan, done = in_flight.pop(0)
            side.update(plan, done)
        return events

    def _copies(self, plan: Any) -> list[Any]:
        """Begin the copies of a step; return those to report with it."""
        config, (loads, stores, flush) = self.world["config"], self.side.jobs(plan)
        self.on_the_way += [(self.turn + config["out"], job) for job in self.ordered]
        self.on_the_way = [(0 if job in flush else turn, job) for turn, job in self.on_the_way]
        self.on_the_way += [(self.turn + config["in"], job) for job in loads]
        self.ordered = list(stores)
        done = [job for turn, job in self.on_the_way if turn <= self.turn]
        self.on_the_way = [(turn, job) for turn, job in self.on_the_way if turn > self.turn]
        return done


class OurSide:
    """Our scheduler for `Loop`."""

    def __init__(self, world: dict[str, Any]) -> None:
        config = world["config"]
        rules = SchedulerRules(
            max_num_seqs=config["seqs"], max_num_batched_tokens=config["mbt"], max_model_len=config["mml"],
            async_scheduling=config["is_async"], priority_policy=config["policy"] == "priority",
            long_prefill_token_threshold=config["lpt"], scheduler_reserve_full_isl=config["reserve"],
            watermark=config["watermark"],
        )  # fmt: skip
        pool = WatchedPool(config["blocks"], 4, caching=True)
        self.scheduler = OffloadScheduler(rules, pool, CpuTier(config["cpu"]), factor=config["factor"])

    def add(self, row: int, entry: dict[str, Any]) -> None:
        shared = [1000 * (entry["group"] + 1) + index for index in range(entry["shared"] // 4)]
        self.scheduler.add([
            Request(row, entry["prompt_length"], entry["max_tokens"], shared_keys=shared, priority=entry["priority"],
                    arrival=entry["arrival"], tie_break=str(row))
        ])  # fmt: skip

    def has_requests(self) -> bool:
        return self.scheduler.has_requests

    def schedule(self) -> Any:
        return self.scheduler.schedule()

    def num_tokens(self, plan: Any) -> int:
        return plan.num_tokens

    def jobs(self, plan: Any) -> tuple[list[Any], list[Any], list[Any]]:
        return plan.loads, plan.stores, plan.flush

    def describe(self, plan: Any) -> dict[str, Any]:
        def owners(jobs: Any) -> list[str]:
            return sorted(str(job.request.row) for job in jobs)

        return {
            "tokens": {str(r.row): n for r, n in zip(plan.requests, plan.tokens, strict=True)},
            "preempted": sorted(str(r.row) for r in plan.preempted),
            "running": [str(r.row) for r in self.scheduler.running],
            "waiting": self.scheduler.counts()[1],
            "free": self.scheduler.counts()[2],
            "loads": owners(plan.loads),
            "stores": owners(plan.stores),
            "flush": owners(plan.flush),
        }

    def update(self, plan: Any, done: list[Any]) -> None:
        self.scheduler.update(plan)
        self.scheduler.transfers_done(done)
