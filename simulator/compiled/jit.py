"""Compiled by numba where it is installed, plain Python where it is not: the same functions, the same numbers.

Only the outermost function is kept on disk (`keep`), for everything it calls is compiled into it.  Its key holds a
digest of all sources of this package, since numba itself looks at one file only.  The file lies in ``__pycache__``
beside the source, or in the user's cache directory if that cannot be written (a read-only installation); where neither
can be, each process compiles for itself.  numba replaces files as a whole, so that processes do not disturb each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

HERE = Path(__file__).parent


def is_available() -> bool:
    """Whether numba is installed and not switched off (NUMBA_DISABLE_JIT); does not import it."""
    import os

    return os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0") and find_spec("numba") is not None


def compiled(function: F) -> F:
    """Compile *function* as a part of the compiled ones that call it."""
    return _njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def keep(function: F) -> F:
    """Compile *function* when it is first called, or take what an earlier process has kept; runs without the GIL."""
    options = {"nogil": True, "no_cfunc_wrapper": True}
    try:
        return _njit(function, cache=True, **options)
    except RuntimeError:  # no place to keep it
        return _njit(function, **options)


def _njit(function: F, **options: Any) -> F:
    if not is_available():
        return function
    import numba

    njit: Any = numba.njit
    # Nothing is allocated, so nothing has to be counted: without reference counts it is five times as fast.
    wrapped: F = njit(error_model="numpy", _nrt=False, **options)(function)
    return wrapped


def digest_of_sources() -> int:
    """Return a number that changes with every change of what is compiled."""
    names = sorted([*HERE.glob("*.py"), HERE.parent / "step_formula.py"])
    return int.from_bytes(hashlib.sha256(b"".join(name.read_bytes() for name in names)).digest()[:7], "big")
