"""Results of ``vllm bench serve --save-result``, read: plain or detailed, of any version, one or several in a file.

What every version has: duration and the aggregates of the latencies, by the names `simulator.metrics` uses too.  With
``--save-detailed`` the requests come with them: lengths, ttfts and itls in request order, and from about 0.11 on
start_times.  A failed request has an error text (or no output) and is left out, as in the aggregates.

Without start_times an open loop cannot be replayed, so such a file gives a `MeasuredRun` only where the sending follows
from the limits: all at once, or a closed loop (rate "inf" with max_concurrency).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator import measured
from simulator.errors import InputError
from simulator.measured import MeasuredRun
from simulator.request_list import read_text

#: Mean gaps that the first one may last; what is longer is something else (a warm-up, a slow end).
_LONGEST_GAP = 10

_PROVENANCE = ("date", "backend", "endpoint_type", "model_id", "tokenizer_id", "label")
_COUNTS = ("completed", "failed", "total_input_tokens", "total_output_tokens")
_LATENCIES = ("_ttft_ms", "_tpot_ms", "_itl_ms", "_e2el_ms")


@dataclass(frozen=True)
class BenchResult:
    """One run of the bench.

    Attributes
    ----------
    summary: duration_s, counts, throughputs and latency aggregates, those the file holds, by their names there.
    request_rate: requests/s, None for "inf".
    run: the requests, where the file is detailed enough; *why_no_run* says what is missing.
    """

    name: str
    model: str
    request_rate: float | None
    max_concurrency: int | None
    summary: Mapping[str, float]
    provenance: Mapping[str, str]
    run: MeasuredRun | None = None
    why_no_run: str = ""


def read_bench(path: Path | str) -> list[BenchResult]:
    """Return the results in a file: one JSON document, or one a line (``--append-result``)."""
    text, name = read_text(path), Path(path).name
    try:
        data = json.loads(text)
        found = data if isinstance(data, list) else [data]
    except json.JSONDecodeError:
        found = [
            _document(line, f"{path}:{number}") for number, line in enumerate(text.splitlines(), 1) if line.strip()
        ]
    if not found:
        raise InputError(f"{path}: is empty; give the file that --save-result wrote")
    return [parse_bench(item, name if len(found) == 1 else f"{name}#{index}") for index, item in enumerate(found, 1)]


def _document(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        raise InputError(f"{where}: is not JSON; give the file that `vllm bench serve --save-result` wrote") from None


def parse_bench(data: Any, name: str) -> BenchResult:
    """Return one result; *name* stands in front of every error."""
    if not isinstance(data, Mapping) or "duration" not in data or "completed" not in data:
        raise InputError(f"{name}: holds no duration and completed; give what `vllm bench serve --save-result` wrote")
    try:
        limit = data.get("max_concurrency")
        summary = {"duration_s": float(data["duration"])}
        for key, value in data.items():
            wanted = key in _COUNTS or key.endswith(("_throughput", "_goodput", *_LATENCIES))
            if wanted and isinstance(value, (int, float)):
                summary[key] = float(value)
        result = BenchResult(
            name=name, model=str(data.get("model_id", "")), request_rate=_rate(data.get("request_rate", "inf")),
            max_concurrency=int(limit) if limit else None, summary=summary,
            provenance={key: str(data[key]) for key in _PROVENANCE if data.get(key)},
        )  # fmt: skip
        why = _missing(data, result)
        if why:
            return BenchResult(**{**vars(result), "why_no_run": why})
        return BenchResult(**{**vars(result), "run": _run(data, result)})
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: is not a result of `vllm bench serve` ({error})") from None


def _rate(value: object) -> float | None:
    rate = float(str(value))
    return None if rate == float("inf") else rate


def _missing(data: Mapping[str, Any], result: BenchResult) -> str:
    """Return why the requests cannot be read, or nothing."""
    arrays = ("input_lens", "output_lens", "ttfts", "itls")
    missing = [name for name in arrays if not isinstance(data.get(name), Sequence)]
    if missing:
        return f"it holds no {', '.join(missing)}; run the bench with --save-detailed"
    if len({len(data[name]) for name in arrays}) != 1:
        return "its arrays differ in length"
    if not data.get("start_times") and result.request_rate is not None:
        return "it holds no start_times (an older version), so it is not known when its requests were sent"
    return "" if any(data["output_lens"]) else "no request was answered"


def _before_the_first(
    data: Mapping[str, Any], result: BenchResult, starts: Sequence[float], good: Sequence[int]
) -> float:
    """Return the gap before the first request of an open loop: the duration that the bench gives counts it."""
    if result.request_rate is None or len(good) < len(starts):
        return 0.0
    last = max(starts[row] + data["ttfts"][row] + sum(data["itls"][row]) for row in good)
    gap = float(data["duration"]) - (last - min(starts))
    return gap if 0 < gap < _LONGEST_GAP / result.request_rate else 0.0


def _run(data: Mapping[str, Any], result: BenchResult) -> MeasuredRun:
    count = len(data["ttfts"])
    starts = data.get("start_times") or [0.0] * count
    errors = data.get("errors") or [""] * count
    good = [row for row in range(count) if not errors[row] and data["output_lens"][row]]
    first = min(starts) - _before_the_first(data, result, starts, good)
    requests = [
        {
            "arrival_s": starts[row] - first, "sent_s": starts[row] - first, "prompt_tokens": data["input_lens"][row],
            "output_tokens": data["output_lens"][row], "ttft_s": data["ttfts"][row],
            "e2el_s": data["ttfts"][row] + sum(data["itls"][row]), "itl_ms": [1e3 * gap for gap in data["itls"][row]],
        }
        for row in good
    ]  # fmt: skip
    document = {
        "name": result.name, "workload": "vllm bench serve", "provenance": dict(result.provenance),
        "duration_s": data["duration"], "requests": requests,
        "concurrency": result.max_concurrency if result.request_rate is None else None,
    }  # fmt: skip
    return measured.parse(json.dumps(document), result.name)
