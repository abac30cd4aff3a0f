"""Lists of requests as CSV files: the documented way to bring your own traffic.  Text in, `RequestTable` out, and back.

One request a line, a header first; ``.csv`` or ``.csv.gz``, UTF-8.

    arrival_s       seconds from the start (time stamps count from the first request); may be missing or 0 when a
                    concurrency limits the clients
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator.errors import InputError
from simulator.lengths import MAX_TOKENS
from simulator.request_table import Ints, RequestTable

REQUIRED = ("prompt_tokens", "output_tokens")
COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens", "prefix_id", "prefix_tokens", "priority", "session_id")

#: Later arrivals (three years) are seconds since 1970, not since the start.
_TIME_STAMP_S = 1e8

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, eq=False)
class RequestList:
    """A table read from a file; *has_arrivals* is false where the file gave no times; *notes* say what was changed."""

    table: RequestTable
    has_arrivals: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request as the columns of the module text describe it; raises `InputError` for values they forbid."""

    arrival_s: float | None = None
    prompt_tokens: int
    output_tokens: int
    prefix_id: str | None = None
    prefix_tokens: int = 0
    priority: int = 0
    session_id: str | None = None

    def __post_init__(self) -> None:
        if self.arrival_s is not None and not 0 <= self.arrival_s < math.inf:
            raise InputError(
                f"arrival_s must be finite and not negative, got {self.arrival_s}; write seconds like 0.25"
            )
        for name, low in (("prompt_tokens", 1), ("output_tokens", 1), ("prefix_tokens", 0)):
            value = getattr(self, name)
            if not low <= value <= MAX_TOKENS:
                raise InputError(
                    f"{name} must be from {low} to {MAX_TOKENS:,}, got {value}; correct or remove the request"
                )
        if self.prefix_tokens and not self.prefix_id:
            raise InputError(f"prefix_tokens {self.prefix_tokens} has no prefix_id; name the prefix they belong to")
        if self.prefix_tokens > self.prompt_tokens:
            inside = f"must lie inside prompt_tokens {self.prompt_tokens}"
            raise InputError(f"prefix_tokens {self.prefix_tokens} {inside}; make it smaller")


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
    return from_rows(parse_rows(text, name), name)


def parse_rows(text: str, name: str) -> list[Row]:
    """Return the requests written in *text* one by one, as they stand there."""
    rows = _rows(text, name)
    header_line, header = next(rows, (1, []))
    if not any(header):
        raise InputError(f"{name}: is empty; the first line must name the columns {', '.join(COLUMNS[:3])}")
    _check_header(header, f"{name}:{header_line}")
    requests = []
    for line, cells in rows:
        where = f"{name}:{line}"
        if len(cells) != len(header):
            raise InputError(
                f"{where}: has {len(cells)} cells, the header names {len(header)} columns; they must agree"
            )
        try:
            requests.append(_request(dict(zip(header, cells, strict=True))))
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    if not requests:
        raise InputError(f"{name}: holds a header but no request; give at least one line")
    return requests


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


def _request(row: dict[str, str]) -> Row:
    if row.get("prefix_id") and not row["prefix_tokens"]:
        raise InputError(f"prefix_id {_short(row['prefix_id'])} has no prefix_tokens; say how many tokens are shared")
    arrival = row.get("arrival_s")
    return Row(
        arrival_s=_seconds(arrival) if arrival else None,
        prompt_tokens=_whole(row["prompt_tokens"], "prompt_tokens"),
        output_tokens=_whole(row["output_tokens"], "output_tokens"),
        prefix_id=row.get("prefix_id") or None,
        prefix_tokens=_whole(row.get("prefix_tokens") or "0", "prefix_tokens"),
        priority=_whole(row.get("priority") or "0", "priority"),
        session_id=row.get("session_id") or None,
    )


def _whole(word: str, column: str) -> int:
    if not _WHOLE.fullmatch(word):
        raise InputError(f"{column} {_short(word)} is not a whole number; write it like 512")
    return int(word)


