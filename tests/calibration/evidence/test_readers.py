"""Each format: recognised by its content, read exactly, strict about what breaks it.  Files: tests/data/evidence."""

import json
from pathlib import Path

import numpy as np
import pytest

from calibration.evidence.evidence import Options
from calibration.evidence.formats import FORMATS, Source, read_evidence, recognised
from simulator.errors import InputError
from simulator.workload import ConcurrencyWorkload, RateWorkload, traffic

DATA = Path(__file__).parents[2] / "data" / "evidence"
FILES = {
    "vllm-bench-0.32-detailed.json": "vllm-bench", "vllm-bench-0.32-plain.json": "vllm-bench",
    "guidellm-0.8.1-poisson.json": "guidellm", "guidellm-0.8.1-concurrent.json": "guidellm",
    "inference-perf-0.7.0-per_request_lifecycle_metrics.json": "inference-perf",
    "inference-perf-0.7.0-summary_lifecycle_metrics.json": "inference-perf",
    "vllm-0.32-metrics-after.txt": "prometheus", "vllm-0.6.3-metrics-before.txt": "prometheus",
    "openai-batch.jsonl": "openai-batch", "azure.csv": "azure", "burstgpt.csv": "burstgpt",
    "mooncake.jsonl": "mooncake",
}  # fmt: skip


def one(name, *more, **options):
    (found,) = read_evidence(DATA / name, *(DATA / each for each in more), options=Options(**options))
    return found


@pytest.mark.parametrize(("name", "format"), FILES.items())
def test_a_format_is_recognised_by_its_content_and_by_no_other(name, format, tmp_path):
    moved = tmp_path / "data"  # no suffix to go by
    moved.write_bytes((DATA / name).read_bytes())
    assert recognised(Source.read(moved)).name == format
    assert [each.name for each in FORMATS if each.recognise(Source.read(moved))] == [format]


def test_a_file_of_no_format_is_refused_with_the_known_ones(tmp_path):
    for text in ("", "hello", "{}", "[]", '{"a": 1}\n', "a,b\n1,2\n"):
        (tmp_path / "x").write_text(text)
        with pytest.raises(InputError, match="is none of: vllm bench serve, GuideLLM"):
            read_evidence(tmp_path / "x")


# vllm bench serve


def test_a_detailed_bench_result_is_replayed_and_measured_by_its_requests():
    data = json.loads((DATA / "vllm-bench-0.32-detailed.json").read_text())
    found = one("vllm-bench-0.32-detailed.json")
    assert [row.prompt_tokens for row in found.rows] == data["input_lens"]
    between = found.rows[1].arrival_s - found.rows[0].arrival_s
    assert between == pytest.approx(data["start_times"][1] - data["start_times"][0])
    for key in ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "mean_e2el_ms"):
        assert found.metrics[key] == pytest.approx(data[key], rel=1e-3)
    assert found.notes == ()


def test_a_plain_bench_result_gives_a_load_of_mean_lengths_and_says_so():
    found = one("vllm-bench-0.32-plain.json")
    assert found.workload == ConcurrencyWorkload(concurrency=2, num_prompts=8, prompt_tokens="40", output_tokens="12")
    assert found.metrics["p50_ttft_ms"] == found.metrics["median_ttft_ms"]
    assert any("mean lengths" in note for note in found.notes)


def test_an_older_detailed_result_keeps_its_lengths_and_its_rate_though_not_its_times(tmp_path):
    data = json.loads((DATA / "vllm-bench-0.32-detailed.json").read_text())
    del data["start_times"]
    data |= {"request_rate": 2.0, "burstiness": 1.0, "max_concurrency": None}
    (tmp_path / "x.json").write_text(json.dumps(data))
    (found,) = read_evidence(tmp_path / "x.json")
    assert [row.prompt_tokens for row in found.rows] == data["input_lens"]
    assert [row.output_tokens for row in found.rows] == data["output_lens"]
    drawn = traffic(RateWorkload(rate=2.0, num_prompts=len(found.rows)), seed=0).table.arrival_s
    assert [row.arrival_s for row in found.rows] == drawn.tolist()
    assert found.metrics["mean_ttft_ms"] == data["mean_ttft_ms"]
    (note,) = found.notes
    assert "no start_times" in note
    assert "drawn at 2 requests/s" in note


