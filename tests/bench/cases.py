"""The loads of the benchmark: name, what is sent, on which server."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.request_list import Row
from simulator.workload import RateWorkload, RequestsWorkload, TraceWorkload, Workload

SERVER = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384"
LONG_SERVER = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 131072"
PROFILE = "h200-llama-3.1-8b"


LOW, KNEE, OVERLOADED = 5, 24, 60


@dataclass(frozen=True, kw_only=True)
class Case:
    """One load; *large* ones run through the fastest path only; *target_s* is what it should take on one core."""

    workload: Workload
    server: str = SERVER
    over_length: str = "fail"
    large: bool = False
    target_s: float | None = None


def _rate(rate: float, num_prompts: int, prompt: str = "512", output: str = "128") -> RateWorkload:
    return RateWorkload(rate=rate, num_prompts=num_prompts, prompt_tokens=prompt, output_tokens=output)


def _prefixes(num_prompts: int) -> RequestsWorkload:
    """Twenty system prompts of 2,000 tokens, each in front of many short questions."""
    rows = tuple(
        Row(arrival_s=row / KNEE, prompt_tokens=2100, output_tokens=128, prefix_id=str(row % 20), prefix_tokens=2000)
        for row in range(num_prompts)
    )
    return RequestsWorkload(rows=rows)


CASES = {
    "1k at 5/s": Case(workload=_rate(LOW, 1_000)),
    "1k at 24/s": Case(workload=_rate(KNEE, 1_000)),
    "1k at 60/s": Case(workload=_rate(OVERLOADED, 1_000)),
    "10k at 5/s": Case(workload=_rate(LOW, 10_000), target_s=1.0),
    "10k at 24/s": Case(workload=_rate(KNEE, 10_000), target_s=1.0),
    "10k at 60/s": Case(workload=_rate(OVERLOADED, 10_000)),
    "100k at 5/s": Case(workload=_rate(LOW, 100_000), large=True),
    "100k at 24/s": Case(workload=_rate(KNEE, 100_000), large=True, target_s=10.0),
    "100k at 60/s": Case(workload=_rate(OVERLOADED, 100_000), large=True),
    "1M at 24/s": Case(workload=_rate(KNEE, 1_000_000), large=True, target_s=100.0),
    "2k long outputs at 4/s": Case(workload=_rate(4, 2_000, "512", "4000")),
    "5k with shared prefixes at 24/s": Case(workload=_prefixes(5_000)),
    "azure-conv-2023": Case(workload=TraceWorkload(name="azure-conv-2023"), target_s=3.0),
    "azure-code-2023": Case(workload=TraceWorkload(name="azure-code-2023")),
    "mooncake-conversation": Case(
        workload=TraceWorkload(name="mooncake-conversation"), server=LONG_SERVER, over_length="drop", target_s=5.0
    ),
    "mooncake-synthetic": Case(
        workload=TraceWorkload(name="mooncake-synthetic"), server=LONG_SERVER, over_length="drop"
    ),
}
