"""A comparison as plain data: what reports are drawn from, and the JSON file.  Schema: docs/validation.md."""

from __future__ import annotations

from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

from calibration.bars import DEFINITIONS, KEYS_BY_NAME, Judged
from calibration.intervals import CONTAINS, LEVEL
from calibration.pictures import distribution_ms, state_over_time
from calibration.validate import Validation, predicted_traces

SCHEMA_VERSION = 1

#: KV blocks that differ by less than this share count as equal.
BLOCKS_AGREE = 0.02

#: Provenance of a measurement that a report repeats.
_TOLD = ("gpu", "vllm_version", "model", "date", "command")


def to_data(found: Validation) -> dict[str, Any]:
    """Return everything a report says, as JSON can hold it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "validation",
        "verdict": str(found.verdict),
        "words": found.words(),
        "predicted": _predicted(found),
        "measured": _measured(found),
        "metrics": [_metric(one, found) for one in found.metrics],
        "host": _host(found),
        "client_lag": [
            {**{key: 1e3 * value for key, value in _ms(asdict(lag)).items()}, "words": lag.words()}
            for lag in found.lags
        ],
        "explanations": [
            {
                "metric": one.metric,
                "error_ms": one.error_ms,
                "largest": one.largest.title,
                "mechanism": None if one.mechanism is None else one.mechanism.what,
                "words": one.words(),
            }
            for one in found.explanations
        ],
        "contributions": [{"title": one.title, **asdict(one)} for one in found.contributions],
        "mechanisms": [{**asdict(one), "difference": one.difference} for one in found.mechanisms],
        "pictures": _pictures(found),
        "definitions": dict(DEFINITIONS),
        "servecast_version": version("servecast"),
    }


def _predicted(found: Validation) -> dict[str, Any]:
    """Return where the prediction comes from."""
    prediction = found.prediction
    source = prediction.results[0].provenance
    return {
        "profile": source.profile,
        "model": source.model,
        "gpu": source.gpu,
        "vllm_version": source.vllm_version,
        "seeds": len(prediction.results),
        "first_seed": prediction.scenario.seed,
        "interval_level": LEVEL if prediction.intervals else None,
        "interval_contains": list(CONTAINS) if prediction.intervals else [],
        "warnings": list(dict.fromkeys(w for result in prediction.results for w in result.warnings)),
    }


def _measured(found: Validation) -> dict[str, Any]:
    """Return where the measurement comes from."""
    run = found.runs[0].measured
    return {
        "runs": [one.name for one in found.runs],
        "workload": run.workload_text,
        "requests": len(run.table),
        "concurrency": run.concurrency,
        "provenance": {key: run.provenance[key] for key in _TOLD if key in run.provenance},
        "notes": [*(note for one in found.runs for note in one.notes), *_notes(found)],
    }


def _notes(found: Validation) -> list[str]:
    """Return what a reader of the error's causes has to know."""
    notes = []
    if found.explanations and len(found.runs) > 1:
        notes.append(f"where the error arises is told of the first run, {found.runs[0].name}")
    trace = found.runs[0].trace
    if trace is not None and found.contributions and not trace.matched.all():
        count = int(trace.matched.sum())
        notes.append(
            f"the phases of TTFT are told of {count} of {len(trace.matched)} requests: others' steps are missing"
        )
    blocks = next((one for one in found.mechanisms if one.what == "blocks"), None)
    if blocks is not None and abs(blocks.difference) > BLOCKS_AGREE * blocks.measured:
        notes.append(
            f"the server had {blocks.measured:,.0f} KV blocks, {blocks.predicted:,.0f} were predicted: "
            "queues and preemptions cannot be compared"
        )
    return notes


def _ms(lag: dict[str, float]) -> dict[str, float]:
    return {f"{key.removesuffix('_s')}_ms": value for key, value in lag.items()}


def _metric(one: Judged, found: Validation) -> dict[str, Any]:
    more = {"error_percent": one.error_percent, "keeps_bar": one.keeps_bar, "is_inside": one.is_inside}
    at_speed = None
    if found.host is not None:
        again = replace(one, predicted=found.host.prediction.value(KEYS_BY_NAME[one.name]))
        at_speed = again.error_percent
    return {**asdict(one), **more, "error_percent_at_host_speed": at_speed}


def _host(found: Validation) -> dict[str, Any] | None:
    """Return the scales of the host: of the profile, and as the run shows them."""
    if found.host is None:
        return None
    sides = {"expected": found.host.expected.model_dump(), "seen": found.host.seen.model_dump(exclude={"measured"})}
    return {**sides, "is_other": found.host.is_other, "words": found.host.words()}


def _pictures(found: Validation) -> dict[str, Any]:
    measured = [run.measured.seen for run in found.runs]
    predicted = [result.latencies for result in found.prediction.results]
    pictures: dict[str, Any] = {
        f"{name}_ms": {"predicted": distribution_ms(predicted, name), "measured": distribution_ms(measured, name)}
        for name in ("ttft", "tpot", "e2el")
    }
    ours, theirs = predicted_traces(found.prediction)[0], found.runs[0].trace
    end_s = max(ours.end_s, theirs.end_s if theirs is not None else 0.0)
    pictures["timeline"] = {
        "predicted": state_over_time(ours, end_s),
        "measured": None if theirs is None else state_over_time(theirs, end_s),
    }
    return pictures
