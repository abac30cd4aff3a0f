"""Metrics of each class of a mix, defined as those of the whole (`simulator.metrics`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from simulator.metrics import Latencies, aggregate, latencies
from simulator.records import Records, Status
from simulator.request_table import RequestTable


def of_class(records: Records, table: RequestTable, name: str) -> Latencies:
    """Return what the clients of the class called *name* saw; the duration is that of the whole."""
    mine = table.class_id == table.class_names.index(name)
    status = np.where(mine, np.asarray(records.status), np.uint8(Status.UNFINISHED)).astype(np.uint8)
    return latencies(replace(records, status=status))  # type: ignore[arg-type]


def by_class(records: Records, table: RequestTable) -> dict[str, dict[str, Any]]:
    """Return the aggregates of each class by its name, with ``requests`` and ``failed``; empty without classes."""
    found: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(table.class_names):
        sent = int((table.class_id == number).sum())
        numbers = aggregate(of_class(records, table, name))
        found[name] = {"requests": sent, "failed": sent - numbers["completed"], **numbers}
    return found