def test_times_and_lengths_of_a_result_without_its_itls_are_kept(tmp_path):
    data = json.loads((DATA / "vllm-bench-0.32-detailed.json").read_text())
    sent, lengths = data["start_times"], data["input_lens"]
    data = {**data, "request_rate": 2.0, "itls": None, "output_lens": [0, *data["output_lens"][1:]]}
    (tmp_path / "x.json").write_text(json.dumps(data))
    (found,) = read_evidence(tmp_path / "x.json")
    assert [row.prompt_tokens for row in found.rows] == lengths[1:]
    assert [row.arrival_s for row in found.rows] == pytest.approx([each - min(sent[1:]) for each in sent[1:]])


def test_a_tpot_that_contradicts_e2e_and_ttft_is_recomputed_and_told(tmp_path):
    data = json.loads((DATA / "vllm-bench-0.32-detailed.json").read_text())
    right, data["mean_tpot_ms"] = data["mean_tpot_ms"], 2 * data["mean_tpot_ms"]
    (tmp_path / "x.json").write_text(json.dumps(data))
    (found,) = read_evidence(tmp_path / "x.json")
    assert found.metrics["mean_tpot_ms"] == pytest.approx(right)
    assert any("recomputed" in note and "(E2E latency - TTFT) / (output tokens - 1)" in note for note in found.notes)


def test_a_folder_of_a_sweep_gives_one_run_a_file(tmp_path):
    for name in ("run-a", "run-b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run=0.json").write_bytes((DATA / "vllm-bench-0.32-plain.json").read_bytes())
    runs = json.dumps([json.loads((tmp_path / "run-a" / "run=0.json").read_text())] * 2)
    (tmp_path / "run-a" / "summary.json").write_text(runs)  # a sweep repeats its runs there
    (tmp_path / "run-a" / "warmup.json").write_bytes((DATA / "vllm-bench-0.32-plain.json").read_bytes())
    (tmp_path / "run-b" / "run=1.failure.json").write_text('{"error": "x"}')
    assert [each.name for each in read_evidence(tmp_path)] == ["run-a/run=0.json", "run-b/run=0.json"]


# GuideLLM


def test_guidellm_requests_are_read_and_its_tpot_is_recomputed():
    found = one("guidellm-0.8.1-poisson.json")
    (benchmark,) = json.loads((DATA / "guidellm-0.8.1-poisson.json").read_text())["benchmarks"]
    own = benchmark["metrics"]
    assert len(found.rows) == 8
    assert {row.output_tokens for row in found.rows} == {12}
    assert found.metrics["mean_ttft_ms"] == pytest.approx(own["time_to_first_token_ms"]["successful"]["mean"])
    # its ITL is (last - first token) / (tokens - 1), which is what TPOT means here
    assert found.metrics["mean_tpot_ms"] == pytest.approx(own["inter_token_latency_ms"]["successful"]["mean"])
    assert own["time_per_output_token_ms"]["successful"]["mean"] > 1.5 * found.metrics["mean_tpot_ms"]
    assert any("GuideLLM says MEAN TPOT" in note for note in found.notes)
    assert "mean_itl_ms" not in found.metrics


def test_guidellm_streams_are_a_closed_loop():
    found = one("guidellm-0.8.1-concurrent.json")
    assert found.workload.max_concurrency == 2
    assert all(row.arrival_s == 0 for row in found.rows)


def test_the_request_form_of_guidellm_0_3_is_read(tmp_path):
    request = {
        "prompt_tokens": 10, "output_tokens": 5, "start_time": 100.0, "end_time": 101.5, "first_token_time": 100.5,
        "last_token_time": 101.3,
    }  # fmt: skip
    report = {"benchmarks": [{"requests": {"successful": [request], "incomplete": [request]}, "metrics": {}}]}
    (tmp_path / "x.json").write_text(json.dumps(report))
    (found,) = read_evidence(tmp_path / "x.json")
    assert found.metrics["mean_ttft_ms"] == pytest.approx(500)
    assert found.metrics["mean_tpot_ms"] == pytest.approx(200)
    assert any("1 requests failed or were cut off" in note for note in found.notes)


# inference-perf


def test_inference_perf_requests_are_read_with_their_token_times():
    found = one("inference-perf-0.7.0-per_request_lifecycle_metrics.json")
    assert [row.output_tokens for row in found.rows] == [5, 6, 7, 8, 10]  # the fifth of six failed
    assert found.metrics["mean_tpot_ms"] == pytest.approx(20)
    assert found.metrics["p99_itl_ms"] == pytest.approx(20)
    assert found.notes[0].startswith("1 requests failed")


