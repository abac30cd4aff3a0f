"""The answer for several replicas: that of one server, over all of them, and what each did.

Utilisation is the share of a replica's time in which its GPU computed.  GPU hours count every GPU of a replica from its
start (of the process) until it has stopped, within the time of the simulation.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator import metrics
from simulator.fleet import Part
from simulator.records import REQUEST_COUNTS, REQUEST_TIMES, Records
from simulator.request_table import RequestTable
from simulator.result import Result
from simulator.timeline import timeline

if TYPE_CHECKING:
    import pandas as pd


def merged(parts: Sequence[Part], table: RequestTable, num_gpu_blocks: int, block_size: int) -> Records:
    """Return the records of all *parts*: request columns in the order of *table*, and the parts themselves.

    The parts' own times end with the simulation; a part that never got a request has no records.
    """
    records = Records.for_requests(table.prompt_tokens, num_gpu_blocks=num_gpu_blocks, block_size=block_size)
    busy = [(part, part.served.records) for part in parts if part.served is not None]
    for name in (*REQUEST_TIMES, *REQUEST_COUNTS, "status"):
        column = getattr(records, name)
        values = np.array(column)
        for part, own in busy:
            values[part.rows] = np.asarray(getattr(own, name))
        setattr(records, name, array(column.typecode, values.tolist()))
    records.end_s = max((own.end_s for _, own in busy), default=0.0)
    for part, own in busy:
        own.start_s = part.ready_s
        own.end_s = max(own.end_s, min(part.stopped_s, records.end_s))
    dead = next((own for _, own in busy if own.died), None)
    if dead is not None:
        records.died, records.died_s = dead.died, dead.died_s
    records.parts = tuple((part.rows, own) for part, own in busy)
    return records


@dataclass(frozen=True, eq=False, kw_only=True)
class FleetResult(Result):
    """One simulated run of several replicas; *parts* are what they did, in order of their numbers."""

    parts: tuple[Part, ...]
    gpus_per_replica: int = 1

    @classmethod
    def of(cls, whole: Result, parts: Sequence[Part], gpus_per_replica: int) -> FleetResult:
        """Return *whole* with what its *parts* did."""
        told = {field.name: getattr(whole, field.name) for field in fields(whole)}
        return cls(**told, parts=tuple(parts), gpus_per_replica=gpus_per_replica)

    @cached_property
    def replicas(self) -> tuple[Result, ...]:
        """The replicas that got requests, each as the result of a server of its own; times are those of the whole."""
        return tuple(
            Result(
                scenario=self.scenario,
                table=self.table.take(rows),
                records=records,
                provenance=self.provenance,
                memory=self.memory,
                warnings=self.warnings,
            )
            for rows, records in self.records.parts
        )

    def summary(self) -> dict[str, Any]:
        """Return the result as plain data; keys of a fleet are added."""
        return {**super().summary(), **self._fleet_summary()}

    def _fleet_summary(self) -> dict[str, Any]:
        end_s = self.records.end_s
        there_s = sum(min(part.stopped_s, end_s) - min(part.launched_s, end_s) for part in self.parts)
        ready = np.asarray(self.replica_count["ready"])
        return {
            "router": self.scenario.router.policy,
            "replicas_mean": there_s / end_s if end_s > 0 else float(len(self.parts)),
            "replicas_max": int(ready.max()),
            "gpu_hours": there_s * self.gpus_per_replica / 3600,
            "replicas": [self._described(part) for part in self.parts],
        }

    def _described(self, part: Part) -> dict[str, Any]:
        end_s = self.records.end_s
        told: dict[str, Any] = {
            "replica": part.number,
            "launched_s": part.launched_s,
            "ready_s": part.ready_s if part.ready_s <= end_s else None,
            "stopped_s": part.stopped_s if part.stopped_s <= end_s else None,
            "requests": len(part.rows),
        }
        if part.served is None:
            return told | {"completed": 0, "utilisation": 0.0}
        records = part.served.records
        seen, queries = metrics.latencies(records), records.prefix_queries_tokens
        span_s = records.end_s - records.start_s
        ttft = metrics.Sample.of(seen.ttft_s)
        return told | {
            "completed": len(seen.ttft_s),
            "utilisation": float(np.sum(records.step_gpu_s)) / span_s if span_s > 0 else 0.0,
            "output_throughput": float(seen.output_tokens.sum()) / span_s if span_s > 0 else 0.0,
            "prefix_cache_hit_rate": records.prefix_hits_tokens / queries if queries else 0.0,
            "kv_cache_usage_max": metrics.engine_totals(records)["kv_cache_usage_max"],
            "preemptions": int(sum(records.step_preempted)),
            "mean_ttft_ms": 1e3 * ttft.mean() if len(ttft) else None,
            "p99_ttft_ms": 1e3 * ttft.percentiles((99,))[0] if len(ttft) else None,
        }

    @cached_property
    def replica_count(self) -> pd.DataFrame:
        """One row whenever the number of replicas changes: seconds; ready, starting, draining replicas."""
        import pandas as pd

        times = {0.0}
        for part in self.parts:
            times |= {part.launched_s, part.ready_s, part.drained_s, part.stopped_s}
        at = np.array(sorted(time for time in times if time <= self.records.end_s))
        edges = np.array([(p.launched_s, min(p.ready_s, p.stopped_s), p.drained_s, p.stopped_s) for p in self.parts])
        launched, ready, drained, stopped = ((edge[:, None] <= at).sum(axis=0) for edge in edges.T)
        over = (np.minimum(edges[:, 1], edges[:, 2])[:, None] <= at).sum(axis=0)
        return pd.DataFrame(
            {"time_s": at, "ready": ready - drained, "starting": launched - over, "draining": drained - stopped}
        )

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request, with the number of the replica that got it (-1: it was never sent)."""
        found = super().requests
        replica = np.full(len(self.table), -1)
        for part in self.parts:
            replica[part.rows] = part.number
        return found.assign(replica=replica)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per engine step, replica after replica, each with its number."""
        import pandas as pd

        numbers = [part.number for part in self.parts if part.served is not None]
        tables = [one.steps.assign(replica=number) for number, one in zip(numbers, self.replicas, strict=True)]
        return pd.concat(tables, ignore_index=True)

    def timeline_every(self, interval_s: float) -> pd.DataFrame:
        """Return the timeline over all replicas: sums, but the mean of the KV use over those that are ready."""
        import pandas as pd

        whole = [replace(part, start_s=0.0, end_s=self.records.end_s) for _, part in self.records.parts]
        tables = [pd.DataFrame(timeline(records, interval_s)) for records in whole]
        time_s = tables[0]["time_s"]
        found = sum(tables[1:], start=tables[0])
        count = self.replica_count
        at = np.searchsorted(np.asarray(count["time_s"]), np.asarray(time_s), side="right") - 1
        ready = np.asarray(count["ready"])[at]
        for name in ("vllm:kv_cache_usage_perc", "vllm:cpu_cache_usage_perc"):
            if name in found:
                found[name] = found[name] / np.maximum(ready, 1)
        return found.assign(time_s=time_s, replicas=ready)
