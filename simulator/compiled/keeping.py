"""Whether the compiled loop is ready: compiled once for an installation (about 15 s), then loaded (half a second).

``python -m simulator.compiled`` compiles it; `make setup` does so.  A stamp beside numba's files says that they are of
these sources, this numba and this Python.  Processes that want to compile at once wait for the first of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from simulator.compiled.jit import digest_of_sources, is_available

#: Requests from which a run is worth half a second of loading, and from which it is worth compiling first.
WORTH_LOADING, WORTH_COMPILING = 4_000, 150_000


def is_ready(num_requests: int) -> bool:
    """Return whether a run of so many requests should go through the compiled loop (every path gives the same bits)."""
    if not is_available():
        return False
    loaded = sys.modules.get("simulator.compiled.loop")
    if loaded is not None and loaded.advance.signatures:
        return True
    if num_requests < WORTH_LOADING:
        return False
    stamp = _stamp()
    if stamp is not None and stamp.exists():
        return True
    return num_requests >= WORTH_COMPILING and _can_prepare()


def prepare() -> None:
    """Compile the loop, or load it if that was done before; does nothing without numba."""
    if not is_available():
        return
    from simulator.compiled.server import warm_up

    stamp = _stamp()
    if stamp is None:
        warm_up()
        return
    with _alone(stamp.with_suffix(".lock")):
        warm_up()
    with suppress(OSError):
        stamp.touch()


def _can_prepare() -> bool:
    """Prepare, unless this numba cannot: then everything goes on without it."""
    from numba.core.errors import NumbaError

    try:
        prepare()
    except (NumbaError, TypeError):
        return False
    return True


def _stamp() -> Path | None:
    """Return the file that says that the code is kept; None if there is no place for it."""
    import numba

    from simulator.compiled.loop import advance

    place = getattr(advance.stats, "cache_path", None)
    if not place:
        return None
    version = f"{sys.version_info[0]}.{sys.version_info[1]}-{numba.__version__}"
    return Path(place) / f"servecast-{digest_of_sources():x}-{version}.stamp"


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold *lock* against other processes, where the system can."""
    try:
        import fcntl

        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except (ImportError, OSError):
        yield
