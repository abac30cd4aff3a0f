"""All formats that can be read, and which one a file is: recognised by its content, never by its name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from calibration.evidence import guidellm, inference_perf, mooncake, openai_batch, prometheus, vllm_bench
from calibration.evidence.csv_traces import AZURE_FORMAT, BURSTGPT_FORMAT, OWN_FORMAT
from calibration.evidence.evidence import Evidence, Format, Options, Source
from simulator.errors import InputError

FORMATS: tuple[Format, ...] = (
    vllm_bench.FORMAT, guidellm.FORMAT, inference_perf.FORMAT, prometheus.FORMAT, openai_batch.FORMAT, AZURE_FORMAT,
    mooncake.FORMAT, BURSTGPT_FORMAT, OWN_FORMAT,
)  # fmt: skip
NAMES = ("auto", *(each.name for each in FORMATS))

#: What a folder is read from: a bench sweep writes one result a run, inference-perf one report a view.
_IN_FOLDERS = ("per_request_lifecycle_metrics.json", "stage_*_lifecycle_metrics.json", "summary_lifecycle_metrics.json")


def read_evidence(path: Path, *more: Path, format: str = "auto", options: Options | None = None) -> list[Evidence]:
    """Return what *path* holds: one evidence a run; *more* is a second scrape, of Prometheus only.

    A folder is read file by file: results of ``vllm bench sweep``, or the reports of inference-perf (the most detailed
    ones).  Raises `InputError` of one line for a format nobody knows, a file of none, or a file that breaks its format.
    """
    if format not in NAMES:
        raise InputError(f"--from {format}: no such format; known: {', '.join(NAMES)}")
    chosen = options or Options()
    if path.is_dir():
        return _folder(path, format, chosen)
    source = Source.read(path, more)
    found = _of_name(format) if format != "auto" else recognised(source)
    if more and found.name != "prometheus":
        raise InputError(f"{more[0]}: a second file goes with Prometheus scrapes only; {path} is {_a(found)}")
    unchecked = (
        () if found.checked else (f"the format {found.title} could not be checked against its tool's own output",)
    )
    return [
        replace(each, metrics=_finite(each.metrics), notes=(*each.notes, *unchecked))
        for each in _read(found, source, chosen)
    ]


def _read(format: Format, source: Source, options: Options) -> list[Evidence]:
    """Return what the reader finds; whatever it stumbles over is a file that breaks its format."""
    try:
        return format.read(source, options)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise InputError(f"{source.name}: is not a {format.title} file as it is known here ({reason[:120]})") from None


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if math.isfinite(value)}


def recognised(source: Source) -> Format:
    """Return the format of *source*; `InputError` if it is none."""
    found = next((each for each in FORMATS if each.recognise(source)), None)
    if found is None:
        known = ", ".join(each.title for each in FORMATS)
        raise InputError(f"{source.name}: is none of: {known}; see docs/import.md")
    return found


def _of_name(name: str) -> Format:
    return next(each for each in FORMATS if each.name == name)


def _a(format: Format) -> str:
    return f"of {format.title}"


def _folder(folder: Path, format: str, options: Options) -> list[Evidence]:
    for pattern in _IN_FOLDERS:
        paths = sorted(folder.rglob(pattern))
        if paths:
            break
    else:
        paths = sorted(path for path in folder.rglob("*.json") if _is_run_of_bench(path))
    if not paths:
        raise InputError(f"{folder}: holds no result of `vllm bench serve` or sweep, and no report of inference-perf")
    return [
        replace(each, name=str(path.relative_to(folder)))
        for path in paths
        for each in read_evidence(path, format=format, options=options)
    ]


def _is_run_of_bench(path: Path) -> bool:
    """Whether *path* is one run: a sweep's ``summary.json`` repeats them, its ``warmup.json`` is not meant to count."""
    try:
        source = Source.read(path)
    except InputError:
        return False
    return path.name != "warmup.json" and isinstance(source.document, dict) and vllm_bench.recognise(source)