def _seconds(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise InputError(f"arrival_s {_short(word)} is not a number; write seconds like 0.25") from None


def _short(word: str) -> str:
    return repr(word if len(word) <= 40 else word[:37] + "...")


def from_rows(rows: Sequence[Row], name: str = "requests") -> RequestList:
    """Return *rows* as columns, sorted by arrival; *name* stands in front of an error or a note."""
    given = [row.arrival_s for row in rows if row.arrival_s is not None]
    if given and len(given) != len(rows):
        missing = next(i for i, row in enumerate(rows) if row.arrival_s is None)
        raise InputError(
            f"{name}: arrival_s is empty in request {missing + 1} but given in others; fill in all or none"
        )
    epoch_s = min(given, default=0.0)
    epoch_s = epoch_s if epoch_s >= _TIME_STAMP_S else 0.0
    ends = np.array([row.prefix_tokens for row in rows], dtype=np.int64)
    shared = ends > 0
    start = np.concatenate(([0], np.cumsum(shared))).astype(np.int64)
    table = RequestTable.build(
        prompt_tokens=np.array([row.prompt_tokens for row in rows], dtype=np.int64),
        output_tokens=np.array([row.output_tokens for row in rows], dtype=np.int64),
        arrival_s=np.array(given) - epoch_s if given else None,
        segments=(
            start,
            _numbered([row.prefix_id if row.prefix_tokens else None for row in rows])[shared],
            ends[shared],
        ),
        priority=np.array([row.priority for row in rows], dtype=np.int64),
        session_id=_numbered([row.session_id for row in rows]),
    )
    notes: tuple[str, ...] = ()
    if epoch_s:
        notes = (f"{name}: arrival_s are time stamps; they count from the first, {epoch_s:.0f}, taken as seconds",)
    if (np.diff(table.arrival_s) < 0).any():
        table = table.take(np.argsort(table.arrival_s, kind="stable"))
        notes += (f"{name}: requests were not in order of arrival_s and have been sorted",)
    return RequestList(table, has_arrivals=bool(given), notes=notes)


def rows_of(table: RequestTable) -> tuple[Row, ...]:
    """Return the requests of *table* row by row, prefixes named by their numbers.

    Raises `InputError` where a request has more than one shared prefix (a row holds one).
    """
    ids, ends = _prefixes(table)
    columns = (table.arrival_s, table.prompt_tokens, table.output_tokens, ids, ends, table.priority)
    return tuple(
        Row(
            arrival_s=arrival, prompt_tokens=prompt, output_tokens=output, priority=priority,
            prefix_id=str(prefix) if end else None, prefix_tokens=min(end, prompt),
        )
        for arrival, prompt, output, prefix, end, priority in zip(*(one.tolist() for one in columns), strict=True)
    )  # fmt: skip


def _prefixes(table: RequestTable) -> tuple[Ints, Ints]:
    """Return number and tokens of the shared prefix of each request, -1 and 0 where there is none."""
    counts = np.diff(table.segment_start)
    if counts.max(initial=0) > 1:
        row = int(np.argmax(counts))
        raise InputError(f"request {row} has {counts[row]} nested prefixes; a request list holds one a request")
    ids, ends = np.full(len(table), -1), np.zeros(len(table), dtype=np.int64)
    ids[counts > 0], ends[counts > 0] = table.segment_id, table.segment_end
    return ids, ends


def _numbered(names: Sequence[str | None]) -> Ints:
    """Return a number for each name, in order of first appearance; -1 where there is none."""
    numbers: dict[str, int] = {}
    return np.array([-1 if n is None else numbers.setdefault(n, len(numbers)) for n in names], dtype=np.int64)


def render(table: RequestTable) -> str:
    """Return *table* as CSV text that `parse` reads back; columns that say nothing are left out.

    Raises `InputError` where a request has more than one shared prefix (the format holds one).
    """
    ids, ends = _prefixes(table)
    columns: dict[str, list[str]] = {
        "arrival_s": [repr(float(value)) for value in table.arrival_s],
        "prompt_tokens": [str(value) for value in table.prompt_tokens],
        "output_tokens": [str(value) for value in table.output_tokens],
    }
    if len(table.segment_id):
        columns["prefix_id"] = [str(prefix) if end else "" for prefix, end in zip(ids, ends, strict=True)]
        columns["prefix_tokens"] = [str(end) if end else "" for end in ends]
    if table.priority.any():
        columns["priority"] = [str(value) for value in table.priority]
    if (table.session_id >= 0).any():
        columns["session_id"] = [str(value) if value >= 0 else "" for value in table.session_id]
    lines = [",".join(columns), *(",".join(cells) for cells in zip(*columns.values(), strict=True))]
    return "\n".join(lines) + "\n"
