"""Recorded engine steps and requests, read strictly.

``WORKLOAD.steps.jsonl(.gz)``: one JSON object a line, times in seconds of one monotonic clock.  ``"a": "h"`` header;
``"s"`` schedule() returned: t0, t1, n (step), p (list of [new tokens, context] of prefill chunks), d decodes, dc sum
and dm maximum of their contexts; ``"u"`` update_from_output of step n: t0, t1.
``WORKLOAD.requests.json(.gz)``: one burst or a list of bursts: t_base and requests with send, isl, ttft, e2e, itl.

A truncated gzip gives what can be read, with a note; a wrong field is an `InputError` of one line.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: (num_tokens, num_reqs, uniform_decode) -> (mode, padded tokens), as `simulator.cuda_graphs.GraphDispatch.dispatch`.
Dispatch = Callable[[int, int, bool], tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps in order, as columns.  ``linked[i]``: step i follows step i-1 of the same server, none missing between.

    ``sampled`` counts requests that yielded a token; ``prefills`` the chunks; contexts are KV tokens before the step.
    """

    number: Ints
    plan_start_s: Floats
    plan_end_s: Floats
    update_start_s: Floats
    update_end_s: Floats
    mode: Ints
    padded_tokens: Ints
    num_tokens: Ints
    num_reqs: Ints
    sampled: Ints
    prefills: Ints
    prefill_tokens: Ints
    prefill_attention: Floats
    decode_reqs: Ints
    decode_context_sum: Floats
    decode_context_max: Floats
    linked: NDArray[np.bool_]
    longest_context: int = 0
    header: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.number)

    def composition(self) -> dict[str, NDArray[Any]]:
        """Return the columns `StepCost.gpu_s_array` takes, by name."""
        names = (
            "mode padded_tokens num_tokens num_reqs sampled decode_reqs decode_context_sum decode_context_max "
            "prefill_attention prefill_tokens"
        )
        return {name: getattr(self, name) for name in names.split()}


