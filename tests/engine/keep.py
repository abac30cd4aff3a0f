"""Choose a few recorded scenarios that show as much as possible, small ones first, for the tests that have no vLLM.

``python -m tests.engine.keep COUNT OUT.json.gz RECORDED.json...``
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

Scenario = dict[str, Any]


def switches(config: dict[str, Any]) -> set[str]:
    """Return the settings that are not at their default, without their sizes."""
    sizes = {"seqs", "mbt", "blocks", "B", "mml"}
    return {f"{name} on" for name, value in config.items() if name not in sizes and value not in (0, 0.0)}


def incidents(scenario: Scenario) -> set[str]:
    """Return what happens in a scenario, by name."""
    config, requests = scenario["config"], {entry["id"]: entry for entry in scenario["requests"]}
    found: set[str] = set()
    preemptions: Counter[str] = Counter()
    before: list[str] = []
    for event in scenario["events"]:
        if event[0] == "plan":
            _, _, grants, cached, preempted, running, waiting, free = event
            preemptions.update(preempted)
            found |= {f"{name} hit" for name in [("resumed" if preemptions[i] else "new") for i in cached if cached[i]]}
            found |= {f"preempted {min(len(preempted), 3)}"} if preempted else set()
            found |= {"all preempted"} if preempted and not running else set()
            found |= (
                {"victim from the middle"} if set(preempted) & set(before[: len(before) - len(preempted)]) else set()
            )
            found |= {"not served"} if len(running) > len(grants) else set()
            found |= {"head blocked by memory"} if waiting and len(running) < config["seqs"] else set()
            found |= {"victim in a full step"} if preempted and sum(grants.values()) == config["mbt"] else set()
            found |= {"memory full"} if not free else set()
            found |= {"seats full"} if waiting and len(running) == config["seqs"] else set()
            before = running
        elif event[0] == "update":
            for name, reason in event[3].items():
                whole = len(requests[name]["prompt"]) + requests[name]["max_tokens"]
                found.add(
                    "ends at max_model_len" if reason == "length" and whole > config["mml"] else f"ends by {reason}"
                )
                found |= set() if name in before else {"ends while preempted"}
    found |= {f"preempted again {min(count, 4)}" for count in preemptions.values() if count > 1}
    return found | {f"B {config['B']}", f"mml {config['mml']}", f"seqs {config['seqs']}"}


def features(scenario: Scenario) -> set[str]:
    """Return switches and incidents, and what of them comes together."""
    single = switches(scenario["config"]) | incidents(scenario)
    return single | {f"{one} + {other}" for one, other in combinations(sorted(single), 2)}


def keep(scenarios: list[Scenario], count: int) -> list[Scenario]:
    """Return *count* scenarios, each chosen for the features per size that it adds."""
    left = [(features(scenario), len(json.dumps(scenario)) + 2_000, scenario) for scenario in scenarios]
    seen: set[str] = set()
    kept: list[Scenario] = []
    while left and len(kept) < count:
        best = max(left, key=lambda entry: len(entry[0] - seen) / entry[1])
        left.remove(best)
        seen |= best[0]
        kept.append(best[2])
    return sorted(kept, key=lambda scenario: str(scenario["name"]))


def main(count: str, target: str, *sources: str) -> None:
    """Write the chosen scenarios of several recorded files of one version."""
    files = [json.loads(Path(source).read_text()) for source in sources]
    scenarios = keep([scenario for golden in files for scenario in golden["scenarios"]], int(count))
    golden = {"vllm": files[0]["vllm"], "format": "golden, see tests/golden", "scenarios": scenarios}
    data = json.dumps(golden, separators=(",", ":")).encode()
    Path(target).write_bytes(gzip.compress(data, 9, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
