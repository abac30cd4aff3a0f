"""The commands to run next start the same server again and send the same requests."""

import json
import shlex

import pytest

from apps.exports.commands import bench_command, kubernetes_args, next_commands, serve_command
from apps.exports.serve_flags import serve_flags
from apps.exports.timed_trace import CHUNK, timed_trace, trace_lines
from simulator.command_line import parse
from simulator.request_list import Row, from_rows
from simulator.resolve import resolve
from simulator.scenario import Scenario
from simulator.simulate import simulate
from simulator.workload import ConcurrencyWorkload, RateWorkload, RequestsWorkload

LOAD = RateWorkload(rate=2, num_prompts=10, prompt_tokens="512", output_tokens="128")
SERVERS = [
    ("vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384", "H200", None),
    (
        "vllm serve Qwen/Qwen3-14B --max-num-seqs 64 --enforce-eager --no-enable-prefix-caching "
        "--kv-cache-dtype fp8 -tp 2 --gpu-memory-utilization 0.85 --max-num-batched-tokens 4096",
        "L40S",
        None,
    ),
    ("vllm serve meta-llama/Llama-3.1-8B --swap-space 8 --max-num-seqs 300 --max-model-len 4096", "A100-80", "0.6.3"),
    ("VLLM_USE_V1=0 vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192", "A100-80", "0.8.5"),
    ("vllm serve meta-llama/Llama-3.1-8B --kv-offloading-size 40 --block-size 32", "H200", None),
    (
        'vllm serve meta-llama/Llama-3.1-8B --compilation-config \'{"cudagraph_mode":"PIECEWISE"}\' '
        "--cudagraph-capture-sizes 1 2 4 --max-model-len -1",
        "H200",
        None,
    ),
    ("vllm serve meta-llama/Llama-3.1-8B --no-async-scheduling --scheduling-policy priority -O0", "H200", None),
    ("vllm serve meta-llama/Llama-3.1-8B --long-prefill-token-threshold 1024 --watermark 0.01", "H200", None),
]


@pytest.mark.parametrize(("command", "gpu", "version"), SERVERS, ids=[each[0][-40:] for each in SERVERS])
def test_the_flags_resolve_to_the_same_engine(command, gpu, version):
    scenario = Scenario.from_command(command, gpu=gpu, vllm_version=version, workload=LOAD)
    flags = serve_flags(scenario)
    assert flags.unsaid == ()
    for text in (serve_command(scenario), kubernetes_args(scenario)):
        again, _notes = resolve(parse(text), scenario.model, scenario.gpu, scenario.engine.vllm_version)
        assert again == scenario.engine


def test_what_is_a_default_is_not_typed():
    scenario = Scenario.from_command("vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 256", gpu="L4", workload=LOAD)
    assert serve_command(scenario) == "vllm serve meta-llama/Llama-3.1-8B"


def test_constant_lengths_are_asked_for_as_random_prompts():
    scenario = Scenario.from_command("vllm serve meta-llama/Llama-3.1-8B", gpu="H200", workload=LOAD)
    words = bench_command(scenario)
    assert "--dataset-name random --random-input-len 512 --random-output-len 128 --num-prompts 10" in words
    assert "--request-rate 2" in words
    closed = ConcurrencyWorkload(concurrency=4, num_prompts=8)
    words = bench_command(scenario.model_copy(update={"workload": closed}))
    assert "--max-concurrency 4" in words
    assert "--request-rate" not in words


def test_any_other_load_is_replayed_from_the_exported_trace():
    load = RateWorkload(rate=2, num_prompts=10, prompt_tokens="lognormal:300:1", output_tokens="20")
    scenario = Scenario.from_command("vllm serve meta-llama/Llama-3.1-8B", gpu="H200", workload=load)
    assert "--dataset-name timed_trace --dataset-path x.jsonl" in bench_command(scenario, trace_file="x.jsonl")
    rows = (Row(prompt_tokens=10, output_tokens=5), Row(prompt_tokens=20, output_tokens=5))
    closed = scenario.model_copy(update={"workload": RequestsWorkload(rows=rows, max_concurrency=1)})
    assert "--no-self-timed --max-concurrency 1" in bench_command(closed)


def test_every_command_is_one_that_is_understood():
    scenario = Scenario.from_command("vllm serve meta-llama/Llama-3.1-8B", gpu="H200", workload=LOAD)
    titles = [each.title for each in next_commands(scenario)]
    assert titles[0] == "Start the server"
    last = shlex.split(next_commands(scenario)[-1].text)
    assert last[:3] == ["servecast", "import", "measured.json"]
    assert parse(last[last.index("--server") + 1]).model == "meta-llama/Llama-3.1-8B"


def test_a_trace_shares_whole_chunks_of_a_prefix_and_covers_each_prompt():
    rows = (
        Row(arrival_s=0, prompt_tokens=100, output_tokens=5, prefix_id="a", prefix_tokens=40),
        Row(arrival_s=0.5, prompt_tokens=50, output_tokens=6, prefix_id="a", prefix_tokens=33),
        Row(arrival_s=1, prompt_tokens=16, output_tokens=7),
    )
    table = from_rows(rows).table
    lines = [json.loads(line) for line in trace_lines(table, table.arrival_s)]
    assert [line["timestamp"] for line in lines] == [0, 0.5, 1]
    assert [line["output_length"] for line in lines] == [5, 6, 7]
    for line in lines:
        assert len(line["hash_ids"]) == -(-line["input_length"] // CHUNK)
    first, second, third = (line["hash_ids"] for line in lines)
    assert first[:2] == second[:2]  # 40 and 33 shared tokens are two whole chunks of 16
    assert not set(first[2:]) & set(second[2:])
    assert not set(third) & set(first + second)


def test_turns_of_a_chat_are_sent_when_the_simulation_sent_them():
    load = ConcurrencyWorkload(concurrency=2, num_prompts=6, prompt_tokens="100", output_tokens="5", think_time_s=1)
    scenario = Scenario.from_command("vllm serve meta-llama/Llama-3.1-8B", gpu="H200", workload=load)
    words = bench_command(scenario)
    assert "timed_trace" in words
    assert "--max-concurrency" not in words
    result = simulate(scenario)
    lines = [json.loads(line) for line in timed_trace(result)]
    assert [line["timestamp"] for line in lines] == sorted(result.records.sent_s)
