"""The folder of a calibration run: every finished burst on disk at once, put together afterwards into one recording.

    run.json                        what is measured: model, arguments, GPU, limits
    server.log, server-1.log ...    start-up logs, the newest without a number
    parts/NN.steps.jsonl, .gpu.jsonl   one pair a server start, written by the server itself
    bursts/NNN.json                 one burst: key, purpose, part, window [start, end], what the client saw, metrics
    calib.steps.jsonl.gz, calib.requests.json.gz    put together by `assemble`: what `calibration.fit` reads
    calib.gpu.jsonl.gz              GPU times of the same steps, where the worker recorded them

Only the steps inside the windows of good bursts are kept, so warm-up and failed bursts vanish; steps get new numbers,
with a gap where bursts meet.  All times are of one ``time.monotonic``; where a later part's clock began again (a reboot
between), it is moved behind the part before.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from calibration.recording import read_lines
from simulator.errors import InputError

#: Seconds around a burst in which steps still belong to it.
BEFORE_S, AFTER_S = 0.05, 0.2
_BETWEEN_PARTS_S = 10.0


@dataclass(frozen=True)
class FinishedBurst:
    """One burst as it is kept; *requests* is `ClientRun.to_dict`, *dropped* says why it counts for nothing."""

    key: str
    purpose: str
    part: str
    window: tuple[float, float]
    requests: dict[str, Any]
    dropped: str | None = None
    late_client: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def duration_s(self) -> float:
        """Seconds it took."""
        return self.window[1] - self.window[0]


class RunFolder:
    """A calibration run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def log(self) -> Path:
        """Where the server logs."""
        return self.path / "server.log"

    def open(self, facts: Mapping[str, Any], *, resume: bool) -> None:
        """Begin a run, or go on with one of the same *facts*; `InputError` if that cannot be.

        A run that has measured nothing (its server never started) is no run yet: it may begin again, with other facts.
        """
        path = self.path / "run.json"
        if path.is_file() and any((self.path / "bursts").glob("*.json")):
            if not resume:
                raise InputError(
                    f"{self.path} holds a run already; add --resume to go on with it, or give another --out"
                )
            before = _load(path)
            for name, value in facts.items():
                if before.get(name) != value:
                    raise InputError(f"{path}: was run with {name} {before.get(name)!r}, now it is {value!r}; "
                                     "resume with the same, or give another --out")  # fmt: skip
            return
        try:
            for folder in ("parts", "bursts"):
                (self.path / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path}: cannot write there ({error.strerror}); give another --out") from None
        _write(path, dict(facts))

    def new_part(self) -> str:
        """Return the name of the next server start; an older log is moved aside."""
        number = 1 + max((int(path.name[:2]) for path in (self.path / "parts").glob("[0-9][0-9].*")), default=0)
        if self.log.is_file():
            count = sum(1 for _ in self.path.glob("server-*.log"))
            self.log.rename(self.path / f"server-{count + 1}.log")
        return f"{number:02d}"

    def prefix(self, part: str) -> Path:
        """Return the beginning of the names of a part's files."""
        return self.path / "parts" / part

    def save(self, burst: FinishedBurst) -> None:
        """Keep *burst*, whole or not at all."""
        number = sum(1 for _ in (self.path / "bursts").glob("*.json")) + 1
        _write(self.path / "bursts" / f"{number:04d}.json", asdict(burst))

    def bursts(self) -> list[FinishedBurst]:
        """Return the bursts in order."""
        found = []
        for path in sorted((self.path / "bursts").glob("*.json")):
            data = _load(path)
            try:
                found.append(FinishedBurst(**{**data, "window": tuple(data["window"])}))
            except (KeyError, TypeError) as error:
                raise InputError(f"{path}: is not a burst ({error}); remove it") from None
        return found

    def good(self) -> list[FinishedBurst]:
        """Return the bursts that count."""
        return [burst for burst in self.bursts() if burst.dropped is None]

    def assemble(self, workload: str = "calib") -> int:
        """Write the recording of all good bursts; return the number of steps in it."""
        shifts = self._shifts()
        steps = self._write_steps(self.path / f"{workload}.steps.jsonl.gz", shifts)
        shown = [
            {**burst.requests, "t_base": burst.requests["t_base"] + shifts[burst.part], "key": burst.key}
            for burst in self.good()
            if burst.requests["requests"] and burst.late_client is None
        ]
        path = self.path / f"{workload}.requests.json.gz"
        path.unlink(missing_ok=True)
        if shown:
            with gzip.open(path, "wt", encoding="utf-8") as file:
                json.dump(shown, file, separators=(",", ":"))
        return steps

    def _shifts(self) -> dict[str, float]:
        """Return what is added to the times of each part, so that parts follow each other."""
        shifts: dict[str, float] = {}
        end = float("-inf")
        for burst in self.good():
            if burst.part not in shifts:
                shifts[burst.part] = 0.0 if burst.window[0] > end else end + _BETWEEN_PARTS_S - burst.window[0]
            end = burst.window[1] + shifts[burst.part]
        return shifts

    def _write_steps(self, path: Path, shifts: Mapping[str, float]) -> int:
        header: dict[str, Any] | None = None
        count = offset = 0
        lines: list[str] = []
        gpu_lines: list[str] = []
        for part, shift in shifts.items():
            windows = [burst.window for burst in self.good() if burst.part == part]
            kept: set[int] = set()
            last = 0
            for record in _records(self.prefix(part)):
                if record["a"] == "h":
                    header = header or record
                    continue
                last = max(last, record["n"])
                if record["a"] == "s" and _inside(record["t0"], windows):
                    kept.add(record["n"])
                if record["n"] in kept:
                    moved = {"n": record["n"] + offset, "t0": record["t0"] + shift, "t1": record["t1"] + shift}
                    lines.append(json.dumps({**record, **moved}, separators=(",", ":")))
            for row in _records(self.prefix(part), "gpu"):
                if row["n"] in kept:
                    gpu_lines.append(json.dumps({**row, "n": row["n"] + offset, "h0": row["h0"] + shift,
                                                 "h1": row["h1"] + shift}, separators=(",", ":")))  # fmt: skip
            count, offset = count + len(kept), offset + last + 1
        head = [json.dumps(header, separators=(",", ":"))] if header is not None and count else []
        _write_lines(path, [*head, *lines] if head else [])
        _write_lines(path.with_name(path.name.replace(".steps.", ".gpu.")), gpu_lines)
        return count


def _inside(time_s: float, windows: list[tuple[float, float]]) -> bool:
    return any(start - BEFORE_S <= time_s <= end + AFTER_S for start, end in windows)


def _write_lines(path: Path, lines: list[str]) -> None:
    """Write a gzip file of lines, or none (nor an old one) if there is nothing to write."""
    path.unlink(missing_ok=True)
    if lines:
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


def _records(prefix: Path, kind: str = "steps") -> Iterator[dict[str, Any]]:
    """Yield the records of a part; the last line may be cut where the server was killed."""
    path = prefix.with_name(f"{prefix.name}.{kind}.jsonl")
    if not path.is_file():
        return
    lines, _note = read_lines(path)
    for index, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            if index < len(lines):
                raise InputError(f"{path}: line {index}: not JSON") from None


def header_of(prefix: Path) -> dict[str, Any] | None:
    """Return the header the server's recorder wrote, or None if there is none (yet)."""
    return next((record for record in _records(prefix) if record.get("a") == "h"), None)


def _write(path: Path, data: Mapping[str, Any]) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(data), encoding="utf-8")
    os.replace(part, path)


def _load(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: is not a JSON object")
    return data
