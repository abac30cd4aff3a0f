"""What the pictures of a comparison show, as numbers: distributions and the state of the engine over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibration.recording import Floats
from calibration.trace import Trace
from simulator.metrics import Latencies

#: Percentiles a distribution is given by.
LEVELS = tuple(range(101))
#: Points of a timeline.
POINTS = 200


def distribution_ms(sides: Sequence[Latencies], name: str) -> list[float]:
    """Return the percentiles 0, 1 .. 100 of a latency ("ttft", "tpot", "e2el") in ms; several runs are pooled."""
    pooled = 1e3 * np.concatenate([getattr(side, f"{name}_s") for side in sides])
    pooled = pooled[~np.isnan(pooled)]
    return _short(np.percentile(pooled, LEVELS)) if len(pooled) else []


def state_over_time(trace: Trace, end_s: float) -> dict[str, list[float]]:
    """Return running and waiting requests and the share of KV blocks in use (0..1), seconds from the first send.

    State after the latest plan; nothing once the step of that plan has been emitted and no other was planned.
    """
    steps, at = trace.steps, np.linspace(0.0, end_s, POINTS)
    latest = np.searchsorted(steps.plan_s, at, side="right") - 1
    busy = (latest >= 0) & (at < steps.emit_s[np.maximum(latest, 0)])
    usable = max(trace.num_gpu_blocks - 1, 1)

    def shown(values: Floats) -> list[float]:
        return _short(np.where(busy, values[np.maximum(latest, 0)], 0.0))

    return {
        "time_s": _short(at),
        "running": shown(steps.running.astype(np.float64)),
        "waiting": shown(steps.waiting.astype(np.float64)),
        "kv_cache_usage": shown((usable - steps.free_blocks) / usable),
    }


def _short(values: Floats) -> list[float]:
    return [float(f"{value:.4g}") for value in values.tolist()]
