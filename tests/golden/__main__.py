"""Replay golden files: ``python -m tests.golden FILE...``; exit 1 on any mismatch.

Prints one line a scenario: ``ok NAME`` or ``MISMATCH NAME event K: expected ..., got ...``.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from tests.golden import replay, replay_v0


def load(path: Path) -> dict[str, Any]:
    """Read a golden file, compressed or not."""
    data = path.read_bytes()
    content: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return content


def first_mismatch(scenario: dict[str, Any], vllm_version: str) -> str | None:
    """Replay one scenario on the engine of that version: V0 up to 0.6, V1 from then on."""
    if tuple(int(part) for part in vllm_version.split(".")[:2]) < (0, 7):
        return replay_v0.first_mismatch(scenario, vllm_version)
    return replay.first_mismatch(scenario, vllm_version)


def main(paths: list[str]) -> int:
    """Replay every scenario of every file."""
    failed = False
    if not paths:
        print("error: no golden file given; python -m tests.golden FILE...", file=sys.stderr)
        return 1
    for path in paths:
        try:
            golden = load(Path(path))
            scenarios = golden["scenarios"]
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            print(f"error: {path}: not a golden file ({error})", file=sys.stderr)
            return 1
        for scenario in scenarios.values() if isinstance(scenarios, dict) else scenarios:
            mismatch = first_mismatch(scenario, golden["vllm"])
            failed |= mismatch is not None
            print(f"ok {scenario['name']}" if mismatch is None else f"MISMATCH {scenario['name']} {mismatch}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
