"""The bench-shaped JSON: read back by the reader of real results, and by pandas."""

import json

import pandas as pd
import pytest

from apps.exports.bench_json import bench_json
from calibration.bench_json import parse_bench
from simulator.records import Status
from simulator.request_list import Row
from simulator.scenario import Scenario
from simulator.simulate import simulate
from simulator.workload import RequestsWorkload


def test_the_reader_of_real_results_finds_the_same_metrics(result):
    document = json.loads(json.dumps(bench_json(result, date="20261201-083000"), allow_nan=False))
    again = parse_bench(document, "again")
    summary = result.summary()
    assert again.run is not None
    for key in ("mean_ttft_ms", "p99_itl_ms", "median_tpot_ms", "p90_e2el_ms", "output_throughput"):
        assert again.summary[key] == pytest.approx(summary[key])
        assert again.run.summary()[key] == pytest.approx(summary[key])


def test_pandas_reads_one_row_a_request(result):
    document = bench_json(result)
    columns = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "errors")
    table = pd.DataFrame({name: document[name] for name in columns})
    assert len(table) == document["num_prompts"] == document["completed"]
    latency = table.ttfts + table.itls.map(sum)
    assert latency.to_numpy() == pytest.approx(table.latencies.to_numpy())
    assert (table.itls.map(len) == table.output_lens - 1).all()


def test_keys_and_their_order_are_those_of_vllm(result):
    keys = list(bench_json(result, detailed=False))
    assert keys[:8] == [
        "date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate",
    ]  # fmt: skip
    assert "p99_e2el_ms" in keys
    assert "ttfts" not in keys


def test_a_refused_request_stands_there_as_an_error():
    rows = (Row(prompt_tokens=100, output_tokens=2), Row(prompt_tokens=400, output_tokens=8))
    load = RequestsWorkload(rows=rows, max_concurrency=1)
    result = simulate(Scenario.from_command("vllm serve meta-llama/Llama-3.1-8B", gpu="H200", workload=load))
    result.records.status[1] = Status.REJECTED
    document = bench_json(result)
    assert document["failed"] == 1
    assert document["errors"] == ["", "rejected"]
    assert (document["ttfts"][1], document["itls"][1], document["output_lens"][1]) == (0, [], 0)
