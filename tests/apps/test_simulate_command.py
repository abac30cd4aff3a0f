"""The command around the simulation, which stands still here: a result made by hand."""

import csv
import json
import sys
from types import ModuleType

import pytest

from apps import cli
from simulator.scenario import Scenario
from tests.simulator.records_world import small_world
from tests.simulator.scenario_world import small_scenario
from tests.simulator.test_result import result_of


@pytest.fixture
def asked(monkeypatch, tmp_path) -> list[Scenario]:
    """Replace the simulation; return the scenarios it was asked for."""
    seen: list[Scenario] = []

    def simulate(scenario):
        seen.append(scenario)
        return result_of(small_world(), warnings=("left the hull",))

    module = ModuleType("simulator.simulate")
    module.simulate = simulate
    monkeypatch.setitem(sys.modules, "simulator.simulate", module)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text(small_scenario().to_json())
    return seen


def test_the_table_shows_what_was_simulated_and_the_warnings_go_to_stderr(asked, capsys):
    assert cli.main(["simulate", "--scenario", "s.json"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("m on H200, vLLM 0.24.0 (profile p)\n")
    assert "TTFT          1,450.00  1,450.00  1,650.00  1,675.00  1,695.00" in out
    assert err == "warning: left the hull\n"
    assert asked == [small_scenario()]


def test_json_carries_the_warnings_itself(asked, capsys):
    assert cli.main(["simulate", "--scenario", "s.json", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["warnings"] == ["left the hull"]
    assert json.loads(out)["p99_ttft_ms"] == pytest.approx(1695)
    assert err == ""


def test_csv_is_one_row_of_numbers(asked, capsys):
    cli.main(["simulate", "--scenario", "s.json", "--format", "csv"])
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert row["completed"] == "2"
    assert float(row["mean_e2el_ms"]) == pytest.approx(3850)


def test_markdown_is_a_table(asked, capsys):
    cli.main(["simulate", "--scenario", "s.json", "--format", "md"])
    assert "| latency (ms) | mean | p50 | p90 | p95 | p99 |" in capsys.readouterr().out


def test_rows_per_request_and_per_second_are_written(asked, tmp_path):
    files = ["--per-request", "r.csv", "--timeline", "t.csv", "--save-scenario", "again.json", "-o", "out.json"]
    assert cli.main(["simulate", "--scenario", "s.json", *files]) == 0
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert [row["ttft_s"] for row in rows] == ["1.2", "1.7"]
    assert (tmp_path / "t.csv").read_text().startswith("time_s,vllm:num_requests_running,")
    assert Scenario.from_json((tmp_path / "again.json").read_text()) == small_scenario()
    assert json.loads((tmp_path / "out.json").read_text())["completed"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no server: give its start line"),
        (["vllm serve m"], "no workload: give one of --rate R"),
        (["vllm serve m", "--rate", "nan"], "rate: Input should be greater than 0, got nan"),
        (["vllm serve m", "--rate", "1", "--prompt-tokens", "-5"], "length '-5'"),
        (["vllm serve m", "--scenario", "s.json"], "--scenario already holds"),
        (["--scenario", "none.json"], "none.json: cannot be read"),
        (["vllm serve m", "--rate", "1", "--workers", "0"], "'--workers'"),
        (["--scenario", "s.json", "--intervals", "--replications", "0"], "contradict each other"),
        (["--scenario", "s.json", "--per-request", "no/such/folder.csv"], "there is no folder no/such"),
    ],
)
def test_bad_input_is_one_line_exit_1_and_nothing_written(asked, capsys, tmp_path, arguments, message):
    before = sorted(path.name for path in tmp_path.iterdir())
    assert cli.main(["simulate", *arguments, "-o", "out.json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_an_engine_that_died_is_an_answer_with_exit_code_1(capsys):
    words = ["simulate", "vllm serve meta-llama/Llama-3.1-8B --max-model-len 4096 --swap-space 0 "
             "--preemption-mode swap --num-gpu-blocks-override 300", "--gpu", "H200", "--vllm-version", "0.6.3",
             "--rate", "inf", "--num-prompts", "40", "--prompt-tokens", "500", "--output-tokens", "200"]  # fmt: skip
    assert cli.main(words) == 1
    out, err = capsys.readouterr()
    assert "requests completed" in out
    assert "RuntimeError: Aborted due to the lack of CPU swap space." in err


@pytest.mark.parametrize(("rate", "told"), [("20", False), ("60", True)])
def test_a_rate_the_server_does_not_keep_up_with_is_told(rate, told, capsys):
    words = ["simulate", "vllm serve meta-llama/Llama-3.1-8B", "--profile", "h200-llama-3.1-8b", "--rate", rate]
    assert cli.main(words) == 0
    assert ("does not keep up with 60 requests/s" in capsys.readouterr().err) == told
