"""Which max_num_batched_tokens?  Short chats beside long documents: TTFT against ITL, at three loads.

``python examples/which_max_num_batched_tokens.py [FILE.svg]``

A step takes at most so many tokens.  A large budget prefills a document in few steps, in which every running answer
waits: TTFT falls, ITL rises.  A small one cuts documents into chunks, and each chunk has to be read by attention again.
The load: nine of ten requests are chats (300 + 150 tokens), one is a document of 8,000 to 16,000 tokens; the numbers
are means of three seeds.  Llama-3.1-8B on an H200, calibrated.

Read with care: p99 of TTFT is that of documents, the median that of chats.  Where documents are so rare, and their
steps so few, that fewer than one gap in a hundred has to wait for one, ITL p99 does not see them: it falls again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from apps.planning.sweep import Sweep
from apps.planning.sweep_run import run_sweep
from apps.planning.sweep_summary import Average, averages

BUDGETS = (512, 1024, 2048, 4096, 8192, 16384)
RATES = (4, 8, 12)  # requests/s
SWEEP = Sweep(
    command="vllm serve meta-llama/Llama-3.1-8B --max-model-len 32768",
    options={
        "profile": "h200-llama-3.1-8b",
        "num_prompts": 300,
        "prompt_tokens": "choice:300,300,300,300,300,300,300,300,300,12000",
        "output_tokens": "150",
    },
    vary={"rate": RATES, "max_num_batched_tokens": BUDGETS},
    replications=3,
)
METRICS = {
    "p50_ttft_ms": "TTFT p50 (ms)",
    "p99_ttft_ms": "TTFT p99 (ms)",
    "p99_itl_ms": "ITL p99 (ms)",
    "p95_tpot_ms": "TPOT p95 (ms)",
}
#: What the reader of an answer bears: the largest gap between two words, nearly always.
MOST_ITL_MS = 100.0


def table(found: list[Average], metric: str) -> str:
    """Return *metric* with loads down and budgets across."""
    lines = [f"{METRICS[metric]:>16}" + "".join(f"{budget:>9}" for budget in BUDGETS)]
    for rate in RATES:
        cells = [average.means[metric] for average in found if average.values["rate"] == rate]
        lines.append(f"{rate:>13}/s " + "".join(f"{cell:>9.0f}" for cell in cells))
    return "\n".join(lines)


def advice(found: list[Average]) -> list[str]:
    """Return the budget to take at each load: the lowest TTFT p99 among those that keep ITL p99."""
    lines = []
    for rate in RATES:
        here = [average for average in found if average.values["rate"] == rate]
        kept = [average for average in here if average.means["p99_itl_ms"] <= MOST_ITL_MS]
        fastest = min(here, key=lambda average: average.means["p99_ttft_ms"])
        best = min(kept, key=lambda average: average.means["p99_ttft_ms"], default=None)
        chosen = "none keeps it" if best is None else f"{best.values['max_num_batched_tokens']}"
        lines.append(
            f"{rate}/s: ITL p99 within {MOST_ITL_MS:.0f} ms: {chosen}; lowest TTFT p99: "
            f"{fastest.values['max_num_batched_tokens']}"
        )
    return lines


def main() -> int:
    """Sweep, print, draw."""
    rows = [row for _, row in run_sweep(SWEEP, workers=1)]
    found = averages(SWEEP, rows)
    print(SWEEP.command)
    for metric in METRICS:
        print(f"\n{table(found, metric)}")
    print("\n" + "\n".join(advice(found)))
    if len(sys.argv) > 1:
        from apps.output import Table
        from apps.sweep_picture import draw

        draw(Path(sys.argv[1]), SWEEP.command, found, "max_num_batched_tokens", list(METRICS), Table((), ()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
