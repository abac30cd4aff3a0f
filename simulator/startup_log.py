"""Read the log of a real vLLM server: memory, blocks, resolved settings, and the lines of statistics.

Old and new wordings (0.2 to 0.24) side by side; colours, ``(EngineCore pid=..)`` prefixes, time stamps of other tools
and progress bars with carriage returns do not matter.  Sizes are GiB as logged (V0 wrote "GB" and meant GiB).

Several engines (data parallel) are summed; of several ranks of one engine (tensor parallel) the fullest counts, as in
vLLM.  When a server started more than once in one log, the last start counts.

A log holds what the server said, rounded to 0.01 GiB: `simulator.logged_memory` turns it into terms and blocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict

from simulator.errors import InputError

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NUMBER = r"(-?[\d,]+(?:\.\d+)?)"
_SIZE = _NUMBER + r"\s?Gi?B"

_Kind = Callable[[str], Any]


def _int(text: str) -> int:
    return int(text.replace(",", ""))


def _float(text: str) -> float:
    return float(text.replace(",", ""))


#: Facts of one rank: field, pattern of its value, kind.  Several ranks of an engine: see `_RANKS`.
_RANK_LINES: tuple[tuple[str, str, _Kind], ...] = (
    ("weights_gib", rf"(?:Model loading|Loading model weights) took {_SIZE}", _float),
    ("weights_gib", rf"model weights take {_SIZE}", _float),
    ("usage_weights_gib", rf"Actual usage is {_SIZE} for weight", _float),
    ("non_torch_gib", rf"non_torch_memory(?: takes |=){_SIZE}", _float),
    ("activation_gib", rf"PyTorch activation peak memory takes {_SIZE}", _float),
    ("available_kv_gib", rf"reserved for KV Cache is {_SIZE}", _float),
    ("available_kv_gib", rf"kv_cache_size={_SIZE}", _float),
    ("available_kv_gib", rf"Available KV cache memory: {_SIZE}", _float),
    ("available_kv_gib", rf"reserved {_SIZE} memory for KV Cache", _float),
    ("total_gib", rf"total_gpu_memory(?: \(|=){_SIZE}", _float),
    ("gpu_memory_utilization", r"gpu_memory_utilization(?: \(|=)([\d.]+)", _float),
    ("total_gib", rf"Free memory on device[^(]*\([\d.]+/{_SIZE}\)", _float),
    ("gpu_memory_utilization", r"Desired GPU memory utilization is \(([\d.]+),", _float),
    ("requested_gib", rf"Desired GPU memory utilization is \([\d.]+, {_SIZE}\)", _float),
    ("requested_gib", rf"gpu_memory_utilization \([\d.]+\) = {_SIZE}", _float),
    ("activation_gib", rf"{_SIZE} for peak activation", _float),
    ("non_torch_gib", rf"{_SIZE} for non-torch memory", _float),
    ("graph_gib", rf"{_SIZE} for CUDAGraph memory", _float),
    ("graph_gib", rf"Graph capturing finished in \d+ secs?, took {_SIZE}", _float),
    ("graph_estimate_gib", rf"Estimated CUDA graph memory: {_SIZE}", _float),
    ("kv_tokens", rf"GPU KV cache size: {_NUMBER} tokens", _int),
    ("num_gpu_blocks", rf"# (?:GPU|CUDA|cuda) blocks: {_NUMBER}", _int),
    ("num_cpu_blocks", rf"# CPU blocks: {_NUMBER}", _int),
    ("num_gpu_blocks", rf"num_gpu_blocks is: {_NUMBER}", _int),
    ("num_gpu_blocks_override", r"with num_gpu_blocks_override=(\d+)", _int),
    ("concurrency_len", rf"Maximum concurrency for {_NUMBER} tokens per request", _int),
    ("max_concurrency", rf"Maximum concurrency for [\d,]+ tokens per request: {_NUMBER}x", _float),
)

#: Several values of one engine: what the smallest rank has counts, but for what is taken away.
_LARGEST = {"weights_gib", "non_torch_gib", "activation_gib", "graph_gib", "graph_estimate_gib"}
#: Several engines: these add up.
_SUMMED = ("kv_tokens", "num_gpu_blocks", "num_cpu_blocks", "max_concurrency")

#: Facts of the whole server.
_SERVER_LINES: tuple[tuple[str, str, _Kind], ...] = (
    ("vllm_version", r"(?:LLM engine \(v|vLLM API server version |█  version )(\d+\.\d+[\w.+]*)", str),
    ("model", r"LLM engine \(v[^)]*\) with config: model='([^']+)'", str),
    ("max_model_len", r"max_seq_len=(\d+)", _int),
    ("max_model_len", r"Using max model len (\d+)", _int),
    ("max_model_len", r"Auto-fit max_model_len: reduced from \d+ to (\d+)", _int),
    ("tensor_parallel_size", r"[\s,]tensor_parallel_size=(\d+)", _int),
    ("pipeline_parallel_size", r"[\s,]pipeline_parallel_size=(\d+)", _int),
    ("data_parallel_size", r"[\s,]data_parallel_size=(\d+)", _int),
    ("dtype", r"[\s,]dtype=(?:torch\.)?(\w+)", str),
    ("kv_cache_dtype", r"[\s,]kv_cache_dtype=(\w+)", str),
    ("quantization", r"[\s,]quantization=(\w+)", str),
    ("enforce_eager", r"[\s,]enforce_eager=(True|False)", "True".__eq__),
    ("enable_prefix_caching", r"[\s,]enable_prefix_caching=(True|False)", "True".__eq__),
    ("enable_chunked_prefill", r"[\s,]enable_chunked_prefill=(True|False)", "True".__eq__),
    ("enable_chunked_prefill", r"Chunked prefill is (enabled|disabled)", "enabled".__eq__),
    ("max_num_batched_tokens", r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)", _int),
    ("async_scheduling", r"Asynchronous scheduling is (enabled|disabled)", "enabled".__eq__),
    ("block_size", r"['\s,(]block_size'?[=:] ?(\d+)", _int),
    ("non_default_args", r"(non-default args: .*)", str),
)

_REFUSAL = re.compile(
    r"((?:No available memory for the cache blocks|To serve at least one request with the model'?s|"
    r"The model's max seq len \(\d+\) is larger|Free memory on device .* is less than desired).*)"
)
_START = re.compile(r"Initializing an? (?:V1 )?LLM engine")

_STATS: tuple[tuple[str, str, float], ...] = (
    ("prompt_tokens_per_s", rf"Avg prompt throughput: {_NUMBER}", 1.0),
    ("generation_tokens_per_s", rf"Avg generation throughput: {_NUMBER}", 1.0),
    ("running", rf"Running: {_NUMBER}", 1.0),
    ("waiting", rf"(?:Waiting|Pending): {_NUMBER}", 1.0),
    ("swapped", rf"Swapped: {_NUMBER}", 1.0),
    ("deferred", rf"Deferred: {_NUMBER}", 1.0),
    ("preemptions", rf"Preemptions: {_NUMBER}", 1.0),
    ("kv_cache_usage", rf"GPU KV cache usage: {_NUMBER}%", 0.01),
    ("cpu_kv_cache_usage", rf"CPU KV cache usage: {_NUMBER}%", 0.01),
    ("prefix_cache_hit_rate", rf"(?<!External )[Pp]refix cache hit rate: (?:GPU: )?{_NUMBER}%", 0.01),
)


class StartupLog(BaseModel):
    """What a log says; None where it says nothing.  Sizes in GiB of the fullest rank, counts summed over engines."""

    model_config = ConfigDict(frozen=True)

    vllm_version: str | None = None
    v0: bool = False  # lines that only the V0 engine writes
    model_runner_v2: bool = False
    engines: int = 1
    model: str | None = None
    non_default_args: str | None = None  # the line's text, for `simulator.command_line.parse`
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    quantization: str | None = None
    enforce_eager: bool | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    async_scheduling: bool | None = None
    total_gib: float | None = None
    gpu_memory_utilization: float | None = None
    requested_gib: float | None = None
    weights_gib: float | None = None
    activation_gib: float | None = None
    non_torch_gib: float | None = None
    graph_gib: float | None = None
    graph_estimate_gib: float | None = None
    available_kv_gib: float | None = None
    kv_tokens: int | None = None
    num_gpu_blocks: int | None = None
    num_gpu_blocks_override: int | None = None
    num_cpu_blocks: int | None = None
    max_concurrency: float | None = None
    concurrency_len: int | None = None  # tokens per request of that line
    refusal: str | None = None
    stats: tuple[dict[str, float | str], ...] = ()  # one a line; usage and hit rate 0..1, "engine" and "time" as logged


def _lines(text: str) -> Iterator[str]:
    """Lines as a person would see them: no colours, a progress bar's overwritten pieces apart."""
    for line in re.split(r"[\r\n]+", _ANSI.sub("", text)):
        if line.strip():
            yield line


