"""Logs of real servers, old and new wordings: what is read, and the blocks that follow."""

from __future__ import annotations

import pytest

from simulator.errors import InputError
from simulator.gpu_spec import GIB
from simulator.logged_memory import blocks_of_tokens, memory_from_log
from simulator.startup_log import read_log
from tests.simulator.memory_cases import LOGS, MODELS, settings

V0_6 = """\
INFO 11-05 10:00:00 llm_engine.py:237] Initializing an LLM engine (v0.6.3.post1) with config: model='meta/L', \
speculative_config=None, dtype=torch.bfloat16, max_seq_len=20000, tensor_parallel_size=1, enforce_eager=False
INFO 11-05 10:00:09 model_runner.py:1067] Loading model weights took 14.9888 GB
INFO 11-05 10:00:10 worker.py:232] Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.35GiB \
peak_torch_memory=17.06GiB memory_usage_post_profile=15.35GiB non_torch_memory=0.35GiB kv_cache_size=3.81GiB \
gpu_memory_utilization=0.90
INFO 11-05 10:00:10 gpu_executor.py:122] # GPU blocks: 1952, # CPU blocks: 2048
INFO 11-05 10:00:10 gpu_executor.py:126] Maximum concurrency for 20000 tokens per request: 1.56x
INFO 11-05 10:00:30 model_runner.py:1523] Graph capturing finished in 20 secs.
INFO 11-05 10:01:00 metrics.py:349] Avg prompt throughput: 4.9 tokens/s, Avg generation throughput: 0.2 tokens/s, \
Running: 1 reqs, Swapped: 2 reqs, Pending: 3 reqs, GPU KV cache usage: 0.1%, CPU KV cache usage: 25.0%.
INFO 11-05 10:01:00 metrics.py:365] Prefix cache hit rate: GPU: 12.50%, CPU: 0.00%
"""

V0_7 = """\
INFO 05-30 16:23:22 model_runner.py:1115] Loading model weights took 2.8875 GB
INFO 05-30 16:23:28 worker.py:267] the current vLLM instance can use total_gpu_memory (14.56GiB) x \
gpu_memory_utilization (0.50) = 7.28GiB
INFO 05-30 16:23:28 worker.py:267] model weights take 2.89GiB; non_torch_memory takes 0.01GiB; PyTorch activation peak \
memory takes 2.02GiB; the rest of the memory reserved for KV Cache is 2.36GiB.
INFO 05-30 16:23:28 executor_base.py:110] # cuda blocks: 5517, # CPU blocks: 9362
INFO 05-30 16:23:28 executor_base.py:115] Maximum concurrency for 32768 tokens per request: 2.69x
"""

REFUSED_V0 = V0_6.replace("1952", "1478").replace("20000", "29000") + (
    "ERROR 11-05 10:00:10 engine.py:387] The model's max seq len (29000) is larger than the maximum number of tokens "
    "that can be stored in KV cache (23648). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` "
    "when initializing the engine.\n"
)

REFUSED_V1 = """\
(EngineCore_DP0 pid=268) INFO 10-21 00:35:03 [gpu_worker.py:298] Available KV cache memory: 8.04 GiB
(EngineCore_DP0 pid=268) ERROR 10-21 00:35:03 [core.py:708] ValueError: To serve at least one request with the \
models's max seq len (262144), (24.00 GiB KV cache is needed, which is larger than the available KV cache memory \
(8.04 GiB). Based on the available memory, the estimated maximum model length is 87840.
"""

COLOURED = (
    "\x1b[1;36m(EngineCore_0 pid=82)\x1b[0;0m INFO 08-27 21:02:45 [gpu_model_runner.py:2007] Model loading took "
    "14.9889 GiB and 11.3 seconds\n"
    "\x1b[1;36m(EngineCore_0 pid=82)\x1b[0;0m Capturing:   0%|  | 0/67\rCapturing: 100%|##| 67/67\r\n"
    "\x1b[1;36m(EngineCore_0 pid=82)\x1b[0;0m INFO 08-27 21:03:25 [gpu_worker.py:276] Available KV cache memory: "
    "19.25 GiB\n"
    "\x1b[1;36m(APIServer pid=15)\x1b[0;0m INFO 08-27 21:03:30 [loggers.py:142] Engine 000: vllm cache_config_info "
    "with initialization after num_gpu_blocks is: 9853\n"
)

