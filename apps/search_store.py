"""The rows of a search in a JSON-lines file: added one by one as they come, found again when the search goes on.

The first line says what is asked; a file of another question is refused.  A last line that was cut short is dropped.
Rows of configurations that failed are tried again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from apps.output import write_file
from apps.planning.evaluate import FAILED, Row
from apps.planning.space import Config, Space
from simulator.errors import InputError


class SearchStore:
    """The file at *path*; None keeps the rows in memory only."""

    def __init__(self, path: Path | None, asked: dict[str, Any], space: Space) -> None:
        """Open the file, or begin it; `InputError` if it holds something else."""
        self.path, self._head = path, json.dumps({"search": asked}, sort_keys=True, ensure_ascii=False)
        self.rows: dict[Config, Row] = {}
        if path is None:
            return
        if path.suffix.lower() != ".jsonl":
            raise InputError(f"{path}: rows are written as they come, to a .jsonl file; name it so")
        if path.exists() and path.stat().st_size:
            self._take_up(path, space)
        write_file(path, "".join(f"{line}\n" for line in [self._head, *map(_line, self.rows.values())]))

    def add(self, config: Config, row: Row) -> None:
        """Keep *row*; when this returns it is on the disk."""
        self.rows[config] = row
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(row) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def _take_up(self, path: Path, space: Space) -> None:
        whole = path.read_bytes()
        try:
            lines = whole[: whole.rfind(b"\n") + 1].decode("utf-8").splitlines()
            head, rows = lines[0] if lines else "", [json.loads(line) for line in lines[1:]]
        except ValueError:
            raise InputError(f"{path}: holds no rows of a search; give another -o, or --overwrite") from None
        if head != self._head:
            raise InputError(f"{path}: holds another search; give another -o, or --overwrite")
        for row in rows:
            if row["status"] != FAILED:
                self.rows[tuple((name, row["config"][name]) for name in space.axes)] = row


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False)
