"""Facts of the compiled loop, counted as they come: what `simulator.metrics` derives from records, without records."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.compiled.run import Facts
from simulator.metrics import aggregate_of
from simulator.records import Status
from simulator.streaming.sketch import Sketch
from simulator.streaming.spilled import Spilled


class Tally:
    """Counts, and a sketch of each latency; *exact* keeps the values on disk instead."""

    def __init__(self, *, exact: bool) -> None:
        self.samples: dict[str, Sketch] = {
            name: Spilled() if exact else Sketch() for name in ("ttft", "tpot", "itl", "e2el")
        }
        self.by_status = dict.fromkeys(Status, 0)
        self.steps = self.preemptions = self.recomputed_tokens = self.output_tokens = self.prompt_tokens = 0
        self._latest_s = 0.0  # when the tokens of the latest step reached their clients

    def take(self, facts: Facts) -> None:
        """Count a piece of facts."""
        planned, emitted, ended, _runs, pauses = facts
        self.steps += len(planned)
        self.preemptions += int(planned["preempted"].sum())
        self._take_gaps(emitted, pauses)
        for status in Status:
            self.by_status[status] += int((ended["status"] == status).sum())
        self.recomputed_tokens += int(ended["recomputed_tokens"].sum())
        done = ended[ended["status"] == Status.FINISHED]
        outputs = done["output_tokens"]
        self.output_tokens += int(outputs.sum())
        self.prompt_tokens += int(done["prompt_tokens"].sum())
        e2el = done["last_token_s"] - done["sent_s"]
        ttft = done["first_token_s"] - done["sent_s"]
        several = outputs > 1
        self.samples["ttft"].add(ttft)
        self.samples["e2el"].add(e2el)
        self.samples["tpot"].add((e2el[several] - ttft[several]) / (outputs[several] - 1))

    def _take_gaps(self, emitted: Any, pauses: Any) -> None:
        """Gaps between tokens of successive steps, as often as requests got both; and gaps with a pause."""
        if len(emitted):
            gaps = np.diff(emitted["deliver_s"], prepend=self._latest_s)
            self.samples["itl"].add(gaps, emitted["continued"])
            self._latest_s = float(emitted["deliver_s"][-1])
        self.samples["itl"].add(np.array(pauses))

    def numbers(self, world: Any, num_requests: int) -> dict[str, Any]:
        """Return the aggregates and the engine's totals (*world* afterwards), under the names of the summary."""
        w = world
        completed = self.by_status[Status.FINISHED]
        end_s = float(w.end_s) if completed else float(w.now_s)
        used_s = w.used_integral_s + w.used_share * max(0.0, end_s - w.used_since_s)
        queries = int(w.queries_tokens)
        rejected = self.by_status[Status.REJECTED]
        unfinished = num_requests - completed - rejected
        return {
            **aggregate_of(completed, self.prompt_tokens, self.output_tokens, end_s, self.samples),
            "failed": rejected + unfinished,
            "rejected": rejected,
            "unfinished": unfinished,
            "ignored": 0,
            "engine_died": None,
            "preemptions": self.preemptions,
            "recomputed_tokens": self.recomputed_tokens,
            "prefix_cache_hit_rate": int(w.hits_tokens) / queries if queries else 0.0,
            "kv_cache_usage_max": float(w.used_most),
            "kv_cache_usage_mean": float(used_s) / end_s if end_s > 0 else 0.0,
            "steps": self.steps,
        }
