"""What people paste: a start line, container arguments, or a start-up log; read by the command line's strict readers.

A log becomes the line it was started with, the vLLM version, the GPU if its memory tells, and the lines about memory.
Nothing is executed.
"""

from __future__ import annotations

import re
from typing import Any

from apps.ui.line import written
from simulator import catalogue
from simulator.command_line import ServeArgs, parse
from simulator.errors import InputError, ServecastError
from simulator.startup_log import StartupLog, read_log

#: Lines that `read_log` takes something from; the rest of a long log need not travel in a link.
_TELLING = re.compile(
    r"LLM engine \(v|API server version|█  version|non-default args|max model len|max_model_len|max_seq_len|"
    r"Chunked prefill|Asynchronous scheduling|V2 Model Runner|Model loading took|model weights take|non_torch|"
    r"[Aa]vailable KV cache memory|GPU KV cache size|Maximum concurrency|GPU blocks|cuda blocks|num_gpu_blocks|"
    r"Graph captur|CUDA graph (?:pool )?memory|"
    r"gpu_memory_utilization|Desired GPU memory|No available memory|To serve at least|"
    r"max seq len|Free memory on device|peak activation|Initial free memory|[Mm]emory profiling"
)
_LONGEST_LINE = 4000
#: A GPU is recognised by its memory if no other is this close, as a share.
_SAME_MEMORY = 0.004

#: Facts of a log that are flags, in case it does not show how the server was started.
_AS_FLAGS = (
    "max_model_len", "max_num_batched_tokens", "block_size", "tensor_parallel_size", "pipeline_parallel_size", "dtype",
    "kv_cache_dtype", "quantization", "enforce_eager", "enable_prefix_caching", "gpu_memory_utilization",
)  # fmt: skip


_LOG_LINE = re.compile(r"INFO \d\d-\d\d|EngineCore|APIServer|LLM engine \(v|GPU KV cache size|# GPU blocks")


def read_pasted(text: str) -> dict[str, Any]:
    """Return the inputs (fields of `apps.ui.question.Question`) that *text* stands for; one line of error else."""
    if looks_like_log(text):
        return _from_log(text)
    args = parse(text)
    changes: dict[str, Any] = {"server": text.strip(), "log": ""}
    if args.vllm_version:
        changes["vllm_version"] = args.vllm_version
    return changes


def looks_like_log(text: str) -> bool:
    """Whether *text* is (a piece of) a start-up log rather than a command."""
    return len(_LOG_LINE.findall(text)) >= 2


def _from_log(text: str) -> dict[str, Any]:
    log = read_log(text)
    changes: dict[str, Any] = {"server": _line_of(log), "log": telling_lines(text)}
    if log.vllm_version:
        changes["vllm_version"] = log.vllm_version.partition("+")[0]
    if gpu := _gpu_of(log):
        changes["gpu"] = gpu
    return changes


def telling_lines(text: str) -> str:
    """Return the lines of a log that say something about memory or settings, without colours."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = [line[:_LONGEST_LINE] for line in re.split(r"[\r\n]+", plain) if _TELLING.search(line)]
    return "\n".join(line for line in lines if "Avg prompt throughput" not in line)


def _line_of(log: StartupLog) -> str:
    if log.non_default_args:
        return written(_without_paths(parse(log.non_default_args), log))
    if not log.model:
        raise InputError(
            "the log does not say which model was started ('non-default args' or 'LLM engine ... model='); "
            "paste it from its beginning, or paste the start line"
        )
    given = {name: getattr(log, name) for name in _AS_FLAGS if getattr(log, name) not in (None, "auto")}
    return written(ServeArgs(model=log.model, given=given))


def _without_paths(args: ServeArgs, log: StartupLog) -> ServeArgs:
    """Return the arguments without what only the log's own machine has; a model's name if one is known."""
    return args.model_copy(update={"model": args.model or log.model, "hf_config_path": None})


def _gpu_of(log: StartupLog) -> str | None:
    """Return the GPU whose memory the log shows, if just one has it."""
    total = log.total_gib
    if total is None and log.requested_gib is not None and log.gpu_memory_utilization:
        total = log.requested_gib / log.gpu_memory_utilization
    if total is None:
        return None
    memory = {name: catalogue.gpu(name).visible_memory_gib for name in catalogue.gpu_names()}
    near = [name for name, size in memory.items() if abs(size / total - 1) < _SAME_MEMORY]
    return near[0] if len(near) == 1 else None


def logged(text: str) -> StartupLog | None:
    """Return what the kept lines of a log say; None for no or unreadable lines."""
    try:
        return read_log(text) if text else None
    except ServecastError:
        return None
