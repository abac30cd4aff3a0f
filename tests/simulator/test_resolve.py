import contextlib
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import catalogue
from simulator.command_line import ServeArgs, parse
from simulator.errors import ConfigError, ServecastError
from simulator.flag_table import FLAGS
from simulator.resolve import resolve

LLAMA = catalogue.model("meta-llama/Llama-3.1-8B")  # 32 heads, 8 KV heads, 131072 positions
SHORT = LLAMA.model_copy(update={"max_position_embeddings": 4096})
H200, A100 = catalogue.gpu("H200"), catalogue.gpu("A100-80")


def resolved(flags="", model=LLAMA, gpu="H200", version=None, **env):
    args = parse("vllm serve m " + flags)
    card = catalogue.gpu(gpu) if isinstance(gpu, str) else gpu
    return resolve(args.model_copy(update={"env": env}), model, card, version)


def engine(*args, **kwargs):
    return resolved(*args, **kwargs)[0]


def notes(*args, **kwargs):
    return " | ".join(resolved(*args, **kwargs)[1])


def limits(*args, **kwargs):
    found = engine(*args, **kwargs)
    return found.max_num_batched_tokens, found.max_num_seqs


# ---------------------------------------------------------------- batch limits


@pytest.mark.parametrize(
    ("gpu", "version", "llm", "serve", "seqs"),
    [
        ("H200", "0.24.0", 16384, 8192, 1024),
        ("H100", "0.24.0", 16384, 8192, 1024),
        ("B200", "0.24.0", 16384, 8192, 1024),
        ("H20", "0.24.0", 16384, 8192, 1024),
        ("RTX PRO 6000", "0.24.0", 16384, 8192, 1024),
        ("A100-80", "0.24.0", 8192, 2048, 256),
        ("A100-40", "0.24.0", 8192, 2048, 256),
        ("L4", "0.24.0", 8192, 2048, 256),
        ("L40S", "0.24.0", 8192, 2048, 256),
        ("A10G", "0.24.0", 8192, 2048, 256),
        ("RTX 4090", "0.24.0", 8192, 2048, 256),
        ("RTX 3090", "0.24.0", 8192, 2048, 256),
        ("A100-80", "0.9.2", 8192, 2048, 256),
        ("A100-80", "0.8.5", 16384, 8192, 1024),
        ("H100", "0.8.5", 16384, 8192, 1024),
        ("B200", "0.33.0", 16384, 16384, 1024),
        ("H200", "0.33.0", 16384, 8192, 1024),
    ],
)
def test_limits_by_device_version_and_usage(gpu, version, llm, serve, seqs):
    assert limits(gpu=gpu, version=version) == (serve, seqs)
    args = ServeArgs(model="m", usage_context="llm")
    found, _ = resolve(args, LLAMA, catalogue.gpu(gpu), version)
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (llm, seqs)


def test_07_with_v1_by_wish_has_256_sequences():
    assert limits(version="0.7.3", VLLM_USE_V1="1") == (8192, 256)


def test_a_slice_of_a_big_gpu_is_a_small_device():
    assert limits(gpu=H200.model_copy(update={"visible_memory_gib": 69.9})) == (2048, 256)
    assert limits(gpu=H200.model_copy(update={"visible_memory_gib": 70.0})) == (8192, 1024)


def test_throughput_mode_doubles_what_is_not_set():
    assert limits("--performance-mode throughput") == (16384, 2048)
    assert limits("--performance-mode throughput --max-num-seqs 10") == (16384, 10)


def test_batched_data_parallel_experts_take_256_tokens():
    flags = "-dp 4 --enable-expert-parallel --all2all-backend deepep_low_latency"
    assert limits(flags) == (256, 256)
    assert limits("-dp 4 --enable-expert-parallel") == (8192, 1024)


def test_without_chunked_prefill_a_step_must_hold_the_longest_prompt():
    assert limits("--no-enable-chunked-prefill") == (131072, 1024)
    assert limits("--no-enable-chunked-prefill --max-model-len 4096") == (8192, 1024)


