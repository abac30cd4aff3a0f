"""What tuning guides promise about vLLM, simulated and judged: thirteen claims, with the numbers.

``python examples/guide_claims.py`` prints Markdown: a table of verdicts, then each claim with what was found, in which
regime, what would turn the answer, and what it rests on.  The claims are in ``examples/guide/``, a function each, to be
changed and run with a server and a load of one's own.
"""

from __future__ import annotations

import sys

from guide import latency_claims, memory_claims, prefix_claims
from guide.judged import Judged

CLAIMS = (
    latency_claims.block_size_24,
    latency_claims.throughput_of_a_7b,
    memory_claims.max_model_len,
    memory_claims.swap_space,
    memory_claims.chunked_prefill_memory,
    latency_claims.alert_thresholds,
    latency_claims.seventy_b_on_four,
    prefix_claims.hit_rate_of_chats,
    latency_claims.enforce_eager,
    memory_claims.block_size_for_documents,
    latency_claims.high_itl_means_swapping,
    latency_claims.more_seqs_raise_ttft,
    memory_claims.quantization,
)


def table(judged: list[Judged]) -> str:
    """Return the verdicts at a glance."""
    lines = ["| | claim | verdict | rests on |", "|--:|---|---|---|"]
    for number, each in enumerate(judged, 1):
        lines.append(f"| {number} | {each.claim} | **{each.verdict}** | {each.basis.split(':')[0]} |")
    return "\n".join(lines)


def section(number: int, each: Judged) -> str:
    """Return one claim in full."""
    return (
        f"## {number}. {each.claim}: {each.verdict}\n\n{each.found}\n\n"
        f"* Simulated: {each.regime}\n* What would turn it: {each.turns}\n* Rests on: {each.basis}."
    )


def main() -> int:
    """Judge every claim and print."""
    judged = [claim() for claim in CLAIMS]
    print(table(judged))
    for number, each in enumerate(judged, 1):
        print(f"\n{section(number, each)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