RANKS = """\
(EngineCore_DP0 pid=1) (Worker_TP0 pid=2) INFO [gpu_model_runner.py:9] Model loading took 16.96 GiB and 9 seconds
(EngineCore_DP0 pid=1) (Worker_TP1 pid=3) INFO [gpu_model_runner.py:9] Model loading took 16.90 GiB and 9 seconds
(EngineCore_DP0 pid=1) (Worker_TP0 pid=2) INFO [gpu_worker.py:3] Available KV cache memory: 106.20 GiB
(EngineCore_DP0 pid=1) (Worker_TP1 pid=3) INFO [gpu_worker.py:3] Available KV cache memory: 106.17 GiB
(EngineCore_DP0 pid=1) INFO [kv_cache_utils.py:1] GPU KV cache size: 1,391,600 tokens
(EngineCore_DP0 pid=1) INFO [kv_cache_utils.py:1] GPU KV cache size: 1,391,552 tokens
(EngineCore_DP0 pid=1) INFO [kv_cache_utils.py:2] Maximum concurrency for 8,192 tokens per request: 169.87x
"""

ENGINES = RANKS + RANKS.replace("DP0", "DP1") + "INFO Engine 001: num_gpu_blocks is: 173944\n"

USAGE = """\
INFO 09-24 20:54:36 [gpu_worker.py:391] Free memory on device (30.84/31.36 GiB) on startup. Desired GPU memory \
utilization is (0.9, 28.22 GiB). Actual usage is 15.72 GiB for weight, 1.4 GiB for peak activation, 0.21 GiB for \
non-torch memory, and 3.45 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with \
`--kv-cache-memory=7564378828` to fit into requested memory.
INFO 09-24 20:54:37 [loggers.py:142] Engine 000: vllm cache_config_info after num_gpu_blocks is: 14834
"""


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("llama-3.1-8b", {"weights_gib": 15.0, "available_kv_gib": 112.28, "kv_tokens": 919824,
                          "max_concurrency": 56.14, "graph_gib": 0.98, "graph_estimate_gib": None,
                          "model_runner_v2": True}),
        ("qwen2.5-32b", {"weights_gib": 61.04, "available_kv_gib": 64.2, "kv_tokens": 262960, "max_concurrency": 16.05,
                         "graph_gib": 1.02, "graph_estimate_gib": 0.9, "model_runner_v2": False}),
        ("qwen2.5-1.5b", {"weights_gib": 2.98, "available_kv_gib": 122.85, "kv_tokens": 4600768, "graph_gib": 0.42,
                          "max_model_len": 8192, "concurrency_len": 8192}),
    ],
)  # fmt: skip
def test_h200_logs_of_0_24(name, facts):
    log = read_log(LOGS[name].read_text())
    assert {key: getattr(log, key) for key in facts} == facts
    assert (log.vllm_version, log.engines, log.model, log.v0) == ("0.24.0", 1, name, False)
    assert (log.max_num_batched_tokens, log.async_scheduling, log.enable_chunked_prefill) == (8192, True, True)
    assert (log.dtype, log.quantization, log.enforce_eager, log.tensor_parallel_size) == ("bfloat16", None, False, 1)
    assert log.non_default_args is not None
    assert log.non_default_args.startswith("non-default args: {'model_tag': ")
    assert log.refusal is None


@pytest.mark.parametrize(
    ("name", "model", "blocks"),
    [
        ("llama-3.1-8b", "Llama-3.1-8B", 57489),
        ("qwen2.5-32b", "Qwen2.5-32B", 16435),
        ("qwen2.5-1.5b", "Qwen2.5-1.5B", 287548),
    ],
)
def test_blocks_of_the_h200_logs_agree_with_the_model(name, model, blocks):
    memory = memory_from_log(read_log(LOGS[name].read_text()), MODELS[model], settings())
    assert (memory.num_gpu_blocks, memory.usable_blocks, memory.fits, memory.notes) == (blocks, blocks - 1, True, ())


def test_a_log_of_another_model_is_doubted():
    memory = memory_from_log(read_log(LOGS["llama-3.1-8b"].read_text()), MODELS["Qwen2.5-32B"], settings())
    assert "another model, KV dtype or block size" in memory.notes[0]


def test_statistics_lines_of_v1():
    stats = read_log(LOGS["llama-3.1-8b"].read_text()).stats
    assert len(stats) == 4
    assert stats[0] == {
        "engine": "0", "time": "11-30 23:15:14", "prompt_tokens_per_s": 23028.3, "generation_tokens_per_s": 524.0,
        "running": 25.0, "waiting": 7.0, "kv_cache_usage": 0.056, "prefix_cache_hit_rate": 0.0,
    }  # fmt: skip


