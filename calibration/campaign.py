"""Drives the bursts of a calibration against a server, until the time is used up or enough is known.

Order and sizes: `calibration.bursts`.  A burst is kept the moment it ends.  A burst with a failed request counts for
nothing; when the server is gone, hangs, or fails two bursts in a row, the run stops with `RunStoppedError`, and what is
on disk stays usable.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from calibration.answers import ClientRun
from calibration.burst_time import BurstTime
from calibration.bursts import MOST_TOO_LONG, Burst, Limits, schedule, warm_up
from calibration.campaign_files import FinishedBurst, RunFolder
from calibration.client import Target, replay
from calibration.server import Progress, Server, ServerError, fetch

PAUSE_S = 0.25
#: Seconds a server that answers nothing any more may take to end.
DYING_S = 2.0
#: Failed bursts in a row that end a run.
MOST_FAILED = 2
#: Rounds that no profile can do without; afterwards a round ends with the question whether it is enough.
NEEDED_ROUNDS = 2


class RunStoppedError(ServerError):
    """The run ended before its time."""


@dataclass
class Campaign:
    """One run of bursts against one server start.

    ``is_enough`` is asked after a round (the needed rounds aside) at most each ``ask_every_s``; its words end the run.
    """

    server: Server
    target: Target
    limits: Limits
    times: BurstTime
    folder: RunFolder
    part: str
    seed: int = 0
    progress: Progress = lambda _: None
    is_enough: Callable[[], str | None] = lambda: None
    ask_every_s: float = 60.0
    next_up: list[Burst] = field(default_factory=list)
    _failed: int = 0
    _asked_s: float = 0.0

    def run(self, budget_s: float) -> str:
        """Run bursts for *budget_s* seconds, warm-up included; return why it ended, in words."""
        started = self._asked_s = time.monotonic()
        deadline = started + budget_s
        self._warm_up(deadline)
        done = {burst.key for burst in self.folder.good()}
        turn, too_long = 0, 0
        self.next_up = []
        for round_number, burst in self._open_bursts(done):
            if round_number != turn:
                turn = round_number
                words = self._asks(turn)
                if words:
                    self.next_up = [burst]
                    return words
            if time.monotonic() + self.times.seconds(burst) > deadline:
                self.next_up.append(burst)
                too_long += 1
                if too_long >= MOST_TOO_LONG or time.monotonic() >= deadline:
                    return f"the {budget_s:.0f} s are used up"
                continue
            too_long = 0
            self._measure(burst)
        return "no burst fits the limits of this server"

    def _open_bursts(self, done: set[str]) -> Iterator[tuple[int, Burst]]:
        step_s = self.times.decode_step_s()
        return ((turn, burst) for turn, burst in schedule(self.limits, step_s) if burst.key not in done)

    def _asks(self, turn: int) -> str | None:
        if turn < NEEDED_ROUNDS or time.monotonic() - self._asked_s < self.ask_every_s:
            return None
        self._asked_s = time.monotonic()
        return self.is_enough()

    def _warm_up(self, deadline: float) -> None:
        """Run the first bursts and throw them away; the second pass also tells how fast this server is."""
        self.progress("warming up (not counted)")
        bursts = warm_up(self.limits)
        for learning in (False, True):
            for burst in bursts:
                if learning and time.monotonic() + self.times.seconds(burst) > deadline:
                    return
                run = self._send(burst)
                if run.failures:
                    self._fail(burst, run)
                if learning and not run.failures:
                    self.times.learn(burst, run.duration_s)

    def _measure(self, burst: Burst) -> None:
        """Run one burst and keep it."""
        expected = self.times.seconds(burst)
        before = metrics(self.server.url)
        run = self._send(burst)
        end = run.base_s + run.duration_s
        after = metrics(self.server.url)
        self.folder.save(
            FinishedBurst(
                key=burst.key, purpose=burst.purpose, part=self.part, window=(run.base_s, end),
                requests=run.to_dict(), dropped=run.first_error() or None, late_client=run.bottleneck(),
                metrics={name: round(value - before.get(name, 0.0), 6) for name, value in after.items()},
            )
        )  # fmt: skip
        if run.failures:
            self._fail(burst, run)
            return
        self._failed = 0
        self.times.learn(burst, run.duration_s)
        late = f"; {run.bottleneck()}" if run.bottleneck() else ""
        self.progress(f"{burst.key}: {burst.purpose}, {run.duration_s:.2f} s (expected {expected:.2f}){late}")

    def _send(self, burst: Burst) -> ClientRun:
        self.server.check()
        number = int(time.monotonic() * 1e3)  # other prompts each time: no prefix is found in the cache
        run = replay(self.target, burst.table(), seed=self.seed, run=number)
        time.sleep(PAUSE_S)
        return run

    def _fail(self, burst: Burst, run: ClientRun) -> None:
        """Say it, and stop when it is the server's end or was so before."""
        message = f"{burst.key}: {run.first_error()}"
        try:
            self._check_for(0.0 if run.answered else DYING_S)
        except ServerError as error:
            raise RunStoppedError(f"{message}; {error}", error.log_tail) from None
        self._failed += 1
        self.progress(f"{message}; not counted")
        if self._failed >= MOST_FAILED or not run.answered:
            tail = getattr(self.server, "tail", str)()
            raise RunStoppedError(f"stopped: {message}", tail)

    def _check_for(self, seconds: float) -> None:
        """Raise `ServerError` if the server is gone, or goes within *seconds*: a dying one takes a moment."""
        until = time.monotonic() + seconds
        self.server.check()
        while time.monotonic() < until:
            time.sleep(0.2)
            self.server.check()


def metrics(url: str) -> dict[str, float]:
    """Return vLLM's counters and gauges, labels summed; empty where there are none."""
    try:
        text = fetch(f"{url}/metrics")
    except (OSError, ValueError):
        return {}
    found: dict[str, float] = {}
    for name, value in re.findall(r"^(vllm:\w+)(?:\{[^}]*\})? ([0-9.eE+-]+)$", text, re.MULTILINE):
        if not name.endswith(("_bucket", "_created")):
            found[name] = found.get(name, 0.0) + float(value)
    return found
