"""Traces as CSV: Azure's LLM inference traces, BurstGPT, and our own request list.  Lengths and times, no measurement.

    azure      TIMESTAMP (date and time), ContextTokens, GeneratedTokens
    burstgpt   Timestamp (s), Model, Request tokens, Response tokens, Total tokens, Log Type[, Session ID, ...]
    csv        the columns of `simulator.request_list`

Rows without an output are failures (BurstGPT: response 0) and are dropped; the note counts them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from datetime import datetime

from calibration.evidence.evidence import Evidence, Format, Options, Source
from simulator import request_list
from simulator.errors import InputError
from simulator.request_list import Row
from simulator.workload import RequestsWorkload

AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BURSTGPT = ("Timestamp", "Request tokens", "Response tokens")


def _has(columns: tuple[str, ...]) -> Callable[[Source], bool]:
    return lambda source: set(columns) <= set(source.header)


def read_azure(source: Source, options: Options) -> list[Evidence]:
    """Return an Azure trace; times begin at its first row."""
    return [_trace(source, "Azure LLM inference trace", AZURE, _date)]


def read_burstgpt(source: Source, options: Options) -> list[Evidence]:
    """Return a BurstGPT trace."""
    return [_trace(source, "BurstGPT trace", BURSTGPT, float)]


def read_own(source: Source, options: Options) -> list[Evidence]:
    """Return a request list of our own format as it is."""
    found = request_list.parse(source.text, source.name)
    workload = RequestsWorkload(path=str(source.path))
    return [Evidence("request list", source.path.name, workload, notes=found.notes)]


def _date(text: str) -> float:
    """Return seconds of a date with up to seven decimals, with or without a zone."""
    plain = text.strip().replace("Z", "+00:00")
    head, dot, rest = plain.partition(".")
    if dot:
        digits = len(rest) - len(rest.lstrip("0123456789"))
        plain = f"{head}.{rest[: min(digits, 6)]:0<6}{rest[digits:]}"
    return datetime.fromisoformat(plain).timestamp()


def _trace(source: Source, tool: str, columns: tuple[str, str, str], seconds: Callable[[str], float]) -> Evidence:
    found, dropped = [], 0
    for number, cells in enumerate(csv.DictReader(io.StringIO(source.text)), 2):
        try:
            at, prompt, output = seconds(cells[columns[0]]), _whole(cells, columns[1]), _whole(cells, columns[2])
        except (TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{source.name}:{number}: is not a row of a {tool} ({error}); correct or remove it"
            ) from None
        if prompt < 1 or output < 1:
            dropped += 1
            continue
        found.append((at, prompt, output, cells.get("Session ID") or None))
    if not found:
        raise InputError(f"{source.name}: holds no request with an output; give a trace with at least one")
    zero = min(at for at, *_ in found)
    rows = tuple(
        Row(arrival_s=at - zero, prompt_tokens=prompt, output_tokens=output, session_id=session)
        for at, prompt, output, session in sorted(found, key=lambda row: row[0])
    )
    notes = [f"{dropped:,} rows without prompt or output (failed requests) are dropped"] if dropped else []
    return Evidence(tool, source.path.name, RequestsWorkload(rows=rows), notes=tuple(notes))


def _whole(cells: Mapping[str, str], column: str) -> int:
    value = float(cells[column])
    if value != int(value):
        raise ValueError(f"{column} {cells[column]} is not a whole number")
    return int(value)


AZURE_FORMAT = Format("azure", "Azure LLM inference trace", "first rows of the 2023 trace", _has(AZURE), read_azure)
BURSTGPT_FORMAT = Format("burstgpt", "BurstGPT trace", "first rows of BurstGPT_1", _has(BURSTGPT), read_burstgpt)
OWN_FORMAT = Format("csv", "request list", "its own", _has(("prompt_tokens", "output_tokens")), read_own)
