"""Several replicas behind a router, in one simulation: who gets which request, who comes and goes.

clients -> router -> `Replica` 0, 1, ... -> clients.  The router itself takes no time.  Replicas share nothing; each has
its own noise, so that a fleet is not one server repeated.

If every send time is known and the router looks at nothing, each replica is simulated alone: the same result, faster.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import simpy

from simulator.autoscaler import Autoscaler, Decisions
from simulator.clients import Clients
from simulator.fastest import Served, serve
from simulator.replica import Machine, Replica
from simulator.request_table import Ints
from simulator.routing import Routing, router
from simulator.server import Load


@dataclass(frozen=True, eq=False, kw_only=True)
class Part:
    """What one replica did: its requests as rows of the workload, and when it was there, in seconds.

    It is started at *launched_s*, gets requests from *ready_s* to *drained_s*, and is gone at *stopped_s*.  *served* is
    None if it never got one.
    """

    number: int
    rows: Ints
    served: Served | None
    launched_s: float
    ready_s: float
    drained_s: float
    stopped_s: float


def replica_seed(seed: int | None, number: int) -> int | None:
    """Return the seed of a replica's noise (None: without noise); the first one's is that of a server alone."""
    if seed is None or number == 0:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])


def run_fleet(
    machine: Machine, load: Load, routing: Routing, *, replicas: int, autoscaler: Autoscaler | None, seed: int | None
) -> list[Part]:
    """Return what each replica did under *load*, *replicas* of them at the start; *seed* None: without noise."""
    if autoscaler is None and routing.is_static and load.is_open:
        return _apart(machine, load, routing, replicas, seed)
    return Fleet(machine, load, routing, replicas=replicas, autoscaler=autoscaler, seed=seed).run()


def _apart(machine: Machine, load: Load, routing: Routing, replicas: int, seed: int | None) -> list[Part]:
    """Return what happens if each request's replica is known beforehand."""
    choose = router(routing, load.table, machine.engine.block_size, seed or 0).choose
    ready, nobody = list(range(replicas)), dict.fromkeys(range(replicas), 0)
    chosen = np.array([choose(row, ready, nobody) for row in range(len(load.table))])
    parts = []
    for number in range(replicas):
        rows = np.flatnonzero(chosen == number)
        served = None
        if len(rows):
            served = serve(
                machine.engine, machine.num_gpu_blocks, machine.cost, Load(table=load.table.take(rows)),
                seed=replica_seed(seed, number), scheduler=machine.scheduler, host=machine.host,
            )  # fmt: skip
        there = {"launched_s": 0.0, "ready_s": 0.0, "drained_s": math.inf, "stopped_s": math.inf}
        parts.append(Part(number=number, rows=rows, served=served, **there))
    return parts


class Member:
    """One replica of a fleet; until it is *ready* there is no engine."""

    def __init__(self, fleet: Fleet, number: int, launched_s: float) -> None:
        self._fleet = fleet
        self.number = number
        self.replica: Replica | None = None
        self.launched_s = launched_s
        self.ready_s = self.drained_s = self.stopped_s = math.inf

    #: Every response is announced: the router counts them.
    listens = True

    @property
    def is_ready(self) -> bool:
        """Whether it gets requests."""
        return self.replica is not None and self.drained_s == math.inf

    @property
    def is_live(self) -> bool:
        """Whether it gets requests or will."""
        return self.drained_s == math.inf

    def done(self, row: int) -> None:
        """The response to its request *row* (by its own count) is complete."""
        assert self.replica is not None
        self._fleet.answered(self, self.replica.rows[row])

    def part(self) -> Part:
        """Return what it did."""
        served, replica = None, self.replica
        if replica is not None and replica.rows:
            timer = replica.timer
            served = Served(replica.close(), timer.most_tokens, timer.most_decode_reqs, timer.longest_context)
        return Part(
            number=self.number,
            rows=np.array([] if replica is None else replica.rows, dtype=np.int64),
            served=served,
            launched_s=self.launched_s,
            ready_s=self.ready_s,
            drained_s=self.drained_s,
            stopped_s=self.stopped_s,
        )


