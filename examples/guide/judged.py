"""A claim, judged: the verdict, the numbers it rests on, and what would turn it."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.gpu_spec import GIB
from simulator.memory import MemoryPlan, plan_memory
from simulator.result import Result
from simulator.scenario import Scenario
from simulator.simulate import simulate
from simulator.workload import RateWorkload, Workload

HOLDS, DEPENDS, NOT = "holds", "depends", "does not hold"

#: What an answer rests on.
EXACT = "exact: vLLM's own rules and block arithmetic; sizes beside the KV cache are fitted to logs"
CALIBRATED = "calibrated: step times measured on an H200 with this model, vLLM 0.24"
FIRST = "NOT CALIBRATED: a roofline for this card; good for orders and ratios, not for absolute times"

H200 = {"profile": "h200-llama-3.1-8b"}
LLAMA = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192"
#: Chat-like lengths: the ones measured for the README's demo.
CHAT = {"prompt_tokens": "lognormal:300:1.0:8:4000", "output_tokens": "lognormal:180:0.8"}
#: Long answers, and a KV cache that is small for them (26,000 tokens), so that it is what runs out.
LONG_ANSWERS = {"prompt_tokens": "512", "output_tokens": "lognormal:500:0.8:10:3000"}
LITTLE_KV = "--gpu-memory-utilization 0.16"


@dataclass(frozen=True)
class Judged:
    """*claim* as guides put it; *found* in numbers, in the *regime* simulated; *turns*: what changes the answer."""

    claim: str
    verdict: str
    found: str
    regime: str
    turns: str
    basis: str


def ask(command: str, workload: Workload, *, version: str | None = None, **server: str) -> Result:
    """Simulate; *server* is a profile or a gpu."""
    return simulate(Scenario.from_command(command, workload=workload, vllm_version=version, **server))


def plan(command: str, gpu: str, version: str | None = None) -> MemoryPlan:
    """Return the memory plan of the server."""
    asked = Scenario.from_command(command, gpu=gpu, vllm_version=version, workload=RateWorkload(rate=1))
    return plan_memory(asked.engine, asked.model, asked.gpu)


def gib(size: float) -> str:
    """Return bytes as GiB with one decimal."""
    return f"{size / GIB:.1f} GiB"


def seconds(milliseconds: float) -> str:
    """Return a time in two or three digits, ms below a second."""
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1e3:.1f} s"
