import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from apps import cli, validation_page
from apps.svg import Line, chart, ticks
from apps.validate_command import bars
from calibration.bars import BARS
from simulator.errors import InputError
from tests.calibration.recorded_world import PROFILE, question, record, slower_launches

RUN_8B = Path(__file__).parents[1] / "data" / "run-8b"
FIX8 = ["validate", "--recorded", str(RUN_8B), "--workload", "fix8", "--profile", PROFILE, "--replications", "0"]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The three files of one report, with intervals."""
    folder = tmp_path_factory.mktemp("report")
    words = [*FIX8[:-1], "5", "--report", str(folder / "new" / "fix8"), "-o", str(folder / "out.csv")]
    assert cli.main(words) == 0
    return folder


def test_all_bars_kept_is_code_0_and_one_broken_is_code_2(capsys):
    assert cli.main(FIX8) == 0
    assert "pass: 7 metrics within their bars" in capsys.readouterr().out
    assert cli.main([*FIX8, "--bar", "ttft_p50=1"]) == 2
    out = capsys.readouterr().out
    assert re.search(
        r"miss: TTFT p50 -\d\.\d % \(bar 1 %\)\. TTFT \(mean\): .* launch, no CUDA graph, busy: predicted", out
    )
    assert "MISS" in out
    assert cli.main([*FIX8, "--bar", "ttft_p50=off", "--bar", "itl_p99=1"]) == 2


def test_a_run_that_cannot_be_judged_is_code_1(tmp_path, capsys):
    record(question(requests=30), tmp_path, "late", late_s=0.5)
    words = ["validate", "--recorded", str(tmp_path), "--workload", "late", "--profile", PROFILE, "--replications", "0"]
    assert cli.main(words) == 1
    assert "not judged: late: the client was the bottleneck" in capsys.readouterr().out


def test_the_measured_side_may_be_a_shipped_run(capsys):
    words = ["validate", "--measured", "h200-llama-3.1-8b-chat12", "--profile", PROFILE, "--replications", "0"]
    assert cli.main([*words, "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"] == "pass"
    assert data["pictures"]["timeline"]["measured"] is None
    assert "cannot be said where" in str(validation_page.why(data)[0])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give one of: a workload"),
        (["--rate", "3", "--measured", "x"], "give one of: a workload"),
        (["--rate", "3"], "no server: give its start line"),
        (["--recorded", "."], "--recorded needs --workload NAME"),
        (["--recorded", ".", "--workload", "x"], "no x.requests.json"),
        (["--measured", "h200-llama-3.1-8b-c32", "--bar", "speed=3"], "no metric is called 'speed'"),
        (["--measured", "h200-llama-3.1-8b-c32", "--bar", "ttft_p50=-3"], "positive number"),
        (["--measured", "h200-llama-3.1-8b-c32", "--replications", "2"], "at least 5 replications, got 2"),
        (["--measured", "h200-llama-3.1-8b-c32", "--report", "/dev/null/x"], "/dev/null: cannot write there"),
        (["docker run vllm/vllm-openai --model meta-llama/Llama-3.1-8B", "--rate", "3"], "cannot be started here"),
        (["vllm serve meta-llama/Llama-3.1-8B", "--rate", "3", "--out", "/dev/null/x"], "/dev/null/x: cannot write"),
    ],
)
def test_mistakes_are_told_in_one_line(words, said, capsys):
    assert cli.main(["validate", "--profile", PROFILE, *words]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_bars_start_from_the_defaults():
    assert bars([]) == BARS
    assert bars(["ttft_p99=15%", "e2e_p50=off"]) == {
        **{k: v for k, v in BARS.items() if k != "e2e_p50"},
        "ttft_p99": 15.0,
    }
    with pytest.raises(InputError):
        bars(["ttft_p99"])


# reports --------------------------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_from_elsewhere(reports):
    page = (reports / "new" / "fix8.html").read_text()
    assert len(page) < 100_000
    assert not re.search(r"https?://|<script|<link|@import|url\(|src=", page)
    assert page.count("<svg") == 6


def test_the_pictures_are_well_formed(reports):
    page = (reports / "new" / "fix8.html").read_text()
    for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        root = ElementTree.fromstring(text)
        curves = [one for one in root.iter("path") if one.get("fill") == "none"]
        assert len(curves) == 2
        assert all("nan" not in one.get("d") for one in curves)


def test_the_json_file_draws_the_same_page_again(reports):
    data = json.loads((reports / "new" / "fix8.json").read_text())
    assert validation_page.html(data) == (reports / "new" / "fix8.html").read_text()
    assert data["schema_version"] == 1


def test_the_page_in_markdown_says_where_and_what_the_words_mean(reports):
    page = (reports / "new" / "fix8.md").read_text()
    assert page.startswith("# Predicted against measured: meta-llama/Llama-3.1-8B, fix8")
    assert "- TTFT (mean): -" in page
    assert "| launch | launch, no CUDA graph, busy |" in page
    assert "| TPOT | (time of the last token" in page
    assert "/tmp" not in page


def test_csv_has_one_row_per_metric(reports):
    lines = (reports / "out.csv").read_text().splitlines()
    assert lines[0].startswith("name,title,unit,predicted,measured")
    assert len(lines) == 19


def test_what_users_write_cannot_break_the_page(reports):
    data = json.loads((reports / "new" / "fix8.json").read_text())
    data["measured"]["workload"] = "<script>alert(1)</script>"
    assert "<script" not in validation_page.html(data)


def test_ticks_are_round_and_inside():
    assert ticks(0, 100) == [0, 20, 40, 60, 80, 100]
    assert ticks(0, 0.7) == pytest.approx([0, 0.2, 0.4, 0.6])
    assert ticks(3, 3) == [3]


def test_a_chart_of_nothing_is_still_a_chart():
    assert ElementTree.fromstring(chart("a & b", [Line("x", [], [])], "s", "ms")).tag == "svg"


# a server of one's own ------------------------------------------------------------------------------------------------

SERVER = Path(__file__).with_name("pretend_vllm.py")


def test_a_server_is_started_loaded_recorded_judged_and_stopped(tmp_path):
    """The server is a stand-in that answers at fixed times; the whole path is real."""
    start = f"{sys.executable} {SERVER} serve meta-llama/Llama-3.1-8B --max-model-len 16384"
    from calibration.live_validation import LiveServer
    from calibration.validate import Verdict
    from calibration.validation_inputs import Judging, of_server

    told = []
    found = of_server(
        question(requests=6, rate=20, output_tokens="4"), start, LiveServer(1000, probe=True, progress=told.append),
        tmp_path, Judging(bars={"request_throughput": 50.0}), repeats=2, progress=told.append,
    )  # fmt: skip
    assert found.verdict is not Verdict.missed  # on a busy machine the client is late: not judged
    assert [run.name for run in found.runs] == ["run1", "run2"]
    assert len(found.runs[0].measured.table) == 6
    assert found.runs[0].notes == (f"{tmp_path} has no run1.steps.jsonl(.gz): engine steps unknown",)
    assert (tmp_path / "server.log").is_file()
    assert any("warming up" in line for line in told)
    assert "measuring the host's speed" in told
    assert any(line.endswith("predicted as calibrated") for line in told)  # the stand-in records no steps


def test_a_server_that_runs_already_is_only_asked(tmp_path):
    from calibration.live_validation import LiveServer
    from calibration.server import VllmServer
    from calibration.validation_inputs import Judging, of_server

    with VllmServer([sys.executable, str(SERVER), "serve"], log=tmp_path / "log") as running:
        found = of_server(
            question(requests=3, rate=20, output_tokens="4"), "vllm serve x", LiveServer(1000, url=running.url),
            tmp_path / "out", Judging(bars={}),
        )  # fmt: skip
        running.check()
    assert len(found.runs[0].measured.table) == 3
    assert not (tmp_path / "out" / "server.log").exists()
    assert found.explanations == ()


def test_the_bench_of_vllm_may_send_the_requests(tmp_path, capsys):
    vllm = tmp_path / "vllm"
    vllm.write_text(f'#!/bin/sh\nexec {sys.executable} {SERVER} "$@"\n')
    vllm.chmod(0o755)
    start = f"{vllm} serve meta-llama/Llama-3.1-8B --max-model-len 16384"
    words = ["validate", start, "--profile", PROFILE, "--rate", "20", "--num-prompts", "6", "--output-tokens", "4"]
    words += ["--client", "vllm-bench", "--replications", "0", "--out", str(tmp_path), "--format", "json"]
    assert cli.main(words) == 2  # nothing is that fast
    metrics = {one["name"]: one["measured"] for one in json.loads(capsys.readouterr().out)["metrics"]}
    assert metrics["ttft_p50"] == pytest.approx(10.0, abs=1e-3)
    assert metrics["e2e_p99"] == pytest.approx(16.0, abs=1e-3)
    assert (tmp_path / "run1.bench" / "bench.json").is_file()


def test_a_server_that_dies_says_so_and_what_was_measured_stays(tmp_path, capsys):
    vllm = tmp_path / "vllm"
    vllm.write_text(f'#!/bin/sh\nexec {sys.executable} {SERVER} "$@" --die-after 12\n')  # 8 of them are the warm-up
    vllm.chmod(0o755)
    out = tmp_path / "out"
    words = ["validate", f"{vllm} serve meta-llama/Llama-3.1-8B", "--profile", PROFILE, "--rate", "20"]
    words += ["--num-prompts", "4", "--output-tokens", "4", "--repeats", "2", "--replications", "0", "--out", str(out)]
    assert cli.main(words) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert said[-1].startswith("error: the vLLM server died with exit code 7")
    assert said[-2] == f"what was measured until then is in {out}"
    assert "  | CUDA error: an illegal memory access" in said
    assert (out / "run1.requests.json.gz").is_file()
    assert cli.main(words) == 1
    assert f"{out} holds run1 of an earlier measurement; give another --out" in capsys.readouterr().err


def test_a_tokenizer_is_for_the_bench_only(capsys):
    assert cli.main(["validate", "vllm serve x", "--profile", PROFILE, "--rate", "2", "--tokenizer", "x"]) == 1
    assert "add --client vllm-bench" in capsys.readouterr().err


def test_what_is_no_serve_line_is_not_started(tmp_path):
    from calibration.live_validation import LiveServer
    from simulator.workload import RateWorkload, traffic

    sent = traffic(RateWorkload(rate=1, num_prompts=1, prompt_tokens="8", output_tokens="1"), 0)
    with pytest.raises(InputError, match="cannot be started here"):
        LiveServer(1000)("docker run vllm/vllm-openai --model x", sent, tmp_path, ["run1"])


def test_slower_launches_name_themselves_on_the_command_line(tmp_path, capsys):
    record(question(), tmp_path, "slow", timed_by=slower_launches(4e-3))
    words = ["validate", "--recorded", str(tmp_path), "--workload", "slow", "--profile", PROFILE, "--replications", "0"]
    assert cli.main(words) == 2
    assert "launch, no CUDA graph, busy: predicted" in capsys.readouterr().out.split("\n\n")[1]


@pytest.mark.parametrize("path", sorted((RUN_8B.parents[2] / "validation").glob("*.json")), ids=lambda path: path.stem)
def test_the_shipped_reports_show_what_their_data_say(path):
    data = json.loads(path.read_text())
    assert (data["schema_version"], data["kind"]) == (1, "validation")
    page = path.with_suffix(".md").read_text()
    assert all(one["words"] in page for one in data["explanations"])
    assert data["words"] in page
