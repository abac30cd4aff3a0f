"""Random scenarios for vLLM V0, and the comparison of our scheduler with the real one on them.

    python -m tests.engine.random_scenarios_v0 make COUNT SEED SCENARIOS.json
    VLLM063=... python tests/engine/drive_v0.py SCENARIOS.json RECORDED.json
    python -m tests.engine.random_scenarios_v0 compare RECORDED.json
    python -m tests.engine.random_scenarios_v0 keep RECORDED.json COUNT OUT.json.gz

Every scenario has its own seed, so that any of them can be made again.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.replay_v0 import first_mismatch, output_token


def scenario(seed: int) -> dict[str, Any]:
    """Return the scenario of *seed*, without events."""
    rng = np.random.default_rng(seed)
    config = _config(rng)
    return {"name": f"v0_random_{seed}", "config": config, "requests": _requests(rng, config), "seed": seed}


def _config(rng: np.random.Generator) -> dict[str, Any]:
    size = int(rng.choice([4, 8, 16]))
    mml = int(rng.integers(30, 160))
    chunked, caching = bool(rng.random() < 0.4), bool(rng.random() < 0.4)
    seqs = int(rng.integers(1, 17))
    config: dict[str, Any] = {"seqs": seqs, "mml": mml, "B": size, "ends_at_mml": True}
    if chunked:
        mbt = int(rng.integers(max(seqs, 4), 120))
        config["chunked"] = True
    else:
        mbt = int(rng.integers(mml, 3 * mml))
    if caching:
        config["pc"] = True
        mbt = -(-mbt // size) * size
    config["mbt"] = max(mbt, seqs)
    longest = -(-mml // size)
    config["blocks"] = int(rng.choice([rng.integers(3, longest + 2), rng.integers(longest, 3 * longest), 105, 130]))
    mode = rng.choice(["none", "recompute", "swap", "swap"])
    if mode != "none":
        config["mode"] = str(mode)
    config["cpu_blocks"] = int(rng.choice([0, rng.integers(1, 12), rng.integers(10, 80), 300], p=[0.1, 0.2, 0.4, 0.3]))
    _engine_options(rng, config)
    return config


def _engine_options(rng: np.random.Generator, config: dict[str, Any]) -> None:
    if rng.random() < 0.25:
        config["policy"] = "priority"
    if rng.random() < 0.3:
        config["steps"] = int(rng.integers(2, 9))
    elif rng.random() < 0.2:
        config["lookahead"] = int(rng.integers(1, 7))
    # vLLM dies of the first victim of a priority if steps and output processing overlap: nothing to compare.
    if rng.random() < 0.4 and not ("policy" in config and "steps" in config):
        config["is_async"] = True
    if rng.random() < 0.25:
        config["delay"] = round(float(rng.uniform(0.2, 4.0)), 2)
    if "delay" in config or rng.random() < 0.2:
        config["durations"] = [round(float(x), 3) for x in rng.exponential(1.0, int(rng.integers(1, 8)))]


def _requests(rng: np.random.Generator, config: dict[str, Any]) -> list[dict[str, Any]]:
    count, mml = int(rng.integers(5, 41)), config["mml"]
    # A server refuses prompts beyond max_model_len; with chunks and async output vLLM would lose them for ever.
    too_long = rng.random() < 0.2 and not (config.get("chunked") and config.get("is_async"))
    longest = int(rng.integers(2, mml + 8 if too_long else mml + 1))
    outputs = int(rng.integers(1, 40))
    gap = float(rng.choice([0.0, 0.5, 1.5, 4.0]))
    shared = [[int(x) for x in rng.integers(3, 30_000, mml)] for _ in range(3)]
    talks = rng.random() < 0.3
    config["numbered_outputs"] = True
    requests: list[dict[str, Any]] = []
    step = 0
    for row in range(count):
        step += int(rng.exponential(gap)) if gap else 0
        prompt = _prompt(rng, int(rng.integers(1, longest + 1)), shared, requests if talks else [])
        entry = {"id": f"r{row}", "after_step": step, "prompt": prompt, "max_tokens": int(rng.integers(1, outputs + 1))}
        entry["arrival"] = round(float(step * 0.9 + rng.random() * (0.5 if rng.random() < 0.8 else 5.0)), 3)
        if config.get("policy"):
            entry["priority"] = int(rng.integers(-1, 3))
        if rng.random() < 0.2:
            entry["eos_at"] = int(rng.integers(1, entry["max_tokens"] + 1))
        requests.append(entry)
    return requests


def _prompt(rng: np.random.Generator, length: int, shared: list[list[int]], earlier: list[dict[str, Any]]) -> list[int]:
    """Return a prompt: fresh tokens, a common beginning and fresh tokens, or an earlier request's turn repeated."""
    kind = rng.random()
    start: list[int] = []
    if kind < 0.5:
        start = shared[int(rng.integers(len(shared)))][: int(rng.integers(0, length + 1))]
    elif kind < 0.8 and earlier:
        row = int(rng.integers(len(earlier)))
        told = earlier[row]
        outputs = [output_token(row, number) for number in range(1, told["max_tokens"] + 1)]
        start = (told["prompt"] + outputs)[: int(rng.integers(1, length + 1))]
    return start + [int(x) for x in rng.integers(3, 30_000, length - len(start))]


