"""``vllm bench serve --save-result``: plain, detailed or appended JSON (`calibration.bench_json` reads it).

A detailed file holds the requests.  Before start_times (0.11) it holds their lengths only: an open loop's send times
are drawn as the bench draws them.  A plain file holds sums: its workload is the request rate or the concurrency with
constant mean lengths.  Notes say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from calibration.bench_json import BenchResult, read_bench
from calibration.evidence.evidence import Evidence, Format, Options, Source
from calibration.evidence.seen import contradictions
from simulator.request_list import Row
from simulator.workload import ConcurrencyWorkload, RateWorkload, RequestsWorkload, Workload, traffic

TOOL = "vllm bench serve"


def recognise(source: Source) -> bool:
    """Whether it is such a file: JSON (lines) with duration, completed and a latency of the bench."""
    data = source.document if source.document is not None else source.first_line
    data = data[0] if isinstance(data, list) and data else data
    return isinstance(data, dict) and {"duration", "completed", "request_throughput"} <= data.keys()


def read(source: Source, options: Options) -> list[Evidence]:
    """Return one evidence a result in the file."""
    documents = source.document if isinstance(source.document, list) else [source.document]
    if source.document is None:
        documents = [data for _, data in source.json_lines()]
    results = read_bench(source.path)
    return [_evidence(result, data) for result, data in zip(results, documents, strict=True)]


def _evidence(result: BenchResult, data: Mapping[str, Any]) -> Evidence:
    if result.run is None:
        return _sums(result, data)
    if not np.isfinite([*result.run.seen.ttft_s, *result.run.seen.e2el_s]).all():
        raise ValueError("a request has a time that is no number")
    seen = result.run.summary()
    metrics = {key: value for key, value in seen.items() if isinstance(value, (int, float)) and value == value}
    own = {key: result.summary.get(key) for key in ("mean_tpot_ms", "mean_ttft_ms", "mean_e2el_ms")}
    notes = contradictions(TOOL, own, metrics)
    failed = int(result.summary.get("failed", 0)) or len(data["ttfts"]) - len(result.run.table)
    if failed:
        notes.append(f"{failed} requests failed and are left out, of the load too")
    messages, tokens = len(result.run.seen.itl_s) + len(result.run.table), seen["total_output_tokens"]
    if messages < 0.98 * tokens:
        notes.append(
            f"{tokens:,} tokens came in {messages:,} messages (speculative decoding, stream_interval or a slow "
            "client): its ITL is per message"
        )
    return Evidence(TOOL, result.name, result.run.replay(), metrics, result.model, tuple(notes))


def _sums(result: BenchResult, data: Mapping[str, Any]) -> Evidence:
    metrics = dict(result.summary)
    for name in ("ttft", "tpot", "itl", "e2el"):
        if f"median_{name}_ms" in metrics:
            metrics.setdefault(f"p50_{name}_ms", metrics[f"median_{name}_ms"])
    listed = _listed(result, data)
    if listed is not None:
        return Evidence(TOOL, result.name, listed[0], metrics, result.model, (listed[1],))
    notes = [f"the requests are not in the file: {result.why_no_run}"]
    workload, why = _load_of_sums(result, data)
    if workload is not None:
        notes.append("all requests get the mean lengths; give --save-detailed to the bench for the real ones")
    return Evidence(TOOL, result.name, workload, metrics, result.model, tuple(notes), why)


def _listed(result: BenchResult, data: Mapping[str, Any]) -> tuple[RequestsWorkload, str] | None:
    """Return the answered requests of an open loop and how they are known, if the file holds their lengths.

    Their times are the file's, or drawn at its rate and burstiness where it holds none.
    """
    columns = [data.get(name) for name in ("input_lens", "output_lens")]
    count = len(columns[1]) if isinstance(columns[1], list) else 0
    if result.request_rate is None or not all(isinstance(column, list) and len(column) == count for column in columns):
        return None
    lengths = np.asarray(columns, dtype=np.int64)
    answered = lengths[1] > 0
    if not answered.any():
        return None
    starts = data.get("start_times")
    known = isinstance(starts, list) and len(starts) == count
    if known:
        sent_s = np.asarray(starts, dtype=np.float64)[answered]
        sent_s, how = sent_s - sent_s.min(), "send times too"
    else:
        burstiness = float(data.get("burstiness") or 1.0)
        timing = RateWorkload(rate=result.request_rate, burstiness=burstiness, num_prompts=int(answered.sum()))
        sent_s = traffic(timing, seed=0).table.arrival_s
        how = f"send times drawn at {result.request_rate:g} requests/s as the bench draws them"
    rows = tuple(
        Row(arrival_s=sent, prompt_tokens=prompt, output_tokens=output)
        for sent, (prompt, output) in zip(sent_s.tolist(), lengths[:, answered].T.tolist(), strict=True)
    )
    told = f"lengths of the requests are the file's, {how}: {result.why_no_run}"
    return RequestsWorkload(rows=rows, max_concurrency=result.max_concurrency), told


def _load_of_sums(result: BenchResult, data: Mapping[str, Any]) -> tuple[Workload | None, str]:
    completed = int(result.summary["completed"])
    if not completed or not {"total_input_tokens", "total_output_tokens"} <= result.summary.keys():
        return None, "no request was completed, or the token totals are missing"
    lengths = {
        "num_prompts": completed,
        "prompt_tokens": str(max(1, round(result.summary["total_input_tokens"] / completed))),
        "output_tokens": str(max(1, round(result.summary["total_output_tokens"] / completed))),
    }
    if result.request_rate is None and result.max_concurrency is not None:
        return ConcurrencyWorkload(concurrency=result.max_concurrency, **lengths), ""
    rate = math.inf if result.request_rate is None else result.request_rate
    burstiness = float(data.get("burstiness") or 1.0)
    return RateWorkload(rate=rate, burstiness=burstiness, max_concurrency=result.max_concurrency, **lengths), ""


FORMAT = Format("vllm-bench", TOOL, "0.32.0", recognise, read)
