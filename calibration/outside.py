"""What is known of a server from outside: latencies a burst, and how to start the server so that it tells more."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibration.campaign_files import FinishedBurst, RunFolder
from calibration.recorder_setup import set_up


def summary(bursts: Sequence[FinishedBurst]) -> list[dict[str, Any]]:
    """Return a row a burst: requests, ttft and tpot (medians, ms), output tokens/s; seen by the client."""
    rows = []
    for burst in bursts:
        requests = burst.requests["requests"]
        tpot = [1e3 * (r["e2e"] - r["ttft"]) / (r["n"] - 1) for r in requests if r["n"] > 1]
        rows.append({
            "burst": burst.key,
            "purpose": burst.purpose,
            "requests": len(requests),
            "median_ttft_ms": round(float(np.median([1e3 * r["ttft"] for r in requests])), 3),
            "median_tpot_ms": round(float(np.median(tpot)), 3) if tpot else None,
            "output_tokens_per_s": round(sum(r["n"] for r in requests) / max(burst.duration_s, 1e-6), 1),
            "late_client": burst.late_client,
            "metrics": burst.metrics,
        })  # fmt: skip
    return rows


def recording_start(folder: RunFolder, model: str, serve_args: str) -> str:
    """Return the line that starts the server so that it records itself into *folder*."""
    setup = set_up(folder.path / "recorder", folder.prefix("own"))
    env = " ".join(f"{name}={shlex.quote(value)}" for name, value in setup.env.items())
    return f"{env} vllm serve {shlex.quote(model)} {serve_args} {shlex.join(setup.arguments)}".replace("  ", " ")
