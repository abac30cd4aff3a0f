"""How far long work is: a bar with the time left on a terminal, calls for a page, nothing in a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

#: A title for a bar on stderr, a function that is told (done, all), or None for silence.
Progress = str | Callable[[int, int], None] | None


@contextlib.contextmanager
def shown(progress: Progress, count: int) -> Iterator[Callable[[], None]]:
    """Give a function to be called after each of *count* pieces of work."""
    if progress is None or (isinstance(progress, str) and not sys.stderr.isatty()):
        yield lambda: None
    elif isinstance(progress, str):
        with _bar(progress, count) as advance:
            yield advance
    else:
        tell, done = progress, iter(range(1, count + 1))
        tell(0, count)
        yield lambda: tell(next(done), count)


@contextlib.contextmanager
def _bar(title: str, count: int) -> Iterator[Callable[[], None]]:
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left"),
        rich.TimeRemainingColumn(),
    )
    # An hour of past speed: the estimate should not jump about when workers end together.
    with rich.Progress(
        *columns, console=Console(stderr=True), transient=True, speed_estimate_period=3600, redirect_stdout=False
    ) as bar:
        task = bar.add_task(title, total=count)
        yield lambda: bar.advance(task)
