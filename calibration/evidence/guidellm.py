"""GuideLLM's report (``benchmarks.json``): one evidence a benchmark in it, from its own requests.

Versions 0.4 to 0.8 keep times in ``info.timings`` and lengths in ``input_metrics`` and ``output_metrics``; 0.2 and 0.3
keep ``first_token_time``, ``prompt_tokens`` and the like in the request.  GuideLLM's TPOT is latency / output tokens,
so it holds TTFT: it is recomputed.  Gaps between single tokens are not in the report, so there is no ITL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calibration.evidence.evidence import Evidence, Format, Options, Source
from calibration.evidence.seen import Seen, evidence_of

TOOL = "GuideLLM"


def recognise(source: Source) -> bool:
    """Whether it is such a report: a list of benchmarks, each with requests by how they ended."""
    data = source.document
    benchmarks = data.get("benchmarks") if isinstance(data, dict) else None
    first = benchmarks[0] if isinstance(benchmarks, list) and benchmarks else None
    return isinstance(first, dict) and "requests" in first and "metrics" in first


def read(source: Source, options: Options) -> list[Evidence]:
    """Return one evidence a benchmark."""
    benchmarks = source.document["benchmarks"]
    names = (
        [source.path.name] if len(benchmarks) == 1 else [f"{source.path.name}#{k + 1}" for k in range(len(benchmarks))]
    )
    return [_evidence(benchmark, name) for benchmark, name in zip(benchmarks, names, strict=True)]


def _evidence(benchmark: Mapping[str, Any], name: str) -> Evidence:
    requests: Mapping[str, Sequence[Mapping[str, Any]] | None] = benchmark["requests"]
    good = requests.get("successful") or []
    failed = len(requests.get("errored") or []) + len(requests.get("incomplete") or [])
    total = _total(benchmark)
    if not good:
        why = f"it holds no successful request ({failed} failed or incomplete)"
        return Evidence(TOOL, name, None, notes=(why,), no_workload=why)
    seen = [_seen(request) for request in good]
    notes = ["ITL is not read: the report holds no gaps between single tokens"]
    if "info" not in good[0]:
        notes.append("this older form of report was checked against GuideLLM 0.3's code only, not against a real file")
    if failed:
        notes.append(f"{failed} requests failed or were cut off at the end and are left out, of the load too")
    if total and total > len(good):
        notes.append(f"the report holds {len(good)} of {total} successful requests (a sample): the load is theirs only")
    span = [one.sent_s for one in seen], [one.sent_s + one.e2el_s for one in seen]
    own = {
        "mean_tpot_ms": _own(benchmark, "time_per_output_token_ms"),
        "mean_ttft_ms": _own(benchmark, "time_to_first_token_ms"),
    }
    return evidence_of(
        TOOL, name, seen, duration_s=max(span[1]) - min(span[0]), concurrency=_concurrency(benchmark),
        model=_model(benchmark), own=own, notes=notes,
    )  # fmt: skip


def _seen(request: Mapping[str, Any]) -> Seen:
    info = request.get("info")
    if info is None:  # 0.2 and 0.3
        start, first, last = (float(request[key]) for key in ("start_time", "first_token_time", "last_token_time"))
        prompt, output = int(request["prompt_tokens"]), int(request["output_tokens"])
    else:
        times = info["timings"]
        first_at = times.get("first_token_iteration", times.get("first_iteration"))
        last_at = times.get("last_token_iteration", times.get("last_iteration"))
        start, first, last = float(times["request_start"]), float(first_at), float(last_at)
        prompt = int(request["input_metrics"]["text_tokens"])
        output = int(request["output_metrics"]["text_tokens"])
    return Seen(start, prompt, output, first - start, last - start)


def _own(benchmark: Mapping[str, Any], metric: str) -> float | None:
    found = (benchmark["metrics"].get(metric) or {}).get("successful") or {}
    return found.get("mean")


def _total(benchmark: Mapping[str, Any]) -> int | None:
    totals = benchmark["metrics"].get("request_totals") or {}
    return totals.get("successful")


def _strategy(benchmark: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how requests were sent, wherever this version says it."""
    config, old = benchmark.get("config") or {}, benchmark.get("args") or {}
    found: Mapping[str, Any] = (
        config.get("strategy") or old.get("strategy") or (benchmark.get("scheduler") or {}).get("strategy") or {}
    )
    return found


def _concurrency(benchmark: Mapping[str, Any]) -> int | None:
    """Return the clients of a closed loop; None for an open one."""
    strategy = _strategy(benchmark)
    kind = strategy.get("type_")
    if kind == "synchronous":
        return 1
    if kind == "concurrent":
        return int(strategy["streams"])
    return None


def _model(benchmark: Mapping[str, Any]) -> str:
    backend = (
        (benchmark.get("config") or {}).get("backend") or (benchmark.get("benchmarker") or {}).get("backend") or {}
    )
    return str(backend.get("model") or "")


FORMAT = Format("guidellm", TOOL, "0.8.1", recognise, read)
