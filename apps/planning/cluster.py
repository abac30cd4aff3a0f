"""A Dask cluster under joblib: asked politely, checked before work, and not hung by a worker that dies.

joblib's Dask backend forgets a task whose workers were lost (its callback is not called, and the caller waits for
ever), and leaves a cluster of one core alone (it computes at home); here a lost task comes back as one, and the cluster
computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from simulator.errors import InputError

#: How long a scheduler may take to answer, and a cluster to offer a first worker, in seconds.
TIMEOUT_S = 15


@contextmanager
def connected(scheduler: str, lost: Callable[[Any, BaseException], Any]) -> Iterator[Any]:
    """Give the joblib backend of the cluster at *scheduler*.

    *lost* (arguments of the call, error) makes the result of a task whose workers died.  Raises `InputError` if
    nothing answers, or if the workers have not the servecast that runs here.
    """
    try:
        from distributed import Client
        from joblib._dask import DaskDistributedBackend
    except ImportError:
        raise InputError("the backend dask is not installed; pip install 'dask[distributed]'") from None

    class Backend(DaskDistributedBackend):  # type: ignore[misc]
        def submit(self, func: Any, callback: Any = None) -> Any:
            job = super().submit(func, callback)

            def tell(done: Any) -> None:
                error = done.exception()
                if error is not None:
                    callback([lost(arguments, error) for _, arguments, _ in func.items])

            job.add_done_callback(tell)
            return job

        def effective_n_jobs(self, n_jobs: int) -> int:
            """With one, joblib would compute in this process: that is not what a cluster is for."""
            return max(2, int(super().effective_n_jobs(n_jobs)))

    try:
        client: Any = Client(scheduler, timeout=TIMEOUT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise _no_answer(scheduler, error) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=TIMEOUT_S)
        except TimeoutError as error:
            raise _no_answer(scheduler, error) from None
        _check_workers(client)
        yield Backend(client=client)


def _no_answer(scheduler: str, error: Exception) -> InputError:
    reason = " ".join(str(error).split())[:120]
    return InputError(f"no Dask cluster answers at {scheduler} ({reason}); start it, or correct --scheduler")


def _check_workers(client: Any) -> None:
    here = _here()
    for worker, there in client.run(version, "servecast", on_error="return").items():
        if there != here:
            what = f"servecast {there}" if isinstance(there, str) else f"no servecast ({there})"
            raise InputError(f"Dask worker {worker} has {what}, here it is {here}; install the same on every worker")


def _here() -> str:
    return version("servecast")
