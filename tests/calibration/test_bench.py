import json
import sys

import numpy as np
import pytest

from calibration.bench_client import bench_words, replay_with_bench, requests_document, trace_lines
from calibration.bench_json import read_bench
from calibration.server import ServerError
from simulator.errors import InputError
from simulator.request_table import RequestTable

PLAIN = {
    "date": "20261201-030405", "backend": "openai", "model_id": "m", "num_prompts": 3, "request_rate": 4.0,
    "burstiness": 1.0, "max_concurrency": None, "duration": 2.5, "completed": 2, "failed": 1,
    "total_input_tokens": 30, "total_output_tokens": 5, "request_throughput": 0.8, "request_goodput": None,
    "mean_ttft_ms": 150.0, "p99_ttft_ms": 199.0, "median_itl_ms": 20.0,
}  # fmt: skip
DETAILS = {
    "input_lens": [10, 20, 30], "output_lens": [3, 2, 0], "ttfts": [0.1, 0.2, 0.0], "errors": ["", "", "HTTP 500"],
    "itls": [[0.01, 0.02], [0.03], []], "start_times": [100.5, 100.0, 101.0],
}  # fmt: skip


def written(tmp_path, data) -> str:
    path = tmp_path / "bench.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(path)


def test_a_plain_result_gives_its_aggregates(tmp_path):
    (result,) = read_bench(written(tmp_path, PLAIN))
    assert (result.model, result.request_rate, result.max_concurrency) == ("m", 4.0, None)
    assert result.summary == {
        "duration_s": 2.5, "completed": 2, "failed": 1, "total_input_tokens": 30, "total_output_tokens": 5,
        "request_throughput": 0.8, "mean_ttft_ms": 150.0, "p99_ttft_ms": 199.0, "median_itl_ms": 20.0,
    }  # fmt: skip
    assert result.run is None
    assert "--save-detailed" in result.why_no_run


def test_a_detailed_result_gives_its_requests_in_order_of_sending_failed_ones_left_out(tmp_path):
    (result,) = read_bench(written(tmp_path, PLAIN | DETAILS))
    assert result.run.sent_s.tolist() == [0.0, 0.5]
    assert result.run.table.prompt_tokens.tolist() == [20, 10]
    assert result.run.seen.e2el_s.tolist() == pytest.approx([0.23, 0.13])
    assert result.run.summary()["duration_s"] == 2.5


def test_the_gap_before_the_first_request_of_an_open_loop_is_kept(tmp_path):
    """The bench starts its clock before that gap: without it, the same requests would have a higher throughput."""
    whole = {key: value[:2] for key, value in DETAILS.items()}
    (result,) = read_bench(written(tmp_path, PLAIN | whole))  # 2.5 s, of which the requests take 0.63
    assert result.run.sent_s.tolist() == pytest.approx([1.87, 2.37])
    (late,) = read_bench(written(tmp_path, PLAIN | whole | {"duration": 30.0}))
    assert late.run.sent_s.tolist() == [0.0, 0.5]


def test_a_closed_loop_is_one(tmp_path):
    (result,) = read_bench(written(tmp_path, PLAIN | DETAILS | {"request_rate": "inf", "max_concurrency": 8}))
    assert result.run.concurrency == 8


def test_old_files_without_start_times_keep_their_aggregates(tmp_path):
    old = {key: value for key, value in (PLAIN | DETAILS).items() if key not in ("start_times", "failed", "burstiness")}
    (result,) = read_bench(written(tmp_path, old))
    assert result.run is None
    assert "start_times" in result.why_no_run
    (closed,) = read_bench(written(tmp_path, old | {"request_rate": "inf", "max_concurrency": 2}))
    assert len(closed.run.table) == 2


def test_appended_results_are_all_read(tmp_path):
    lines = json.dumps(PLAIN) + "\n" + json.dumps(PLAIN | {"request_rate": "inf"}) + "\n"
    assert [result.request_rate for result in read_bench(written(tmp_path, lines))] == [4.0, None]