def _engine_of(line: str) -> str:
    found = re.search(r"(?:EngineCore|Worker)_DP(\d+)", line) or re.search(r"Engine (\d{3}):", line)
    return str(int(found[1])) if found else "0"


def _stat_line(line: str) -> dict[str, float | str] | None:
    if "Avg prompt throughput:" not in line:
        return None
    stat: dict[str, float | str] = {"engine": _engine_of(line)}
    if stamp := re.search(r"(\d\d-\d\d \d\d:\d\d:\d\d)", line):
        stat["time"] = stamp[1]
    for name, pattern, factor in _STATS:
        if found := re.search(pattern, line):
            stat[name] = round(_float(found[1]) * factor, 6)
    return stat


def _read_rank(line: str, facts: dict[str, Any]) -> None:
    """Add what *line* says of one rank to its engine's *facts*."""
    for name, pattern, kind in _RANK_LINES:
        if not (found := re.search(pattern, line)):
            continue
        value = kind(found[1])
        if name in facts and "blocks" not in name:
            value = max(facts[name], value) if name in _LARGEST else min(facts[name], value)
        facts[name] = value


def _combined(engines: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Facts of all engines together: counts add up, sizes are those of the fullest."""
    known = [facts for facts in engines.values() if facts]
    combined: dict[str, Any] = {}
    for facts in known:
        for name, value in facts.items():
            if name not in combined:
                combined[name] = value
            elif name in _SUMMED:
                combined[name] = combined[name] + value
            else:
                combined[name] = max(combined[name], value) if name in _LARGEST else min(combined[name], value)
    sized = sum(1 for facts in known if "kv_tokens" in facts or "num_gpu_blocks" in facts)
    if sized > 1 and "kv_tokens" in combined:  # each engine's "num_gpu_blocks is" may already be the sum of all
        combined.pop("num_gpu_blocks", None)
    usage = combined.pop("usage_weights_gib", None)  # "for weight" may include non-torch memory: second choice
    if usage is not None:
        combined.setdefault("weights_gib", usage)
    return {**combined, "engines": max(1, sized)}


def read_log(text: str) -> StartupLog:
    """Read *text*, a whole log or a piece of one.  Raises InputError when it has none of the lines looked for."""
    server: dict[str, Any] = {}
    engines: dict[str, dict[str, Any]] = {}
    stats: list[dict[str, float | str]] = []
    for line in _lines(text):
        engine = _engine_of(line)
        if _START.search(line):
            engines[engine] = {}  # a new start: what an earlier one said is history
            server["v0"] = "V1" not in line
            server.pop("refusal", None)
        for name, pattern, kind in _SERVER_LINES:
            if found := re.search(pattern, line):
                server[name] = kind(found[1])
        if "Using V2 Model Runner" in line:
            server["model_runner_v2"] = True
        if found := _REFUSAL.search(line):
            server["refusal"] = found[1].strip()
        if stat := _stat_line(line):
            stats.append(stat)
        elif stats and "Prefix cache hit rate: GPU:" in line:  # V0 writes it on a line of its own
            hit = re.search(rf"GPU: {_NUMBER}%", line)
            stats[-1]["prefix_cache_hit_rate"] = round(_float(hit[1]) / 100, 6) if hit else 0.0
        if engine not in engines:
            engines[engine] = {}
        _read_rank(line, engines[engine])
    facts = _combined(engines)
    if not stats and not server.get("refusal") and not facts.keys() & _NEEDED:
        raise InputError(
            "log: none of vLLM's memory lines found; looked for "
            + ", ".join(f"'{words}'" for words in _NEEDED.values())
            + ", 'Avg prompt throughput'"
        )
    if server.get("quantization") == "None":
        del server["quantization"]
    server["v0"] = "num_cpu_blocks" in facts or (server.get("v0", False) and "kv_tokens" not in facts)
    return StartupLog(**{**server, **facts, "stats": tuple(stats)})


#: A log must say one of these: field, words looked for.
_NEEDED = {
    "available_kv_gib": "Available KV cache memory",
    "kv_tokens": "GPU KV cache size",
    "num_gpu_blocks": "# GPU blocks",
    "weights_gib": "Model loading took",
    "max_concurrency": "Maximum concurrency for",
}
