"""Two small GPUs or one large?  The same model and load on two L40S (two replicas, or as one), an A100-80, an H100.

``python examples/two_small_or_one_large.py``

The model: Qwen3-14B.  The load: prompts of 800 tokens, answers of 250 (medians), Poisson arrivals.  For each way: does
it fit, how much does it carry within the SLO, what does that cost.  None of the four was measured: the numbers are
first answers, good for the order and for what each runs out of, not for the last 20 %.  Two replicas are taken to share
the load evenly.  Prices are list prices of one day; put in your own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from statistics import geometric_mean

from apps.planning.capacity import Effort, capacity
from apps.planning.prices import list_price
from simulator.memory import plan_memory
from simulator.scenario import Scenario
from simulator.workload import RateWorkload

MODEL = "vllm serve Qwen/Qwen3-14B --max-model-len 16384"
LOAD = RateWorkload(rate=1, prompt_tokens="lognormal:800:0.8:8:6000", output_tokens="lognormal:250:0.7")
SHOWN = ("p99_ttft_ms", "p95_tpot_ms", "output_throughput")
SLO = "ttft_p99=1s,tpot_p95=60ms"
#: Enough for an order of ways that differ by tens of percent; less than the command's.
EFFORT = Effort(draws=0, replications=2, most_replications=2, requests=500, tolerance=0.1, confirm=False)


@dataclass(frozen=True)
class Way:
    """*replicas* servers, each with *flags* on *gpus_each* cards of one kind."""

    name: str
    gpu: str
    replicas: int = 1
    gpus_each: int = 1
    flags: str = ""


WAYS = (
    Way("2 x L40S, two replicas", "L40S", replicas=2),
    Way("2 x L40S, tensor parallel", "L40S", gpus_each=2, flags="-tp 2"),
    Way("1 x A100-80", "A100-80"),
    Way("1 x H100", "H100"),
)


def row(way: Way) -> tuple[str, float, str]:
    """Return one line of the table, dollars per million output tokens, and what the way runs out of."""
    scenario = Scenario.from_command(f"{MODEL} {way.flags}", gpu=way.gpu, workload=LOAD)
    plan = plan_memory(scenario.engine, scenario.model, scenario.gpu)
    found = capacity(scenario, SLO, effort=EFFORT, workers=1)
    price = list_price(scenario.gpu.name)
    if found.load is None or found.point is None or price is None or found.limit is None:
        return f"{way.name:28} no load meets the SLO", float("inf"), "-"
    hourly = way.replicas * way.gpus_each * price.usd_per_gpu_hour
    seen = {name: geometric_mean(run.metrics[name] or 1.0 for run in found.point.runs) for name in SHOWN}
    tokens_per_s = way.replicas * seen["output_throughput"]
    per_million = hourly / (3600 * tokens_per_s) * 1e6
    cells = (
        f"{way.replicas * plan.kv_tokens:>10,}{way.replicas * found.load:>12.1f}{seen['p99_ttft_ms']:>13.0f}"
        f"{seen['p95_tpot_ms']:>13.1f}{hourly:>9.2f}{per_million:>15.2f}"
    )
    return f"{way.name:28}{cells}", per_million, f"{found.target}, then {found.limit.name}"


def main() -> int:
    """Compare the ways, print."""
    print(f"{MODEL}\nSLO {SLO}; NOT CALIBRATED: first answers from data sheets\n")
    columns = ("KV tokens", "requests/s", "TTFT p99 ms", "TPOT p95 ms", "$/hour", "$/M out tokens")
    widths = (10, 12, 13, 13, 9, 15)
    print(f"{'':28}" + "".join(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True)))
    found = {way: row(way) for way in WAYS}
    for line, _, _ in found.values():
        print(line)
    print()
    for way, (_, _, limit) in found.items():
        print(f"{way.name} stops at: {limit}")
    best = min(WAYS, key=lambda way: found[way][1])
    print(f"\nCheapest per token within the SLO: {best.name}.")
    print(
        "What turns it: prices, a looser SLO (batches grow, small cards gain), a model that does not fit a small card."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