def read_lines(path: Path) -> tuple[list[str], str | None]:
    """Return the lines of a text or gzip file, and a note if it was truncated."""
    lines: list[str] = []
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for line in file:
                lines.append(line)
    except EOFError:
        return lines[:-1] if lines and not lines[-1].endswith("\n") else lines, f"{path.name}: truncated, read to there"
    except (gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a gzip or text file: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    return lines, None


def sha256(path: Path) -> str:
    """Return the hash of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _number(record: Mapping[str, Any], key: str, where: str) -> float:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
        raise InputError(f"{where}: {key} must be a number, got {value!r}")
    return float(value)


def _events(path: Path, lines: list[str], truncated: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, line in enumerate(lines, 1):
        where = f"{path}: line {index}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            if truncated and index == len(lines):
                return
            raise InputError(f"{where}: not JSON") from None
        if not isinstance(record, dict) or record.get("a") not in ("h", "s", "u"):
            raise InputError(f"{where}: expected an object with a = h, s or u")
        yield where, record


def read_header(path: Path) -> dict[str, Any]:
    """Return the header of a steps file (``max_tok``, ``max_run``, ``block_size``), empty if it has none."""
    lines, _note = read_lines(path)
    if not lines:
        raise InputError(f"{path}: no steps")
    return next((record for _, record in _events(path, lines[:1], False) if record["a"] == "h"), {})


def read_steps(path: Path, dispatch: Dispatch) -> Steps:
    """Return the steps of one file that have both a plan and an update.  *dispatch* gives graph mode and padding."""
    lines, note = read_lines(path)
    plans: dict[int, dict[str, Any]] = {}
    updates: dict[int, tuple[float, float]] = {}
    header: dict[str, Any] = {}
    for where, record in _events(path, lines, note is not None):
        if record["a"] == "h":
            header = record
            continue
        number = int(_number(record, "n", where))
        start, end = _number(record, "t0", where), _number(record, "t1", where)
        if record["a"] == "u":
            updates[number] = (start, end)
        else:
            for key in ("d", "dc", "dm"):
                _number(record, key, where)
            if not _is_chunks(record.get("p")):
                raise InputError(f"{where}: p must be a list of [new tokens, context], got {record.get('p')!r}")
            plans[number] = record
    numbers = sorted(plans.keys() & updates.keys())
    if not numbers:
        raise InputError(f"{path}: no step with a plan and an update")
    return _columns(numbers, plans, updates, dispatch, header, (note,) if note else ())


def _is_chunks(chunks: object) -> bool:
    return isinstance(chunks, list) and all(
        isinstance(chunk, list) and len(chunk) == 2 and all(isinstance(v, int) and v >= 0 for v in chunk)
        for chunk in chunks
    )


def _unfinished(plan: Mapping[str, Any], following: Mapping[str, Any] | None, budget: int) -> int:
    """Return how many of the plan's prefill chunks yield no token: the last one, if the next plan goes on with it."""
    chunks = plan["p"]
    if not chunks or following is None:
        return int(bool(chunks) and sum(n for n, _ in chunks) + plan["d"] == budget)
    goes_on = [n + context for n, context in chunks]
    return int(any(context in goes_on and context > 0 for _, context in following["p"]))


def _columns(
    numbers: list[int],
    plans: Mapping[int, dict[str, Any]],
    updates: Mapping[int, tuple[float, float]],
    dispatch: Dispatch,
    header: Mapping[str, Any],
    notes: tuple[str, ...],
) -> Steps:
    rows: list[tuple[float, ...]] = []
    longest, budget = 0, int(header.get("max_tok") or 0)
    for index, number in enumerate(numbers):
        plan = plans[number]
        chunks, decodes = plan["p"], plan["d"]
        prefill_tokens = sum(n for n, _ in chunks)
        tokens, reqs = prefill_tokens + decodes, len(chunks) + decodes
        mode, padded = dispatch(tokens, reqs, tokens == reqs)
        sampled = reqs - _unfinished(plan, plans.get(number + 1), budget)
        attention = sum(n * (context + n / 2) for n, context in chunks)
        longest = max([longest, int(plan["dm"]), *(n + context for n, context in chunks)])
        linked = index > 0 and numbers[index - 1] == number - 1
        decoding = (decodes, plan["dc"], plan["dm"])
        times = (plan["t0"], plan["t1"], *updates[number])
        rows.append(
            (
                number,
                *times,
                mode,
                padded,
                tokens,
                reqs,
                sampled,
                len(chunks),
                prefill_tokens,
                attention,
                *decoding,
                linked,
            )
        )
    table = np.array(rows, dtype=np.float64)

    def counts(column: int) -> Ints:
        return table[:, column].astype(np.int64)

    def sizes(column: int) -> Floats:
        return table[:, column].copy()

    return Steps(
        number=counts(0), plan_start_s=sizes(1), plan_end_s=sizes(2), update_start_s=sizes(3), update_end_s=sizes(4),
        mode=counts(5), padded_tokens=counts(6), num_tokens=counts(7), num_reqs=counts(8), sampled=counts(9),
        prefills=counts(10), prefill_tokens=counts(11), prefill_attention=sizes(12), decode_reqs=counts(13),
        decode_context_sum=sizes(14), decode_context_max=sizes(15), linked=table[:, 16] > 0, longest_context=longest,
        header=header, notes=notes,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Sent:
    """Requests as their client saw them, on the clock of the steps; bursts kept apart by number."""

    burst: Ints
    sent_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    first_token_s: Floats
    last_token_s: Floats
    gaps_ms: tuple[Floats, ...]


def read_requests(path: Path) -> Sent:
    """Return the requests of one ``requests.json(.gz)``, in order of sending."""
    lines, note = read_lines(path)
    if note:
        raise InputError(f"{path}: truncated; requests are one JSON document")
    try:
        data = json.loads("".join(lines))
    except json.JSONDecodeError:
        raise InputError(f"{path}: not JSON") from None
    bursts = data if isinstance(data, list) else [data]
    rows: list[tuple[float, ...]] = []
    gaps: list[Floats] = []
    for number, burst in enumerate(bursts):
        if not isinstance(burst, dict) or not isinstance(burst.get("requests"), list):
            raise InputError(f"{path}: burst {number}: expected an object with t_base and requests")
        base = _number(burst, "t_base", f"{path}: burst {number}")
        for index, request in enumerate(burst["requests"]):
            where = f"{path}: burst {number}, request {index}"
            send, isl, tokens, ttft, e2e = (_number(request, key, where) for key in ("send", "isl", "n", "ttft", "e2e"))
            rows.append((number, base + send, isl, tokens, base + send + ttft, base + send + e2e))
            gaps.append(np.asarray(request.get("itl", ()), dtype=np.float64))
    if not rows:
        raise InputError(f"{path}: no requests")
    order = np.argsort([row[1] for row in rows], kind="stable")
    table = np.array(rows)[order]
    return Sent(
        burst=table[:, 0].astype(np.int64), sent_s=table[:, 1], prompt_tokens=table[:, 2].astype(np.int64),
        output_tokens=table[:, 3].astype(np.int64), first_token_s=table[:, 4], last_token_s=table[:, 5],
        gaps_ms=tuple(gaps[index] for index in order),
    )  # fmt: skip
