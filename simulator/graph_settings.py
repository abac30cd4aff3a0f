"""CUDA-graph mode and capture sizes from the flags: ``--enforce-eager``, ``-O``, ``--compilation-config`` and the rest.

Levels: up to 0.11 ``-O`` is the compilation level (3 is V1's default; below it there are no piecewise graphs); from
0.12 on it is an optimization level (O0 no graphs, O1 PIECEWISE, O2 and O3 FULL_AND_PIECEWISE).
Source: vllm/config/compilation.py and vllm.py, read in 0.8.5, 0.10.2, 0.11.2 and 0.24.0.
"""

from __future__ import annotations

from typing import Any, cast, get_args

from simulator.asked import Asked
from simulator.cuda_graphs import CaptureOverrides, capture_sizes
from simulator.engine_config import CudagraphMode
from simulator.errors import ConfigError
from simulator.flag_table import FLAGS
from simulator.flag_values import convert

_MODES: tuple[str, ...] = get_args(CudagraphMode)
_BY_NUMBER = {"0": "NONE", "1": "PIECEWISE", "2": "FULL"}
_PIECEWISE_COMPILATION = ("3", "VLLM_COMPILE")
_READ = {
    "level", "mode", "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size", "use_cudagraph",
    "full_cuda_graph",
}  # fmt: skip


def graph_settings(
    asked: Asked, max_num_seqs: int, max_num_batched_tokens: int
) -> tuple[CudagraphMode, tuple[int, ...]]:
    """Return (cudagraph mode, capture sizes in tokens); raises `ConfigError` for modes and sizes vLLM refuses."""
    config = asked.get("compilation_config", {})
    mode = _mode(asked, config)
    if asked.get("enforce_eager") or mode == "NONE":
        return "NONE", ()
    sizes = capture_sizes(
        max_num_seqs, max_num_batched_tokens, asked.known, _overrides(asked, config), asked.generation
    )
    others = sorted(set(config) - _READ)
    if others:
        asked.note(f"--compilation-config: {', '.join(str(key)[:40] for key in others[:5])} not read (ignored)")
    return mode, sizes


def _mode(asked: Asked, config: dict[str, Any]) -> CudagraphMode:
    if asked.is_v0:
        return "FULL_DECODE_ONLY"
    named = config.get("cudagraph_mode")
    mode = _named_mode(named) if named is not None else _default_mode(asked, config)
    if mode in ("PIECEWISE", "FULL_AND_PIECEWISE") and not _is_piecewise(asked, config):
        return "NONE"
    if mode == "FULL" and not 9.0 <= asked.gpu.compute_capability < 10.0 and asked.known.version >= (0, 11, 0):
        asked.note("cudagraph_mode FULL needs FlashAttention 3 (Hopper); vLLM falls back to FULL_AND_PIECEWISE")
        return "FULL_AND_PIECEWISE"
    return mode


def _named_mode(named: Any) -> CudagraphMode:
    text = str(named).upper().rpartition(".")[2]
    text = _BY_NUMBER.get(text, text)
    if text not in _MODES:
        raise ConfigError(f"cudagraph_mode must be one of {', '.join(_MODES)}, got {str(named)[:40]!r}")
    return cast(CudagraphMode, text)


def _default_mode(asked: Asked, config: dict[str, Any]) -> CudagraphMode:
    if config.get("use_cudagraph") is False:
        return "NONE"
    if config.get("full_cuda_graph") is True:
        return "FULL"
    level = asked.get("optimization_level")
    if level is not None and asked.known.optimization_levels and level < 2:
        return "NONE" if level == 0 else "PIECEWISE"
    return asked.known.cudagraph_mode


def _is_piecewise(asked: Asked, config: dict[str, Any]) -> bool:
    """Is the model compiled in pieces, which PIECEWISE graphs need?"""
    compiled = config.get("mode", config.get("level"))
    if compiled is None and not asked.known.optimization_levels:
        compiled = asked.get("optimization_level")
    elif compiled is None and asked.get("optimization_level") == 0:
        return False
    return compiled is None or str(compiled).upper().rpartition(".")[2] in _PIECEWISE_COMPILATION


def _overrides(asked: Asked, config: dict[str, Any]) -> CaptureOverrides:
    """Return what flags and compilation config say about sizes; a flag wins."""

    def value(name: str) -> Any:
        given = asked.get(name)
        return convert(FLAGS[name], config[name]) if given is None and config.get(name) is not None else given

    sizes, old = value("cudagraph_capture_sizes"), value("cuda_graph_sizes")
    return CaptureOverrides(
        cudagraph_capture_sizes=tuple(sizes) if sizes else None,
        max_cudagraph_capture_size=value("max_cudagraph_capture_size"),
        cuda_graph_sizes=tuple(old) if old else None,
        interactivity=asked.get("performance_mode") == "interactivity",
    )
