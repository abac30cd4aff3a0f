"""inference-perf (Kubernetes): ``per_request_lifecycle_metrics.json``, ``summary_...`` or ``stage_N_...``.

The per-request report holds every token's time, so all is computed from it; output tokens are the server's count where
it gave one (the tool's own TPOT divides by a count of its own tokenizer).  A summary or stage report holds sums only:
percentiles of the lengths become length distributions, the rate is the achieved one.  Times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibration.evidence.evidence import Evidence, Format, Options, Source
from calibration.evidence.quantiles import lengths
from calibration.evidence.seen import TOLERANCE, Seen, evidence_of
from simulator.workload import ConcurrencyWorkload, RateWorkload, Workload

TOOL = "inference-perf"
_LATENCIES = {
    "time_to_first_token": "ttft", "time_per_output_token": "tpot", "inter_token_latency": "itl",
    "request_latency": "e2el",
}  # fmt: skip
_STATISTICS = {"mean": ("mean",), "median": ("median", "p50"), "p90": ("p90",), "p95": ("p95",), "p99": ("p99",)}


def recognise(source: Source) -> bool:
    """Whether it is one of its reports."""
    data = source.document
    if isinstance(data, list):
        return bool(data) and isinstance(data[0], dict) and {"start_time", "end_time", "info"} <= data[0].keys()
    return isinstance(data, dict) and {"load_summary", "successes", "failures"} <= data.keys()


def read(source: Source, options: Options) -> list[Evidence]:
    """Return the evidence: of the requests, or of the sums of a stage or of all."""
    name = source.path.name
    return [
        _of_requests(source.document, name) if isinstance(source.document, list) else _of_sums(source.document, name)
    ]


def _of_requests(records: list[dict[str, Any]], name: str) -> Evidence:
    good = [record for record in records if record.get("error") is None]
    seen = [one for one in map(_seen, good) if one is not None]
    notes = []
    if len(records) > len(good):
        notes.append(f"{len(records) - len(good)} requests failed and are left out, of the load too")
    if len(good) > len(seen):
        notes.append(f"{len(good) - len(seen)} requests have no times of tokens (not streamed) and are left out")
    if not seen:
        why = "it holds no answered, streamed request"
        return Evidence(TOOL, name, None, notes=(*notes, why), no_workload=why)
    start, end = min(record["start_time"] for record in records), max(record["end_time"] for record in records)
    own = [value for record in good if (value := (record.get("computed_metrics") or {}).get("time_per_output_token"))]
    return evidence_of(
        TOOL, name, seen, duration_s=end - start, notes=notes,
        own={"mean_tpot_ms": 1e3 * float(np.mean(own))} if own else None,
    )  # fmt: skip


def _seen(record: Mapping[str, Any]) -> Seen | None:
    info = record["info"]
    response = info.get("response_metrics") or {}
    times, usage = response.get("output_token_times") or [], response.get("server_usage") or {}
    if not times:
        return None
    outputs = usage.get("completion_tokens") or response.get("output_tokens") or len(times)
    start = float(record["start_time"])
    messages = sorted(set(times))
    return Seen(
        start, int(info.get("input_tokens") or info["request_metrics"]["text"]["input_tokens"]), int(outputs),
        messages[0] - start, messages[-1] - start, np.diff(messages).tolist(),
    )  # fmt: skip


def _of_sums(data: Mapping[str, Any], name: str) -> Evidence:
    good = data["successes"]
    metrics: dict[str, float] = {
        "completed": float(good["count"]), "failed": float(data["failures"]["count"]),
        "duration_s": float(data["benchmark_time_seconds"]),
        "request_throughput": float(good["throughput"]["requests_per_sec"]),
        "output_throughput": float(good["throughput"]["output_tokens_per_sec"]),
        "total_token_throughput": float(good["throughput"]["total_tokens_per_sec"]),
    }  # fmt: skip
    for theirs, ours in _LATENCIES.items():
        found = good["latency"].get(theirs) or {}
        for statistic, names in _STATISTICS.items():
            if statistic in found:
                metrics |= {f"{each}_{ours}_ms": 1e3 * float(found[statistic]) for each in names}
    notes = ["the requests are not in this report; give per_request_lifecycle_metrics.json for an exact replay"]
    notes += _tpot_note(metrics, good)
    workload = _load(data)
    why = "" if workload is not None else "it holds no rate (not a stage report) or no lengths"
    return Evidence(TOOL, name, workload, metrics, notes=tuple(notes), no_workload=why)


def _tpot_note(metrics: dict[str, float], good: Mapping[str, Any]) -> list[str]:
    """Check TPOT against E2E and TTFT by means over tokens, the only check that sums allow."""
    tokens = (good.get("output_tokens") or good.get("output_len") or {}).get("mean")
    if not tokens or tokens <= 1 or not {"mean_tpot_ms", "mean_e2el_ms", "mean_ttft_ms"} <= metrics.keys():
        return []
    expected = (metrics["mean_e2el_ms"] - metrics["mean_ttft_ms"]) / (tokens - 1)
    if abs(expected - metrics["mean_tpot_ms"]) <= 5 * TOLERANCE * expected:
        return []
    return [
        f"{TOOL} says MEAN TPOT {metrics['mean_tpot_ms']:.2f} ms; (mean E2E latency - mean TTFT) / (mean output tokens "
        f"- 1) is {expected:.2f} ms (its TPOT counts tokens by its own tokenizer, or lengths vary much)"
    ]


def _load(data: Mapping[str, Any]) -> Workload | None:
    good, load = data["successes"], data["load_summary"]
    prompt, output = good.get("prompt_tokens"), good.get("output_tokens") or good.get("output_len")
    if not good["count"] or not prompt or not output or "mean" not in prompt:
        return None
    spec = {
        "num_prompts": int(load["count"]), "prompt_tokens": _lengths(prompt), "output_tokens": _lengths(output),
    }  # fmt: skip
    if load.get("concurrency"):
        return ConcurrencyWorkload(concurrency=int(load["concurrency"]), **spec)
    rate = load.get("achieved_rate") or load.get("requested_rate")
    if rate is None and data["benchmark_time_seconds"] > 0:
        rate = load["count"] / data["benchmark_time_seconds"]
    return RateWorkload(rate=float(rate), **spec) if rate else None


def _lengths(found: Mapping[str, float]) -> str:
    """Return the distribution by its percentiles."""
    known = {0.0: found["min"], 1.0: found["max"], 0.5: found.get("median", found["mean"])}
    known |= {float(key[1:]) / 100: value for key, value in found.items() if key[:1] == "p" and key[1:2].isdigit()}
    shares = sorted(known)
    return lengths(shares, [known[share] for share in shares], found["mean"])


FORMAT = Format("inference-perf", TOOL, "0.7.0", recognise, read)
