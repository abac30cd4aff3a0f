"""Output shared by every command: the options ``--format`` and ``-o``, and the four renderings.

A command hands over its answer twice: as `Table`s for people (table, md) and as plain data for programs (json); csv
takes the ``rows`` if given, else the first table.  A file is written beside its place and then renamed, so that nothing
half-written is ever seen.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pandas as pd

#: Of JSON answers (docs/schemas.md).
SCHEMA_VERSION = 1


class Format(StrEnum):
    """How an answer is written."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"


FormatOption = Annotated[
    Format | None, typer.Option("--format", help="How to write the answer; default: by the suffix of -o, else table.")
]
OutputOption = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write the answer to this file instead of stdout.")
]


@dataclass(frozen=True)
class Table:
    """Cells as text, ready to be shown; columns in ``right`` are aligned to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    right: Sequence[int] = ()


def say(text: str) -> None:
    """Tell a person something (stderr)."""
    typer.echo(text, err=True)


def emit(
    format: Format | None,
    *,
    table: Table | str | Sequence[Table | str],
    data: Any,
    rows: Sequence[Mapping[str, Any]] | None = None,
    output: Path | None = None,
) -> None:
    """Write one answer in the wanted *format* to *output*, or to stdout (None or ``-``).

    Without a format the suffix of *output* decides (.json, .csv, .md), else it is a table.  JSON objects carry a
    schema_version.
    """
    parts = [table] if isinstance(table, (Table, str)) else list(table)
    if isinstance(data, dict):
        data = {"schema_version": SCHEMA_VERSION, **data}  # where the answer has one of its own, that one
    text = _render(format or _format_of(output), parts, data, rows)
    if output is None or str(output) == "-":
        typer.echo(text)
    else:
        write_file(output, text + "\n")


def write_file(path: Path, text: str) -> None:
    """Write *text* to *path*, whole or not at all.  Raises InputError when the place cannot be written."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write *table* to *path* as CSV with a header, gzipped if the name ends in .gz; floats with ten digits."""
    with replacing(path) as part:
        table.to_csv(part, index=False, float_format="%.10g", compression="gzip" if path.suffix == ".gz" else None)


def check_places(*paths: Path | None) -> None:
    """Refuse, before any work, a file whose folder does not exist, and two outputs in one file; ``-`` is stdout."""
    from simulator.errors import InputError

    if sum(str(path) == "-" for path in paths) > 1:
        raise InputError("two outputs would be written to stdout (-); give all but one a file")
    files = [path for path in paths if path is not None and str(path) != "-"]
    for path in files:
        if not path.parent.is_dir():
            raise InputError(f"cannot write {path}: there is no folder {path.parent}; create it first")
        if [other.resolve() for other in files].count(path.resolve()) > 1:
            raise InputError(f"two outputs would be written to {path}; give each a file of its own")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside *path*, which takes its place when the block ends well and vanishes when not.

    A symbolic link is followed, never replaced; stdout (``-``), devices and pipes are written as they are.
    """
    from simulator.errors import InputError

    path = Path("/dev/stdout") if str(path) == "-" else path
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a directory; give a file name")
    is_stream = path.is_relative_to("/dev") or path.is_relative_to("/proc")
    if path.exists() and (is_stream or not path.is_file()):  # nothing to rename
        yield path
        return
    path = path.resolve()
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        part.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _format_of(output: Path | None) -> Format:
    suffix = output.suffix.lower().lstrip(".") if output else ""
    return {"json": Format.json, "csv": Format.csv, "md": Format.md}.get(suffix, Format.table)


def _render(format: Format, parts: list[Table | str], data: Any, rows: Sequence[Mapping[str, Any]] | None) -> str:
    if format is Format.json:
        return json.dumps(_plain(data), indent=2, allow_nan=False, ensure_ascii=False)
    if format is Format.csv:
        return _csv(parts, rows)
    show = markdown if format is Format.md else _text
    return "\n\n".join(part if isinstance(part, str) else show(part) for part in parts)


def _plain(value: Any) -> Any:
    """Return *value* with NaN and infinities as null, numpy scalars as numbers and paths as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)


def _csv(parts: list[Table | str], rows: Sequence[Mapping[str, Any]] | None) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if rows is not None:
        columns = list(dict.fromkeys(key for row in rows for key in row))
        writer.writerow(columns)
        writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    else:
        first = next((part for part in parts if isinstance(part, Table)), Table((), ()))
        writer.writerow(first.columns)
        writer.writerows(first.rows)
    return text.getvalue().rstrip("\n")


def _cell(value: Any) -> Any:
    plain = _plain(value)
    return "" if plain is None else json.dumps(plain) if isinstance(plain, (dict, list)) else plain


def _text(table: Table) -> str:
    """Aligned columns, a rule under the header; plain characters, so that it survives any terminal and any paste."""
    lines = [list(table.columns), *[list(row) for row in table.rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.columns))]
    shown = [_aligned(line, widths, table.right) for line in lines]
    shown.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(([table.title] if table.title else []) + shown)


def _aligned(line: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    cells = [
        text.rjust(width) if column in right else text.ljust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def markdown(table: Table) -> str:
    """Return *table* as Markdown."""

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = ["---:" if column in table.right else "---" for column in range(len(table.columns))]
    title = [f"**{table.title}**", ""] if table.title else []
    return "\n".join([*title, row(table.columns), row(rule), *[row(line) for line in table.rows]])
