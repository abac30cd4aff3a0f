"""Lists of requests as CSV files: the documented way to bring your own traffic.  Text in, `RequestTable` out, and back.

One request a line, a header first; ``.csv`` or ``.csv.gz``, UTF-8.

    arrival_s       seconds from the start; may be missing or 0 when a concurrency limits the clients
    prompt_tokens   tokens, at least 1
    output_tokens   tokens, at least 1
    prefix_id       optional: requests with the same id (any text) begin with the same tokens
    prefix_tokens   optional: how many, inside prompt_tokens
    priority        optional: whole number, smaller is more important
    session_id      optional: any text; carried along, has no effect yet

Reading is strict: one line of error names file, line, value, rule and fix.  Rows out of order of time are sorted (equal
times keep their order) and a note says so.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from simulator.errors import InputError
from simulator.request_table import RequestTable

REQUIRED = ("prompt_tokens", "output_tokens")
OPTIONAL = ("arrival_s", "prefix_id", "prefix_tokens", "priority", "session_id")
COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens", "prefix_id", "prefix_tokens", "priority", "session_id")

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, eq=False)
class RequestList:
    """A table read from a file; *has_arrivals* is false where the file gave no times; *notes* say what was changed."""

    table: RequestTable
    has_arrivals: bool
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Columns:
    """Rows while they are read."""

    arrival_s: list[float | None] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    prefix_id: list[int] = field(default_factory=list)
    prefix_tokens: list[int] = field(default_factory=list)
    priority: list[int] = field(default_factory=list)
    session_id: list[int] = field(default_factory=list)


def read(path: Path | str) -> RequestList:
    """Return the requests of the CSV file at *path*; `InputError` of one line for what the module text forbids."""
    return parse(read_text(path), str(path))


def read_text(path: Path | str) -> str:
    """Return the text of a plain or gzipped UTF-8 file; `InputError` if it is missing, cut short, or not text."""
    try:
        data = Path(path).read_bytes()
        if data[:2] == b"\x1f\x8b" or str(path).endswith(".gz"):
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: the gzip file is damaged or cut short ({error}); copy it again") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({reason}); give a readable file") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8 text; save the file as UTF-8") from None
    if "\0" in text:
        raise InputError(f"{path}: holds a zero byte, so it is not a text file; save it as UTF-8 text")
    return text


def parse(text: str, name: str) -> RequestList:
    """Return the requests written in *text*; *name* stands in front of every error."""
    rows = _rows(text, name)
    header_line, header = next(rows, (1, []))
    if not any(header):
        raise InputError(f"{name}: is empty; the first line must name the columns {', '.join(COLUMNS[:3])}")
    _check_header(header, f"{name}:{header_line}")
    columns = _Columns()
    prefixes: dict[str, int] = {}
    sessions: dict[str, int] = {}
    for line, cells in rows:
        where = f"{name}:{line}"
        if len(cells) != len(header):
            raise InputError(
                f"{where}: has {len(cells)} cells, the header names {len(header)} columns; they must agree"
            )
        _add(columns, dict(zip(header, cells, strict=True)), where, prefixes, sessions)
    if not columns.prompt_tokens:
        raise InputError(f"{name}: holds a header but no request; give at least one line")
    return _finish(columns, name)


def _rows(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise InputError(f"{name}:{reader.line_num}: is not CSV ({error}); quote cells that hold commas") from None


def _check_header(header: list[str], where: str) -> None:
    for column in header:
        if column not in COLUMNS:
            near = difflib.get_close_matches(column, COLUMNS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the columns are {', '.join(COLUMNS)}"
            raise InputError(f"{where}: unknown column {_short(column)}; {hint}")
        if header.count(column) > 1:
            raise InputError(f"{where}: column {column} stands there {header.count(column)} times; keep one")
    for column in REQUIRED:
        if column not in header:
            raise InputError(f"{where}: column {column} is missing; the header must name {', '.join(COLUMNS[:3])}")
    if ("prefix_id" in header) != ("prefix_tokens" in header):
        missing = "prefix_tokens" if "prefix_id" in header else "prefix_id"
        raise InputError(f"{where}: column {missing} is missing; prefix_id and prefix_tokens go together")


def _add(
    columns: _Columns, row: dict[str, str], where: str, prefixes: dict[str, int], sessions: dict[str, int]
) -> None:
    """Check one row and append it."""
    arrival = row.get("arrival_s", "")
    columns.arrival_s.append(_seconds(arrival, where) if arrival else None)
    prompt = _whole(row["prompt_tokens"], "prompt_tokens", where, low=1)
    columns.prompt_tokens.append(prompt)
    columns.output_tokens.append(_whole(row["output_tokens"], "output_tokens", where, low=1))
    name, tokens = row.get("prefix_id", ""), row.get("prefix_tokens", "")
    length = _whole(tokens, "prefix_tokens", where, low=0) if tokens else 0
    if name and not tokens:
        raise InputError(f"{where}: prefix_id {_short(name)} has no prefix_tokens; say how many tokens are shared")
    if length and not name:
        raise InputError(f"{where}: prefix_tokens {length} has no prefix_id; name the prefix they belong to")
    if length > prompt:
        raise InputError(f"{where}: prefix_tokens {length} must lie inside prompt_tokens {prompt}; make it smaller")
    columns.prefix_id.append(prefixes.setdefault(name, len(prefixes)) if length else -1)
    columns.prefix_tokens.append(length)
    priority = row.get("priority", "")
    columns.priority.append(_whole(priority, "priority", where) if priority else 0)
    session = row.get("session_id", "")
    columns.session_id.append(sessions.setdefault(session, len(sessions)) if session else -1)


def _whole(word: str, column: str, where: str, low: int | None = None) -> int:
    if not _WHOLE.fullmatch(word):
        raise InputError(f"{where}: {column} {_short(word)} is not a whole number; write it like 512")
    value = int(word)
    if low is not None and value < low:
        raise InputError(f"{where}: {column} must be at least {low}, got {value}; correct or remove the line")
    return value


def _seconds(word: str, where: str) -> float:
    try:
        value = float(word)
    except ValueError:
        raise InputError(f"{where}: arrival_s {_short(word)} is not a number; write seconds like 0.25") from None
    if not math.isfinite(value) or value < 0:
        raise InputError(
            f"{where}: arrival_s must be finite and not negative, got {_short(word)}; write seconds like 0.25"
        )
    return value


def _short(word: str) -> str:
    return repr(word if len(word) <= 40 else word[:37] + "...")


def _finish(columns: _Columns, name: str) -> RequestList:
    given = [value for value in columns.arrival_s if value is not None]
    if given and len(given) != len(columns.arrival_s):
        row = columns.arrival_s.index(None)
        raise InputError(f"{name}: arrival_s is empty in request {row + 1} but given in others; fill in all or none")
    ends = np.array(columns.prefix_tokens, dtype=np.int64)
    shared = ends > 0
    start = np.concatenate(([0], np.cumsum(shared))).astype(np.int64)
    table = RequestTable.build(
        prompt_tokens=np.array(columns.prompt_tokens, dtype=np.int64),
        output_tokens=np.array(columns.output_tokens, dtype=np.int64),
        arrival_s=np.array(given) if given else None,
        segments=(start, np.array(columns.prefix_id, dtype=np.int64)[shared], ends[shared]),
        priority=np.array(columns.priority, dtype=np.int64),
        session_id=np.array(columns.session_id, dtype=np.int64),
    )
    notes: tuple[str, ...] = ()
    if (np.diff(table.arrival_s) < 0).any():
        table = table.take(np.argsort(table.arrival_s, kind="stable"))
        notes = (f"{name}: requests were not in order of arrival_s and have been sorted",)
    return RequestList(table, has_arrivals=bool(given), notes=notes)


def render(table: RequestTable) -> str:
    """Return *table* as CSV text that `parse` reads back; columns that say nothing are left out.

    Raises `InputError` where a request has more than one shared prefix (the format holds one).
    """
    counts = np.diff(table.segment_start)
    if counts.max(initial=0) > 1:
        row = int(np.argmax(counts))
        raise InputError(f"request {row} has {counts[row]} nested prefixes; a request list holds one a request")
    columns: dict[str, list[str]] = {
        "arrival_s": [repr(float(value)) for value in table.arrival_s],
        "prompt_tokens": [str(value) for value in table.prompt_tokens],
        "output_tokens": [str(value) for value in table.output_tokens],
    }
    if len(table.segment_id):
        first = table.segment_start[:-1]
        columns["prefix_id"] = [str(table.segment_id[i]) if n else "" for i, n in zip(first, counts, strict=True)]
        columns["prefix_tokens"] = [str(table.segment_end[i]) if n else "" for i, n in zip(first, counts, strict=True)]
    if table.priority.any():
        columns["priority"] = [str(value) for value in table.priority]
    if (table.session_id >= 0).any():
        columns["session_id"] = [str(value) if value >= 0 else "" for value in table.session_id]
    lines = [",".join(columns), *(",".join(cells) for cells in zip(*columns.values(), strict=True))]
    return "\n".join(lines) + "\n"
