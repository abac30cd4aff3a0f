"""CUDA graphs of one step: which sizes are captured, which graph a step uses, to how many tokens it is padded.

Sizes are numbers of tokens in the batch.  A step of T tokens is padded to the next captured size T':

    T > largest size                    NONE        compiled kernels, launched one by one, no padding
    one token a request, T' <= max_num_seqs    FULL        the whole forward pass as one launch
    else                                PIECEWISE   all but attention from graphs

as far as the cudagraph mode allows: ``FULL_DECODE_ONLY`` has no PIECEWISE, ``PIECEWISE`` no FULL, ``FULL`` takes any
batch, ``NONE`` (and enforce_eager) has no graphs.  V0 captures decode batches only, FULL up to the largest size.

Source: vllm/config and v1/cudagraph_dispatcher.py, read in 0.8.5, 0.9.2, 0.10.2, 0.11.2 and 0.24.0.  Not modelled: the
multiples that speculative decoding and sequence parallelism ask for, V0's eager decodes beyond max_seq_len_to_capture.
"""

from __future__ import annotations

from enum import IntEnum

from pydantic import BaseModel, ConfigDict

from simulator.engine_config import EngineConfig
from simulator.errors import ConfigError
from simulator.versions import VersionFacts

LARGEST_DEFAULT = 512
#: Far beyond what a GPU has memory for; keeps the tables small.
LARGEST_POSSIBLE = 1 << 17


class GraphMode(IntEnum):
    """How the forward pass of a step is launched."""

    NONE = 0
    PIECEWISE = 1
    FULL = 2


class CaptureOverrides(BaseModel):
    """What the user said about capture sizes; None where nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cudagraph_capture_sizes: tuple[int, ...] | None = None
    max_cudagraph_capture_size: int | None = None
    cuda_graph_sizes: tuple[int, ...] | None = None  # 0.8 to 0.11: one number is a maximum, several are the sizes
    interactivity: bool = False  # --performance-mode interactivity: every size up to 32


NO_OVERRIDES = CaptureOverrides()


def capture_sizes(
    max_num_seqs: int,
    max_num_batched_tokens: int,
    known: VersionFacts,
    overrides: CaptureOverrides = NO_OVERRIDES,
    engine_generation: str = "V1",
) -> tuple[int, ...]:
    """Return the captured sizes in tokens, ascending.  Raises `ConfigError` for sizes that contradict each other."""
    explicit = overrides.cudagraph_capture_sizes or _several(overrides.cuda_graph_sizes)
    if explicit:
        return _explicit(explicit, overrides.max_cudagraph_capture_size, max_num_batched_tokens)
    if engine_generation == "V0":
        return tuple(_stepped(max_num_seqs if max_num_seqs <= 2 else 4 if max_num_seqs <= 4 else _up(max_num_seqs), 8))
    limit = _limit(max_num_seqs, known, overrides)
    if not 0 <= limit <= LARGEST_POSSIBLE:
        raise ConfigError(f"max_cudagraph_capture_size must be in 0..{LARGEST_POSSIBLE} tokens, got {limit}")
    largest = min(limit, max_num_batched_tokens)
    sizes = set(_stepped(largest, 16 if known.capture_rule == "step8_then_16" else 8))
    if overrides.interactivity:
        sizes.update(range(1, min(largest, 32) + 1))
    if known.capture_rule == "step8_then_16" and max_num_batched_tokens <= limit:
        sizes.add(max_num_batched_tokens)
    return tuple(sorted(sizes))


def _up(batch: int) -> int:
    return -(-batch // 8) * 8


def _several(sizes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return sizes if sizes and len(sizes) > 1 else None


def _limit(max_num_seqs: int, known: VersionFacts, overrides: CaptureOverrides) -> int:
    """Return the largest size before max_num_batched_tokens is looked at."""
    if overrides.max_cudagraph_capture_size is not None:
        return overrides.max_cudagraph_capture_size
    if overrides.cuda_graph_sizes:
        return overrides.cuda_graph_sizes[0]
    if known.capture_rule == "step8_to_512":
        return LARGEST_DEFAULT
    return min(2 * max_num_seqs, LARGEST_DEFAULT)


def _stepped(largest: int, step_above_256: int) -> list[int]:
    sizes = [size for size in (1, 2, 4) if size <= largest]
    sizes += range(8, min(largest, 255) + 1, 8)
    return [*sizes, *range(256, largest + 1, step_above_256)]


def _explicit(sizes: tuple[int, ...], maximum: int | None, max_num_batched_tokens: int) -> tuple[int, ...]:
    if not 1 <= min(sizes) <= max(sizes) <= LARGEST_POSSIBLE:
        wrong = min(sizes) if min(sizes) < 1 else max(sizes)
        raise ConfigError(f"cudagraph_capture_sizes must be in 1..{LARGEST_POSSIBLE} tokens, got {wrong}; leave it out")
    if maximum is not None and maximum != max(sizes):
        raise ConfigError(
            f"max_cudagraph_capture_size {maximum} contradicts cudagraph_capture_sizes, whose largest is {max(sizes)}; "
            "give only one of them"
        )
    return tuple(sorted({size for size in sizes if size <= max_num_batched_tokens}))


class GraphDispatch:
    """Graph mode and padding of a step, looked up in tables made once from the configuration."""

    def __init__(self, engine: EngineConfig) -> None:
        mode = "NONE" if engine.enforce_eager else engine.cudagraph_mode
        sizes = tuple(sorted(engine.cudagraph_capture_sizes)) if mode != "NONE" else ()
        self.max_capture_size = sizes[-1] if sizes else 0
        is_v0 = engine.engine_generation == "V0"
        full_up_to = self.max_capture_size if is_v0 else engine.max_num_seqs
        none = [(GraphMode.NONE, tokens) for tokens in range(self.max_capture_size + 1)]
        self._uniform, self._mixed = list(none), list(none)
        padded = self.max_capture_size
        remaining = list(sizes)
        for tokens in range(self.max_capture_size, 0, -1):
            while remaining and remaining[-1] >= tokens:
                padded = remaining.pop()
            uniform = _mode(mode, uniform=True, fits=padded <= full_up_to)
            mixed = _mode(mode, uniform=False, fits=False)
            self._uniform[tokens] = (uniform, padded if uniform else tokens)
            self._mixed[tokens] = (mixed, padded if mixed else tokens)

    def dispatch(self, num_tokens: int, num_reqs: int, uniform_decode: bool) -> tuple[GraphMode, int]:
        """Return (mode, padded tokens) of a step; *uniform_decode*: every request has exactly one token."""
        if num_tokens > self.max_capture_size:
            return GraphMode.NONE, num_tokens
        return (self._uniform if uniform_decode else self._mixed)[num_tokens]


def _mode(cudagraph_mode: str, *, uniform: bool, fits: bool) -> GraphMode:
    """Return the graph mode of a step below the largest size; *fits*: its padded size has a FULL decode graph."""
    if cudagraph_mode == "FULL":
        return GraphMode.FULL
    if uniform and fits and cudagraph_mode in ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"):
        return GraphMode.FULL
    return GraphMode.PIECEWISE if cudagraph_mode in ("FULL_AND_PIECEWISE", "PIECEWISE") else GraphMode.NONE
