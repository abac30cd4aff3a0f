"""The answer: a flat summary for programs, tables (pandas) for everything else.  Schema: ``docs/schemas.md``.

Times in the summary are milliseconds under names that end in ``_ms``, else seconds; tables hold seconds.  A number that
does not exist (TPOT if no request has two tokens) is ``None``, null in JSON; NaN and infinities never appear there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from simulator import metrics
from simulator.class_metrics import by_class
from simulator.records import REQUEST_COUNTS, REQUEST_TIMES, STEP_COLUMNS, Records, Status
from simulator.request_table import RequestTable
from simulator.swap_records import SWAP_COLUMNS
from simulator.timeline import timeline

if TYPE_CHECKING:
    import pandas as pd

    from simulator.scenario import Scenario

SCHEMA_VERSION = 1

UNITS = {
    "*_ms": "milliseconds",
    "*_s": "seconds",
    "*_tokens": "tokens",
    "request_throughput": "requests/s",
    "output_throughput": "tokens/s",
    "total_token_throughput": "tokens/s",
    "prefix_cache_hit_rate": "share of the tokens looked up, 0..1",
    "kv_cache_usage_*": "share of the KV blocks, 0..1",
}


class Provenance(BaseModel):
    """Where the numbers come from; *calibrated* is false for answers from data sheets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: str | None
    calibrated: bool
    gpu: str
    model: str
    vllm_version: str
    seed: int
    servecast_version: str = version("servecast")


@dataclass(frozen=True, eq=False)
class Result:
    """One simulated run.

    Attributes
    ----------
    scenario: the question.
    table: the requests that were to be sent (dropped ones are not in it).
    records: what happened.
    provenance: see `Provenance`.
    memory: KV cache as simulated: at least ``num_gpu_blocks`` and ``block_size``.
    warnings: one line each, each once.
    dropped: requests left out because they exceed max_model_len.
    intervals: by metric, [low, high], with "level" and "contains"; None if they were not asked for
        (`calibration.intervals`).
    """

    scenario: Scenario
    table: RequestTable
    records: Records
    provenance: Provenance
    memory: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    dropped: int = 0
    intervals: Mapping[str, Any] | None = None

    @cached_property
    def latencies(self) -> metrics.Latencies:
        """What the clients saw, per completed request."""
        return metrics.latencies(self.records)

    def summary(self) -> dict[str, Any]:
        """Return the result as plain data; the keys are described in ``docs/schemas.md``."""
        status = np.asarray(self.records.status)
        rejected, unfinished, ignored = (
            int((status == kind).sum()) for kind in (Status.REJECTED, Status.UNFINISHED, Status.IGNORED)
        )
        memory = {"num_gpu_blocks": self.records.num_gpu_blocks, "block_size": self.records.block_size, **self.memory}
        numbers = {
            "schema_version": SCHEMA_VERSION,
            **metrics.aggregate(self.latencies),
            "failed": rejected + unfinished + ignored,
            "rejected": rejected,
            "unfinished": unfinished,
            "ignored": ignored,
            "engine_died": self.records.died or None,
            "dropped": self.dropped,
            **metrics.engine_totals(self.records),
            **({"classes": by_class(self.records, self.table)} if self.table.class_names else {}),
            "memory": memory,
            "intervals": self.intervals,
            "units": UNITS,
            "provenance": self.provenance.model_dump(),
            "warnings": list(dict.fromkeys(self.warnings)),
        }
        found: dict[str, Any] = plain(numbers)
        return found

    def to_json(self, indent: int | None = 2) -> str:
        """Return the summary as JSON text."""
        return json.dumps(self.summary(), indent=indent, allow_nan=False, ensure_ascii=False)

    def goodput(self, **limits_ms: float) -> float:
        """Return requests/s that keep all limits in ms, e.g. ``goodput(ttft=500, tpot=50)``."""
        return metrics.goodput(self.latencies, limits_ms)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request, in the order of the workload; seconds and tokens."""
        import pandas as pd

        records = self.records
        columns = {name: np.asarray(getattr(records, name)) for name in (*REQUEST_TIMES, *REQUEST_COUNTS)}
        ttft, e2el = (columns[name] - columns["sent_s"] for name in ("first_token_s", "last_token_s"))
        status = np.asarray(records.status)
        if records.offload is not None:
            columns["external_tokens"] = np.asarray(records.offload.external_tokens)
        names = self.table.class_names
        classes = {"class": [names[k] if k >= 0 else "" for k in self.table.class_id.tolist()]} if names else {}
        return pd.DataFrame(
            {
                "request": np.arange(records.num_requests),
                "status": [Status(value).name.lower() for value in status.tolist()],
                "arrival_s": self.table.arrival_s,
                **columns,
                "requested_output_tokens": self.table.output_tokens,
                "queue_s": columns["first_scheduled_s"] - columns["engine_arrival_s"],
                "ttft_s": ttft,
                "tpot_s": metrics.tpot_s(ttft, e2el, columns["output_tokens"]),
                "e2el_s": e2el,
                "priority": self.table.priority,
                "session_id": self.table.session_id,
                **classes,
            }
        )

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per engine step; seconds, tokens, requests, blocks."""
        import pandas as pd

        columns = {name: pd.Series(np.asarray(getattr(self.records, name))) for name in STEP_COLUMNS}
        swap = self.records.swap
        if swap is not None:
            columns |= {name: pd.Series(np.asarray(getattr(swap, name))) for name in SWAP_COLUMNS}
        if self.records.offload is not None:
            for name in ("step_stored_blocks", "step_loaded_blocks"):
                columns[name] = pd.Series(np.asarray(getattr(self.records.offload, name)))
        return pd.DataFrame({name.removeprefix("step_"): column for name, column in columns.items()})

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """One row per second, under vLLM's metric names (`simulator.timeline`)."""
        return self.timeline_every(1.0)

    def timeline_every(self, interval_s: float) -> pd.DataFrame:
        """Return the timeline with one row per *interval_s* seconds."""
        import pandas as pd

        return pd.DataFrame(timeline(self.records, interval_s))


def plain(value: Any) -> Any:
    """Return *value* as JSON can hold it: None for NaN and infinities, Python numbers for numpy's."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
