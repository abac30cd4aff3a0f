"""The life of a vLLM server: started on a port of its own, watched until healthy, always stopped.

The server gets a process group of its own (its engine is a process too), and the whole group is ended: SIGTERM, a few
seconds, SIGKILL.  That happens at the end of the ``with`` block, also on Ctrl-C, on any exception, and when this
process itself gets SIGTERM.  If this process is killed, Linux sends the server SIGTERM.  What the server prints goes to
a file that stays.

`Attached` stands for a server somebody else runs: nothing is started or stopped.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Protocol

from simulator.errors import InputError, ServecastError

Progress = Callable[[str], None]

#: Seconds between SIGTERM and SIGKILL.
GRACE_S = 8.0
POLL_S = 0.5
TAIL_LINES = 15
_PR_SET_PDEATHSIG = 1
#: How often a start is told about: when there is news, and when there is none.
TOLD_EACH_S, TOLD_AGAIN_S = 5.0, 30.0


class ServerError(ServecastError):
    """A server that does not start, or is gone; ``log_tail`` holds the last lines it printed."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail


class Server(Protocol):
    """Something that answers at a URL."""

    url: str

    def check(self) -> None:
        """Raise `ServerError` if it is known to be gone."""


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch(url: str, timeout_s: float = 5.0, api_key: str | None = None) -> str:
    """Return the body at *url*; OSError or HTTPException if there is no good answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {api_key}"} if api_key else {})
    with opener.open(request, timeout=timeout_s) as answer:
        return str(answer.read().decode("utf-8", errors="replace"))


def is_healthy(url: str) -> bool:
    """Return whether the server says it can serve."""
    try:
        fetch(f"{url}/health")
    except (OSError, http.client.HTTPException, ValueError):
        return False
    return True


class Attached:
    """A server that runs already; raises `InputError` if nothing healthy answers there."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        if not self.url.startswith("http://"):
            raise InputError(f"--url {url}: must start with http:// (the client speaks no https)")
        if not is_healthy(self.url):
            raise InputError(f"--url {url}: no healthy server answers at {self.url}/health; start it first")

    def check(self) -> None:
        """Raise `ServerError` if it has stopped answering."""
        if not is_healthy(self.url):
            raise ServerError(f"the server at {self.url} is not healthy any more")

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *_: object) -> None:
        return


class VllmServer:
    """A server process inside a ``with`` block; entering waits until it is healthy."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        startup_timeout_s: float = 900.0,
        hint: str = "give the whole path",
        progress: Progress = lambda _: None,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [*command, "--host", "127.0.0.1", "--port", str(self.port)]
        self._log, self._env = log, dict(env or {})
        self._timeout_s, self._hint, self._progress = startup_timeout_s, hint, progress
        self._process: subprocess.Popen[bytes] | None = None
        self._signals = contextlib.ExitStack()

    @property
    def pid(self) -> int | None:
        """Process id of the server; None before it starts."""
        return self._process.pid if self._process else None

    def __enter__(self) -> VllmServer:
        self._signals.enter_context(_ending_on_sigterm())
        try:
            self._start()
            self._wait_until_healthy()
        except BaseException:
            self._finish()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()

    def check(self) -> None:
        """Raise `ServerError` if the process has ended."""
        code = self._process.poll() if self._process else None
        if code is not None:
            raise ServerError(f"the vLLM server died with {_ending(code)}; its log is {self._log}", self.tail())

    def tail(self) -> str:
        """Return the last lines of the log."""
        try:
            lines = self._log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
        except OSError:
            return ""
        return "\n".join([line for line in lines if line.strip()][-TAIL_LINES:])

    def _start(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as out, _interrupted_later():
            try:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                    env={**os.environ, **self._env}, start_new_session=True, preexec_fn=_ending_with_us(),
                )  # fmt: skip
            except OSError as error:
                name = self._command[0]
                raise ServerError(
                    f"cannot start {name!r} ({error.strerror}); is vLLM installed here? {self._hint}"
                ) from None

    def _wait_until_healthy(self) -> None:
        started = told = time.monotonic()
        said = ""
        while not is_healthy(self.url):
            self.check()
            now = time.monotonic()
            if now - started > self._timeout_s:
                message = f"the vLLM server was not healthy within {self._timeout_s:.0f} s; its log is {self._log}"
                raise ServerError(message, self.tail())
            line = self._last_line()
            if now - told >= (TOLD_EACH_S if line != said else TOLD_AGAIN_S):
                told, said = now, line
                self._progress(f"starting vLLM, {now - started:.0f} s: {line}")
            time.sleep(POLL_S)
        self._progress(f"vLLM is up after {time.monotonic() - started:.0f} s")

    def _last_line(self) -> str:
        """Return what vLLM said last, without process, time and place."""
        said = re.findall(r" (?:INFO|WARNING|ERROR) [\d :-]+\[[^\]]*\] (.*)", self.tail())
        return said[-1].strip()[:120] if said else "importing"

    def _finish(self) -> None:
        try:
            with _undisturbed():
                self._stop()
        finally:
            self._signals.close()

    def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            _signal_group(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        _signal_group(process.pid, signal.SIGKILL)  # whoever is left of the group, the engine first of all
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)


def _ending_with_us() -> Callable[[], None] | None:
    """Return what makes a child get SIGTERM when this process dies, where that can be had."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here: the child must not
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _raise_exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _handling(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """Use other signal handlers inside the block; nothing happens outside the main thread, which has none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """Signals take effect after the block: between fork and its return a server would be started and forgotten."""
    seen: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        seen.append(number)

    with _handling(dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), remember)):
        yield
    for number in seen[:1]:
        signal.raise_signal(number)


def _ending_on_sigterm() -> contextlib.AbstractContextManager[None]:
    """SIGTERM ends the block as an exception would, so that the server is stopped."""
    return _handling({signal.SIGTERM: _raise_exit, signal.SIGHUP: _raise_exit})


def _undisturbed() -> contextlib.AbstractContextManager[None]:
    """Nobody interrupts the block: a second Ctrl-C would leave the server running."""
    return _handling({signal.SIGTERM: signal.SIG_IGN, signal.SIGINT: signal.SIG_IGN, signal.SIGHUP: signal.SIG_IGN})