def test_tokens_never_exceed_what_the_sequences_can_use():
    assert limits("--max-num-seqs 2 --max-model-len 1000") == (2000, 2)


def test_the_trap_a_small_token_budget_lowers_the_default_number_of_sequences():
    assert limits("--max-num-batched-tokens 512") == (512, 512)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--max-num-batched-tokens 2048 --no-enable-chunked-prefill", "smaller than max_model_len 131072 with chunked"),
        ("--max-num-batched-tokens 100 --max-num-seqs 200", "smaller than max_num_seqs 200"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(flags, message):
    with pytest.raises(ConfigError, match=message):
        resolved(flags)


def test_more_tokens_than_the_sequences_can_use_are_a_warning():
    assert "no step can use all of it" in notes("--max-num-seqs 2 --max-model-len 100 --max-num-batched-tokens 4096")


# ---------------------------------------------------------------- V0


def test_v0_defaults():
    found = engine(model=SHORT, version="0.6.3")
    assert (found.engine_generation, found.max_num_batched_tokens, found.max_num_seqs) == ("V0", 4096, 256)
    assert (found.enable_chunked_prefill, found.enable_prefix_caching, found.async_scheduling) == (False, False, False)
    assert (found.swap_space, found.block_size, found.gpu_memory_utilization) == (4.0, 16, 0.90)
    assert found.cudagraph_mode == "FULL_DECODE_ONLY"


def test_v0_turns_chunked_prefill_on_for_long_contexts():
    assert limits(version="0.6.3") == (512, 256)
    assert limits(version="0.7.3") == (2048, 256)
    assert engine(version="0.6.3").enable_chunked_prefill
    assert not engine("--enable-lora", version="0.6.3").enable_chunked_prefill
    assert not engine("--max-model-len 32768", version="0.6.3").enable_chunked_prefill


def test_v0_settings_reach_the_engine():
    flags = "--preemption-mode swap --swap-space 8 --num-scheduler-steps 8 --scheduler-delay-factor 0.5"
    found = engine(flags, model=SHORT, version="0.6.3")
    assert (found.preemption_mode, found.swap_space) == ("swap", 8.0)
    assert (found.num_scheduler_steps, found.scheduler_delay_factor) == (8, 0.5)


@pytest.mark.parametrize(
    ("flags", "gpu"),
    [
        ("--scheduling-policy priority", "H100"),
        ("--preemption-mode swap", "H100"),
        ("--num-scheduler-steps 8", "H100"),
        ("--scheduler-delay-factor 0.5", "H100"),
        ("--max-num-partial-prefills 2", "H100"),
        ("--kv-cache-dtype fp8", "L40S"),
        ("--dtype float32", "H100"),
        ("-pp 2", "H100"),
        ("--task embed", "H100"),
        ("--otlp-traces-endpoint http://x", "H100"),
        ('--speculative-config \'{"method": "ngram"}\'', "H100"),
        ("", "T4"),
    ],
)
def test_085_falls_back_to_v0_for_what_v1_lacked(flags, gpu):
    found, said = resolved(flags, gpu=gpu, version="0.8.5")
    assert found.engine_generation == "V0"
    assert "falls back to its V0 engine" in " ".join(said)
    with pytest.raises(ConfigError, match="VLLM_USE_V1=1, but V1"):
        resolved(flags, gpu=gpu, version="0.8.5", VLLM_USE_V1="1")


def test_the_engine_by_version_and_wish():
    assert engine(version="0.8.5").engine_generation == "V1"
    assert engine(version="0.8.5", VLLM_USE_V1="0").engine_generation == "V0"
    assert engine(version="0.7.3").engine_generation == "V0"
    assert engine(version="0.7.3", VLLM_USE_V1="1").engine_generation == "V1"
    assert engine("--scheduling-policy priority", version="0.9.2").engine_generation == "V1"
    assert engine(version="0.11.2", VLLM_USE_V1="0").engine_generation == "V1"
    assert "VLLM_USE_V1=0 has no effect" in notes(version="0.11.2", VLLM_USE_V1="0")


# ---------------------------------------------------------------- other defaults


@pytest.mark.parametrize(
    ("version", "utilization", "asynchronous", "reserve", "mode"),
    [
        ("0.8.5", 0.90, False, False, "PIECEWISE"),
        ("0.10.2", 0.90, False, False, "PIECEWISE"),
        ("0.11.2", 0.90, False, False, "FULL_AND_PIECEWISE"),
        ("0.14.0", 0.90, True, False, "FULL_AND_PIECEWISE"),
        ("0.19.0", 0.90, True, True, "FULL_AND_PIECEWISE"),
        ("0.20.0", 0.92, True, True, "FULL_AND_PIECEWISE"),
        ("0.24.0", 0.92, True, True, "FULL_AND_PIECEWISE"),
    ],
)
def test_defaults_by_version(version, utilization, asynchronous, reserve, mode):
    found = engine(version=version)
    assert found.gpu_memory_utilization == utilization
    assert found.async_scheduling is asynchronous
    assert found.scheduler_reserve_full_isl is reserve
    assert found.cudagraph_mode == mode
    assert (found.enable_prefix_caching, found.enable_chunked_prefill) == (True, True)
    assert (found.scheduling_policy, found.block_size, found.watermark, found.swap_space) == ("fcfs", 16, 0.0, None)


def test_a_bare_command_has_nothing_to_say():
    assert resolved()[1] == ()
    assert engine().unsimulated == ()


def test_the_version_is_the_argument_then_the_image_then_0_24():
    args = parse("docker run vllm/vllm-openai:v0.10.2 --model m")
    assert resolve(args, LLAMA, H200)[0].vllm_version == "0.10.2"
    assert resolve(args, LLAMA, H200, "0.8.5")[0].vllm_version == "0.8.5"
    assert engine().vllm_version == "0.24.0"
    assert "newer than the newest version known" in notes(version="3.0.0")


def test_notes_of_the_parser_come_first():
    assert resolved("--brand-new 3 --swap-space 4")[1][0] == "unknown flag --brand-new (ignored)"


@pytest.mark.parametrize(
    ("config", "on"),
    [
        ('{"method": "eagle3"}', True),
        ('{"method": "deepseek_mtp"}', True),
        ('{"method": "ngram_gpu"}', True),
        ('{"method": "ngram"}', False),
        ('{"method": "medusa"}', False),
        ('{"method": "suffix"}', False),
        ('{"model": "org/draft"}', False),
        ('{"method": "eagle", "disable_padded_drafter_batch": true}', False),
    ],
)
def test_async_with_speculative_methods(config, on):
    assert engine(f"--speculative-config '{config}'").async_scheduling is on
    if not on:
        with pytest.raises(ConfigError, match="--async-scheduling does not work with"):
            resolved(f"--async-scheduling --speculative-config '{config}'")


def test_async_is_off_with_ray_for_pooling_models_and_on_demand():
    assert not engine("--distributed-executor-backend ray").async_scheduling
    assert engine("--distributed-executor-backend mp").async_scheduling
    assert not engine("--runner pooling").async_scheduling
    assert not engine("--no-async-scheduling").async_scheduling
    assert engine("--async-scheduling", version="0.10.2").async_scheduling
    assert not engine("--async-scheduling", version="0.9.2").async_scheduling
    assert "--async-scheduling exists from 0.10.0 on" in notes("--async-scheduling", version="0.9.2")


# ---------------------------------------------------------------- max_model_len


def test_minus_one_takes_the_models_length_and_lets_memory_shrink_it():
    found = engine("--max-model-len auto")
    assert (found.max_model_len, found.auto_max_model_len) == (131072, True)
    assert not engine().auto_max_model_len


@pytest.mark.parametrize("given", [0, -2])
def test_a_senseless_length_is_refused(given):
    with pytest.raises(ConfigError, match=r"--max-model-len must be positive"):
        resolved(f"--max-model-len {given}")


def test_a_length_above_the_models_is_refused_unless_it_is_allowed():
    with pytest.raises(
        ConfigError, match=r"200000 is greater than the model's 131072 .*VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
    ):
        resolved("--max-model-len 200000")
    assert engine("--max-model-len 200000", VLLM_ALLOW_LONG_MAX_MODEL_LEN="1").max_model_len == 200000


@pytest.mark.parametrize(
    ("flags", "longest"),
    [
        ("--hf-overrides '{\"max_position_embeddings\": 8192}'", 8192),
        ('--hf-overrides \'{"rope_scaling": {"rope_type": "linear", "factor": 2.0}}\'', 8192),
        (
            '--rope-scaling \'{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}\'',
            16384,
        ),
        ("--hf-overrides.max_position_embeddings=9000", 9000),
    ],
)
def test_overrides_change_the_models_length(flags, longest):
    assert engine(flags, model=SHORT).max_model_len == longest


def test_other_overrides_are_mentioned():
    assert "num_hidden_layers not read" in notes("--hf-overrides '{\"num_hidden_layers\": 2}'")


def test_a_window_that_is_switched_off_caps_the_length():
    mistral = catalogue.model("mistralai/Mistral-7B-v0.1")
    assert engine("--disable-sliding-window", model=mistral).max_model_len == 4096
    assert engine("--disable-sliding-window", model=mistral).unsimulated == ()


# ---------------------------------------------------------------- block size


@pytest.mark.parametrize(
    ("size", "version"),
    [(24, "0.24.0"), (8, "0.24.0"), (8, "0.18.0"), (1, "0.24.0"), (24, "0.6.3"), (64, "0.6.3"), (24, "0.10.2"),
     (256, "0.10.2"), (512, "0.11.2"), (0, "0.24.0"), (-16, "0.24.0"), (64, "0.7.3")],
)  # fmt: skip
def test_block_sizes_that_no_backend_takes_are_refused(size, version):
    with pytest.raises(ConfigError, match=f"--block-size {size}.*use 16 or 32"):
        resolved(f"--block-size {size}", version=version)


@pytest.mark.parametrize(
    ("size", "version"),
    [(16, "0.24.0"), (32, "0.24.0"), (48, "0.24.0"), (128, "0.24.0"), (8, "0.6.3"), (32, "0.6.3"), (256, "0.11.2")],
)
def test_block_sizes_that_work(size, version):
    assert engine(f"--block-size {size}", version=version).block_size == size


def test_mla_backends_choose_the_block_size_by_gpu_and_version():
    deepseek = catalogue.model("deepseek-ai/DeepSeek-V3")
    assert engine("-tp 8", model=deepseek).block_size == 16
    assert engine("-tp 8", model=deepseek, gpu="B200").block_size == 64
    assert engine("-tp 8", model=deepseek, version="0.10.2").block_size == 64
    assert engine("-tp 8", model=catalogue.model("deepseek-ai/DeepSeek-V3.2")).block_size == 64
    assert engine("-tp 8 --block-size 128", model=deepseek, gpu="B200").block_size == 128
    with pytest.raises(ConfigError, match="take 32 or 64 or 128"):
        resolved("-tp 8 --block-size 16", model=deepseek, gpu="B200")


def test_a_forced_backend_takes_its_own_sizes_only():
    assert engine("--attention-backend FLASHINFER --block-size 64").block_size == 64
    with pytest.raises(ConfigError, match="FLASHINFER blocks take 16 or 32 or 64"):
        resolved("--block-size 48", VLLM_ATTENTION_BACKEND="FLASHINFER")
    assert engine("--attention-config.backend=FLASHMLA").block_size == 64


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("-tp 3", r"attention heads \(32\) must be divisible by tensor parallel size \(3\); use 2 or 4"),
        ("-tp 5", "divisible"),
        ("-tp 64", "divisible"),
        ("-pp 40", "only 32 layers"),
        ("-tp 0", "--tensor-parallel-size must be positive, got 0"),
        ("--max-num-seqs 0", "--max-num-seqs must be positive, got 0"),
        ("--max-num-seqs -5", "must be positive, got -5"),
        ("--max-num-batched-tokens 0", "must be positive"),
        ("--num-gpu-blocks-override 0", "must be positive"),
        ("--kv-cache-memory-bytes -1", "must be positive"),
        ("--stream-interval 0", "must be positive"),
        ("--long-prefill-token-threshold -1", "must be zero or more"),
        ("--cpu-offload-gb -1", "must be zero or more"),
        ("--gpu-memory-utilization 0", r"must be in \(0, 1\], got 0"),
        ("--gpu-memory-utilization 1.1", r"must be in \(0, 1\]"),
        ("--gpu-memory-utilization 90", "did you mean 0.9"),
        ("--gpu-memory-utilization 1.2", "got 1.2; use e.g. 0.9"),
        ("--watermark 1", r"must be in \[0, 1\)"),
        ("--watermark -0.1", r"must be in \[0, 1\)"),
        ("--scheduling-policy fair", "fcfs, priority, got 'fair'; there is no fair policy"),
        ("--kv-cache-dtype int3", "--kv-cache-dtype must be one of auto"),
        ("--dtype bf17", "--dtype must be one of auto"),
        ("--quantization magic", "'magic' is not a method of vLLM"),
        ("--performance-mode fast", "must be one of balanced, interactivity, throughput"),
        ("--max-num-partial-prefills 2", "V1 does not support concurrent partial prefills; use 1"),
        ("--max-long-partial-prefills 2", "must not exceed --max-num-partial-prefills 1"),
        ('--compilation-config \'{"cudagraph_mode": "SOME"}\'', "cudagraph_mode must be one of"),
        ("--cudagraph-capture-sizes 1 2 --max-cudagraph-capture-size 4", "contradicts"),
    ],
)
def test_what_vllm_refuses_is_refused_with_value_rule_and_fix(flags, message):
    with pytest.raises(ConfigError, match=message) as error:
        resolved(flags)
    assert "\n" not in str(error.value)


