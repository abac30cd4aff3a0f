"""How fast the simulator is: ``python -m tests.bench [--plain] [--json FILE] [NAME ...]``.

Each case runs in a process of its own, start-up (imports, reading the load's files, loading compiled code) apart, by
each of the paths: the fastest, pure Python, and with ``--plain`` the step-by-step reference (not the large cases).
Printed are wall time, requests/s, steps/s, peak memory, and how many times as long the other paths take.  The rows are
kept as ``bench/results/COMMIT.json``.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.cases import CASES, PROFILE

RESULTS = Path("bench/results")


def measure(name: str, path: str) -> dict[str, Any]:
    """Run one case in this process; *path* is fastest, python or plain."""
    from simulator.cohort import CohortScheduler
    from simulator.compiled import keeping
    from simulator.scenario import Scenario
    from simulator.scheduler import V1Scheduler
    from simulator.simulate import simulate

    case = CASES[name]
    scenario = Scenario.from_command(case.server, profile=PROFILE, workload=case.workload, over_length=case.over_length)
    if path == "fastest":
        keeping.prepare()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    result = simulate(scenario, scheduler={"fastest": None, "python": CohortScheduler, "plain": V1Scheduler}[path])
    simulated = time.perf_counter()
    summary = result.summary()
    end, end_cpu = time.perf_counter(), time.process_time()
    return {
        "case": name,
        "path": path,
        "wall_s": end - begin,
        "cpu_s": end_cpu - begin_cpu,
        "summary_s": end - simulated,
        "requests": summary["completed"],
        "steps": result.records.num_steps,
        "simulated_s": summary["duration_s"],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def apart(name: str, path: str = "fastest") -> dict[str, Any]:
    """Run one case in a process of its own."""
    command = [sys.executable, "-m", "tests.bench", "--child", path, name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def main() -> int:
    """Print the table and keep the rows, with the commit they belong to."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("names", nargs="*", default=[], metavar="NAME", help=f"one of: {', '.join(CASES)}")
    parser.add_argument("--plain", action="store_true", help="also the step-by-step path")
    parser.add_argument("--fastest", action="store_true", help="the fastest path only")
    parser.add_argument("--json", type=Path, help="where to keep the rows")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in CASES]:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    if given.child:
        print(json.dumps(measure(given.names[0], given.child)))
        return 0
    print(HEADER)
    rows = []
    for name in given.names or CASES:
        others = [] if given.fastest or CASES[name].large else ["python", "plain"] if given.plain else ["python"]
        found = [apart(name, path) for path in ("fastest", *others)]
        rows += found
        print(line(found), flush=True)
    keep(rows, given.json)
    return 0


def keep(rows: list[dict[str, Any]], place: Path | None) -> None:
    """Write the rows, the commit and the machine they belong to."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True)
    commit = git.stdout.strip()
    place = place or RESULTS / f"{commit}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    about = {"commit": commit, "python": platform.python_version(), "machine": platform.machine()}
    place.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


HEADER = (
    f"{'case':34}{'wall s':>8}{'target':>8}{'requests/s':>12}{'steps/s':>11}{'peak MB':>9}"
    f"{'python wall s':>15}{'python':>8}{'plain':>7}"
)


def line(rows: list[dict[str, Any]]) -> str:
    """Return one row of the table; the other paths as multiples of the fastest."""
    fastest = rows[0]
    wall, target = fastest["wall_s"], CASES[fastest["case"]].target_s
    others = {row["path"]: row["wall_s"] for row in rows[1:]}
    python = f"{others['python']:.2f}" if "python" in others else "-"
    ratios = [f"{others[path] / wall:.1f}" if path in others else "-" for path in ("python", "plain")]
    return (
        f"{fastest['case']:34}{wall:8.2f}{'-' if target is None else f'{target:.1f}':>8}"
        f"{fastest['requests'] / wall:12,.0f}{fastest['steps'] / wall:11,.0f}{fastest['peak_mb']:9.0f}"
        f"{python:>15}{ratios[0]:>8}{ratios[1]:>7}"
    )


if __name__ == "__main__":
    sys.exit(main())
