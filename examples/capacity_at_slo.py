"""How much load does one server carry, within which SLO?  Two SLOs, the load curve, what binds, GPUs and dollars.

``python examples/capacity_at_slo.py``

The server: Llama-3.1-8B on an H200, whose step times were measured.  The load: chats (prompts of 300 tokens, answers of
180, medians), Poisson arrivals.  Change SERVER, LOAD, SLOS and TARGET; `servecast capacity` asks the same question with
more effort: longer runs to confirm, an interval of ten draws, and what the nearest flags would change.
"""

from __future__ import annotations

import math
import sys
from statistics import mean

from apps.planning.capacity import Capacity, Effort, capacity
from apps.planning.prices import list_price
from simulator.scenario import Scenario
from simulator.workload import RateWorkload

SERVER = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384"
PROFILE = "h200-llama-3.1-8b"
LOAD = RateWorkload(rate=1, prompt_tokens="lognormal:300:1.0:8:4000", output_tokens="lognormal:180:0.8")
SLOS = {"as fast as one reads aloud": "ttft_p99=500ms,tpot_p95=40ms", "snappy": "ttft_p99=200ms,tpot_p95=10ms"}
TARGET = 200.0  # requests/s, for the number of GPUs
#: Less than the command's: an example should not take long.
EFFORT = Effort(draws=5, replications=2, most_replications=4, requests=700, confirm=False)


def curve(found: Capacity) -> str:
    """Return the load curve: p99 TTFT and p95 TPOT at every load that was looked at."""
    lines = [f"{'requests/s':>12}{'TTFT p99 ms':>14}{'TPOT p95 ms':>14}  SLO"]
    for point in found.points:
        ttft, tpot = (mean(run.metrics[name] or 0.0 for run in point.runs) for name in ("p99_ttft_ms", "p95_tpot_ms"))
        lines.append(f"{point.load:12.1f}{ttft:14.0f}{tpot:14.1f}  {'met' if point.holds else 'missed'}")
    return "\n".join(lines)


def answer(found: Capacity) -> list[str]:
    """Return the capacity, its interval, what it stops at, GPUs and cost for the target."""
    if found.load is None or found.interval is None or found.limit is None:
        return ["no load meets it"]
    low, high = found.interval
    price = list_price(found.scenario.gpu.name)
    gpus = math.ceil(TARGET / found.load), math.ceil(TARGET / low)
    lines = [
        f"carries {found.load:.1f} requests/s (90 % interval {low:.1f} to {high:.1f}); first to break: {found.target}",
        f"it runs out of: {found.limit.name}; {found.limit.why}",
        f"{TARGET:.0f} requests/s need {gpus[0]} GPUs, {gpus[1]} at the low end of the interval",
    ]
    if price is not None:
        lines.append(f"that is ${gpus[1] * price.usd_per_gpu_hour:,.2f} per hour ({price.source})")
    return lines


def main() -> int:
    """Search, print."""
    scenario = Scenario.from_command(SERVER, profile=PROFILE, workload=LOAD)
    print(f"{SERVER}, profile {PROFILE}")
    for name, slo in SLOS.items():
        found = capacity(scenario, slo, effort=EFFORT, workers=1)
        print(f"\n{name}: {slo}\n")
        print(curve(found))
        print("\n" + "\n".join(answer(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
