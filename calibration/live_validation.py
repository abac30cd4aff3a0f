"""A real server with its client, for a validation: started, recorded, loaded, stopped.

The server runs the given ``vllm serve`` line (or ``python -m vllm.entrypoints.openai.api_server``) plus the recorder's
flags (`calibration.recorder_setup`), or runs already somewhere (*url*: clients only, no steps).  Before the first run
some requests of the same lengths are sent and thrown away, because the first steps of a fresh server compile.  Every
run gets prompts of its own, so that none finds the prefixes of another.

Who sends is a `SendsRequests`: our own client, or ``vllm bench serve``.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from calibration import host_probe
from calibration.bench_client import RESULT, bench_words, replay_with_bench, requests_document
from calibration.campaign import DYING_S
from calibration.client import Target, replay
from calibration.recorder_setup import FLUSHED_S, set_up
from calibration.served import api_key, served
from calibration.server import Attached, Server, VllmServer
from simulator.command_line import parse
from simulator.errors import InputError, ServecastError
from simulator.request_table import RequestTable
from simulator.workload import Traffic

Progress = Callable[[str], None]

#: Requests that are sent first and thrown away, twice.
WARM_UP = 16
_RECORD = "recorded"


class SendsRequests(Protocol):
    """A client: sends *traffic* and returns the document of the requests (`calibration.answers`).

    *command* started the server; *name* and *number* are those of the run, *folder* is for files of its own.
    """

    def __call__(
        self, target: Target, traffic: Traffic, command: str, folder: Path, name: str, number: int
    ) -> dict[str, Any]:
        """Do it, or raise a `ServecastError`."""


@dataclass(frozen=True)
class OwnClient:
    """`calibration.client`."""

    seed: int = 0

    def __call__(
        self, target: Target, traffic: Traffic, command: str, folder: Path, name: str, number: int
    ) -> dict[str, Any]:
        """Send and return what came back."""
        limit = traffic.max_concurrency
        return replay(target, traffic.table, max_concurrency=limit, seed=self.seed, run=number).to_dict()


@dataclass(frozen=True)
class BenchClient:
    """``vllm bench serve``; its trace, log and result stay in ``NAME.bench`` of the folder."""

    tokenizer: str | None = None

    def __call__(
        self, target: Target, traffic: Traffic, command: str, folder: Path, name: str, number: int
    ) -> dict[str, Any]:
        """Send and return what the bench saw."""
        place, limit = folder / f"{name}.bench", traffic.max_concurrency
        tokenizer = self.tokenizer or _model_of(command) or target.model
        replay_with_bench(
            target.url, target.model, traffic.table, place, vllm=bench_words(command), tokenizer=tokenizer,
            max_concurrency=limit, run=number, api_key=target.api_key,
        )  # fmt: skip
        result = place / RESULT
        return requests_document(json.loads(result.read_text(encoding="utf-8")), traffic.table, limit, str(result))


def _model_of(command: str) -> str | None:
    """Return the model that a start line names, or None."""
    try:
        return parse(command).model
    except ServecastError:
        return None


class LiveServer:
    """`calibration.validate.RunsRequests` with a vLLM server."""

    def __init__(
        self,
        vocab_size: int,
        *,
        url: str | None = None,
        seed: int = 0,
        client: SendsRequests | None = None,
        probe: bool = False,
        progress: Progress = lambda _: None,
    ) -> None:
        self._vocab_size, self._url, self._seed, self._progress = vocab_size, url, seed, progress
        self._client, self._probe = client or OwnClient(seed), probe

    def __call__(self, command: str, traffic: Traffic, folder: Path, names: Sequence[str]) -> None:
        """Send *traffic* once for each of *names*; leave requests, steps and the log in *folder*.

        With *probe* the host's speed is measured first (`calibration.host_probe`).

        Raises `InputError` if the folder holds such runs already, `ServerError` if the server dies; what was measured
        until then stays.
        """
        _refuse_to_overwrite(folder, names)
        try:
            with self._server(command, folder) as server:
                key = api_key(shlex.split(command) if self._url is None else ())
                model = served(server.url, key)
                target = Target(server.url, model.name, self._vocab_size, key)
                self._warm_up(server, target, traffic)
                if self._probe:
                    server.check()
                    self._progress("measuring the host's speed")
                    bursts = host_probe.send(target, model.max_model_len, self._seed)
                    _write(folder / f"{host_probe.NAME}.requests.json.gz", bursts)
                for number, name in enumerate(names, 1):
                    server.check()
                    self._progress(f"{name}: {len(traffic.table)} requests")
                    document = self._client(target, traffic, command, folder, name, number)
                    _write(folder / f"{name}.requests.json.gz", document)
                    self._progress(f"{name}: done in {document['duration']:.1f} s{_failures(document)}")
                    if document["failed"]:
                        time.sleep(DYING_S)
                        server.check()
                if self._url is None:
                    time.sleep(FLUSHED_S)
        finally:
            _hand_out_steps(folder, [*names, *([host_probe.NAME] if self._probe else [])])

    @contextlib.contextmanager
    def _server(self, command: str, folder: Path) -> Iterator[Server]:
        if self._url is not None:
            with Attached(self._url) as attached:
                yield attached
            return
        words = words_of(command)
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


def words_of(command: str) -> list[str]:
    """Return the words of a line that starts a server here; `InputError` if it does not."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"{command[:60]!r} cannot be split into words ({error}); check its quotes") from None
    if not ("serve" in words[:4] or "vllm.entrypoints.openai.api_server" in words[:4]):
        raise InputError(
            f"{command[:60]!r}: cannot be started here; give a `vllm serve ...` line, or --url of a server"
        )
    return words


def _refuse_to_overwrite(folder: Path, names: Sequence[str]) -> None:
    there = [name for name in names if (folder / f"{name}.requests.json.gz").exists()]
    if there:
        raise InputError(
            f"{folder} holds {there[0]} of an earlier measurement; give another --out, or judge it with --recorded "
            f"{folder} --workload {there[0]}"
        )


def _failures(document: dict[str, Any]) -> str:
    failed = document["failed"]
    total = len(failed) + len(document["requests"])
    return f"; {len(failed)} of {total} requests failed; the first: {failed[0]['error']}" if failed else ""


def _write(path: Path, document: dict[str, Any] | list[dict[str, Any]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump(document, file, separators=(",", ":"))


def _hand_out_steps(folder: Path, names: Sequence[str]) -> None:
    """Put the steps of the server beside the requests of each run that came to an end."""
    steps = folder / f"{_RECORD}.steps.jsonl"
    done = [name for name in names if (folder / f"{name}.requests.json.gz").is_file()]
    if not steps.is_file():
        return
    for name in done:
        _compress(steps, folder / f"{name}.steps.jsonl.gz")
    if len(done) == len(names):
        steps.unlink()


def _compress(source: Path, target: Path) -> None:
    with source.open("rb") as plain, gzip.open(target, "wb") as packed:
        shutil.copyfileobj(plain, packed)
