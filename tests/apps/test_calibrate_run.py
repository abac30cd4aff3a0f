"""``servecast calibrate run`` against a program in vLLM's place that records itself as the real one does."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from apps.cli import app, main
from tests.calibration.fake_server import FakeServer

PRETEND = Path(__file__).with_name("pretend_recorded_vllm.py")
MODEL = "meta-llama/Llama-3.1-8B"
LIMITS = "--max-num-seqs 2 --max-num-batched-tokens 512 --max-model-len 600"


def command(out: Path, *more: str, mood: str = "well", minutes: str = "0.08", refits: str = "0") -> list[str]:
    return [
        "calibrate", "run", MODEL, "--serve-args", LIMITS, "--gpu", "H200", "--minutes", minutes, "--out", str(out),
        "--vllm", f"{sys.executable} {PRETEND} {mood}", "--silence", "1", "--refits", refits, *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    return out, CliRunner().invoke(app, command(out, minutes="0.25", refits="4"))


def test_a_run_leaves_a_profile_a_recording_and_a_log(finished):
    out, result = finished
    assert result.exit_code == 0, result.output
    profile = json.loads((out / "profile.json").read_text())
    assert profile["name"] == "h200-llama-3.1-8b"
    assert "launch.none.per_layer_s" in profile["covariance"]["names"], "that of refits on resampled bursts"
    for name in ("server.log", "calib.steps.jsonl.gz", "calib.requests.json.gz"):
        assert (out / name).is_file()
    assert "coefficient" in result.stdout
    assert "next it would measure" in result.stderr


def test_what_a_run_recorded_can_be_fitted_again(finished, tmp_path):
    out, _ = finished
    result = CliRunner().invoke(
        app, ["calibrate", "fit", str(out), "--model", MODEL, "--gpu", "H200", "-o", str(tmp_path / "p.json")]
    )
    assert result.exit_code == 0, result.output


def test_a_run_is_not_overwritten_but_resumed(finished):
    out, _ = finished
    again = CliRunner().invoke(app, command(out))
    assert again.exit_code != 0
    before = len(list((out / "bursts").glob("*.json")))
    resumed = CliRunner().invoke(app, command(out, "--resume"))
    assert resumed.exit_code == 0, resumed.output
    assert len(list((out / "bursts").glob("*.json"))) > before
    assert (out / "server-1.log").is_file()


def eventually(condition, patience_s: float = 20.0) -> bool:
    until = time.monotonic() + patience_s
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def test_a_killed_run_takes_its_server_along_and_can_be_resumed(tmp_path):
    out = tmp_path / "out"
    words = [sys.executable, "-m", "apps.cli", *command(out, minutes="5")]
    with subprocess.Popen(words, cwd=PRETEND.parents[2], stderr=subprocess.DEVNULL) as run:
        assert eventually(lambda: len(list((out / "bursts").glob("*.json"))) >= 4)
        run.kill()
    server = int(re.search(r"process (\d+)", (out / "server.log").read_text())[1])
    assert eventually(lambda: not Path(f"/proc/{server}").exists())
    before = [path.read_bytes() for path in sorted((out / "bursts").glob("*.json"))]
    again = CliRunner().invoke(app, command(out, "--resume"))
    assert again.exit_code == 0, again.output
    after = [path.read_bytes() for path in sorted((out / "bursts").glob("*.json"))]
    assert after[: len(before)] == before
    assert len(after) > len(before)
    keys = [json.loads(burst)["key"] for burst in after]
    assert len(set(keys)) == len(keys), "it goes on where it was"
    assert {json.loads(burst)["part"] for burst in after} == {"01", "02"}
    assert (out / "profile.json").is_file()


@pytest.mark.parametrize(
    ("mood", "words"), [("dies", "died with exit code 7"), ("hangs", "nothing came for 1 s"), ("fails", "HTTP 500")]
)
def test_a_server_that_breaks_half_way_leaves_a_usable_part_and_exit_code_1(tmp_path, capfd, mood, words):
    code = main(command(tmp_path / "out", mood=mood, minutes="2"))
    said = capfd.readouterr().err
    assert code == 1
    assert words in said.strip().splitlines()[-1]
    assert "--resume goes on" in said
    assert (tmp_path / "out" / "calib.steps.jsonl.gz").is_file()


def test_a_server_that_does_not_start_shows_its_last_words(tmp_path, capfd):
    assert main(command(tmp_path / "out", mood="no-memory")) == 1
    said = capfd.readouterr().err
    assert "torch.OutOfMemoryError" in said
    assert said.strip().splitlines()[-1].startswith("error: the vLLM server died with exit code 1")


def test_from_outside_there_are_timings_and_no_profile(tmp_path, capfd):
    with FakeServer() as fake:
        arguments = ["calibrate", "run", MODEL, "--url", fake.url, "--gpu", "H200", "--minutes", "0.03"]
        assert main([*arguments, "--out", str(tmp_path / "out")]) == 0
    said = capfd.readouterr()
    assert "--scheduler-cls" in said.err
    assert not (tmp_path / "out" / "profile.json").exists()
    assert json.loads((tmp_path / "out" / "client.json").read_text())["bursts"]


def test_quotes_that_do_not_match_are_one_line(tmp_path, capfd):
    assert (
        main(["calibrate", "run", MODEL, "--gpu", "H200", "--serve-args", "--x 'y", "--out", str(tmp_path / "o")]) == 1
    )
    assert "check its quotes" in capfd.readouterr().err
