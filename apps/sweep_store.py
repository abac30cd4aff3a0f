"""The rows of a sweep in a file, JSON lines or CSV: added one by one as they come, safe on the disk each, and found
again when the sweep goes on.

A row knows the question it answers, so a file can be gone on with if all its rows belong to the sweep: after an
interruption, and when an axis got more values.  A last line that was cut short is dropped.  When all is there the file
is put in order: it is the same whether the sweep was interrupted or not.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from apps.output import write_file
from apps.planning.sweep import Point, Sweep
from apps.planning.sweep_run import METRICS, PASSING, Row
from apps.planning.sweep_values import Value, read_value, text_of
from simulator.errors import InputError


class Store:
    """The file at *path*; None keeps the rows in memory only."""

    def __init__(self, path: Path | None, sweep: Sweep) -> None:
        """Open the file, or begin it.  Raises `InputError` for a suffix, a place or rows that do not go."""
        self.path, self.sweep = path, sweep
        self.rows: dict[int, Row] = {}
        self._columns = [*sweep.columns, "status", "reason", *METRICS]
        if path is None:
            return
        if path.suffix.lower() not in (".jsonl", ".csv"):
            raise InputError(f"{path}: rows are written as they come, to a .jsonl or .csv file; name it so")
        if path.exists() and path.stat().st_size:
            self._take_up(path)
        else:
            write_file(path, self._head())

    def add(self, point: Point, row: Row) -> None:
        """Keep *row*; when this returns it is on the disk."""
        self.rows[point.index] = row
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(self._line(row))
                file.flush()
                os.fsync(file.fileno())

    def finish(self) -> None:
        """Put the rows in the order of the sweep."""
        if self.path is not None:
            write_file(self.path, self._head() + "".join(map(self._line, self.in_order())))

    def in_order(self) -> list[Row]:
        """Return the rows in the order of the sweep."""
        return [self.rows[index] for index in sorted(self.rows)]

    @property
    def _is_csv(self) -> bool:
        return self.path is not None and self.path.suffix.lower() == ".csv"

    def _head(self) -> str:
        return _csv_line(self._columns) if self._is_csv else ""

    def _line(self, row: Row) -> str:
        if self._is_csv:
            return _csv_line([text_of(row[column]) for column in self._columns])
        return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"

    def _take_up(self, path: Path) -> None:
        whole = path.read_bytes()
        kept = whole[: whole.rfind(b"\n") + 1]
        try:
            text = kept.decode("utf-8")
            rows = _csv_rows(text, self._columns) if self._is_csv else [json.loads(line) for line in text.splitlines()]
        except (ValueError, csv.Error):
            raise InputError(f"{path}: holds no rows of a sweep; give another -o, or --overwrite") from None
        points = {_key(self.sweep.question(point)): point for point in self.sweep.points()}
        for number, row in enumerate(rows, 2 if self._is_csv else 1):
            point = points.get(
                _key({name: row.get(name) for name in self.sweep.columns} if isinstance(row, dict) else {})
            )
            if point is None or set(row) != set(self._columns):
                why = self._difference(row)
                raise InputError(f"{path}: holds another sweep (line {number}: {why}); give another -o, or --overwrite")
            if row["status"] not in PASSING:
                self.rows[point.index] = {column: row[column] for column in self._columns}
        self.finish()  # without half a line, and without rows that are tried again

    def _difference(self, row: Any) -> str:
        """Return what in *row* cannot be of this sweep."""
        if not isinstance(row, Mapping):
            return "it is no row"
        for name in row:
            if name not in self._columns:
                return f"it has {name}, which this sweep has not"
        for name in self._columns:
            if name not in row:
                return f"it has no {name}"
        for name in self.sweep.columns:
            ours = {text_of(self.sweep.question(point)[name]) for point in self.sweep.points()}
            if text_of(row[name]) not in ours:
                shown = ", ".join(sorted(ours)[:5])
                return f"{name} is {text_of(row[name])[:60]} there, {shown[:80]} here"
        return "its combination of values is not in this sweep"


def _key(question: Mapping[str, Value | None]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, text_of(value)) for name, value in question.items()))


def _csv_line(cells: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _csv_rows(text: str, columns: list[str]) -> list[dict[str, Any]]:
    """Return the rows with numbers as numbers; words stay what they are."""
    found = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows = []
    for row in found:
        if None in row or None in row.values():
            raise csv.Error("cells are missing")
        rows.append({name: _cell(name, cell) for name, cell in row.items()})
    if not rows and found.fieldnames != columns:
        raise csv.Error("another header")
    return rows


def _cell(name: str, cell: str) -> Value | None:
    if cell == "":
        return None
    return read_value(cell) if name in METRICS and name != "warnings" else cell
