"""Does swapping help my load?  vLLM V0 with swap, V0 with recompute, V1, and V1 with KV offload, on one A100.

``python examples/swap_or_recompute.py [FILE.html]`` prints three tables and, if a file is named, draws them.

The server: Llama-2-13B on an A100 80 GB, 0.8 MB of KV cache a token.  The load: a document out of 60 (2,048 tokens), a
question (128), an answer (384); Poisson arrivals.  Capacity is what V0 with recompute gets through when everything is
sent at once.  Neither a V0 nor an A100 was measured: every number is a first answer, marked so, good for the order of
the four and for where the cliffs are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from simulator.gpu_spec import GIB
from simulator.memory import plan_memory
from simulator.result import Result
from simulator.scenario import Scenario
from simulator.simulate import simulate
from simulator.workload import RequestsWorkload

SERVER = "vllm serve meta-llama/Llama-2-13b-hf"
GPU = "A100-80GB"
REQUESTS = 240
DOCUMENTS, DOCUMENT_TOKENS, QUESTION_TOKENS, ANSWER_TOKENS = 60, 2048, 128, 384
HOST_GIB = 64
LOADS = (0.9, 1.1, 1.3, 1.6)
SIZES_GIB = (0, 2, 4, 16, 64, 128)
KINDS = {
    "V0 swap": ("0.6.3", "--preemption-mode swap --swap-space {gib}"),
    "V0 recompute": ("0.6.3", "--preemption-mode recompute"),
    "V1": ("0.24.0", ""),
    "V1 offload": ("0.24.0", "--kv-offloading-size {gib}"),
}


def load(rate: float) -> RequestsWorkload:
    """Return the requests, sent at *rate* per second (infinity: all at once)."""
    draw = np.random.default_rng(1)
    gaps = draw.exponential(1.0, REQUESTS) / rate
    documents = draw.integers(0, DOCUMENTS, REQUESTS)
    rows = [
        {
            "arrival_s": float(arrival_s),
            "prompt_tokens": DOCUMENT_TOKENS + QUESTION_TOKENS,
            "output_tokens": ANSWER_TOKENS,
            "prefix_id": f"document {document}",
            "prefix_tokens": DOCUMENT_TOKENS,
        }
        for arrival_s, document in zip(np.cumsum(gaps), documents, strict=True)
    ]
    return RequestsWorkload(rows=tuple(rows))


def run(kind: str, rate: float, gib: float = HOST_GIB) -> Result:
    """Simulate one server."""
    version, flags = KINDS[kind]
    command = f"{SERVER} {flags.format(gib=gib)}"
    return simulate(Scenario.from_command(command, workload=load(rate), gpu=GPU, vllm_version=version))


def row(result: Result) -> tuple[str, ...]:
    """Return throughput, TTFT, ITL and what happened to the KV cache, as text."""
    found = result.summary()
    if found["engine_died"]:
        return (f"the engine dies after {result.records.died_s:.1f} s: no room in the swap space",)
    moved = found.get("swapped_out_blocks", found.get("loaded_blocks", 0))
    return (
        f"{found['request_throughput']:.2f}",
        f"{found['p50_ttft_ms'] / 1e3:.2f}",
        f"{found['p99_ttft_ms'] / 1e3:.2f}",
        f"{found['p99_itl_ms']:.0f}",
        f"{found['preemptions']:,}",
        f"{found['recomputed_tokens']:,}",
        f"{moved:,}",
    )


def show(title: str, first: str, rows: list[tuple[str, ...]]) -> None:
    """Print one table."""
    columns = (first, "requests/s", "TTFT p50 s", "TTFT p99 s", "ITL p99 ms", "preempted", "recomputed", "moved")
    print(f"\n{title}\n")
    print(f"{columns[0]:22}" + "".join(f"{name:>12}" for name in columns[1:]))
    for line in rows:
        print(f"{line[0]:22}" + ("  " + line[1] if len(line) == 2 else "".join(f"{cell:>12}" for cell in line[1:])))


def main() -> int:
    """Simulate, print, draw."""
    capacity = run("V0 recompute", float("inf")).summary()["request_throughput"]
    print(f"Llama-2-13B on {GPU}: V0 serves at most {capacity:.2f} requests/s of this load. NOT CALIBRATED.")
    by_load = {kind: [run(kind, share * capacity) for share in LOADS] for kind in KINDS}
    for kind, results in by_load.items():
        where = f" ({HOST_GIB} GiB)" if "{gib}" in KINDS[kind][1] else ""
        rows = [(f"{share:.0%} of capacity", *row(result)) for share, result in zip(LOADS, results, strict=True)]
        show(f"{kind}{where}", "load", rows)
    at_110 = {kind: [run(kind, 1.1 * capacity, gib) for gib in SIZES_GIB] for kind in ("V0 swap", "V1 offload")}
    for kind, results in at_110.items():
        rows = [(f"{gib} GiB", *row(result)) for gib, result in zip(SIZES_GIB, results, strict=True)]
        show(f"{kind} at 110 % of capacity, by CPU memory", "CPU memory", rows)
    for line in advice(by_load, at_110):
        print(line)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page(by_load), encoding="utf-8")
    return 0


def advice(by_load: dict[str, list[Result]], at_110: dict[str, list[Result]]) -> list[str]:
    """Return what to do, in three lines."""
    at = LOADS.index(1.1)
    e2el_s = {kind: results[at].summary()["mean_e2el_ms"] / 1e3 for kind, results in by_load.items()}
    enough = next(gib for gib, result in zip(SIZES_GIB, at_110["V0 swap"], strict=True) if not result.records.died)
    better = min("V0 swap", "V0 recompute", key=e2el_s.__getitem__)
    worse = max(e2el_s["V0 swap"], e2el_s["V0 recompute"])
    percent = 100 * (1 - e2el_s[better] / worse)
    gain = 100 * (1 - e2el_s["V1 offload"] / e2el_s["V1"])
    scenario = by_load["V1"][0].scenario
    memory = plan_memory(scenario.engine, scenario.model, scenario.gpu)
    cache_gib = memory.num_gpu_blocks * memory.bytes_per_block / GIB
    return [
        "",
        f"1. Do not tune V0's preemption: {better} is {percent:.0f} % better at 110 % of capacity; {enough} GiB of swap"
        " space keep the engine alive, more change nothing.",
        f"2. Move to V1: at that load mean latency falls from {worse:.1f} s to {e2el_s['V1']:.1f} s.",
        f"3. Offload takes another {gain:.0f} % off where documents come back, but only with more CPU memory than the"
        f" GPU's own cache ({cache_gib:.0f} GiB).",
    ]


def page(by_load: dict[str, list[Result]]) -> str:
    """Return two charts as a page."""
    from apps.svg import Line, chart

    charts = []
    for title, key, scale in (("TTFT p99 (s)", "p99_ttft_ms", 1e-3), ("ITL p99 (ms)", "p99_itl_ms", 1.0)):
        lines = [
            Line(kind, [100 * share for share in LOADS], [scale * (r.summary()[key] or 0.0) for r in results])
            for kind, results in by_load.items()
        ]
        charts.append(chart(title, lines, "load, % of V1's capacity", title))
    style = "svg{max-width:40rem;display:block}text{font:11px sans-serif}.grid{stroke:#ccc;stroke-width:.5}"
    return (
        f'<!doctype html><meta charset="utf-8"><title>Swap or recompute</title><style>{style}</style>'
        "<h1>Swap or recompute</h1><p>Llama-2-13B on an A100, not calibrated.</p>" + "".join(charts)
    )


if __name__ == "__main__":
    sys.exit(main())