def test_inference_perf_sums_give_seconds_as_ms_and_length_distributions():
    found = one("inference-perf-0.7.0-stage_0_lifecycle_metrics.json")
    exact = one("inference-perf-0.7.0-per_request_lifecycle_metrics.json")
    for key in ("mean_ttft_ms", "median_tpot_ms", "p99_itl_ms", "output_throughput"):
        assert found.metrics[key] == pytest.approx(exact.metrics[key], rel=0.01)
    assert isinstance(found.workload, RateWorkload)
    sent = traffic(found.workload.model_copy(update={"num_prompts": 4000}), 0).table
    assert sent.prompt_tokens.mean() == pytest.approx(32.2, rel=0.01)
    assert sent.output_tokens.mean() == pytest.approx(7.2, rel=0.02)


# Prometheus


def test_two_scrapes_give_rate_lengths_and_latencies():
    found = one("vllm-0.32-metrics-before.txt", "vllm-0.32-metrics-after.txt", seconds=32.0)
    assert found.workload.rate == pytest.approx(16 / 32)
    assert found.metrics["total_output_tokens"] == 209
    assert found.metrics["mean_ttft_ms"] == pytest.approx(1e3 * 0.7742977142333984 / 16)
    assert found.metrics["output_throughput"] == pytest.approx(209 / 32)
    assert found.model == "tiny"
    sent = traffic(found.workload.model_copy(update={"num_prompts": 6000}), 0).table
    assert sent.prompt_tokens.mean() == pytest.approx(587 / 16, rel=0.02)
    assert sent.output_tokens.mean() == pytest.approx(209 / 16, rel=0.02)


def test_the_order_of_two_scrapes_does_not_matter():
    names = ("vllm-0.32-metrics-before.txt", "vllm-0.32-metrics-after.txt")
    assert one(*names, seconds=9).metrics == one(*reversed(names), seconds=9).metrics


def test_the_names_of_v0_are_read():
    found = one("vllm-0.6.3-metrics-before.txt", "vllm-0.6.3-metrics-after.txt", seconds=10)
    assert found.metrics["mean_itl_ms"] == pytest.approx(20)  # time_per_output_token_seconds holds gaps there
    assert "mean_tpot_ms" not in found.metrics
    assert found.workload.rate == 4


def test_without_a_time_there_is_no_rate_and_no_load(tmp_path):
    found = one("vllm-0.32-metrics-after.txt")
    assert "request_throughput" not in found.metrics
    assert "give --seconds" in found.no_workload
    assert found.metrics["mean_ttft_ms"] > 0


def test_our_own_exposition_is_read_back(tmp_path):
    from apps.exports.prometheus import prometheus_text
    from simulator.scenario import Scenario
    from simulator.simulate import simulate

    load = RateWorkload(rate=10, num_prompts=80, prompt_tokens="uniform:50:900", output_tokens="uniform:10:60")
    result = simulate(Scenario.from_command("vllm serve meta-llama/Llama-3.1-8B", gpu="H200", workload=load))
    (tmp_path / "x.txt").write_text(prometheus_text(result))
    (found,) = read_evidence(tmp_path / "x.txt", options=Options(seconds=result.summary()["duration_s"]))
    summary = result.summary()
    for key in ("mean_ttft_ms", "mean_itl_ms", "mean_tpot_ms", "mean_e2el_ms", "request_throughput"):
        assert found.metrics[key] == pytest.approx(summary[key], rel=1e-6)
    sent = traffic(found.workload.model_copy(update={"num_prompts": 3000}), 1).table
    assert sent.prompt_tokens.mean() == pytest.approx(result.table.prompt_tokens.mean(), rel=0.03)
    assert np.percentile(sent.output_tokens, 90) == pytest.approx(
        np.percentile(result.table.output_tokens, 90), rel=0.3
    )


def test_a_line_that_is_no_sample_is_named(tmp_path):
    (tmp_path / "x.txt").write_text("vllm:num_requests_running 1\nnonsense here now yes\n")
    with pytest.raises(InputError, match=r"x.txt:2: is not a sample"):
        read_evidence(tmp_path / "x.txt")


# loads without a measurement


