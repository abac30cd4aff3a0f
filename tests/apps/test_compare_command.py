"""``servecast compare``: what may stand on each side, and what is said about it."""

from __future__ import annotations

import json

import pytest

from apps import cli

SERVER = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192"
LOAD = ("--rate", "5", "--num-prompts", "20", "--prompt-tokens", "100", "--output-tokens", "20")
PROFILE = ("--profile", "h200-llama-3.1-8b")


def run(capsys, *words):
    code = cli.main(["compare", *words])
    out, err = capsys.readouterr()
    return code, out, err


def rows(text):
    return {row["key"]: row for row in json.loads(text)["rows"]}


def test_two_lines_meet_the_same_requests(capsys):
    code, out, _err = run(capsys, SERVER, f"{SERVER} --max-num-seqs 1", *PROFILE, *LOAD, "--format", "json")
    found = rows(out)
    assert code == 0
    assert found["completed"]["a"] == found["completed"]["b"] == 20
    assert found["mean_ttft_ms"]["difference"] > 0


def test_one_line_under_two_versions(capsys):
    code, out, err = run(
        capsys, f"{SERVER} --swap-space 8", "--vllm-version-a", "0.6.3", "--vllm-version-b", "0.24.0", *PROFILE, *LOAD
    )
    assert code == 0
    assert "A: meta-llama/Llama-3.1-8B on H200, vLLM 0.6.3" in out
    assert "KV blocks on the CPU" in out
    assert "A: vLLM 0.6.3 runs its V0 engine" in err
    assert "B: --swap-space was removed in 0.18.0" in err


def test_two_gpus(capsys):
    code, out, _err = run(capsys, SERVER, "--gpu-a", "H200", "--gpu-b", "L40S", *LOAD, "--format", "json")
    assert code == 0
    assert rows(out)["memory.num_gpu_blocks"]["difference"] < 0


def test_replications_tell_real_from_noise(capsys):
    code, out, _err = run(
        capsys, SERVER, f"{SERVER} --max-num-seqs 1", *PROFILE, *LOAD, "--replications", "3", "--format", "json"
    )
    assert code == 0
    found = rows(out)
    assert found["mean_ttft_ms"]["verdict"] == "real"
    assert found["mean_ttft_ms"]["low"] < found["mean_ttft_ms"]["mean_difference"] < found["mean_ttft_ms"]["high"]
    assert found["completed"]["verdict"] == "equal"


def test_results_and_scenarios_can_stand_on_either_side(capsys, tmp_path):
    result, scenario = tmp_path / "result.json", tmp_path / "scenario.json"
    words = ["simulate", SERVER, *PROFILE, *LOAD, "-o", str(result), "--save-scenario", str(scenario)]
    assert cli.main(words) == 0
    code, out, _err = run(capsys, str(result), str(result), "--format", "json")
    assert code == 0
    assert all(row["difference"] in (0, None) for row in rows(out).values())
    code, out, err = run(capsys, str(scenario), str(result))
    assert code == 0
    assert "do not serve the same requests" in err
    code, _out, err = run(capsys, str(result), "--replications", "2")
    assert code == 1
    assert "cannot be simulated again" in err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((SERVER, "vllm serve no/such", *PROFILE, *LOAD), "B: model 'no/such'"),
        (("missing.json",), "A: missing.json: cannot be read"),
        ((SERVER, *PROFILE), "A: no workload"),
    ],
)
def test_errors_say_which_side(capsys, words, what):
    code, _out, err = run(capsys, *words)
    assert code == 1
    assert what in err
    assert err.count("\n") == 1


def test_a_scenario_says_all_by_itself(capsys, tmp_path):
    saved = tmp_path / "s.json"
    saved.write_text("{}")
    code, _out, err = run(capsys, str(saved), "--rate", "3")
    assert code == 1
    assert "leave out --rate" in err
