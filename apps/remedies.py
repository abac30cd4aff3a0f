"""What would have prevented preemption, found by simulating the same load: fewer requests at a time, or more memory.

The first guess is the arithmetic of `simulator.explain_preemption`; then ``max_num_seqs`` is bisected for the largest
value without a preemption, and the KV cache grows by half until there is none.  Each answer is a simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.explain_preemption import Onset
from simulator.scenario import Scenario
from simulator.simulate import simulate

#: Simulations per remedy at most.
TRIES = 7


@dataclass(frozen=True)
class Remedy:
    """A change under which nobody is preempted, and what it does to the rest; by simulation of the same load."""

    change: str
    preemptions: int
    mean_ttft_ms: float | None
    output_throughput: float

    def words(self, before: Mapping[str, Any]) -> str:
        """Return it as text, beside the summary *before* the change."""
        left = "no preemption" if not self.preemptions else f"still {self.preemptions:,} preemptions"
        ttft = (
            ""
            if self.mean_ttft_ms is None
            else f"mean TTFT {before['mean_ttft_ms']:,.0f} -> {self.mean_ttft_ms:,.0f} ms, "
        )
        tokens = f"{before['output_throughput']:,.0f} -> {self.output_throughput:,.0f} output tokens/s"
        return f"{self.change}: {left} ({ttft}{tokens})"


def remedies(scenario: Scenario, begun: Onset) -> tuple[Remedy, ...]:
    """Return what helps against the preemptions that began with *begun*; at most 2 * `TRIES` simulations."""
    found = []
    fewer = _fewer_requests(scenario, begun)
    if fewer is not None:
        found.append(fewer)
    return (*found, _more_memory(scenario, begun))


def _fewer_requests(scenario: Scenario, begun: Onset) -> Remedy | None:
    """Return the largest max_num_seqs without a preemption; None if there is none."""
    low, high, best = 0, begun.peak_running, None
    guess = min(begun.fitting_seqs, high - 1)
    for _ in range(TRIES):
        if guess <= low:
            break
        tried = _tried(scenario, f"--max-num-seqs {guess}", {"max_num_seqs": guess})
        if tried.preemptions:
            high = guess
        else:
            low, best = guess, tried
        guess = (low + high) // 2
    return best


def _more_memory(scenario: Scenario, begun: Onset) -> Remedy:
    blocks = begun.usable_blocks + 1
    size = scenario.engine.block_size
    wanted = max(begun.needed_blocks + 1, blocks + 1)
    for _ in range(TRIES):
        words = f"a KV cache of {wanted * size:,} tokens instead of {blocks * size:,}"
        tried = _tried(scenario, words, {"num_gpu_blocks_override": wanted})
        if not tried.preemptions:
            break
        wanted += wanted // 2
    return tried


def _tried(scenario: Scenario, words: str, change: Mapping[str, Any]) -> Remedy:
    engine = scenario.engine.model_copy(update=dict(change))
    summary = simulate(scenario.model_copy(update={"engine": engine})).summary()
    return Remedy(words, summary["preemptions"], summary["mean_ttft_ms"], summary["output_throughput"])
