"""One or two ``/metrics`` scrapes of a vLLM server: what happened up to the scrape, or between two.

Counters and histograms of the later scrape minus the earlier one give rates, length distributions and latencies;
prompts and outputs are drawn independently, because the histograms do not pair them.  The time between comes from
``seconds``, else from the files' modification times (one scrape: from the start of the process).  Old names are read
too: V0's ``gpu_cache_usage_perc`` and ``time_per_output_token_seconds`` (it holds gaps between tokens, that is, ITL).

Percentiles are interpolated in the buckets.  Latencies are the server's: from its arrival, without the network.
"""

from __future__ import annotations

import math

from calibration.evidence.evidence import Evidence, Format, Options, Source
from calibration.evidence.exposition import Histogram, Scrape, parse
from calibration.evidence.quantiles import lengths
from simulator.errors import InputError
from simulator.workload import RateWorkload

TOOL = "Prometheus /metrics of vLLM"
PERCENTILES = (50, 90, 95, 99)
_LATENCIES = {
    "ttft": ("vllm:time_to_first_token_seconds",),
    "itl": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "tpot": ("vllm:request_time_per_output_token_seconds",),
    "e2el": ("vllm:e2e_request_latency_seconds",),
}
_PROMPTS, _OUTPUTS = "vllm:request_prompt_tokens", "vllm:request_generation_tokens"


def recognise(source: Source) -> bool:
    """Whether it is a page of metrics with vLLM's."""
    lines = source.text.splitlines()
    return any(line.startswith(("vllm:", "vllm_", "# HELP vllm", "# TYPE vllm")) for line in lines)


def read(source: Source, options: Options) -> list[Evidence]:
    """Return the evidence of one scrape, or of the time between two in any order."""
    if len(source.others) > 1:
        raise InputError(f"{source.name}: give one scrape or two, not {1 + len(source.others)}")
    pages = [(parse(each.text, each.name), each) for each in (source, *source.others)]
    pages.sort(key=lambda page: page[0].value("vllm:request_success", "vllm:prompt_tokens") or 0.0)
    late, last = pages[-1]
    early = pages[0][0] if len(pages) == 2 else Scrape({}, {})
    notes = ["latencies are the server's, without the network; percentiles are interpolated inside the buckets"]
    seconds, said = _seconds([page[1] for page in pages], late, options)
    notes += said
    counts = _difference(early, late, "vllm:request_success")
    if counts is None or counts <= 0:
        why = "no request ended" + (" between the two scrapes" if len(pages) == 2 else " up to this scrape")
        return [Evidence(TOOL, last.path.name, None, {}, late.model, (*notes, why), why)]
    metrics = _metrics(early, late, counts, seconds)
    workload, why = _workload(early, late, counts, seconds)
    if metrics.get("prefix_cache_hit_rate", 0.0) > 0.01:
        notes.append(
            f"{100 * metrics['prefix_cache_hit_rate']:.0f} % of the prompt tokens came from the prefix cache; a page "
            "does not say which prompts share what, so the load has no shared prefixes"
        )
    if workload is not None:
        notes.append(
            "prompt and output lengths are drawn independently: histograms do not pair them; arrivals are Poisson"
        )
    return [Evidence(TOOL, last.path.name, workload, metrics, late.model, tuple(notes), why)]


def _seconds(sources: list[Source], late: Scrape, options: Options) -> tuple[float | None, list[str]]:
    """Return how long the counting lasted, and a note on where that comes from."""
    if options.seconds is not None:
        return options.seconds, []
    changed = [source.path.stat().st_mtime if source.path.exists() else math.nan for source in sources]
    start = changed[0] if len(sources) == 2 else late.value("process_start_time_seconds")
    found = changed[-1] - start if start is not None else math.nan
    if not found > 1:
        return None, ["the time between is not known, so there is no rate; give --seconds"]
    begin = "the two files were saved" if len(sources) == 2 else "the server started and the file was saved"
    return found, [f"rates are over {found:.0f} s, the time between which {begin}; give --seconds to say it exactly"]


def _difference(early: Scrape, late: Scrape, *names: str) -> float | None:
    found = late.value(*names)
    return None if found is None else found - (early.value(*names) or 0.0)


def _observed(early: Scrape, late: Scrape, *names: str) -> Histogram | None:
    found = late.histogram(*names)
    return None if found is None else found - (early.histogram(*names) or Histogram())


def _metrics(early: Scrape, late: Scrape, counts: float, seconds: float | None) -> dict[str, float]:
    metrics = {"completed": counts}
    for key, name in (("total_input_tokens", "vllm:prompt_tokens"), ("total_output_tokens", "vllm:generation_tokens"),
                      ("preemptions", "vllm:num_preemptions")):  # fmt: skip
        value = _difference(early, late, name)
        if value is not None:
            metrics[key] = value
    if seconds is not None:
        metrics |= {"duration_s": seconds, "request_throughput": counts / seconds}
        if "total_output_tokens" in metrics:
            metrics["output_throughput"] = metrics["total_output_tokens"] / seconds
    queries = _difference(early, late, "vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries")
    hits = _difference(early, late, "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits")
    if queries and hits is not None:
        metrics["prefix_cache_hit_rate"] = hits / queries
    for name, spelled in _LATENCIES.items():
        seen = _observed(early, late, *spelled)
        if seen is None or not seen.count:
            continue
        metrics[f"mean_{name}_ms"] = 1e3 * seen.mean
        for percent in PERCENTILES:
            value = seen.quantile(percent / 100)
            if not math.isnan(value):
                metrics[f"p{percent}_{name}_ms"] = 1e3 * value
    return metrics


def _workload(early: Scrape, late: Scrape, counts: float, seconds: float | None) -> tuple[RateWorkload | None, str]:
    prompts, outputs = _observed(early, late, _PROMPTS), _observed(early, late, _OUTPUTS)
    if prompts is None or outputs is None or not prompts.count or not outputs.count:
        return None, "the page holds no histograms of prompt and output lengths"
    if seconds is None:
        return None, "the time between is not known; give --seconds"
    return RateWorkload(
        rate=counts / seconds, num_prompts=max(1, round(counts)), prompt_tokens=_lengths(prompts),
        output_tokens=_lengths(outputs),
    ), ""  # fmt: skip


def _lengths(seen: Histogram) -> str:
    """Return the distribution; values of the open last bucket lie between its bound and twice that."""
    bounds, counts = zip(*sorted(seen.counts.items()), strict=True)
    finite = [bound if not math.isinf(bound) else 2 * bounds[-2] for bound in bounds]
    return lengths([0.0, *(count / seen.count for count in counts)], [0.0, *finite], seen.mean)


FORMAT = Format("prometheus", TOOL, "0.32.0 and 0.6.3", recognise, read)
