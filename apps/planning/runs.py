"""Many simulations at once: joblib over all cores of this machine, or over a Dask cluster; results as they come.

    for index, found in run_many(simulate_one, questions, progress="simulating"):
        if isinstance(found, Failure): ...

A task that fails becomes a `Failure` of one line and the others go on.  Closing the generator early, or Ctrl-C, stops
the workers; what was yielded before is the caller's to keep.  Workers are processes, reused by the next call (each
imports the simulator once), and compute with one thread each, so that many of them do not fight for the cores.

Source of the fan-out: joblib (``return_as="generator"``), loky processes, or joblib's Dask backend, whose workers must
have the same servecast installed.  The results do not depend on who computes them, nor on how many.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from apps.planning.cluster import connected
from apps.planning.progress import Progress, shown
from simulator.errors import InputError, ServecastError

#: Processes come in crowds: calls of a few tasks more or less find those of the call before.
_CROWD = 16

#: The kind of a failure of a task whose workers died.
_LOST = "LostTask"

#: Who computes: processes of this machine, so many at most (None: one per core), or a Dask cluster, by the address of
#: its scheduler (``tcp://host:8786``), all of it.
Workers = int | str | None
Task = TypeVar("Task")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Failure:
    """A task that raised *kind* (the name of the exception); *message* is one line."""

    kind: str
    message: str

    @property
    def expected(self) -> bool:
        """Whether the question was to blame (it does not fit, is refused ...) and not the program."""
        kinds: list[type[ServecastError]] = [ServecastError, *ServecastError.__subclasses__()]
        return self.kind in {kind.__name__ for kind in kinds}

    def __str__(self) -> str:
        return self.message if self.expected else f"{self.kind}: {self.message}"


def run_many(
    function: Callable[[Task], Found],
    tasks: Sequence[Task],
    *,
    workers: Workers = None,
    progress: Progress = None,
    ordered: bool = False,
) -> Iterator[tuple[int, Found | Failure]]:
    """Yield (index of the task, result or `Failure`) as they come, or in the order of *tasks*.

    Parameters
    ----------
    function: can be pickled, takes one task.
    workers: see `Workers`.  With one process, or one task, all runs in this one.
    progress: a title for a bar on the terminal, or a function that is told (done, all); `apps.planning.progress`.

    Raises `InputError` for workers below 1, and for a cluster that does not answer or has another servecast.
    """
    if isinstance(workers, int) and workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}; leave it out for one per core")
    results = _watched(_results(function, tasks, workers), len(tasks), progress)
    return _in_order(results) if ordered else results


def run_all(function: Callable[[Task], Found], tasks: Sequence[Task], **settings: Any) -> list[Found | Failure]:
    """Return the results in the order of *tasks*; *settings* as for `run_many`."""
    return [found for _, found in run_many(function, tasks, **settings, ordered=True)]


def _watched(
    results: Generator[tuple[int, Found | Failure], None, None], count: int, progress: Progress
) -> Generator[tuple[int, Found | Failure], None, None]:
    with shown(progress, count) as advance, closing(results):
        for pair in results:
            advance()
            yield pair


def _in_order(results: Generator[tuple[int, Found | Failure], None, None]) -> Iterator[tuple[int, Found | Failure]]:
    early: dict[int, Found | Failure] = {}
    due = 0
    with closing(results):
        for index, found in results:
            early[index] = found
            while due in early:
                yield due, early.pop(due)
                due += 1


def _results(
    function: Callable[[Task], Found],
    tasks: Sequence[Task],
    workers: Workers,
) -> Generator[tuple[int, Found | Failure], None, None]:
    from joblib import cpu_count

    numbered = list(enumerate(tasks))
    if isinstance(workers, str):
        yield from _on_cluster(function, numbered, workers)
        return
    limit = workers or cpu_count()
    if limit == 1 or len(tasks) <= 1:
        for index, task in numbered:
            yield _attempt(function, index, task)
        return
    with _processes():
        yield from _parallel(function, numbered, min(limit, _CROWD * math.ceil(len(tasks) / _CROWD)))


def _on_cluster(
    function: Callable[[Task], Found], numbered: Sequence[tuple[int, Task]], scheduler: str
) -> Iterator[tuple[int, Found | Failure]]:
    lost = []
    with _cluster(scheduler):
        for index, found in _parallel(function, numbered, len(numbered)):
            if isinstance(found, Failure) and found.kind == _LOST:
                lost.append(index)
            else:
                yield index, found
        for index in lost:  # alone this time: Dask also blames those who waited at a worker that somebody else killed
            yield from _parallel(function, [numbered[index]], 1)


def _parallel(
    function: Callable[[Task], Found], numbered: Sequence[tuple[int, Task]], processes: int
) -> Iterator[tuple[int, Found | Failure]]:
    import warnings

    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import BrokenProcessPool

    parallel = Parallel(
        n_jobs=processes,
        return_as="generator_unordered",
        batch_size=1,  # a result is handed over when it is there, not with its neighbours
        max_nbytes=None,
    )
    calls = (delayed(_attempt)(function, index, task) for index, task in numbered)
    for told in (".*tasks which were still being processed.*", ".*A worker stopped while some jobs were given.*"):
        warnings.filterwarnings("ignore", message=told)  # an early end is wanted; a lost worker is an error of its own
    with closing(parallel(calls)) as results:
        try:
            yield from results
        except BrokenProcessPool:
            raise ServecastError(
                "a worker process died, likely for want of memory; what was finished is kept: use fewer --workers"
            ) from None


def _attempt(function: Callable[[Task], Found], index: int, task: Task) -> tuple[int, Found | Failure]:
    try:
        return index, function(task)
    except Exception as error:
        return index, _failure(error)


def _failure(error: BaseException) -> Failure:
    return Failure(type(error).__name__, " ".join(str(error).split()) or type(error).__name__)


def _processes() -> AbstractContextManager[Any]:
    from joblib import parallel_config

    config: AbstractContextManager[Any] = parallel_config(
        "loky", inner_max_num_threads=1, initializer=_leave_interrupts_to_the_parent
    )
    return config


def _leave_interrupts_to_the_parent() -> None:
    """Ctrl-C goes to every process of the terminal; the workers are ended by the one that started them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _lost(arguments: tuple[Any, int, Any], error: BaseException) -> tuple[int, Failure]:
    if type(error).__name__ == "KilledWorker":
        return arguments[1], Failure(_LOST, "the workers that ran it died; give them more memory")
    return arguments[1], _failure(error)


@contextmanager
def _cluster(scheduler: str) -> Iterator[None]:
    from joblib import parallel_config

    with connected(scheduler, _lost) as backend, parallel_config(backend):
        yield
