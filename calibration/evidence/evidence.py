"""What a file of somebody's tool says: the load it holds, and what was measured under it.

Readers are strict: they give a number only where the file holds it, by the definitions of `simulator.metrics`.  What
was recomputed, estimated or could not be read stands in the notes, one line each.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from simulator.errors import InputError
from simulator.request_list import Row, read_text
from simulator.workload import RequestsWorkload, Workload

#: A token has about so many characters in English text and code; for files that hold texts and no counts.
CHARS_PER_TOKEN = 4.0


@dataclass(frozen=True)
class Options:
    """What a file may leave open: time between two scrapes, how texts become tokens, outputs of a batch."""

    seconds: float | None = None
    chars_per_token: float = CHARS_PER_TOKEN
    output_tokens: int | None = None


@dataclass(frozen=True, eq=False)
class Evidence:
    """One run, scrape or trace.

    Attributes
    ----------
    tool: whose format it is, in words.
    name: the file, and the run inside it where there are several.
    workload: what was sent, ready for a scenario; None if the file does not tell (*no_workload* says why).
    metrics: what was measured, under the keys of `simulator.result.Result.summary`; empty for a trace.
    model: as the file names it, else "".
    notes: what was recomputed, estimated, left out or could not be read.
    """

    tool: str
    name: str
    workload: Workload | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    model: str = ""
    notes: tuple[str, ...] = ()
    no_workload: str = ""

    @property
    def rows(self) -> tuple[Row, ...] | None:
        """The requests one by one, where the evidence has them."""
        return self.workload.rows if isinstance(self.workload, RequestsWorkload) else None


@dataclass(frozen=True, eq=False)
class Source:
    """A file, read once and looked at in several ways; *files* are all that were given together (two scrapes)."""

    path: Path
    text: str
    others: tuple[Source, ...] = ()

    @classmethod
    def read(cls, path: Path, others: tuple[Path, ...] = ()) -> Source:
        """Return the source; `InputError` if a file cannot be read as text."""
        return cls(path, read_text(path), tuple(cls(each, read_text(each)) for each in others))

    @property
    def name(self) -> str:
        """The path, as it is named in errors."""
        return str(self.path)

    @cached_property
    def document(self) -> Any:
        """The file as one JSON document; None if it is not one."""
        if self.text.lstrip()[:1] not in ("{", "["):
            return None
        try:
            return json.loads(self.text)
        except json.JSONDecodeError:
            return None

    @cached_property
    def first_line(self) -> Any:
        """The first line as JSON; None if it is not."""
        line = next((line for line in self.text.splitlines() if line.strip()), "")
        try:
            return json.loads(line)
        except json.JSONDecodeError:
            return None

    @cached_property
    def header(self) -> tuple[str, ...]:
        """The cells of the first line, as CSV."""
        line = next((line for line in self.text.splitlines() if line.strip()), "")
        return tuple(cell.strip() for cell in next(csv.reader([line]), []))

    def json_lines(self) -> list[tuple[int, dict[str, Any]]]:
        """Return (line number, object) of a JSON-lines file; `InputError` naming the line that is not an object."""
        found = []
        for number, line in enumerate(self.text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                data = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(
                    f"{self.name}:{number}: is not JSON ({error.msg}); correct or remove the line"
                ) from None
            if not isinstance(data, dict):
                raise InputError(f"{self.name}:{number}: must be a JSON object; correct or remove the line")
            found.append((number, data))
        return found


@dataclass(frozen=True)
class Format:
    """A format that can be read: its name on the command line, in words, how it is recognised and read.

    *checked* says with which version's own output the reader is tested; empty if it could not be.
    """

    name: str
    title: str
    checked: str
    recognise: Callable[[Source], bool]
    read: Callable[[Source, Options], list[Evidence]]