class Fleet:
    """Replicas, router, clients and autoscaler on one clock."""

    def __init__(
        self,
        machine: Machine,
        load: Load,
        routing: Routing,
        *,
        replicas: int,
        autoscaler: Autoscaler | None,
        seed: int | None,
    ) -> None:
        self._machine = machine
        self._load = load
        self._seed = seed
        self._env = simpy.Environment()
        self._router = router(routing, load.table, machine.engine.block_size, seed or 0)
        self._members: list[Member] = []
        self._in_flight: dict[int, int] = {}
        self._left = len(load.table)
        self._next_look_s = math.inf
        for _ in range(replicas):
            self._start(0.0)
        self._clients = Clients(
            self._env,
            load.table,
            self._send,
            max_concurrency=load.max_concurrency,
            user_start_s=load.user_start_s,
        )
        if autoscaler is not None:
            self._env.process(self._scale(autoscaler, Decisions(autoscaler, replicas)))

    def run(self) -> list[Part]:
        """Send everything, wait for every response, and return what each replica did."""
        self._env.run()
        return [member.part() for member in self._members]

    # -- requests -------------------------------------------------------------------------------------------------

    def _send(self, row: int) -> None:
        ready = [member.number for member in self._members if member.is_ready]
        number = self._router.choose(row, ready, self._in_flight)
        replica = self._members[number].replica
        assert replica is not None
        self._in_flight[number] += 1
        replica.take(row)

    def answered(self, member: Member, row: int) -> None:
        """The response to *row* is complete: the router counts one less, its client goes on."""
        self._left -= 1
        self._in_flight[member.number] -= 1
        self._stop_if_idle(member)
        self._clients.done(row)

    # -- replicas -------------------------------------------------------------------------------------------------

    def _start(self, delay_s: float) -> None:
        member = Member(self, len(self._members), self._env.now)
        self._members.append(member)
        self._in_flight[member.number] = 0
        if delay_s == 0:
            self._open(member)
        else:
            alarm = self._env.timeout(delay_s)
            alarm.callbacks.append(lambda _event: self._open(member))

    def _open(self, member: Member) -> None:
        if not member.is_live:  # it was stopped while it started
            return
        member.ready_s = self._env.now
        member.replica = Replica(
            self._env,
            self._machine,
            self._load.table,
            [],
            seed=replica_seed(self._seed, member.number),
            next_send_s=lambda: self._clients.known_send_s,
            interrupt_s=lambda: self._next_look_s,
        )
        member.replica.listen(member)

    def _drain(self, member: Member) -> None:
        member.drained_s = self._env.now
        self._stop_if_idle(member)

    def _stop_if_idle(self, member: Member) -> None:
        if not member.is_live and self._in_flight[member.number] == 0:
            member.stopped_s = self._env.now

    def _scale(self, settings: Autoscaler, decisions: Decisions) -> Generator[simpy.Event, None, None]:
        env = self._env
        while True:
            self._next_look_s = env.now + settings.interval_s
            yield env.timeout(settings.interval_s)
            if self._left == 0 or env.peek() == math.inf:  # all is answered, or nothing can go on
                self._next_look_s = math.inf
                return
            decisions.read(env.now, sum(_signal(m.replica, settings.signal) for m in self._members if m.is_ready))
            live = [member for member in self._members if member.is_live]
            wanted = decisions.wanted(env.now, len(live))
            for _ in range(wanted - len(live)):
                self._start(settings.startup_s)
            leaving = sorted(live, key=lambda member: (member.is_ready, -member.number))
            for member in leaving[: max(0, len(live) - wanted)]:
                if not member.is_ready or sum(other.is_ready for other in self._members) > 1:
                    self._drain(member)


def _signal(replica: Replica | None, signal: str) -> float:
    """Return what a scrape of *replica* says now."""
    assert replica is not None
    running, waiting, free_blocks = replica.scheduler.counts()
    if signal == "kv_cache_usage":
        return 1 - free_blocks / replica.records.usable_blocks
    return float({"waiting": waiting, "running": running}.get(signal, running + waiting))
