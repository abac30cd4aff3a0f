"""How fast the simulator is: ``python -m tests.bench [--all] [--plain] [--json FILE] [NAME ...]``.

Each case runs in a process of its own, start-up (imports, reading the load) apart, and prints wall time, requests/s,
steps/s, peak memory, and the ratio to the plain step-by-step path where ``--plain`` asks for it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.cases import CASES, PROFILE


def measure(name: str, *, plain: bool) -> dict[str, Any]:
    """Run one case in this process."""
    from simulator.cohort import CohortScheduler
    from simulator.scenario import Scenario
    from simulator.scheduler import V1Scheduler
    from simulator.simulate import simulate

    case = CASES[name]
    scenario = Scenario.from_command(case.server, profile=PROFILE, workload=case.workload, over_length=case.over_length)
    begin = time.perf_counter()
    result = simulate(scenario, scheduler=V1Scheduler if plain else CohortScheduler)
    simulated = time.perf_counter()
    summary = result.summary()
    end = time.perf_counter()
    return {
        "case": name,
        "wall_s": end - begin,
        "summary_s": end - simulated,
        "requests": summary["completed"],
        "steps": result.records.num_steps,
        "simulated_s": summary["duration_s"],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def apart(name: str, *, plain: bool = False) -> dict[str, Any]:
    """Run one case in a process of its own."""
    command = [sys.executable, "-m", "tests.bench", "--child", name] + (["--plain"] if plain else [])
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def main() -> int:
    """Print the table; with ``--json FILE`` keep the rows, with the commit they belong to."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("names", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--all", action="store_true", help="also the cases that take minutes")
    parser.add_argument("--plain", action="store_true", help="also the plain path, and the ratio to it")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measure(given.names[0], plain=given.plain)))
        return 0
    names = given.names or [name for name, case in CASES.items() if given.all or not case.slow]
    print(f"{'case':28}{'wall s':>8}{'target':>8}{'requests/s':>12}{'steps/s':>10}{'peak MB':>9}{'plain/fast':>12}")
    rows = []
    for name in names:
        row = apart(name)
        if given.plain:
            row["plain_wall_s"] = apart(name, plain=True)["wall_s"]
        rows.append(row)
        print(line(row), flush=True)
    if given.json is not None:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True)
        given.json.write_text(json.dumps({"commit": commit.stdout.strip(), "rows": rows}, indent=1) + "\n")
    return 0


def line(row: dict[str, Any]) -> str:
    """Return one row of the table."""
    wall, target = row["wall_s"], CASES[row["case"]].target_s
    ratio = f"{row['plain_wall_s'] / wall:.1f}" if "plain_wall_s" in row else "-"
    return (
        f"{row['case']:28}{wall:8.2f}{'-' if target is None else f'{target:.1f}':>8}{row['requests'] / wall:12,.0f}"
        f"{row['steps'] / wall:10,.0f}{row['peak_mb']:9.0f}{ratio:>12}"
    )


if __name__ == "__main__":
    sys.exit(main())
