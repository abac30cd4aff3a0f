"""Replay golden scenarios (recorded from the real vLLM schedulers) through ours and compare event by event.

The format is that of the golden files: a scenario has ``config``, ``requests`` and ``events``; see the module docstring
of `tests.golden.__main__` for how to run it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simulator.blocks import BlockPool
from simulator.cohort import CohortScheduler
from simulator.plan import Plan
from simulator.request import Request
from simulator.rules import SchedulerRules
from simulator.scheduler import V1Scheduler
from simulator.versions import facts
from tests.golden.token_keys import TokenKeys

Event = list[Any]


class Replay:
    """One scenario, driven as the golden driver drove the real classes."""

    def __init__(self, scenario: dict[str, Any], vllm_version: str, kind: type[V1Scheduler]) -> None:
        config = scenario["config"]
        known = facts(vllm_version)
        self.is_async = bool(config.get("is_async", False))
        self.length_before_eos = known.length_before_eos
        self.scheduler = kind(
            SchedulerRules(
                max_num_seqs=config["seqs"],
                max_num_batched_tokens=config["mbt"],
                max_model_len=config["mml"],
                async_scheduling=self.is_async,
                priority_policy=config.get("policy", "fcfs") == "priority",
                enable_chunked_prefill=config.get("chunked", True),
                long_prefill_token_threshold=config.get("lpt", 0),
                scheduler_reserve_full_isl=config.get("reserve", True) and known.full_sequence_check,
                watermark=config.get("watermark", 0.0),
                unfit_prompt_blocks_queue=known.unfit_prompt_blocks_queue,
                self_victim_ends_loop=known.self_victim_ends_loop,
                async_length_guard=known.async_length_guard,
                lone_request_ignores_threshold=known.lone_request_ignores_long_prefill_threshold,
            ),
            BlockPool(
                config["blocks"],
                config["B"],
                caching=config.get("pc", True),
                unhashed_to_head=known.unhashed_blocks_to_head,
            ),
        )
        keys = TokenKeys()
        self.names: list[str] = []
        self.members: dict[int, list[Request]] = {}
        self.arrivals: dict[int, list[Request]] = {}
        for row, entry in enumerate(scenario["requests"]):
            request = Request(
                row,
                len(entry["prompt"]),
                entry["max_tokens"],
                priority=entry.get("priority") or 0,
                arrival=entry.get("arrival") or 0.0,
                eos_at=entry.get("eos_at") or 0,
                shared_keys=keys(entry["prompt"], config["B"]),
                tie_break=entry["id"],
            )
            self.names.append(entry["id"])
            self.arrivals.setdefault(entry["after_step"], []).append(request)

    def events(self) -> Iterator[Event]:
        """Yield the events of our scheduler in the golden format."""
        depth = 2 if self.is_async else 1
        in_flight: list[tuple[int, Plan]] = []
        step = done = 0
        while True:
            due = [request for after in sorted(self.arrivals) if after <= done for request in self.arrivals[after]]
            if not due and not in_flight and not self.scheduler.has_requests:
                if not self.arrivals:
                    return
                done = min(self.arrivals)
                continue
            if due:
                self.arrivals = {after: new for after, new in self.arrivals.items() if after > done}
                self.scheduler.add(due)
                yield ["arrive", [self.names[request.row] for request in due]]
            planned = preempted = False
            if len(in_flight) < depth and self.scheduler.has_requests:
                plan = self.scheduler.schedule()
                preempted = bool(plan.preempted)
                if plan.num_tokens:
                    step += 1
                    planned = True
                    in_flight.append((step, plan))
                    yield self._plan_event(step, plan)
            if in_flight and (len(in_flight) == depth or not planned):
                done, plan = in_flight.pop(0)
                yield self._update_event(done, plan)
            elif not in_flight and not planned and not preempted:
                done = max(done, min(self.arrivals, default=done)) if self.arrivals else done
                if not self.arrivals:
                    return

    def _ids(self, requests: list[Request]) -> list[str]:
        return [self.names[request.row] for request in requests]

    def _plan_event(self, step: int, plan: Plan) -> Event:
        scheduler = self.scheduler
        members = scheduler.members() if isinstance(scheduler, CohortScheduler) and plan.cohort_size else []
        self.members[step] = members
        grants = dict.fromkeys(self._ids(members), 1)
        return [
            "plan",
            step,
            grants | dict(zip(self._ids(plan.requests), plan.tokens, strict=True)),
            {self.names[request.row]: cached for request, cached in plan.admitted},
            self._ids(plan.preempted),
            self._ids(scheduler.running),
            self._ids(scheduler.waiting.in_order()),
            scheduler.blocks.num_free,
        ]

    def _update_event(self, step: int, plan: Plan) -> Event:
        yielded, ended = self.scheduler.update(plan)
        reasons = {self.names[request.row]: self._reason(request) for request in ended}
        members = self.members.pop(step) if plan.cohort_size else []
        return ["update", step, dict.fromkeys(self._ids(members + yielded), 1), reasons, self.scheduler.blocks.num_free]

    def _reason(self, request: Request) -> str:
        if self.length_before_eos and request.num_tokens >= request.end_tokens:
            return "length"
        return "stop" if self.scheduler.is_eos(request) else "length"


def normalised(event: Event, config: dict[str, Any]) -> Event:
    """Make the parts comparable whose order means nothing: a heap's waiting list, the set of preempted ids."""
    if event[0] != "plan":
        return event
    event = list(event)
    event[2] = list(event[2].items())
    event[4] = sorted(event[4])
    if config.get("policy") == "priority":
        event[6] = sorted(event[6])
    return event


def first_mismatch(scenario: dict[str, Any], vllm_version: str, kind: type[V1Scheduler] = V1Scheduler) -> str | None:
    """Return None if our events equal the recorded ones, else ``event K: expected ..., got ...``."""
    config, expected = scenario["config"], scenario["events"]
    ours = Replay(scenario, vllm_version, kind).events()
    for index, want in enumerate(expected):
        got = next(ours, None)
        if got is None or normalised(got, config) != normalised(want, config):
            return f"event {index}: expected {want}, got {got}"
    extra = next(ours, None)
    return None if extra is None else f"event {len(expected)}: expected the end, got {extra}"
