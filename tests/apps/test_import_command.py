"""``servecast import``: lists, writes and sets beside a prediction, in one line where it cannot."""

import json
from pathlib import Path

import pytest

from apps import cli
from simulator import request_list
from simulator.scenario import Scenario

DATA = Path(__file__).parents[1] / "data" / "evidence"
SERVER = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384"


def run(capsys, *words):
    code = cli.main(["import", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_csv_load_is_one_that_simulate_takes(capsys, tmp_path):
    load = tmp_path / "load.csv"
    code, out, err = run(capsys, DATA / "guidellm-0.8.1-concurrent.json", "-o", load)
    assert (code, out) == (0, "")
    assert f"--requests {load} --concurrency 2" in err
    assert "GuideLLM says MEAN TPOT" in err
    assert len(request_list.read(load).table) == 6
    words = ["simulate", SERVER, "--gpu", "H200", "--requests", str(load), "--concurrency", "2"]
    assert cli.main(words) == 0


def test_a_json_load_with_a_server_is_a_scenario(capsys, tmp_path):
    path = tmp_path / "scenario.json"
    words = [DATA / "burstgpt.csv", "--server", SERVER, "--gpu", "H200", "-o", path]
    assert run(capsys, *words)[0] == 0
    scenario = Scenario.from_json(path.read_text())
    assert [row.prompt_tokens for row in scenario.workload.rows] == [472, 1087, 417]


def test_the_measurement_stands_beside_the_prediction(capsys):
    words = [DATA / "vllm-bench-0.32-detailed.json", "--server", SERVER, "--profile", "h200-llama-3.1-8b"]
    code, out, _err = run(capsys, *words, "--format", "json")
    rows = {row["metric"]: row for row in json.loads(out)["rows"]}
    assert code == 0
    row = rows["TTFT mean"]
    assert row["error_percent"] == pytest.approx(100 * (row["predicted"] / row["measured"] - 1))
    assert {"TPOT p99", "E2E p50", "output throughput"} <= rows.keys()


def test_what_was_measured_is_shown(capsys):
    code, out, err = run(
        capsys, DATA / "vllm-0.32-metrics-before.txt", DATA / "vllm-0.32-metrics-after.txt", "--seconds", 35
    )
    assert code == 0
    assert "TTFT" in out
    assert "16 requests" in out
    assert "interpolated inside the buckets" in err


def test_of_several_runs_one_is_chosen(capsys, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_bytes((DATA / "vllm-bench-0.32-plain.json").read_bytes())
    code, out, _err = run(capsys, tmp_path, "--format", "csv")
    assert (code, out.splitlines()[1].split(",")[:2]) == (0, ["1", "a.json"])
    assert run(capsys, tmp_path, "-o", tmp_path / "x.csv")[2].startswith("error: 2 runs are in there; choose one")
    assert run(capsys, tmp_path, "--run", 2, "-o", tmp_path / "x.csv")[0] == 0
    assert "give a number from 1 to 2" in run(capsys, tmp_path, "--run", 3)[2]


REFUSED = [
    (["nowhere"], "nowhere: cannot be read"),
    ([DATA / "README.md"], "is none of"),
    ([DATA / "azure.csv", "--from", "excel"], "no such format; known: auto"),
    ([DATA / "azure.csv", DATA / "burstgpt.csv"], "a second file goes with Prometheus"),
    ([DATA / "vllm-0.32-metrics-after.txt", "-o", "x.csv"], "give --seconds"),
    ([DATA / "azure.csv", "-o", "x.txt"], "written as .csv or .json"),
    ([DATA / "azure.csv", "--server", "hello", "--gpu", "H200"], "no vLLM server is started"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[each[1][:25] for each in REFUSED])
def test_a_refusal_is_one_line(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())
