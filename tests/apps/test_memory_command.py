"""``servecast memory``: the answer in four formats, the exit code, and one line for bad input."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import pytest

from apps import cli
from tests.simulator.memory_cases import LOGS

H200 = ["memory", "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384", "--gpu", "H200"]
TOO_LONG = ["memory", "vllm serve meta-llama/Llama-3.1-8B --max-model-len 131072", "--gpu", "RTX4090"]


def answer(capsys, *arguments, code=0):
    assert cli.main([*arguments]) == code
    return capsys.readouterr()


def test_a_log_is_read_back_in_vllms_words(capsys):
    out = answer(capsys, "memory", "--log", str(LOGS["qwen2.5-32b"])).out
    assert "Available KV cache memory  64.20  inside" in out
    assert "GPU KV cache size: 262,960 tokens\nMaximum concurrency for 16,384 tokens per request: 16.05x\n" in out


def test_a_log_from_stdin():
    done = subprocess.run(
        [sys.executable, "-m", "apps.cli", "memory", "--log", "-", "--format", "json"],
        input=LOGS["llama-3.1-8b"].read_bytes(),
        capture_output=True,
        check=True,
    )
    data = json.loads(done.stdout)
    assert (data["source"], data["num_gpu_blocks"], data["fits"], data["predicted"]) == ("log", 57489, True, None)


def test_a_log_of_a_server_that_did_not_start_exits_with_2(capsys, tmp_path):
    (tmp_path / "x.log").write_text("ERROR ValueError: No available memory for the cache blocks. Try increasing\n")
    out = answer(capsys, "memory", "--log", str(tmp_path / "x.log"), code=2).out
    assert "vLLM did not start:\nNo available memory for the cache blocks." in out


def test_a_plan_in_vllms_words(capsys):
    out = answer(capsys, *H200).out
    assert "Model loading took          14.99  inside" in out
    assert "CUDA graph memory            0.96  outside" in out
    assert "Maximum concurrency for 16,384 tokens per request: 56." in out


def test_a_plan_as_json_csv_and_markdown(capsys, tmp_path):
    data = json.loads(answer(capsys, *H200, "--format", "json").out)
    assert data["fits"]
    assert data["usable_blocks"] == data["num_gpu_blocks"] - 1
    assert abs(data["available_kv_bytes"] / 2**30 - 112.28) < 1.2
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(answer(capsys, *H200, "--format", "csv").out))}
    assert (rows["weights"]["unit"], rows["weights"]["budget"], rows["fits"]["value"]) == ("GiB", "inside", "True")
    answer(capsys, *H200, "-o", str(tmp_path / "memory.md"))
    assert "| Model loading took | 14.99 | inside |" in (tmp_path / "memory.md").read_text()


def test_what_does_not_fit_says_why_what_fits_and_three_fixes(capsys):
    out = answer(capsys, *TOO_LONG, code=2).out
    assert "vLLM would not start:\nTo serve at least one request with the model's max seq len (131072)" in out
    assert "Largest max_model_len that starts: " in out
    assert "--max-model-len " in out
    data = json.loads(answer(capsys, *TOO_LONG, "--format", "json", code=2).out)
    assert not data["fits"]
    assert len(data["fixes"]) == 3


def test_an_automatic_length_fits(capsys):
    line = "vllm serve meta-llama/Llama-3.1-8B --max-model-len -1"
    data = json.loads(answer(capsys, "memory", line, "--gpu", "RTX4090", "--format", "json").out)
    assert data["fits"]
    assert data["max_model_len"] == data["largest_max_model_len"] < 131072


def test_a_log_beside_a_prediction(capsys):
    log = str(LOGS["llama-3.1-8b"])
    data = json.loads(answer(capsys, *H200, "--log", log, "--format", "json").out)
    assert abs(data["predicted"]["available_kv_bytes"] / data["available_kv_bytes"] - 1) < 0.01
    assert "predicted" in answer(capsys, *H200, "--log", log).out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["memory"], "nothing to plan: give a `vllm serve ...` line in quotes, or --log FILE"),
        (["memory", "vllm serve meta-llama/Llama-3.1-8B"], "--gpu is missing: on which GPU?"),
        (["memory", "--log", "/nowhere/x.log"], "--log /nowhere/x.log: No such file or directory"),
        (["memory", "--log", "/dev/null"], "log: none of vLLM's memory lines found"),
        (["memory", "--format", "xml"], "Invalid value for '--format'"),
    ],
)
def test_bad_input_is_one_line_and_exit_1(capsys, arguments, words):
    captured = answer(capsys, *arguments, code=1)
    assert captured.out == ""
    assert captured.err.startswith(f"error: {words}")
    assert captured.err.count("\n") == 1


def test_nothing_is_written_when_it_fails(capsys, tmp_path):
    answer(capsys, "memory", "--log", "/dev/null", "-o", str(tmp_path / "x.json"), code=1)
    assert list(tmp_path.iterdir()) == []
