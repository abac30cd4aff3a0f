import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from apps.cli import app, main

DATA = Path(__file__).parents[1] / "data" / "calib-8b"
MODEL = ["--model", "meta-llama/Llama-3.1-8B", "--gpu", "H200"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in ("calibrate", *arguments)])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    output = tmp_path_factory.mktemp("made") / "my-h200.json"
    return output, run("fit", DATA, *MODEL, "-o", output)


def test_fit_writes_a_profile_and_says_how_well_it_fits(fitted):
    output, result = fitted
    assert result.exit_code == 0, result.output
    assert "decodes alone" in result.stdout
    assert "gpu_time.bandwidth_efficiency" in result.stdout
    assert json.loads(output.read_text())["name"] == "my-h200"


def test_a_fitted_profile_can_be_checked_and_refreshed(fitted, tmp_path):
    output, _ = fitted
    checked = run("check", DATA, "--profile", output, "--format", "json")
    assert checked.exit_code == 0, checked.output
    assert abs(json.loads(checked.stdout)["replay_total_percent"]) < 5
    again = tmp_path / "again.json"
    refreshed = run("refresh", DATA, "--profile", output, "-o", again)
    assert refreshed.exit_code == 0, refreshed.output
    assert 0.98 < json.loads(again.read_text())["host"]["gpu_scale"] < 1.02


@pytest.mark.parametrize("action", ["fit", "check", "refresh", "plan", "run", "bootstrap"])
def test_help_shows_an_example_to_copy(action):
    shown = run(action, "--help").stdout
    lines = [line.strip() for line in shown.splitlines()]
    assert any(line.startswith(f"servecast calibrate {action} ") for line in lines)
    assert "\\b" not in shown


def test_plan_lists_what_a_run_of_so_many_minutes_would_record():
    plan = ("plan", "meta-llama/Llama-3.1-8B", "--gpu", "H200", "--serve-args", "--max-num-seqs 64")
    short, long = (json.loads(run(*plan, "--minutes", m, "--format", "json").stdout) for m in (0.4, 2))
    assert short[:20] == long[:20]
    assert short[0]["round"] == "warm-up"
    assert max(row["requests"] for row in long) == 64
    assert 20 < short[-1]["ends_s"] <= 24
    assert "give more --minutes" in run(*plan, "--minutes", 0.05).stderr


def test_nothing_is_written_when_the_recording_is_bad(tmp_path, capsys):
    (tmp_path / "calib.steps.jsonl").write_text("nonsense\n")
    output = tmp_path / "p.json"
    assert main(["calibrate", "fit", str(tmp_path), *MODEL, "-o", str(output)]) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert message.count("\n") == 1
    assert not output.exists()