def test_tensor_parallel_ranks_must_split_or_replicate_the_kv_heads():
    model = LLAMA.model_copy(update={"num_attention_heads": 40, "hidden_size": 5120, "intermediate_size": 13760})
    with pytest.raises(ConfigError, match="8 KV heads can neither be split nor replicated evenly"):
        resolved("-tp 5", model=model)
    assert engine("-tp 16").tensor_parallel_size == 16  # 8 KV heads, each twice


def test_a_card_without_bfloat16():
    with pytest.raises(ConfigError, match=r"needs compute capability 8\.0, T4 has 7\.5; use --dtype float16"):
        resolved("--dtype bfloat16", gpu="T4")
    assert engine(gpu="T4").dtype == "float16"
    assert "falls back to float16" in notes(gpu="T4")
    with pytest.raises(ConfigError, match="--quantization fp8 needs compute capability"):
        resolved("--quantization fp8", gpu="T4")


def test_a_quantisation_that_contradicts_the_checkpoint_is_refused():
    awq = LLAMA.model_copy(update={"quantization": "awq"})
    assert engine("--quantization awq_marlin", model=awq).quantization == "awq"
    assert engine(model=awq).quantization == "awq"
    with pytest.raises(ConfigError, match=r"does not match the method in the model's config \(awq\)"):
        resolved("--quantization gptq", model=awq)