def test_v0_wording_of_0_6():
    log = read_log(V0_6)
    assert log.v0
    assert (log.vllm_version, log.model, log.max_model_len) == ("0.6.3.post1", "meta/L", 20000)
    assert (log.weights_gib, log.non_torch_gib, log.available_kv_gib, log.total_gib) == (14.9888, 0.35, 3.81, 23.58)
    assert log.stats == (
        {
            "engine": "0", "time": "11-05 10:01:00", "prompt_tokens_per_s": 4.9, "generation_tokens_per_s": 0.2,
            "running": 1.0, "waiting": 3.0, "swapped": 2.0, "kv_cache_usage": 0.001, "cpu_kv_cache_usage": 0.25,
            "prefix_cache_hit_rate": 0.125,
        },
    )  # fmt: skip
    memory = memory_from_log(log)
    assert (memory.num_gpu_blocks, memory.usable_blocks, memory.num_cpu_blocks) == (1952, 1952, 2048)
    assert (memory.kv_tokens, memory.max_concurrency, memory.fits) == (31232, 1.56, True)
    assert memory.requested_bytes == int(23.58 * 0.9 * GIB)


def test_v0_wording_of_0_7():
    log = read_log(V0_7)
    assert (log.weights_gib, log.non_torch_gib, log.activation_gib, log.available_kv_gib) == (2.89, 0.01, 2.02, 2.36)
    assert (log.num_gpu_blocks, log.num_cpu_blocks, log.requested_gib, log.gpu_memory_utilization) == (
        5517,
        9362,
        7.28,
        0.5,
    )
    assert memory_from_log(log).kv_tokens == 88272


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (REFUSED_V0, "The model's max seq len (29000) is larger than the maximum number of tokens"),
        (REFUSED_V1, "To serve at least one request with the models's max seq len (262144), (24.00 GiB"),
        ("ValueError: No available memory for the cache blocks. Try", "No available memory for the cache blocks"),
    ],
)
def test_a_refusal_is_kept_in_vllms_words(text, start):
    memory = memory_from_log(read_log(text))
    assert not memory.fits
    assert memory.refusal is not None
    assert memory.refusal.startswith(start)


def test_colours_and_progress_bars_do_not_matter():
    log = read_log(COLOURED)
    assert (log.weights_gib, log.available_kv_gib, log.num_gpu_blocks) == (14.9889, 19.25, 9853)


def test_of_several_ranks_the_fullest_counts():
    log = read_log(RANKS)
    assert (log.weights_gib, log.available_kv_gib, log.kv_tokens, log.engines) == (16.96, 106.17, 1391552, 1)


def test_engines_add_up():
    log = read_log(ENGINES)
    assert (log.engines, log.kv_tokens, log.max_concurrency) == (2, 2 * 1391552, 339.74)
    memory = memory_from_log(log)
    assert (memory.num_gpu_blocks, memory.usable_blocks) == (2 * 86972, 2 * 86972 - 2)
    assert "sum" in memory.notes[0]


def test_the_line_of_actual_usage():
    log = read_log(USAGE)
    assert (log.total_gib, log.gpu_memory_utilization, log.requested_gib) == (31.36, 0.9, 28.22)
    assert (log.weights_gib, log.activation_gib, log.non_torch_gib, log.graph_gib) == (15.72, 1.4, 0.21, 3.45)
    assert log.num_gpu_blocks == 14834


def test_the_last_start_counts():
    start = "INFO [core.py:1] Initializing a V1 LLM engine (v0.24.0) with config: model='m', max_seq_len=16384\n"
    log = read_log(start + REFUSED_V1 + start + "INFO Available KV cache memory: 9.5 GiB\n")
    assert (log.available_kv_gib, log.refusal) == (9.5, None)


def test_an_override_is_seen():
    log = read_log(
        "INFO Overriding num_gpu_blocks=57489 with num_gpu_blocks_override=100\nGPU KV cache size: 1,600 tokens\n"
    )
    assert memory_from_log(log).num_gpu_blocks == 100


@pytest.mark.parametrize(("length", "blocks"), [(1000, 1000), (16384, 57489), (131072, 28781), (7, 3)])
def test_tokens_of_0_22_are_turned_back_into_blocks(length, blocks):
    tokens = int(blocks / -(-length // 16) * length)
    assert blocks_of_tokens(tokens, length, 16, "0.24.0") == blocks


@pytest.mark.parametrize("text", ["", "hello\nworld\n", "INFO: Started server process [806]\n"])
def test_a_text_without_any_of_the_lines_is_refused_and_says_what_was_looked_for(text):
    with pytest.raises(InputError, match="none of vLLM's memory lines found; looked for 'Available KV cache memory', "):
        read_log(text)
