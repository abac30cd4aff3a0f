"""The loads of the benchmark: name, what is sent, on which server."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workload import RateWorkload, TraceWorkload, Workload

SERVER = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384"
LONG_SERVER = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 131072"
PROFILE = "h200-llama-3.1-8b"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One load; *slow* ones are left out unless asked for; *target_s* is what it should take on one core."""

    workload: Workload
    server: str = SERVER
    over_length: str = "fail"
    slow: bool = False
    target_s: float | None = None


def _rate(rate: float, num_prompts: int, prompt: str = "512", output: str = "128") -> RateWorkload:
    return RateWorkload(rate=rate, num_prompts=num_prompts, prompt_tokens=prompt, output_tokens=output)


CASES = {
    "1k at 24/s": Case(workload=_rate(24, 1_000)),
    "10k at 5/s": Case(workload=_rate(5, 10_000), target_s=1.0),
    "10k at 24/s": Case(workload=_rate(24, 10_000), target_s=1.0),
    "10k at 60/s (overloaded)": Case(workload=_rate(60, 10_000)),
    "100k at 24/s": Case(workload=_rate(24, 100_000), target_s=10.0),
    "1M at 24/s": Case(workload=_rate(24, 1_000_000), slow=True, target_s=100.0),
    "2k long outputs at 4/s": Case(workload=_rate(4, 2_000, "512", "4000")),
    "azure-conv-2023": Case(workload=TraceWorkload(name="azure-conv-2023"), target_s=3.0),
    "azure-code-2023": Case(workload=TraceWorkload(name="azure-code-2023")),
    "mooncake-conversation": Case(
        workload=TraceWorkload(name="mooncake-conversation"), server=LONG_SERVER, over_length="drop", target_s=15.0
    ),
    "mooncake-synthetic": Case(
        workload=TraceWorkload(name="mooncake-synthetic"), server=LONG_SERVER, over_length="drop"
    ),
}
