"""A real server with its client, for a validation: started, recorded, loaded, stopped.

The server runs the given ``vllm serve`` line (or ``python -m vllm.entrypoints.openai.api_server``) plus the recorder's
flags (`calibration.recorder_setup`), or runs already somewhere (*url*: clients only, no steps).  Before the first run
some requests of the same lengths are sent and thrown away, because the first steps of a fresh server compile.  Every
run gets prompts of its own, so that none finds the prefixes of another.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from calibration.answers import ClientRun
from calibration.client import Target, replay
from calibration.recorder_setup import set_up
from calibration.server import Attached, Server, VllmServer, fetch
from simulator.errors import InputError, ServecastError
from simulator.request_table import RequestTable
from simulator.workload import Traffic

Progress = Callable[[str], None]

#: Requests that are sent first and thrown away, twice.
WARM_UP = 16
_RECORD = "recorded"


class LiveServer:
    """`calibration.validate.RunsRequests` with a vLLM server."""

    def __init__(
        self, vocab_size: int, *, url: str | None = None, seed: int = 0, progress: Progress = lambda _: None
    ) -> None:
        self._vocab_size, self._url, self._seed, self._progress = vocab_size, url, seed, progress

    def __call__(self, command: str, traffic: Traffic, folder: Path, names: Sequence[str]) -> None:
        """Send *traffic* once for each of *names*; leave requests, steps and the log in *folder*."""
        with self._server(command, folder) as server:
            target = Target(server.url, _served_model(server.url), self._vocab_size)
            self._warm_up(server, target, traffic)
            for number, name in enumerate(names, 1):
                server.check()
                self._progress(f"{name}: {len(traffic.table)} requests")
                limit = traffic.max_concurrency
                run = replay(target, traffic.table, max_concurrency=limit, seed=self._seed, run=number)
                _write(folder / f"{name}.requests.json.gz", run)
                self._progress(
                    f"{name}: done in {run.duration_s:.1f} s" + (f"; {run.first_error()}" if run.failures else "")
                )
        steps = folder / f"{_RECORD}.steps.jsonl"
        if steps.is_file():
            for name in names:
                _compress(steps, folder / f"{name}.steps.jsonl.gz")
            steps.unlink()

    @contextlib.contextmanager
    def _server(self, command: str, folder: Path) -> Iterator[Server]:
        if self._url is not None:
            with Attached(self._url) as attached:
                yield attached
            return
        words = shlex.split(command)
        if not ("serve" in words[:4] or "vllm.entrypoints.openai.api_server" in words[:4]):
            raise InputError(
                f"{command[:60]!r}: cannot be started here; give a `vllm serve ...` line, or --url of a server"
            )
        with tempfile.TemporaryDirectory(prefix="servecast-recorder-") as place:
            recorder = set_up(Path(place), folder / _RECORD, gpu_times=False)
            words = [*words, *recorder.arguments]
            log = folder / "server.log"
            with VllmServer(words, log=log, env=recorder.env, progress=self._progress) as server:
                yield server

    def _warm_up(self, server: Server, target: Target, traffic: Traffic) -> None:
        self._progress("warming up (not counted)")
        rows = np.arange(min(WARM_UP, len(traffic.table)))
        for number in (-1, -2):
            server.check()
            again = traffic.table.take(rows)
            table = RequestTable.build(prompt_tokens=again.prompt_tokens, output_tokens=again.output_tokens)
            run = replay(target, table, max_concurrency=WARM_UP, seed=self._seed, run=1_000_000 - number)
            if run.failures and not run.answered:
                raise ServecastError(f"the server answers no request: {run.first_error()}")


def _served_model(url: str) -> str:
    """Return the name the server gives its model."""
    try:
        return str(json.loads(fetch(f"{url}/v1/models"))["data"][0]["id"])
    except (OSError, ValueError, LookupError, TypeError):
        raise ServecastError(f"{url}/v1/models names no model; is that a vLLM server?") from None


def _write(path: Path, run: ClientRun) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump(run.to_dict(), file, separators=(",", ":"))


def _compress(source: Path, target: Path) -> None:
    with source.open("rb") as plain, gzip.open(target, "wb") as packed:
        shutil.copyfileobj(plain, packed)