def make(count: int, first_seed: int) -> dict[str, Any]:
    """Return a golden file of *count* scenarios without events."""
    return {"vllm": "0.6.3", "scenarios": [scenario(first_seed + index) for index in range(count)]}


def compare(recorded: dict[str, Any]) -> list[str]:
    """Return one line for every scenario on which we differ."""
    found = ((entry["name"], first_mismatch(entry)) for entry in recorded["scenarios"])
    return [f"MISMATCH {name} {mismatch}" for name, mismatch in found if mismatch is not None]


def happenings(entry: dict[str, Any]) -> set[str]:
    """Return what happened in the recorded events of a scenario."""
    plans = [event for event in entry["events"] if event[0] == "plan"]
    last = entry["events"][-1]
    seen = {
        "preempted": any(plan[9] for plan in plans),
        "swapped out": any(plan[8] for plan in plans),
        "swapped in": any(plan[7] for plan in plans),
        "ignored": any(plan[12] for plan in plans),
        "prefix hit": any(plan[13] for plan in plans),
        "nobody served": any(not plan[2] and not plan[3] for plan in plans),
        "mixed step": any(plan[2] and plan[3] for plan in plans),
        f"died {last[2][:40]}" if last[0] == "died" else last[0]: True,
    }
    return {name for name, happened in seen.items() if happened}


def options(entry: dict[str, Any]) -> set[str]:
    """Return the options that a scenario uses."""
    names = {"chunked", "pc", "steps", "delay", "is_async", "policy", "lookahead", "mode"} & set(entry["config"])
    return {f"mode {entry['config']['mode']}" if name == "mode" else name for name in names}


def features(recorded: dict[str, Any]) -> Counter[str]:
    """Count what happened in the recorded events, so that nobody compares trifles."""
    counts: Counter[str] = Counter()
    for entry in recorded["scenarios"]:
        counts.update(happenings(entry) | options(entry))
        counts["plans"] += sum(event[0] == "plan" for event in entry["events"])
    return counts


def keep(recorded: dict[str, Any], count: int) -> dict[str, Any]:
    """Choose *count* small scenarios that together show the most pairs and triples of options and happenings."""
    pool = {
        entry["name"]: (entry, _combinations(entry), len(json.dumps(entry)) + 3000)
        for entry in recorded["scenarios"]
        if len(entry["events"]) <= 400 and sum(event[0] == "plan" for event in entry["events"]) >= 8
    }
    seen: set[tuple[str, ...]] = set()
    kept: list[dict[str, Any]] = []
    while pool and len(kept) < count:
        name = max(pool, key=lambda name: len(pool[name][1] - seen) / pool[name][2])
        entry, shown, _size = pool.pop(name)
        seen |= shown
        kept.append(entry)
    return {"vllm": recorded["vllm"], "scenarios": kept}


def _combinations(entry: dict[str, Any]) -> set[tuple[str, ...]]:
    words = sorted(happenings(entry) | options(entry))
    return {combination for size in (1, 2, 3) for combination in combinations(words, size)}


def main(command: str, *arguments: str) -> int:
    """Make scenarios or compare recorded ones; exit 1 if any differs."""
    if command == "make":
        count, seed, path = arguments
        Path(path).write_text(json.dumps(make(int(count), int(seed))))
        return 0
    recorded = json.loads(Path(arguments[0]).read_text())
    if command == "keep":
        text = json.dumps(keep(recorded, int(arguments[1])), separators=(",", ":"))
        Path(arguments[2]).write_bytes(gzip.compress(text.encode(), mtime=0))
        return 0
    lines = compare(recorded)
    counted = ", ".join(f"{name} {count}" for name, count in sorted(features(recorded).items()))
    sys.stdout.write("\n".join([*lines, f"{len(lines)} of {len(recorded['scenarios'])} differ; {counted}", ""]))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
