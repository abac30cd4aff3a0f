"""``servecast report``: every output is written, read back by somebody else, and the same each time."""

import json
import re
import xml.etree.ElementTree
from html.parser import HTMLParser

import pandas as pd
import pytest
from prometheus_client.parser import text_string_to_metric_families

from apps import cli
from calibration.bench_json import read_bench

SERVER = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 4096"
LOAD = ["--rate", "20", "--num-prompts", "40", "--prompt-tokens", "uniform:50:900", "--output-tokens", "uniform:2:60"]
FILES = {
    "--html": "report.html", "--md": "report.md", "--csv-requests": "requests.csv", "--csv-steps": "steps.csv.gz",
    "--csv-seconds": "seconds.csv", "--bench-json": "bench.json", "--prometheus": "metrics.txt",
    "--trace": "trace.json", "--bench-requests": "requests.jsonl", "--png": "png", "--svg": "svg",
}  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    simulate = ["simulate", SERVER, "--profile", "h200-llama-3.1-8b", *LOAD]
    assert cli.main([*simulate, "--save-scenario", f"{folder}/scenario.json", "-o", f"{folder}/result.json"]) == 0
    options = [word for flag, name in FILES.items() for word in (flag, f"{folder}/{name}")]
    assert cli.main(["report", f"{folder}/result.json", *options]) == 0
    return folder


class Page(HTMLParser):
    """What a browser would load, and whether all elements are closed."""

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.loads += [
            value for name, value in attrs if name in ("src", "srcset") or (tag == "link" and name == "href")
        ]
        if tag not in ("meta", "br", "img", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_is_whole_and_loads_nothing(written):
    text = (written / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert (page.open, page.loads) == ([], [])
    assert "@import" not in text
    assert text.count("<svg ") == 4
    shown = " ".join(page.text)
    for words in (
        "Predicted: meta-llama/Llama-3.1-8B on H200",
        "vllm serve meta-llama",
        "Why TTFT",
        "What the words mean",
    ):
        assert words in shown


def test_the_numbers_of_the_page_are_those_of_the_result(written):
    result = json.loads((written / "result.json").read_text())
    for name in ("report.html", "report.md"):
        assert f"{result['p99_ttft_ms']:,.2f}" in (written / name).read_text()


def test_markdown_shows_pictures_that_are_there(written):
    links = re.findall(r"!\[[^]]*\]\(([^)]*)\)", (written / "report.md").read_text())
    assert len(links) == 4
    assert all((written / link).is_file() for link in links)


def test_pictures_are_png_and_svg(written):
    names = {"latencies", "timeline", "requests", "ttft"}
    assert (
        {path.stem for path in (written / "png").iterdir()}
        == {path.stem for path in (written / "svg").iterdir()}
        == names
    )
    for path in (written / "png").iterdir():
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    for path in (written / "svg").iterdir():
        assert xml.etree.ElementTree.fromstring(path.read_text()).tag.endswith("svg")


def test_tables_are_read_by_pandas(written):
    result = json.loads((written / "result.json").read_text())
    requests, steps, seconds = (
        pd.read_csv(written / FILES[f"--csv-{name}"]) for name in ("requests", "steps", "seconds")
    )
    assert 1e3 * requests.ttft_s.mean() == pytest.approx(result["mean_ttft_ms"])
    assert len(steps) == result["steps"]
    assert seconds["vllm:request_success"].iloc[-1] == result["completed"] == len(requests)


def test_formats_of_other_tools_are_read_by_their_readers(written):
    result = json.loads((written / "result.json").read_text())
    (bench,) = read_bench(written / "bench.json")
    assert bench.summary["p99_ttft_ms"] == pytest.approx(result["p99_ttft_ms"])
    families = list(text_string_to_metric_families((written / "metrics.txt").read_text()))
    assert any(family.name == "vllm:e2e_request_latency_seconds" for family in families)
    assert len(json.loads((written / "trace.json").read_text())["traceEvents"]) > result["steps"]
    assert len((written / "requests.jsonl").read_text().splitlines()) == 40
    assert f"--dataset-path {written}/requests.jsonl" in (written / "report.md").read_text()


def test_a_scenario_gives_the_same_files_as_its_result(written, tmp_path):
    names = ("--svg", "--csv-requests", "--trace", "--prometheus", "--md")
    options = [word for flag in names for word in (flag, f"{tmp_path}/{FILES[flag]}")]
    assert cli.main(["report", f"{written}/scenario.json", *options]) == 0
    for path in (path for path in tmp_path.rglob("*") if path.is_file() and path.name != "report.md"):
        assert path.read_bytes() == (written / path.relative_to(tmp_path)).read_bytes(), path.name


def test_without_a_file_the_report_is_printed(written, capsys):
    assert cli.main(["report", f"{written}/scenario.json"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# Predicted: ")
    assert "](" not in out  # no link to a picture that nobody drew


def test_intervals_of_the_result_are_shown(written, capsys):
    data = json.loads((written / "result.json").read_text())
    data["intervals"] = {"mean_ttft_ms": [1.5, 99.25], "level": 0.9, "replications": 20, "contains": []}
    (written / "with.json").write_text(json.dumps(data))
    assert cli.main(["report", f"{written}/with.json"]) == 0
    assert "90 % intervals of 20 replications" in capsys.readouterr().out


def test_a_place_that_cannot_be_written_is_refused_before_any_work(written, capsys, tmp_path):
    assert cli.main(["report", f"{written}/result.json", "--html", f"{tmp_path}/no/x.html"]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert cli.main(["report", f"{written}/result.json", "--html", f"{tmp_path}/x", "--md", f"{tmp_path}/x"]) == 1
    assert "two outputs would be written" in capsys.readouterr().err
