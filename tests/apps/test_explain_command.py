"""``servecast explain``: a result back to its reasons."""

import json

import pytest

from apps import cli
from apps.explanation import explain
from apps.remedies import remedies
from simulator.explain_preemption import onset
from simulator.scenario import Scenario
from simulator.simulate import simulate
from simulator.workload import RateWorkload

SERVER = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 4096 --num-gpu-blocks-override 520"
LOAD = ["--rate", "30", "--num-prompts", "60", "--prompt-tokens", "uniform:50:900", "--output-tokens", "uniform:20:200"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "result.json"
    assert cli.main(["simulate", SERVER, "--profile", "h200-llama-3.1-8b", *LOAD, "-o", str(path)]) == 0
    return path


def run(capsys, *words):
    code = cli.main(["explain", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_result_is_explained_in_words(saved, capsys):
    code, out, _err = run(capsys, saved, "--no-check")
    assert code == 0
    for words in ("Why TTFT: 60 completed requests", "queue: too few free KV blocks", "Preemption began at", "Token "):
        assert words in out


def test_json_has_parts_that_add_up(saved, capsys):
    data = json.loads(run(capsys, saved, "--request", 17, "--no-check", "--format", "json")[1])
    told = data["request"]
    assert told["request"] == 17
    assert sum(told["parts_ms"].values()) == pytest.approx(told["ttft_ms"])
    for view in ("mean", "slowest 1 %", "request 17"):
        parts = data["ttft_parts_ms"]
        assert sum(parts[part][view] for part in parts if part != "TTFT") == pytest.approx(parts["TTFT"][view])
    result = json.loads(saved.read_text())
    assert data["ttft_parts_ms"]["TTFT"]["mean"] == pytest.approx(result["mean_ttft_ms"])
    assert data["preemption"]["preemptions"] == result["preemptions"]


def test_one_token_of_one_request(saved, capsys):
    data = json.loads(run(capsys, saved, "--request", 5, "--token", 4, "--no-check", "--format", "json")[1])
    assert (data["late_token"]["request"], data["late_token"]["token"]) == (5, 4)


def test_csv_is_one_row_a_part(saved, capsys):
    out = run(capsys, saved, "--no-check", "--format", "csv")[1].splitlines()
    assert out[0] == "part,mean,slowest 1 %,p99 request"
    assert out[-1].startswith("TTFT,")


def test_what_is_said_to_prevent_preemption_does():
    load = RateWorkload(rate=30, num_prompts=60, prompt_tokens="uniform:50:900", output_tokens="uniform:20:200")
    scenario = Scenario.from_command(SERVER, profile="h200-llama-3.1-8b", workload=load)
    fewer, more = remedies(scenario, onset(simulate(scenario).records))
    assert (fewer.preemptions, more.preemptions) == (0, 0)
    seqs = int(fewer.change.split()[-1])
    one_more = scenario.engine.model_copy(update={"max_num_seqs": seqs + 1})
    assert simulate(scenario.model_copy(update={"engine": one_more})).summary()["preemptions"] > 0
    assert more.mean_ttft_ms < fewer.mean_ttft_ms


def test_a_quiet_run_says_that_nothing_was_preempted():
    scenario = Scenario.from_command(
        "vllm serve meta-llama/Llama-3.1-8B",
        gpu="H200",
        workload=RateWorkload(rate=1, num_prompts=4, output_tokens="1"),
    )
    found = explain(scenario)
    assert found.late is None  # one token each: no gap
    assert found.words()[-1] == "No request was preempted."
    assert found.data()["preemption"] is None


REFUSED = [
    (["--request", "999"], "request 999 was not completed; there are 60 completed ones"),
    (["--token", "3"], "--token belongs to a request"),
    (["--request", "5", "--token", "9999"], "a gap lies before tokens 2 to"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[each[1][:20] for each in REFUSED])
def test_a_refusal_is_one_line(words, message, saved, capsys):
    code, out, err = run(capsys, saved, *words)
    assert (code, out) == (1, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_a_result_without_its_scenario_is_told_what_to_do(saved, capsys, tmp_path):
    data = json.loads(saved.read_text())
    del data["scenario"]
    (tmp_path / "old.json").write_text(json.dumps(data))
    assert "simulate again with -o" in run(capsys, tmp_path / "old.json")[2]
    (tmp_path / "old.json").write_text("hello")
    assert "is not JSON" in run(capsys, tmp_path / "old.json")[2]


def test_several_replicas_are_refused_in_one_line(saved, capsys, tmp_path):
    data = json.loads(saved.read_text())
    data["scenario"]["replicas"] = 2
    (tmp_path / "fleet.json").write_text(json.dumps(data))
    code, out, err = run(capsys, tmp_path / "fleet.json")
    assert (code, out) == (1, "")
    assert "several replicas" in err
