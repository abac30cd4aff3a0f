"""The trace: the documented schema of trace events, nesting, and the times of the simulation."""

import json
from collections import defaultdict

import pytest

from apps.exports.chrome_trace import ENGINE, REQUESTS, chrome_trace

#: Required fields of the Trace Event Format by phase, with their types.
SCHEMA = {
    "X": {"name": str, "pid": int, "tid": int, "ts": float, "dur": float, "args": dict},
    "C": {"name": str, "pid": int, "tid": int, "ts": float, "args": dict},
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
}


@pytest.fixture(scope="module")
def events(result):
    return json.loads(json.dumps(chrome_trace(result), allow_nan=False))["traceEvents"]


def test_every_event_has_the_fields_of_its_phase(events):
    for event in events:
        for name, kind in SCHEMA[event["ph"]].items():
            assert isinstance(event[name], (int, float) if kind is float else kind), event
        assert event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, (int, float)) for value in event["args"].values())


def test_slices_of_a_row_are_nested_or_apart(events):
    rows = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], -event["dur"], event["ts"] + event["dur"]))
    for slices in rows.values():
        open_until = []
        for start, _dur, end in sorted(slices):
            while open_until and open_until[-1] <= start + 0.002:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 0.002
            open_until.append(end)


def test_steps_and_requests_are_those_of_the_simulation(events, result):
    steps = [event for event in events if event["ph"] == "X" and event["pid"] == ENGINE]
    assert len(steps) == len(result.steps)
    assert sum(event["args"]["tokens"] for event in steps) == result.steps["tokens"].sum()
    requests = {
        event["args"]["request"]: event
        for event in events
        if event["ph"] == "X" and event["pid"] == REQUESTS and event["name"].startswith("request ")
    }
    assert len(requests) == len(result.requests)
    worst = int(result.requests["e2el_s"].idxmax())
    assert requests[worst]["dur"] == pytest.approx(1e6 * result.requests["e2el_s"][worst], abs=0.01)


def test_a_preempted_request_shows_its_pause(events, result):
    preempted = set(result.requests.index[result.requests["preemptions"] > 0])
    paused = {event["args"]["request"] for event in events if event["name"] == "no token"}
    assert preempted & paused
