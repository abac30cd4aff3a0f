"""Who computes: worker processes with a limit, a cache of answers, and questions that can be taken back.

Two lanes, one process each unless told otherwise: *quick* for what a page waits for, *slow* for intervals, pairs and
searches, so that nobody's long question holds up somebody else's short one.  A job that takes longer than `LIMIT_S`, or
more memory than `MEMORY_BYTES`, is ended; a job that nobody waits for any more is ended too.  Processes come from a
fork server that has the simulator loaded, so a new one is there at once.

The cache is keyed by the whole question: two people who ask the same get the same answer, nobody sees another's.
"""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import pickle
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, Literal

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from apps.ui import tasks
from simulator.errors import InputError, ServecastError

#: A job may take so many seconds and so much memory.
LIMIT_S = 60
SLOW_LIMIT_S = 600
MEMORY_BYTES = 4 * 2**30
#: Answers kept.
KEPT = 48
#: Environment variable: worker processes in all.
WORKERS = "SERVECAST_EXPLORER_WORKERS"

Lane = Literal["quick", "slow"]
Key = tuple[Hashable, ...]


class Job:
    """A question on its way: `done`, then `result` (or its error of one line)."""

    def __init__(self, key: Key, future: ProcessFuture[Any], limit_s: int, notes: Path) -> None:
        self.key = key
        self.owners: set[Hashable] = set()
        self._notes = notes
        self._future = future
        self._limit_s = limit_s

    def done(self) -> bool:
        """Whether `result` returns at once."""
        return bool(self._future.done())

    def result(self) -> Any:
        """Wait; return the answer, or raise a `ServecastError` of one line."""
        try:
            return self._future.result()
        except TimeoutError:
            raise InputError(
                f"this took more than {self._limit_s} s, the limit of a shared page, and was ended: "
                "ask for fewer requests, or use the command line"
            ) from None
        except (CancelledError, ProcessExpired):
            raise InputError("this was ended before it was done; change an input or ask again") from None
        except MemoryError:
            raise InputError(
                f"this needed more than {MEMORY_BYTES / 2**30:.0f} GiB, the limit of a shared page; "
                "ask for fewer requests, or use the command line"
            ) from None

    def progress(self) -> Any:
        """Return what the worker last told of itself; None for nothing yet."""
        try:
            return pickle.loads(self._notes.read_bytes())  # written by our own worker in our own folder
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    def usable(self) -> bool:
        """Whether the answer is worth keeping: still to come, found, or a refusal that would come again."""
        if not self.done():
            return True
        if self._future.cancelled():
            return False
        error = self._future.exception()
        return error is None or isinstance(error, ServecastError)

    def cancel(self) -> None:
        """End it, if it is not done."""
        self._future.cancel()  # type: ignore[no-untyped-call]


class Desk:
    """Takes questions, hands out jobs; one for the whole server process, safe for many threads."""

    def __init__(self, workers: int = 2) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["apps.ui.tasks", "calibration.intervals", "pandas", "scipy.stats"])
        many = max(1, workers - 1)
        self._pools = {lane: _pool(context, 1 if lane == "quick" else many) for lane in ("quick", "slow")}
        self._folder = tempfile.TemporaryDirectory(prefix="servecast-explorer-")
        self._count = 0
        self._jobs: OrderedDict[Key, Job] = OrderedDict()
        self._asked: dict[Hashable, Key] = {}
        self._lock = threading.Lock()

    def ask(self, function: Callable[..., Any], *arguments: Hashable, owner: Hashable, lane: Lane = "quick") -> Job:
        """Return the job that answers ``function(*arguments)``: a new one, or one that was asked before.

        What *owner* (one place of one visitor's page) had asked before is taken back, if nobody else waits for it.
        """
        key = (function.__name__, *arguments)
        with self._lock:
            self._take_back(owner, key)
            job = self._jobs.get(key)
            if job is None or not job.usable():
                job = self._jobs[key] = self._started(key, function, arguments, lane)
            job.owners.add(owner)
            self._asked[owner] = key
            self._jobs.move_to_end(key)
            self._forget()
            return job

    def take_back(self, owner: Hashable) -> None:
        """End what *owner* asked, unless somebody else waits for it."""
        with self._lock:
            self._take_back(owner, None)

    def waiting(self) -> int:
        """Return how many questions are not answered yet."""
        with self._lock:
            return sum(not job.done() for job in self._jobs.values())

    def close(self) -> None:
        """End all processes."""
        for pool in self._pools.values():
            pool.stop()  # type: ignore[no-untyped-call]
            pool.join(5)
        self._folder.cleanup()

    def _started(self, key: Key, function: Callable[..., Any], arguments: tuple[Any, ...], lane: Lane) -> Job:
        limit_s = LIMIT_S if lane == "quick" else SLOW_LIMIT_S
        self._count += 1
        notes = Path(self._folder.name, str(self._count))
        call = functools.partial(_told, function, str(notes))
        return Job(key, self._pools[lane].schedule(call, args=arguments, timeout=limit_s), limit_s, notes)

    def _take_back(self, owner: Hashable, new: Key | None) -> None:
        old = self._asked.pop(owner, None)
        job = self._jobs.get(old) if old is not None else None
        if job is None or old == new:
            return
        job.owners.discard(owner)
        if not job.owners and not job.done():
            job.cancel()
            del self._jobs[job.key]

    def _forget(self) -> None:
        """Drop the oldest answers; whoever holds a job still has it."""
        for key in [key for key, job in self._jobs.items() if job.done()][: max(0, len(self._jobs) - KEPT)]:
            del self._jobs[key]


def _pool(context: Any, workers: int) -> ProcessPool:
    pool = ProcessPool(max_workers=workers, initializer=_limit_memory, context=context)
    pool.schedule(tasks.warm)  # starts the processes
    return pool


def _told(function: Callable[..., Any], notes: str, *arguments: Any) -> Any:
    """Run a task in the worker; one that has a parameter ``tell`` can leave word of how far it is."""
    code = getattr(function, "__code__", None)
    if code is None or "tell" not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return function(*arguments)

    def tell(what: Any) -> None:
        part = Path(notes + ".part")
        part.write_bytes(pickle.dumps(what))
        part.replace(notes)

    return function(*arguments, tell=tell)


def _limit_memory() -> None:
    """Keep one question from taking the machine's memory; where the system can."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))


@functools.cache
def desk() -> Desk:
    """Return the desk of this process, started at the first call."""
    found = Desk(workers=int(os.environ.get(WORKERS, "2")))
    atexit.register(found.close)
    return found