def test_a_quantisation_of_an_unquantised_checkpoint():
    assert resolved("--quantization fp8")[1] == ()
    assert engine("--quantization fp8").quantization == "fp8"
    assert "itself is not quantised" in notes("--quantization awq")


# ---------------------------------------------------------------- flags of other versions


@pytest.mark.parametrize(
    ("flags", "version", "said"),
    [
        (
            "--swap-space 4",
            "0.24.0",
            "did you mean --kv-offloading-size (GiB, total over TP)? It is a prefix-cache tier",
        ),
        ("--swap-space 4", "0.17.1", "--swap-space has no effect in V1"),
        ("--num-scheduler-steps 8", "0.24.0", "async scheduling replaces it"),
        ("--multi-step-stream-outputs", "0.24.0", "async scheduling replaces it"),
        ("--preemption-mode swap", "0.24.0", "V1 always recomputes"),
        ("--scheduler-delay-factor 0.5", "0.24.0", "was removed in 0.11.0"),
        ("--num-lookahead-slots 3", "0.24.0", "--speculative-config"),
        ("--cuda-graph-sizes 512", "0.24.0", "did you mean --cudagraph-capture-sizes?"),
        ("--cudagraph-capture-sizes 512", "0.10.2", "did you mean --cuda-graph-sizes?"),
        ("--max-seq-len-to-capture 8192", "0.24.0", "only V0 had it"),
        ("--disable-async-output-proc", "0.24.0", "only V0 had it"),
        ("--speculative-model org/d --num-speculative-tokens 3", "0.24.0", "give --speculative-config"),
        ("--device cuda", "0.24.0", "was removed in 0.11.0"),
        ("--watermark 0.01", "0.23.0", "--watermark exists from 0.24.0 on"),
        ("--kv-offloading-size 8", "0.10.2", "exists from 0.11.1 on"),
        ("--no-scheduler-reserve-full-isl", "0.18.0", "looks at the first chunk only"),
    ],
)
def test_flags_that_this_version_does_not_have_are_ignored_and_answered(flags, version, said):
    found, all_notes = resolved(flags, version=version)
    assert said in " ".join(all_notes)
    assert found == engine(version=version)


