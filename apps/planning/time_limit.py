"""A limit on how long a piece of Python may take, in any thread; nothing it runs has to know."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class OutOfTimeError(Exception):
    """The time allowed is over."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise `OutOfTimeError` in this thread if the block takes longer than *seconds* of wall time (None: any).

    The interpreter raises it between two steps of Python: a long call into C is not cut short.  Signals would do the
    same for a main thread only, and Dask's workers compute in other threads.
    """
    if seconds is None:
        yield
        return
    thread = threading.get_ident()

    def over() -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(OutOfTimeError))

    timer = threading.Timer(seconds, over)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # from here on it has raised or never will; the loop is where a late one arrives
        for _ in range(8):
            pass
