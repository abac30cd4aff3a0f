"""Replay golden scenarios of vLLM V0 (recorded from the real 0.6.3 scheduler) and compare event by event.

Beyond the fields of the golden files ``config`` may have those of `tests.engine.drive_v0`: lookahead, steps, is_async,
delay, policy, durations, ends_at_mml (a request ends when it is longer than max_model_len, as in the real engine; the
golden driver went on), numbered_outputs (output n of request r is a token of its own, so that later prompts can repeat
it).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

from simulator.errors import EngineDiedError
from simulator.plan import Plan
from simulator.request import Request, Status
from simulator.v0_blocks import V0Blocks
from simulator.v0_policies import v0_scheduler
from simulator.v0_rules import V0Rules
from simulator.v0_scheduler import V0Scheduler
from tests.golden.token_keys import TokenKeys

Event = list[Any]
EOS = 2
#: A scenario with more steps goes round in circles.
MOST_STEPS = 3000


def output_token(row: int, number: int) -> int:
    """Return the token that the fake model gives as output *number* of request *row*."""
    return 1_000_000 + 10_000 * row + number


def make_scheduler(config: dict[str, Any]) -> V0Scheduler:
    """Return the scheduler that a scenario's configuration describes."""
    rules = V0Rules(
        max_num_seqs=config["seqs"],
        max_num_batched_tokens=config["mbt"],
        max_model_len=config["mml"],
        enable_chunked_prefill=config.get("chunked", False),
        preemption_mode=config.get("mode"),
        priority_policy=config.get("policy", "fcfs") == "priority",
        scheduler_delay_factor=config.get("delay", 0.0),
        num_lookahead_slots=config.get("lookahead", 0),
        num_scheduler_steps=config.get("steps", 1),
        async_output_processing=bool(config.get("is_async", False)),
    )
    blocks = V0Blocks(config["blocks"], config.get("cpu_blocks", 1000), config["B"], caching=config.get("pc", False))
    return v0_scheduler(rules, blocks)


class Replay:
    """One scenario, driven as the golden driver drove the real classes."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        config = self.config = scenario["config"]
        self.scheduler = make_scheduler(config)
        keys = TokenKeys()
        self.names: list[str] = []
        self.requests: list[Request] = []
        self.arrivals: dict[int, list[Request]] = {}
        for row, entry in enumerate(scenario["requests"]):
            tokens = list(entry["prompt"])
            if config.get("numbered_outputs"):
                outputs = range(1, entry["max_tokens"] + 1)
                tokens += [EOS if number == entry.get("eos_at") else output_token(row, number) for number in outputs]
            request = Request(
                row,
                len(entry["prompt"]),
                entry["max_tokens"],
                priority=entry.get("priority") or 0,
                arrival=entry.get("arrival") or 0.0,
                eos_at=entry.get("eos_at") or 0,
                shared_keys=keys(tokens, config["B"]),
            )
            self.names.append(entry["id"])
            self.requests.append(request)
            self.arrivals.setdefault(entry["after_step"], []).append(request)
        self.open = list(self.requests)
        self.given_up: set[int] = set()

    def events(self) -> Iterator[Event]:
        """Yield the events of our scheduler in the golden format."""
        durations = cycle(self.config.get("durations", [1.0]))
        now_s, step, done = 0.0, 0, 0
        while True:
            due = [request for after in sorted(self.arrivals) if after <= done for request in self.arrivals[after]]
            self.arrivals = {after: new for after, new in self.arrivals.items() if after > done}
            if due:
                self._add(due)
                yield ["arrive", self._ids(due)]
            happened: list[Event] = []
            if self.scheduler.has_requests:
                now_s += next(durations)
                try:
                    self._engine_step(step, now_s, happened)
                except EngineDiedError as error:
                    yield from happened
                    yield ["died", happened[-1][1] if happened else step, str(error)]
                    return
            yield from happened
            if happened:
                step = done = happened[-1][1]
                if step > MOST_STEPS:
                    yield ["endless", step]
                    return
            elif self.arrivals:
                done = max(done, min(self.arrivals))
            else:
                return

    def _add(self, due: list[Request]) -> None:
        ends = [request.end_tokens for request in due]
        self.scheduler.add(due)
        if not self.config.get("ends_at_mml"):
            for request, end in zip(due, ends, strict=True):
                request.end_tokens = end

    def _engine_step(self, step: int, now_s: float, happened: list[Event]) -> None:
        scheduler = self.scheduler
        plan = scheduler.plan_once(now_s)
        if plan.requests or plan.ignored or len(plan.preempted) > plan.forced or plan.swapped_in:
            step += 1
            happened.append(self._plan_event(step, plan))
        self.given_up.update(request.row for request in plan.ignored)
        new: dict[str, int] = {}
        while True:
            for name in self._ids(scheduler.update(plan)[0]):
                new[name] = new.get(name, 0) + 1
            if not scheduler.steps_left:
                break
            plan = scheduler.schedule(now_s)
        if happened or any(request.status is Status.FINISHED for request in self.open):
            happened.append(self._update_event(step, new))

    def _ids(self, requests: Any) -> list[str]:
        return [self.names[request.row] for request in requests]

    def _plan_event(self, step: int, plan: Plan) -> Event:
        scheduler, blocks = self.scheduler, self.scheduler.blocks
        prefills = plan.requests[: plan.num_prefills]
        looked_up = {request.row for request in prefills if request.prefix_tokens}
        return [
            "plan",
            step,
            [[self.names[request.row], request.planned_tokens] for request in prefills],
            [[name, 1] for name in self._ids(plan.requests[plan.num_prefills :])],
            self._ids(scheduler.running),
            self._ids(scheduler.waiting),
            self._ids(scheduler.swapped),
            plan.swapped_in,
            plan.swapped_out,
            len(plan.preempted) - plan.forced,
            blocks.gpu.num_free,
            blocks.cpu.num_free,
            self._ids(plan.ignored),
            {self.names[r.row]: r.prefix_tokens // blocks.block_size for r in prefills if r.row in looked_up},
        ]

    def _update_event(self, step: int, new: dict[str, int]) -> Event:
        ended = [request for request in self.open if request.status is Status.FINISHED]
        self.open = [request for request in self.open if request.status is not Status.FINISHED]
        reasons = {
            self.names[request.row]: "stop" if self.scheduler.is_eos(request) else "length"
            for request in ended
            if request.row not in self.given_up
        }
        tokens = new if self.config.get("steps", 1) > 1 else list(new)
        return ["update", step, tokens, reasons, self.scheduler.blocks.gpu.num_free]


def first_mismatch(scenario: dict[str, Any], vllm_version: str = "0.6.3") -> str | None:
    """Return None if our events equal the recorded ones, else ``event K: expected ..., got ...``."""
    ours = Replay(scenario).events()
    for index, want in enumerate(scenario["events"]):
        got = next(ours, None)
        if got != want:
            return f"event {index}: expected {want}, got {got}"
    extra = next(ours, None)
    return None if extra is None else f"event {len(scenario['events'])}: expected the end, got {extra}"
