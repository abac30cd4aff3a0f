"""A limit on how long a piece of Python may take, in any thread; nothing it runs has to know."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

#: Packages that may be cut short anywhere, beside the caller's own: nothing outlives a call of theirs.  An import that
#: is cut leaves half a module behind, a compiler or a destructor half a state, for every later question as well.
_MAY_BE_CUT = ("simulator", "calibration", "apps", "simpy")
#: How often it is looked whether the thread may be cut, and when the error is raised again if it was dropped.
_LOOK_S, _AGAIN_S = 0.005, 0.2


class OutOfTimeError(Exception):
    """The time allowed is over."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise `OutOfTimeError` in this thread if the block takes longer than *seconds* of wall time (None: any).

    It is raised between two steps of Python, and only while all that runs is the caller's package or one of
    `_MAY_BE_CUT`: a long call into C is not cut short.  Signals would do for a main thread only, and know nothing of
    what they cut; Dask's workers compute in other threads.
    """
    if seconds is None:
        yield
        return
    thread, done = threading.get_ident(), threading.Event()
    caller = sys._getframe(2)  # beyond this generator and contextlib
    outermost, packages = id(caller), (*_MAY_BE_CUT, _package(caller))
    del caller

    def watch() -> None:
        wait_s = seconds
        while not done.wait(wait_s):
            wait_s = _LOOK_S
            if _may_be_cut(thread, outermost, packages):
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(OutOfTimeError))
                wait_s = _AGAIN_S

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with suppress(OutOfTimeError):  # one that arrives now is too late, or one too many
            done.set()
            watcher.join()
            for _ in range(8):
                pass


def _may_be_cut(thread: int, outermost: int, packages: tuple[str, ...]) -> bool:
    """Whether all frames of *thread* inside the frame *outermost* (its id) belong to *packages*."""
    frame = sys._current_frames().get(thread)
    while frame is not None and id(frame) != outermost:
        if _package(frame) not in packages:
            return False
        frame = frame.f_back
    return True


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