def test_a_batch_is_all_there_at_once_and_says_what_is_estimated():
    found = one("openai-batch.jsonl")
    assert [row.arrival_s for row in found.rows] == [0, 0, 0]
    assert [row.output_tokens for row in found.rows] == [100, 50, 7]
    assert found.rows[2].prompt_tokens == 5  # a token array is counted
    assert found.rows[0].prefix_id == found.rows[1].prefix_id is not None
    assert found.rows[0].prefix_tokens == found.rows[1].prefix_tokens > 90
    assert any("ESTIMATED: characters / 4" in note for note in found.notes)
    assert one("openai-batch.jsonl", chars_per_token=2).rows[1].prompt_tokens == 2 * found.rows[1].prompt_tokens
    assert {row.output_tokens for row in one("openai-batch.jsonl", output_tokens=9).rows} == {9}


def test_a_batch_without_max_tokens_asks_for_the_length(tmp_path):
    line = {"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "hi"}}
    (tmp_path / "x.jsonl").write_text(json.dumps(line))
    with pytest.raises(InputError, match=r"x.jsonl:1: has no max_tokens.*--output-tokens"):
        read_evidence(tmp_path / "x.jsonl")


def test_azure_times_begin_at_the_first_row_and_failures_are_dropped():
    found = one("azure.csv")
    assert [(row.prompt_tokens, row.output_tokens) for row in found.rows] == [(374, 44), (396, 109)]
    assert found.rows[1].arrival_s == pytest.approx(4.314579, abs=1e-6)
    assert found.notes == ("1 rows without prompt or output (failed requests) are dropped",)


def test_burstgpt_failures_are_dropped():
    found = one("burstgpt.csv")
    assert [row.arrival_s for row in found.rows] == [0, 40, 113]
    assert found.notes == ("1 rows without prompt or output (failed requests) are dropped",)


def test_mooncake_prefixes_are_shared_as_far_as_another_request_has_them():
    found = one("mooncake.jsonl")
    assert len(found.rows) == 12
    assert {(row.prefix_id, row.prefix_tokens) for row in found.rows} == {("block-0", 512)}
    assert found.rows[1].arrival_s == 3.0
    assert found.notes == ()


def test_forks_that_a_request_list_cannot_hold_are_counted(tmp_path):
    rows = [
        {"timestamp": at, "input_length": 1536, "output_length": 1, "hash_ids": ids}
        for at, ids in enumerate(([1, 2, 3], [1, 2, 4], [1, 5, 6]))
    ]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found,) = read_evidence(tmp_path / "x.jsonl")
    # repeats: 2 blocks, then 1 block; the list shares the first two only
    assert [row.prefix_tokens for row in found.rows] == [1024, 1024, 512]
    assert any("33 % of the prompt tokens that repeat" in note for note in found.notes)


def test_the_qwen_trace_has_blocks_of_16_tokens_and_seconds(tmp_path):
    rows = [
        {"chat_id": 1, "parent_chat_id": -1, "timestamp": at, "input_length": 40, "output_length": 3, "type": "text",
         "turn": 1, "hash_ids": ids}
        for at, ids in ((10.5, [1, 2, 3]), (12.0, [1, 2, 4]))
    ]  # fmt: skip
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found,) = read_evidence(tmp_path / "x.jsonl")
    assert [(row.arrival_s, row.prefix_tokens) for row in found.rows] == [(0.0, 32), (1.5, 32)]


BROKEN = [
    ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", "x:2: is not a row"),
    ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no request"),
    ("burstgpt", "Timestamp,Request tokens,Response tokens\n1,two,3\n", "x:2: is not a row"),
    ("mooncake", '{"timestamp":0,"input_length":5,"output_length":1}\n{"timestamp":0}\n', "x:2: is not a request"),
    ("mooncake", '{"timestamp":0,"input_length":99,"output_length":1,"hash_ids":[1,2]}\n', "fit neither 512 nor 16"),
    ("guidellm", '{"benchmarks":[{"requests":{"successful":[{"info":{}}]},"metrics":{}}]}', "timings. is missing"),
    ("inference-perf", '{"load_summary":{},"successes":{},"failures":{}}', "count. is missing"),
    ("openai-batch", '{"url":"/v1/x","body":{"max_tokens":2}}', "x:1: body has no messages"),
]


@pytest.mark.parametrize(("format", "text", "message"), BROKEN, ids=[each[0] for each in BROKEN])
def test_a_broken_file_is_one_line_that_names_the_place(format, text, message, tmp_path):
    (tmp_path / "x").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        read_evidence(tmp_path / "x")
    assert "\n" not in str(error.value)
