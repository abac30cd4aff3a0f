"""``servecast sweep``: exact counts, files that survive, exit codes."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from apps import cli

SERVE = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 4096"
BASE = ["sweep", SERVE, "--profile", "h200-llama-3.1-8b", "--num-prompts", "6", "--prompt-tokens", "64",
        "--output-tokens", "4", "--workers", "1"]  # fmt: skip
AXES = ["--vary", "max_num_seqs=2,8", "--vary", "rate=10..30:10"]


def run(capsys, *words):
    code = cli.main([str(word) for word in words])
    found = capsys.readouterr()
    return code, found.out, found.err


def lines_of(path: Path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_combination_is_a_line_in_order_and_the_table_has_two_axes(tmp_path, capsys):
    code, out, err = run(capsys, *BASE, *AXES, "-o", tmp_path / "r.jsonl", "--metric", "completed")
    assert code == 0, err
    rows = lines_of(tmp_path / "r.jsonl")
    assert [(row["max_num_seqs"], row["rate"]) for row in rows] == [(s, r) for s in (2, 8) for r in (10, 20, 30)]
    assert all(row["status"] == "ok" and row["completed"] == 6 for row in rows)
    assert out == (
        "6 simulations, 6 answered, all calibrated\n\n"
        "completed\n"
        "max_num_seqs \\ rate  10  20  30\n"
        "-------------------  --  --  --\n"
        "                  2   6   6   6\n"
        "                  8   6   6   6\n"
    )


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_sweep_goes_on_where_it_was_stopped_and_ends_in_the_same_file(tmp_path, capsys, suffix):
    whole, part = tmp_path / f"whole{suffix}", tmp_path / f"part{suffix}"
    run(capsys, *BASE, *AXES, "-o", whole)
    lines = whole.read_text().splitlines(keepends=True)
    head = 1 if suffix == ".csv" else 0
    part.write_text(
        "".join([*lines[: head + 1], *lines[head + 3 : head + 4], lines[head + 5][:40]])
    )  # a torn last line
    code, _, err = run(capsys, *BASE, *AXES, "-o", part)
    assert code == 0
    assert "2 of 6 rows are there already" in err
    assert part.read_text() == whole.read_text()


def test_an_axis_may_grow_and_what_is_there_is_kept(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    run(capsys, *BASE, "--vary", "rate=10,30", "-o", path)
    _, _, err = run(capsys, *BASE, "--vary", "rate=10,20,30", "-o", path)
    assert "2 of 3 rows are there already" in err
    assert [row["rate"] for row in lines_of(path)] == [10, 20, 30]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--vary", "rate=10"], "rate is 20 there, 10 here"),
        (["--vary", "rate=10,20", "--burstiness", "2"], "it has no burstiness"),
        (["--vary", "rate=10,20", "--seed", "1"], "seed is 0 there, 1 here"),
    ],
)
def test_rows_of_another_sweep_are_not_mixed_in_and_stay(tmp_path, capsys, change, message):
    path = tmp_path / "r.jsonl"
    run(capsys, *BASE, "--vary", "rate=10,20", "-o", path)
    before = path.read_text()
    code, out, err = run(capsys, *BASE, *change, "-o", path)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1
    assert "give another -o, or --overwrite" in err
    assert path.read_text() == before
    assert run(capsys, *BASE, *change, "-o", path, "--overwrite")[0] == 0


def test_a_file_that_is_no_sweep_is_left_alone(tmp_path, capsys):
    path = tmp_path / "notes.csv"
    path.write_text("a,b\n1,2\n")
    code, _, err = run(capsys, *BASE, *AXES, "-o", path)
    assert code == 1
    assert "holds another sweep" in err
    assert path.read_text() == "a,b\n1,2\n"


def test_a_configuration_that_fails_is_a_row_and_the_others_go_on(tmp_path, capsys):
    path = tmp_path / "r.csv"
    code, out, _ = run(capsys, *BASE, "--rate", "20", "--vary", "gpu=T4,H200", "--vary", "max_num_seqs=0,4", "-o", path)
    assert code == 0
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["refused", "does not fit", "refused", "ok"]
    assert "does not fit on T4" in rows[1]["reason"]
    assert "no answer at gpu T4, max_num_seqs 0 and 1 more: " in out
    assert rows[1]["mean_ttft_ms"] == ""
    assert float(rows[3]["mean_ttft_ms"]) > 0


@pytest.mark.parametrize(("axis", "code"), [("gpu=T4,L4", 2), ("prompt_tokens=nonsense", 1)])
def test_exit_code_2_if_nothing_fits_and_1_if_nothing_could_be_asked(capsys, axis, code):
    words = [word for word in BASE if word not in ("--prompt-tokens", "64")]
    words += ["--rate", "9", "--vary", "gpu_memory_utilization=0.5"] if code == 2 else ["--rate", "9"]
    found, _, err = run(capsys, *words, "--vary", axis)
    assert found == code
    assert ("error: nothing was answered; the first reason: " in err) == (code == 1)


@pytest.mark.parametrize(("slo", "code"), [("ttft_p99=1us", 2), ("ttft_p99=10s", 0)])
def test_exit_code_2_if_nothing_meets_the_slo(capsys, slo, code):
    found, out, err = run(capsys, *BASE, "--vary", "rate=5,9", "--slo", slo)
    assert found == code
    assert ("no configuration meets the SLO" in err) == (code == 2)
    assert "slo met" in out


def test_a_warning_is_told_whole_also_if_it_holds_a_semicolon(capsys):
    line = [word for word in BASE if word not in ("--profile", "h200-llama-3.1-8b")]
    code, _, err = run(capsys, *line, "--vary", "gpu=H100,L4", "--rate", "5")
    assert code == 0
    warnings = [line for line in err.splitlines() if "H100" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith("warning: ")


def test_json_holds_the_sweep_its_rows_and_the_averages_of_the_seeds(capsys):
    words = [*BASE, "--vary", "rate=10,20", "--replications", "3", "--format", "json"]
    found = json.loads(run(capsys, *words)[1])
    assert found["sweep"]["vary"] == {"rate": [10, 20]}
    assert [(row["rate"], row["seed"]) for row in found["rows"]] == [(r, s) for r in (10, 20) for s in (0, 1, 2)]
    mean = sum(row["mean_ttft_ms"] for row in found["rows"][:3]) / 3
    assert found["averages"][0]["mean_ttft_ms"] == pytest.approx(mean)
    assert found["averages"][0]["mean_ttft_ms_half"] > 0


@pytest.mark.parametrize("suffix", ["toml", "yaml"])
def test_a_saved_sweep_gives_the_same_rows(tmp_path, capsys, suffix):
    file = tmp_path / f"s.{suffix}"
    _, first, _ = run(capsys, *BASE, *AXES, "--slo", "ttft_p99=1s", "--save-sweep", file, "--format", "csv")
    _, second, _ = run(capsys, "sweep", "--sweep", file, "--workers", "1", "--format", "csv")
    assert first == second
    assert first.count("\n") == 7


@pytest.mark.parametrize("suffix", ["svg", "png", "html"])
def test_plots_are_written(tmp_path, capsys, suffix):
    plot = tmp_path / f"p.{suffix}"
    code, _, err = run(capsys, *BASE, *AXES, "--plot", plot, "--metric", "p99_ttft_ms")
    assert code == 0, err
    if suffix == "png":
        assert plot.read_bytes().startswith(b"\x89PNG")
    else:
        assert "<svg" in plot.read_text()
        assert (
            re.search(r"https?://(?!www\.w3\.org|matplotlib\.org|purl\.org|creativecommons)", plot.read_text()) is None
        )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--vary", "rate"], "--vary rate: has no values; write NAME=VALUES"),
        (["--vary", "rate=1", "--vary", "rate=2"], "--vary rate is given twice"),
        (["--vary", "max-nun-seqs=1"], "did you mean max_num_seqs"),
        (["--vary", "rate=1", "--metric", "p99_ttf_ms"], "did you mean p99_ttft_ms"),
        (["--vary", "rate=1", "--plot", "p.pdf"], "an .svg, .png or .html file"),
        (["--vary", "rate=1", "-o", "rows.xlsx"], "to a .jsonl or .csv file"),
        (["--vary", "rate=1", "--time-limit", "0"], "--time-limit must be above 0"),
        (["--vary", "rate=1", "--scheduler", "tcp://h:1"], "add --backend dask"),
        (["--vary", "rate=1", "--backend", "dask"], "needs a scheduler"),
        ([], "nothing is varied"),
    ],
)
def test_mistakes_are_one_line(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *BASE, *words)
    assert (code, out) == (1, "")
    assert message in err
    assert len([line for line in err.splitlines() if line.startswith("error: ")]) == 1


def test_an_interrupted_sweep_loses_nothing_and_ends_as_one_that_was_not(tmp_path):
    servecast = shutil.which("servecast", path=str(Path(sys.executable).parent))
    axes = ["--vary", "rate=10..19", "--vary", "max_num_seqs=4,8,16"]
    words = [servecast, *BASE[:4], "--num-prompts", "400", "--workers", "2", *axes]
    part, whole = tmp_path / "part.jsonl", tmp_path / "whole.jsonl"
    stopped = subprocess.Popen(
        [*words, "-o", part], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while (not part.exists() or part.read_text().count("\n") < 3) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(stopped.pid, signal.SIGINT)
    _, err = stopped.communicate(timeout=30)
    assert stopped.returncode == 130, err
    kept = lines_of(part)
    assert 3 <= len(kept) < 30
    assert err == f"stopped: {len(kept)} of 30 rows are in {part}; the same command goes on\n"
    again = subprocess.run([*words, "-o", part], capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    assert f"{len(kept)} of 30 rows are there already" in again.stderr
    subprocess.run([*words, "-o", whole], capture_output=True, timeout=120, check=True)
    assert part.read_text() == whole.read_text()
    assert len(lines_of(part)) == 30


def test_a_dask_cluster_of_this_machine_gives_the_same_rows(tmp_path, capsys):
    from distributed import LocalCluster

    words = [word for word in [*BASE, *AXES] if word not in ("--workers", "1")]
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL") as cluster:
        code, there, err = run(
            capsys, *words, "--backend", "dask", "--scheduler", cluster.scheduler_address, "--format", "csv"
        )
    assert code == 0, err
    assert there == run(capsys, *BASE, *AXES, "--format", "csv")[1]
