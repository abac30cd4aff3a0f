"""Block arithmetic: exact against logged servers, and by hand."""

from __future__ import annotations

import pytest

from simulator.errors import ConfigError
from simulator.gpu_spec import GIB
from simulator.kv_layout import (
    kv_layout,
    kv_tokens,
    largest_model_len,
    max_concurrency,
    num_cpu_blocks,
    num_gpu_blocks,
)
from tests.simulator.memory_cases import MODELS, ROWS, settings

LLAMA, DEEPSEEK = MODELS["Llama-3.1-8B"], MODELS["DeepSeek-671B (MLA)"]
MIB = 1 << 20


@pytest.mark.parametrize("row", [row for row in ROWS.values() if "kv_gib" in row.logged], ids=lambda row: row.id)
def test_blocks_follow_from_the_logged_bytes_within_their_rounding(row):
    layout = kv_layout(row.model, row.engine)
    logged = row.logged.get("num_gpu_blocks") or row.logged["kv_tokens"] / 16
    low, high = (num_gpu_blocks((row.logged["kv_gib"] + half) * GIB, layout) for half in (-0.005, 0.005))
    assert low <= logged <= high


@pytest.mark.parametrize(
    "row", [row for row in ROWS.values() if "num_cpu_blocks" in row.logged], ids=lambda row: row.id
)
def test_swap_space_gives_the_logged_cpu_blocks_exactly(row):
    assert num_cpu_blocks(row.engine.swap_space, kv_layout(row.model, row.engine)) == row.logged["num_cpu_blocks"]


@pytest.mark.parametrize(
    "row", [row for row in ROWS.values() if "max_concurrency" in row.logged], ids=lambda row: row.id
)
def test_tokens_and_concurrency_follow_from_the_logged_blocks(row):
    layout, length = kv_layout(row.model, row.engine), row.engine.max_model_len
    blocks = int(row.logged.get("num_gpu_blocks") or row.logged["kv_tokens"] / 16)
    assert round(max_concurrency(blocks, length, layout, row.version, v0=row.v0), 2) == row.logged["max_concurrency"]
    if "kv_tokens" in row.logged:
        assert kv_tokens(blocks, length, layout, row.version, v0=row.v0) == row.logged["kv_tokens"]


@pytest.mark.parametrize(
    ("changes", "bytes_per_block", "kv_heads"),
    [
        ({}, 2 * MIB, 8),
        ({"block_size": 32}, 4 * MIB, 8),
        ({"tensor_parallel_size": 4}, MIB // 2, 2),
        ({"tensor_parallel_size": 16}, MIB // 4, 1),  # more ranks than heads: replicated, never zero
        ({"pipeline_parallel_size": 3}, 11 * MIB // 16, 8),  # 11 of 32 layers on the fullest rank
        ({"kv_cache_dtype": "fp8"}, MIB, 8),
        ({"kv_cache_dtype": "fp8_e5m2"}, MIB, 8),
        ({"kv_cache_dtype": "fp8_per_token_head"}, MIB + 32 * 2 * 16 * 8 * 4, 8),
        ({"kv_cache_dtype": "nvfp4"}, 32 * 16 * 8 * 2 * (64 + 8), 8),
        ({"dtype": "float32"}, 4 * MIB, 8),
    ],
)
def test_llama_3_8b_by_hand(changes, bytes_per_block, kv_heads):
    layout = kv_layout(LLAMA, settings(**changes))
    assert (layout.bytes_per_block, layout.kv_heads) == (bytes_per_block, kv_heads)


def test_a_latent_cache_is_whole_on_every_rank():
    sizes = {kv_layout(DEEPSEEK, settings(tensor_parallel_size=ranks)).bytes_per_block for ranks in (1, 8)}
    assert sizes == {16 * (512 + 64) * 2 * 61}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tensor_parallel_size": 3}, "tensor_parallel_size must divide the model's 8 KV heads .*, got 3"),
        ({"pipeline_parallel_size": 33}, "must not exceed the model's 32 layers, got 33"),
        ({"kv_cache_dtype": "fp7"}, "kv_cache_dtype must be auto, .* got 'fp7'"),
        ({"dtype": "int3"}, "dtype must be one of auto, .* got 'int3'"),
    ],
)
def test_what_does_not_divide_is_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        kv_layout(LLAMA, settings(**changes))


def test_tokens_as_logged_changed_in_0_22_when_the_length_is_no_multiple_of_the_block():
    layout = kv_layout(LLAMA, settings())
    assert kv_tokens(1000, 1000, layout, "0.21.0") == 16000
    assert kv_tokens(1000, 1000, layout, "0.22.0") == int(1000 / 63 * 1000)


def test_nothing_fits_in_nothing():
    layout = kv_layout(LLAMA, settings())
    assert num_gpu_blocks(-5 * GIB, layout) == 0
    assert num_gpu_blocks(2 * MIB - 1, layout) == 0
    assert largest_model_len(2 * MIB, layout) == 16
