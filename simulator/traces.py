"""Shipped traces of real traffic, read line by line from compressed files.  Licences and citations: ``NOTICE``.

    azure-conv-2023, azure-code-2023   Azure LLM inference 2023: one hour each; lengths only
    mooncake-conversation, mooncake-synthetic   Mooncake: one hour, 17 minutes; lengths and shared prefixes

Azure: ``arrived_at`` (s), ``num_prefill_tokens``, ``num_decode_tokens``.  Mooncake: ``timestamp`` (ms),
``input_length``, ``output_length``, ``hash_ids``: one per 512 prompt tokens, the last one shorter; an id stands for its
tokens and all before them, which is exactly a segment of `simulator.request_table`.

Requests longer than the model allows are for `apply_over_length` to fail on or to drop.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import json
import zlib
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np

from simulator.errors import InputError
from simulator.request_table import RequestTable

FILES = {
    "azure-conv-2023": "azure-conv-2023.csv.gz",
    "azure-code-2023": "azure-code-2023.csv.gz",
    "mooncake-conversation": "mooncake-conversation.jsonl.gz",
    "mooncake-synthetic": "mooncake-synthetic.jsonl.gz",
}
NAMES = tuple(FILES)

#: Prompt tokens one Mooncake hash id stands for.
MOONCAKE_BLOCK = 512


def checked_name(name: str) -> str:
    """Return *name* if a trace is called so; `InputError` with the nearest name otherwise."""
    if name in FILES:
        return name
    near = difflib.get_close_matches(name, NAMES, n=1)
    raise InputError(
        f"no trace is called {name!r}; {f'did you mean {near[0]}?' if near else 'choose'} {', '.join(NAMES)}"
    )


def load(name: str, *, limit: int | None = None) -> RequestTable:
    """Return the first *limit* requests (all if None) of a shipped trace, in order of time."""
    from simulator import shipped

    file = FILES[checked_name(name)]
    return load_file(Path(str(shipped.path("workloads", "traces", file))), limit=limit)


def load_file(path: Path, *, limit: int | None = None) -> RequestTable:
    """Return the requests of a trace file in one of the two shipped formats; `InputError` if it is damaged or empty."""
    read = _read_mooncake if ".jsonl" in path.name else _read_azure
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
            return read(lines, path.name, limit)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: the gzip file is damaged or cut short ({error}); copy it again") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text; give a trace in one of the shipped formats") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); give a readable file") from None


def _read_azure(lines: Iterable[str], name: str, limit: int | None) -> RequestTable:
    arrival, prompt, output = array("d"), array("q"), array("q")
    for number, row in enumerate(csv.DictReader(lines), start=2):
        if limit is not None and number - 2 >= limit:
            break
        try:
            arrival.append(float(row["arrived_at"]))
            prompt.append(int(row["num_prefill_tokens"]))
            output.append(int(row["num_decode_tokens"]))
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise _bad_line(name, number, error) from None
    return _table(name, arrival, prompt, output)


def _read_mooncake(lines: Iterable[str], name: str, limit: int | None) -> RequestTable:
    arrival, prompt, output = array("d"), array("q"), array("q")
    start, ids, ends = array("q", [0]), array("q"), array("q")
    for number, line in enumerate(lines, start=1):
        if limit is not None and number > limit:
            break
        try:
            row = json.loads(line)
            length, hashes = int(row["input_length"]), row["hash_ids"]
            arrival.append(row["timestamp"] / 1e3)
            prompt.append(length)
            output.append(int(row["output_length"]))
            ids.extend(hashes)
            ends.extend(min(MOONCAKE_BLOCK * (k + 1), length) for k in range(len(hashes)))
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise _bad_line(name, number, error) from None
        if len(hashes) > -(-length // MOONCAKE_BLOCK):
            raise InputError(
                f"{name}:{number}: {len(hashes)} hash_ids are more than {length} tokens hold; correct the line"
            )
        start.append(len(ids))
    return _table(name, arrival, prompt, output, (start, ids, ends))


def _bad_line(name: str, number: int, error: Exception) -> InputError:
    reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return InputError(f"{name}:{number}: is not a request of this trace ({reason}); correct or remove the line")


def _table(
    name: str,
    arrival: array[float],
    prompt: array[int],
    output: array[int],
    segments: tuple[array[int], array[int], array[int]] | None = None,
) -> RequestTable:
    if not prompt:
        raise InputError(f"{name}: holds no request; give a trace with at least one")
    start, ids, ends = (np.array(part, dtype=np.int64) for part in segments) if segments else (None, None, None)
    table = RequestTable.build(
        arrival_s=np.array(arrival),
        prompt_tokens=np.array(prompt, dtype=np.int64),
        output_tokens=np.array(output, dtype=np.int64),
        segments=(start, ids, ends) if start is not None and ids is not None and ends is not None else None,
    )
    if (np.diff(table.arrival_s) < 0).any():
        table = table.take(np.argsort(table.arrival_s, kind="stable"))
    return table


OverLength = Literal["fail", "drop"]


def apply_over_length(table: RequestTable, max_model_len: int, policy: OverLength) -> tuple[RequestTable, int]:
    """Return *table* without the requests the server would refuse, and how many those are.

    A request is over length when prompt + output exceeds *max_model_len*: vLLM's API refuses a prompt that leaves no
    room, and a ``max_tokens`` that does not fit behind its prompt.  Raises `InputError` with the count and the fix if
    the *policy* is ``fail``, or if nothing would remain.
    """
    total = table.prompt_tokens + table.output_tokens
    over = total > max_model_len
    count = int(over.sum())
    if count == 0:
        return table, 0
    found = (
        f"{count} of {len(table)} requests need more than max_model_len {max_model_len} (longest {total.max()} tokens)"
    )
    raising = f"raise --max-model-len to {total.max()}"
    if policy == "fail":
        raise InputError(f"{found}; {raising} or leave them out with --over-length drop")
    if count == len(table):
        raise InputError(f"{found}, so none is left; {raising}")
    return table.take(np.flatnonzero(~over)), count
