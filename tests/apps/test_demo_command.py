import json

import pytest

from apps import cli
from apps.demo_command import METRICS, comparison
from simulator.scenario import Scenario
from tests.simulator.records_world import small_world
from tests.simulator.scenario_world import small_scenario
from tests.simulator.test_result import result_of


def test_the_error_is_signed_and_relative_to_the_measurement():
    measured = {key: 100.0 for _, key, _ in METRICS} | {"mean_ttft_ms": 50.0, "p99_itl_ms": None, "p50_itl_ms": 0.0}
    rows = comparison(measured, {key: 90.0 for _, key, _ in METRICS})
    errors = {row["metric"]: row["error_percent"] for row in rows}
    assert errors["TTFT mean (ms)"] == pytest.approx(80)
    assert errors["request throughput (requests/s)"] == pytest.approx(-10)
    assert errors["ITL p99 (ms)"] is None
    assert errors["ITL p50 (ms)"] is None
    assert len(rows) == 14


@pytest.fixture
def asked(monkeypatch) -> list[dict]:
    """Replace the simulation and the reading of the command; return what they were asked for."""
    seen: list[dict] = []

    def from_command(cls, text, **options):
        seen.append({"command": text, **options})
        return small_scenario(workload=options["workload"])

    monkeypatch.setattr("calibration.accuracy.simulate", lambda scenario: result_of(small_world()))
    monkeypatch.setattr(Scenario, "from_command", classmethod(from_command))
    return seen


def test_the_demo_replays_the_measured_requests_and_says_what_was_measured_where(asked, capsys):
    assert cli.main(["demo"]) == 0
    out = capsys.readouterr().out
    assert "Measured: NVIDIA H200, one GPU, vLLM 0.24.0, 2026-11-30" in out
    assert "Server:   vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384" in out
    assert ["TTFT", "mean", "(ms)", "30.78", "1,450.00"] in [line.split()[:-1] for line in out.splitlines()]
    (question,) = asked
    assert question["profile"] == "h200-llama-3.1-8b"
    assert len(question["workload"].rows) == 300
    assert question["workload"].rows[0].arrival_s == 8e-05


def test_the_demo_as_json(asked, capsys):
    assert cli.main(["demo", "--run", "h200-llama-3.1-8b-c32", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["run"] == "h200-llama-3.1-8b-c32"
    assert data["metrics"][0]["metric"] == "TTFT mean (ms)"
    assert asked[0]["workload"].max_concurrency == 32


def test_a_run_that_does_not_say_how_its_server_was_started_is_refused(asked, capsys, tmp_path):
    row = {"t": 0, "send": 0, "isl": 5, "osl": 1, "n": 1, "ttft": 0.1, "e2e": 0.1, "itl": [0.0]}
    (tmp_path / "x.json").write_text(json.dumps({"duration": 1, "conc": None, "requests": [row]}))
    assert cli.main(["demo", "--run", str(tmp_path / "x.json")]) == 1
    assert "provenance.command" in capsys.readouterr().err