# ---------------------------------------------------------------- graphs


@pytest.mark.parametrize(
    ("flags", "version", "mode"),
    [
        ("--enforce-eager", "0.24.0", "NONE"),
        ("-O0", "0.24.0", "NONE"),
        ("-O1", "0.24.0", "PIECEWISE"),
        ("-O2", "0.24.0", "FULL_AND_PIECEWISE"),
        ("-O3", "0.24.0", "FULL_AND_PIECEWISE"),
        ("-O3", "0.10.2", "PIECEWISE"),
        ("-O0", "0.10.2", "NONE"),
        ("-O2", "0.10.2", "NONE"),
        ("-O.cudagraph_mode=FULL_DECODE_ONLY", "0.24.0", "FULL_DECODE_ONLY"),
        ("--compilation-config.cudagraph_mode=none", "0.24.0", "NONE"),
        ("--compilation-config '{\"cudagraph_mode\": 1}'", "0.24.0", "PIECEWISE"),
        ("--compilation-config '{\"mode\": 0}'", "0.24.0", "NONE"),
        ('--compilation-config \'{"mode": 0, "cudagraph_mode": "FULL"}\'', "0.24.0", "FULL"),
        ('--compilation-config \'{"mode": "VLLM_COMPILE"}\'', "0.24.0", "FULL_AND_PIECEWISE"),
        ("--compilation-config 0", "0.10.2", "NONE"),
        ("--compilation-config '{\"full_cuda_graph\": true}'", "0.10.2", "FULL"),
        ("--compilation-config '{\"use_cudagraph\": false}'", "0.10.2", "NONE"),
    ],
)
def test_cudagraph_mode(flags, version, mode):
    found = engine(flags, version=version)
    assert found.cudagraph_mode == mode
    assert bool(found.cudagraph_capture_sizes) is (mode != "NONE")


