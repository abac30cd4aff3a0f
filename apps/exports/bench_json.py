"""A prediction in the shape of ``vllm bench serve --save-result --save-detailed``, so that scripts made for it read it.

Keys and order as vLLM 0.32 writes them (vllm/benchmarks/serve.py).  Requests that were not answered stand there as the
bench has them: an error text, no token.  What a simulation has not: texts (empty).  ``label`` says it is simulated.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from simulator.metrics import LATENCIES, PERCENTILES
from simulator.records import Status
from simulator.result import Result
from simulator.token_times import token_times

LABEL = "servecast-simulation"


def bench_json(result: Result, *, date: str = "", detailed: bool = True) -> dict[str, Any]:
    """Return the JSON document; *date* as the bench writes it (20261201-083000); *detailed* adds the requests."""
    summary, records = result.summary(), result.records
    load = result.scenario.workload
    rate = getattr(load, "rate", math.inf)
    limit = getattr(load, "concurrency", None) or load.max_concurrency
    document: dict[str, Any] = {
        "date": date,
        "endpoint_type": "vllm",
        "backend": "vllm",
        "label": LABEL,
        "model_id": result.scenario.engine.model,
        "tokenizer_id": result.scenario.engine.model,
        "num_prompts": records.num_requests,
        "request_rate": rate if isinstance(rate, (int, float)) and math.isfinite(rate) else "inf",
        "burstiness": _finite(getattr(load, "burstiness", 1.0)),
        "max_concurrency": limit,
        "duration": summary["duration_s"],
        **{key: summary[key] for key in ("completed", "failed", "total_input_tokens", "total_output_tokens")},
        "request_throughput": summary["request_throughput"],
        "request_goodput": None,
        "output_throughput": summary["output_throughput"],
        "total_token_throughput": summary["total_token_throughput"],
        **(_requests(result) if detailed else {}),
        **_peaks(result),
    }
    for name in LATENCIES:
        keys = ["mean", "median", "std", *(f"p{percent}" for percent in PERCENTILES)]
        document |= {f"{key}_{name}_ms": _or_zero(summary[f"{key}_{name}_ms"]) for key in keys}
    return document


def _requests(result: Result) -> dict[str, Any]:
    """Return one entry a request, in the order of sending."""
    records = result.records
    status = np.asarray(records.status)
    good = (status == Status.FINISHED).tolist()
    sent = np.nan_to_num(np.asarray(records.sent_s, dtype=np.float64)).tolist()
    ttfts, itls, latencies = [], [], []
    for row, times in enumerate(token_times(records)):
        answered = good[row] and len(times) > 0
        ttfts.append(float(times[0]) - sent[row] if answered else 0.0)
        itls.append(np.diff(times).tolist() if answered else [])
        latencies.append(float(times[-1]) - sent[row] if answered else 0.0)
    outputs = np.asarray(records.output_tokens, dtype=np.int64).tolist()
    return {
        "input_lens": np.asarray(records.prompt_tokens, dtype=np.int64).tolist(),
        "output_lens": [tokens if well else 0 for tokens, well in zip(outputs, good, strict=True)],
        "ttfts": ttfts,
        "itls": itls,
        "latencies": latencies,
        "start_times": sent,
        "queue_times": [0.0] * records.num_requests,
        "generated_texts": [""] * records.num_requests,
        "errors": ["" if well else Status(kind).name.lower() for well, kind in zip(good, status.tolist(), strict=True)],
    }


def _peaks(result: Result) -> dict[str, float]:
    """Return the two peaks as the bench defines them: per second from the start, whole seconds."""
    records = result.records
    done = np.asarray(records.status) == Status.FINISHED
    if not done.any():
        return {"max_output_tokens_per_s": 0.0, "max_concurrent_requests": 0}
    sent, last = (np.asarray(column)[done] for column in (records.sent_s, records.last_token_s))
    zero, seconds = sent.min(), int(np.ceil(last.max() - sent.min())) + 1
    tokens, in_flight = np.zeros(seconds), np.zeros(seconds + 1)
    for times, good in zip(token_times(records), done, strict=True):
        if good:
            np.add.at(tokens, (times - zero).astype(np.int64), 1)
    np.add.at(in_flight, (sent - zero).astype(np.int64), 1)
    np.add.at(in_flight, (last - zero).astype(np.int64) + 1, -1)
    return {"max_output_tokens_per_s": float(tokens.max()), "max_concurrent_requests": int(np.cumsum(in_flight).max())}


def _finite(value: Any) -> Any:
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _or_zero(value: float | None) -> float:
    """The bench writes 0 where there is no value."""
    return 0.0 if value is None else value
