"""The accuracy of all validation reports of a folder in one table: what `servecast accuracy --reports` shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apps.output import Table
from simulator.errors import InputError

#: Title and name of the metrics of the table.
SHOWN = (
    ("TTFT mean", "ttft_mean"), ("TTFT p50", "ttft_p50"), ("TTFT p99", "ttft_p99"), ("TPOT p50", "tpot_p50"),
    ("ITL p99", "itl_p99"), ("E2E p50", "e2e_p50"), ("output tokens/s", "throughput"),
)  # fmt: skip

Report = Mapping[str, Any]


def read_reports(folder: Path) -> dict[str, Report]:
    """Return the reports ``NAME.json`` of *folder* by name; `InputError` if there is none or one is no report."""
    found: dict[str, Report] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: is not a report of `servecast validate` ({error})") from None
        if not isinstance(data, dict) or data.get("kind") != "validation":
            raise InputError(f"{path}: is not a report of `servecast validate`; leave only those in {folder}")
        found[path.stem] = data
    if not found:
        raise InputError(f"{folder}: no report; make one with `servecast validate ... --report {folder}/NAME`")
    return found


def kept(reports: Mapping[str, Report]) -> dict[str, Report]:
    """Return of each report what the table needs: what the explorer shows of them."""
    found: dict[str, Report] = {}
    for name, report in reports.items():
        host = report.get("host")
        metrics = [
            {key: one[key] for key in ("name", "predicted", "measured", "error_percent", "is_inside")}
            for one in report["metrics"]
        ]
        found[name] = {
            "kind": "validation",
            "predicted": {"profile": report["predicted"]["profile"]},
            "host": host and {side: host[side] for side in ("expected", "seen")},
            "metrics": metrics,
        }
    return found


def shipped(profile: str) -> dict[str, Report]:
    """Return the shipped reports that *profile* made the predictions of, by name (profiles/validation.json)."""
    from simulator import shipped as files

    text = files.path("profiles", "validation.json").read_text(encoding="utf-8")
    reports: dict[str, Report] = json.loads(text)
    return {name: report for name, report in reports.items() if report["predicted"]["profile"] == profile}


def table(reports: Mapping[str, Report]) -> Table:
    """Return one row a report: signed errors in %, how the host's speed was known, metrics in their intervals."""
    columns = ["signed error, %", *(title for title, _name in SHOWN), "host", "in 90 % interval"]
    rows = []
    for name, report in reports.items():
        metrics = {one["name"]: one for one in report["metrics"]}
        errors = [_signed(metrics[key]["error_percent"]) for _title, key in SHOWN]
        inside, count = inside_of(report)
        rows.append([name, *errors, _host(report), f"{inside} of {count}"])
    return Table(columns=columns, rows=rows, right=range(1, len(SHOWN) + 1))


def rows(reports: Mapping[str, Report]) -> list[dict[str, Any]]:
    """Return one row a report and metric, for spreadsheets."""
    keys = ("name", "predicted", "measured", "error_percent", "low", "high", "is_inside")
    return [
        {"report": name, "host_measured_before": _is_measured(report), **{key: one[key] for key in keys}}
        for name, report in reports.items()
        for one in report["metrics"]
    ]


def summary(reports: Mapping[str, Report]) -> list[str]:
    """Return how many metrics of all reports lie in their intervals, and the sizes of the errors."""
    counts = [inside_of(report) for report in reports.values()]
    inside, count = sum(one for one, _ in counts), sum(one for _, one in counts)
    errors = {
        title: sorted(
            abs(one["error_percent"])
            for report in reports.values()
            for one in report["metrics"]
            if one["name"] == name and one["error_percent"] is not None
        )
        for title, name in SHOWN
    }
    medians = ", ".join(f"{title} {values[len(values) // 2]:.1f}" for title, values in errors.items() if values)
    share = f"; inside their 90 % interval: {inside} of {count} metrics ({100 * inside / count:.0f} %)" if count else ""
    return [f"{len(reports)} reports; median size of the error in %: {medians}{share}"]


def inside_of(report: Report) -> tuple[int, int]:
    """Return how many metrics lie in their interval, and of how many."""
    known = [one["is_inside"] for one in report["metrics"] if one["is_inside"] is not None]
    return sum(known), len(known)


def _is_measured(report: Report) -> bool:
    host = report.get("host")
    return bool(host and host["expected"]["measured"])


def _host(report: Report) -> str:
    host = report.get("host")
    seen = f" (CPU {host['seen']['cpu_scale'] / host['expected']['cpu_scale']:.2f})" if host else ""
    return ("measured before" if _is_measured(report) else "as calibrated") + seen


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}"