def test_full_graphs_for_any_batch_need_flash_attention_3():
    assert engine("-O.cudagraph_mode=FULL", gpu="A100").cudagraph_mode == "FULL_AND_PIECEWISE"
    assert engine("-O.cudagraph_mode=FULL", gpu="H100").cudagraph_mode == "FULL"


def test_capture_sizes_of_flag_and_compilation_config():
    assert engine("--cudagraph-capture-sizes 1 8 2").cudagraph_capture_sizes == (1, 2, 8)
    assert engine("-O '{\"cudagraph_capture_sizes\": [4, 2]}'").cudagraph_capture_sizes == (2, 4)
    assert engine("--max-cudagraph-capture-size 8").cudagraph_capture_sizes == (1, 2, 4, 8)
    assert engine("--cuda-graph-sizes 16", version="0.10.2").cudagraph_capture_sizes == (1, 2, 4, 8, 16)
    assert engine("--performance-mode interactivity").cudagraph_capture_sizes[:5] == (1, 2, 3, 4, 5)
    assert "pass_config not read" in notes("-O '{\"pass_config\": {}}'")


# ---------------------------------------------------------------- features by name


@pytest.mark.parametrize(
    ("flags", "model", "names"),
    [
        ("--speculative-config '{\"method\": \"eagle\"}'", "meta-llama/Llama-3.1-8B", ("speculative decoding",)),
        ("--enable-lora", "meta-llama/Llama-3.1-8B", ("LoRA",)),
        ("--lora-modules a=b", "meta-llama/Llama-3.1-8B", ("LoRA",)),
        ("-pp 2", "meta-llama/Llama-3.1-8B", ("pipeline parallelism",)),
        ("-dp 2", "meta-llama/Llama-3.1-8B", ("data parallelism",)),
        ("-tp 2 -dcp 2", "meta-llama/Llama-3.1-8B", ("decode context parallelism",)),
        ("--runner pooling", "meta-llama/Llama-3.1-8B", ("pooling models",)),
        ("--kv-offloading-size 8", "meta-llama/Llama-3.1-8B", ()),
        ("--kv-offloading-size 8 --kv-offloading-backend lmcache", "meta-llama/Llama-3.1-8B",
         ("KV offloading by lmcache",)),
        ("--kv-transfer-config '{\"kv_connector\": \"NixlConnector\"}'", "meta-llama/Llama-3.1-8B", ("KV transfer",)),
        ("--cpu-offload-gb 4", "meta-llama/Llama-3.1-8B", ("CPU weight offload",)),
        ("--dtype float32", "meta-llama/Llama-3.1-8B", ("float32",)),
        ("", "Qwen/Qwen3-30B-A3B", ("mixture of experts",)),
        ("", "deepseek-ai/DeepSeek-V3", ("mixture of experts", "MLA")),
        ("", "mistralai/Mistral-7B-v0.1", ("sliding window",)),
        ("--max-model-len 4096", "mistralai/Mistral-7B-v0.1", ()),
        ("", "Qwen/Qwen3-VL-8B-Instruct", ("multimodal encoder",)),
        ("--limit-mm-per-prompt '{\"image\": 0, \"video\": 0}'", "Qwen/Qwen3-VL-8B-Instruct", ()),
        ("-tp 4", "meta-llama/Llama-3.1-70B", ()),
        ("", "Qwen/Qwen3-32B-FP8", ()),
    ],
)  # fmt: skip
def test_features_that_are_not_simulated_are_named(flags, model, names):
    assert engine(flags, model=catalogue.model(model)).unsimulated == names


# ---------------------------------------------------------------- fuzz

_VALUES = st.sampled_from(
    [None, True, False, -1, 0, 1, 2, 3, 8, 24, 4096, 1 << 70, 0.5, -0.5, math.nan, math.inf, "", "x", "auto", "16k"]
)
_SETTINGS = st.sampled_from([name for name, flag in FLAGS.items() if flag.kind != "json"])
_VERSIONS = st.sampled_from([None, "0.6.3", "0.7.3", "0.8.5", "0.10.2", "0.11.2", "0.24.0", "0.33.0", "x", "9.9"])


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(_SETTINGS, _VALUES, max_size=4), _VERSIONS, st.sampled_from(["H200", "T4", "A100"]))
def test_any_settings_are_resolved_or_refused_in_one_line(chosen, version, gpu):
    with contextlib.suppress(ServecastError):
        resolve(ServeArgs.from_kwargs(**{"model": "m", **chosen}), LLAMA, catalogue.gpu(gpu), version)
