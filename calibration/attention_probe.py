"""Decode attention, kernel by kernel, as vLLM calls it: ``python3 -m calibration.attention_probe OUT.jsonl``.

FlashAttention 3, paged KV (16 tokens a page, pages at random), scheduler metadata made before, at most 32 splits,
as vLLM 0.24.0 calls it in a full CUDA graph.  A graph holds [a matrix product, the kernel] eight times: the product
reads 235 MB, so that no KV is left in the L2 cache, as between layers.  A kernel's time is what the graph takes beyond
one of products alone.  One line a shape: ``h``, ``kvh`` heads, ``c`` KV tokens before each request's new one, ``us``
(fastest of three replays) and ``med``.  Needs a GPU that FlashAttention 3 runs on, torch and vLLM; 15 s.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

PAGE, HEAD_DIM, SPLITS, REPEATS = 16, 128, 32, 8
POOL_BYTES, MOST_BYTES = 24 << 30, 12 << 30
#: (query heads, KV heads): Llama-3.1-8B, Llama-2-7B, Qwen3-14B.
HEADS = ((32, 8), (32, 32), (40, 8))
BATCHES = (*range(1, 25), 26, 28, 30, 32, 36, 40, 48, 56, 64, 80, 96, 128, 192, 256)
CONTEXTS = (64, 200, 450, 580, 800, 1200, 2000, 3500, 6000, 12000)
#: (median, sigma) of log-normal contexts.
UNEVEN = ((600, 0.7), (1500, 0.8))


class Probe:
    """The buffers of one run; `attention_us` times one shape."""

    def __init__(self) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._kernels: Any = importlib.import_module("vllm.vllm_flash_attn")
        self._rng = np.random.default_rng(0)
        self._weights = self._random(4096, 28672)
        self._rows = self._random(16, 4096)
        self._caches: dict[int, tuple[Any, Any]] = {}
        self._product_us = self._graph_us(lambda _: self._product())

    def _random(self, *shape: int) -> Any:
        return self._torch.randn(*shape, device="cuda", dtype=self._torch.bfloat16)

    def _integers(self, values: Any) -> Any:
        return self._torch.tensor(np.asarray(values, dtype=np.int32), device="cuda")

    def _product(self) -> None:
        self._torch.mm(self._rows, self._weights)

    def _graph_us(self, body: Any) -> tuple[float, float]:
        """Return the fastest and the median time of one *body*(repeat) in a graph of `REPEATS`."""
        torch = self._torch
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            body(0)
        torch.cuda.current_stream().wait_stream(aside)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for repeat in range(REPEATS):
                body(repeat)
        graph.replay()
        times = []
        for _ in range(3):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(1e3 * begin.elapsed_time(end) / REPEATS)
        return min(times), float(np.median(times))

    def _cache(self, kv_heads: int) -> tuple[Any, Any]:
        if kv_heads not in self._caches:
            self._caches.clear()
            pages = POOL_BYTES // (2 * PAGE * kv_heads * HEAD_DIM * 2)
            keys, values = (self._random(pages // 16, PAGE, kv_heads, HEAD_DIM).repeat(16, 1, 1, 1) for _ in range(2))
            self._caches[kv_heads] = (keys, values)
        return self._caches[kv_heads]

    def attention_us(self, heads: int, kv_heads: int, contexts: list[int]) -> tuple[float, float]:
        """Return the fastest and the median time of a step in which each of *contexts* gets one token."""
        keys, values = self._cache(kv_heads)
        lengths = np.asarray(contexts) + 1
        pages, batch = -(-lengths // PAGE), len(contexts)
        sets = max(1, min(REPEATS, keys.shape[0] // int(pages.sum())))
        drawn = self._rng.permutation(keys.shape[0])[: sets * int(pages.sum())]
        tables, at = [], 0
        for _ in range(sets):
            table = np.zeros((batch, int(pages.max())), np.int32)
            for row, count in enumerate(pages.tolist()):
                table[row, :count] = drawn[at : at + count]
                at += count
            tables.append(self._integers(table))
        query_ends, used = self._integers(np.arange(batch + 1)), self._integers(lengths)
        query = self._random(batch, heads, HEAD_DIM)
        out = self._torch.empty_like(query)
        longest = int(lengths.max())
        metadata = self._kernels.get_scheduler_metadata(
            batch_size=batch, max_seqlen_q=1, max_seqlen_k=longest, num_heads_q=heads, num_heads_kv=kv_heads,
            headdim=HEAD_DIM, cache_seqlens=used, qkv_dtype=self._torch.bfloat16, cu_seqlens_q=query_ends,
            page_size=PAGE, causal=True, window_size=(-1, -1), num_splits=SPLITS,
        )  # fmt: skip

        def body(repeat: int) -> None:
            self._product()
            self._kernels.flash_attn_varlen_func(
                q=query, k=keys, v=values, out=out, cu_seqlens_q=query_ends, max_seqlen_q=1, seqused_k=used,
                max_seqlen_k=longest, softmax_scale=HEAD_DIM**-0.5, causal=True, window_size=[-1, -1],
                block_table=tables[repeat % sets], softcap=0.0, scheduler_metadata=metadata, fa_version=3,
                num_splits=SPLITS,
            )  # fmt: skip

        fastest, median = self._graph_us(body)
        return fastest - self._product_us[0], median - self._product_us[1]


def main(output: Path) -> int:
    """Measure all shapes that fit; one line each."""
    probe, rng = Probe(), np.random.default_rng(1)
    with output.open("w", encoding="utf-8") as file:
        for heads, kv_heads in HEADS:
            for batch in BATCHES:
                drawn = [rng.lognormal(np.log(middle), sigma, batch) for middle, sigma in UNEVEN]
                uneven = [np.clip(lengths, 16, 12000).astype(int).tolist() for lengths in drawn]
                for contexts in [*([context] * batch for context in CONTEXTS), *uneven]:
                    if sum(contexts) * kv_heads * HEAD_DIM * 4 <= MOST_BYTES:
                        fastest, median = probe.attention_us(heads, kv_heads, contexts)
                        row = {"h": heads, "kvh": kv_heads, "c": contexts, "us": fastest, "med": median}
                        file.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
