"""A prediction as the text a vLLM server shows at ``/metrics`` after the same load (Prometheus exposition, 0.0.4).

Names, labels and buckets as in vLLM 0.23 to 0.32 (vllm/v1/metrics/loggers.py).  Latencies are those of the clients, as
everywhere here: later than the server's own by its output path, less than a millisecond per token.  Gauges are the
state at *at_s*; counters and histograms have counted what happened up to then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from simulator.engine_state import running, usage, waiting
from simulator.metrics import tpot_s
from simulator.records import Status
from simulator.result import Result
from simulator.token_times import token_times

Floats = NDArray[np.float64]

TTFT_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
ITL_BUCKETS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
LATENCY_BUCKETS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
ITERATION_BUCKETS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def token_buckets(max_model_len: int) -> tuple[float, ...]:
    """Return vLLM's buckets for lengths: 1, 2, 5, 10, ... up to *max_model_len*."""
    found = [m * 10**e for e in range(len(str(max_model_len))) for m in (1, 2, 5)]
    return tuple(float(value) for value in found if value <= max_model_len)


def prometheus_text(result: Result, at_s: float | None = None) -> str:
    """Return the exposition at *at_s* seconds of the simulation; its end if None."""
    records = result.records
    at = records.end_s if at_s is None else at_s
    page = _Page({"model_name": result.scenario.engine.model, "engine": "0"})
    _gauges(page, result, at)
    _counters(page, result, at)
    _histograms(page, result, at)
    engine = result.scenario.engine
    page.one(
        "vllm:cache_config_info",
        "gauge",
        "Information of the LLMEngine CacheConfig",
        1,
        {
            "block_size": str(engine.block_size),
            "cache_dtype": engine.kv_cache_dtype,
            "enable_prefix_caching": str(engine.enable_prefix_caching),
            "gpu_memory_utilization": str(engine.gpu_memory_utilization),
            "num_gpu_blocks": str(records.num_gpu_blocks),
        },
    )
    return page.text()


def _gauges(page: _Page, result: Result, at: float) -> None:
    records, moment = result.records, np.array([at])
    for name, state, text in (
        ("num_requests_running", running(records), "Number of requests in model execution batches."),
        ("num_requests_waiting", waiting(records), "Number of requests waiting to be processed."),
        ("kv_cache_usage_perc", usage(records), "KV-cache usage. 1 means 100 percent usage."),
    ):
        page.one(f"vllm:{name}", "gauge", text, float(state.at(moment)[0]))


def _counters(page: _Page, result: Result, at: float) -> None:
    records, steps = result.records, result.steps
    begun = np.asarray(records.first_token_s) <= at
    prompts = int(np.asarray(records.prompt_tokens)[begun].sum())
    tokens = sum(int((times <= at).sum()) for times in token_times(records))
    preempted = int(steps["preempted"][steps["plan_s"] <= at].sum())
    done = int((_done(result) & (np.asarray(records.last_token_s) <= at)).sum())
    whole = at >= records.end_s  # lookups are counted for the whole run only
    page.one("vllm:num_preemptions_total", "counter", "Cumulative number of preemption from the engine.", preempted)
    page.one("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", prompts)
    page.one("vllm:generation_tokens_total", "counter", "Number of generation tokens processed.", tokens)
    page.one(
        "vllm:request_success_total", "counter", "Count of successfully processed requests.", done,
        {"finished_reason": "length"},
    )  # fmt: skip
    if whole:
        queries = "Prefix cache queries, in terms of number of queried tokens."
        page.one("vllm:prefix_cache_queries_total", "counter", queries, records.prefix_queries_tokens)
        hits = "Prefix cache hits, in terms of number of cached tokens."
        page.one("vllm:prefix_cache_hits_total", "counter", hits, records.prefix_hits_tokens)


def _done(result: Result) -> NDArray[np.bool_]:
    return np.asarray(np.asarray(result.records.status) == Status.FINISHED)


def _histograms(page: _Page, result: Result, at: float) -> None:
    records = result.records
    sent, scheduled, first, last, queued = (
        np.asarray(getattr(records, name), dtype=np.float64)
        for name in ("sent_s", "first_scheduled_s", "first_token_s", "last_token_s", "engine_arrival_s")
    )
    outputs = np.asarray(records.output_tokens, dtype=np.int64)
    done, begun = _done(result) & (last <= at), first <= at
    lengths = token_buckets(result.scenario.engine.max_model_len)
    gaps = [np.diff(times[times <= at]) for times in token_times(records)]
    steps = result.steps
    page.histogram("request_prompt_tokens", "Number of prefill tokens processed.", lengths,
                   np.asarray(records.prompt_tokens, dtype=np.float64)[done])  # fmt: skip
    page.histogram("request_generation_tokens", "Number of generation tokens processed.", lengths,
                   outputs[done].astype(np.float64))  # fmt: skip
    page.histogram("iteration_tokens_total", "Histogram of number of tokens per engine_step.", ITERATION_BUCKETS,
                   steps["tokens"][steps["emit_s"] <= at].to_numpy(dtype=np.float64))  # fmt: skip
    page.histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.", TTFT_BUCKETS,
                   (first - sent)[begun])  # fmt: skip
    page.histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", ITL_BUCKETS,
                   np.concatenate([np.zeros(0), *gaps]))  # fmt: skip
    tpot = tpot_s(first - sent, last - sent, outputs)[done]
    page.histogram(
        "request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", ITL_BUCKETS,
        tpot[~np.isnan(tpot)],
    )  # fmt: skip
    spans = {
        "e2e_request_latency": ("e2e request latency in seconds", last - sent),
        "request_queue_time": ("time spent in WAITING phase for request", scheduled - queued),
        "request_inference_time": ("time spent in RUNNING phase for request", last - scheduled),
        "request_prefill_time": ("time spent in PREFILL phase for request", first - scheduled),
        "request_decode_time": ("time spent in DECODE phase for request", last - first),
    }
    for name, (text, seconds) in spans.items():
        page.histogram(f"{name}_seconds", f"Histogram of {text}.", LATENCY_BUCKETS, seconds[done])


class _Page:
    """Lines of the exposition, each with the same first labels."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._lines: list[str] = []

    def one(self, name: str, kind: str, text: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Write a gauge or a counter."""
        self._head(name, kind, text)
        self._line(name, labels or {}, value)

    def histogram(self, name: str, text: str, bounds: tuple[float, ...], values: Floats) -> None:
        """Write a histogram: cumulative counts of values up to each bound, count and sum."""
        name = f"vllm:{name}"
        self._head(name, "histogram", text)
        counts = np.searchsorted(np.sort(values), (*bounds, math.inf), side="right")
        for bound, count in zip((*bounds, math.inf), counts.tolist(), strict=True):
            le = "+Inf" if math.isinf(bound) else repr(float(bound))
            self._line(f"{name}_bucket", {"le": le}, count)
        self._line(f"{name}_count", {}, len(values))
        self._line(f"{name}_sum", {}, float(values.sum()))

    def text(self) -> str:
        """Return the page."""
        return "\n".join(self._lines) + "\n"

    def _head(self, name: str, kind: str, text: str) -> None:
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]

    def _line(self, name: str, labels: Mapping[str, str], value: float) -> None:
        written = ",".join(f'{key}="{_escaped(text)}"' for key, text in {**self._labels, **labels}.items())
        self._lines.append(f"{name}{{{written}}} {float(value)!r}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