@pytest.mark.parametrize(
    "text", ["", "not json", "[]", "{}", '{"duration": 1}', json.dumps(PLAIN | {"request_rate": "fast"}), "[1, 2]"]
)
def test_other_files_are_refused_in_one_line(tmp_path, text):
    with pytest.raises(InputError, match=r"bench\.json") as caught:
        read_bench(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def table(**more) -> RequestTable:
    return RequestTable.build(
        prompt_tokens=np.array([600, 10]), output_tokens=np.array([5, 6]), arrival_s=np.array([0.0, 1.5]), **more
    )


def test_the_trace_has_times_lengths_and_prompts_of_their_own():
    first, second = (json.loads(line) for line in trace_lines(table()).splitlines())
    assert first == {"timestamp": 0.0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
    assert second == {"timestamp": 1.5, "input_length": 10, "output_length": 6, "hash_ids": [2]}
    assert json.loads(trace_lines(table(), run=1).splitlines()[0])["hash_ids"][0] > 2


def test_shared_prefixes_are_refused():
    segments = (np.array([0, 1, 1]), np.array([7]), np.array([40]))
    with pytest.raises(InputError, match="shared prefixes"):
        trace_lines(table(segments=segments))


FAKE_BENCH = f"""
import json, pathlib, sys
options = dict(zip(sys.argv[1:], sys.argv[2:]))
assert sys.argv[1:3] == ["bench", "serve"] and options["--max-concurrency"] == "4"
assert len(pathlib.Path(options["--dataset-path"]).read_text().splitlines()) == int(options["--num-prompts"])
result = {{**{PLAIN!r}, **{DETAILS!r}, "request_rate": "inf", "max_concurrency": 4}}
(pathlib.Path(options["--result-dir"]) / options["--result-filename"]).write_text(json.dumps(result))
"""


def test_the_bench_is_run_and_its_result_read(tmp_path):
    vllm = (sys.executable, "-c", FAKE_BENCH)
    result = replay_with_bench("http://x", "m", table(), tmp_path, vllm=vllm, max_concurrency=4)
    assert result.run.concurrency == 4


def test_a_bench_that_fails_shows_its_last_words(tmp_path):
    vllm = (sys.executable, "-c", "import sys; sys.exit('no tokenizer')")
    with pytest.raises(ServerError, match="exit code 1") as caught:
        replay_with_bench("http://x", "m", table(), tmp_path, vllm=vllm)
    assert "no tokenizer" in caught.value.log_tail


def test_without_vllm_the_bench_says_so(tmp_path):
    with pytest.raises(InputError, match="needs vLLM"):
        replay_with_bench("http://x", "m", table(), tmp_path, vllm=("no-such-vllm",))


def test_a_result_becomes_requests_on_the_clock_of_the_steps():
    data = {
        "duration": 3.0, "start_times": [100.0, 101.52], "ttfts": [0.1, 0.2], "output_lens": [5, 3],
        "itls": [[0.01] * 4, [0.02] * 2], "errors": ["", ""],
    }  # fmt: skip
    found = requests_document(data, table(), 4, "bench.json")
    assert (found["t_base"], found["duration"], found["conc"]) == (100.0, 3.0, 4)
    (good,), (failed,) = found["requests"], found["failed"]
    assert (good["send"], good["isl"], good["n"], good["e2e"], good["itl"]) == (0.0, 600, 5, 0.14, [10.0] * 4)
    assert (failed["t"], failed["send"], failed["error"]) == (1.5, 1.52, "3 tokens came, 6 were asked for")


def test_a_result_without_all_times_is_refused():
    with pytest.raises(InputError, match=r"x\.json: does not hold times of all 2 requests"):
        requests_document({"duration": 3.0, "start_times": [1.0]}, table(), None, "x.json")


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("/opt/bin/vllm serve m --port 1", ("/opt/bin/vllm",)),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", ("python3", "-m", "vllm.entrypoints.cli.main")),
        ("docker run vllm/vllm-openai --model serve", ("vllm",)),
        ("", ("vllm",)),
    ],
)
def test_the_bench_is_called_as_the_server_was(start, words):
    assert bench_words(start) == words
