"""What was not measured is marked, and what was is not."""

from __future__ import annotations

import pytest

from simulator.footing import not_measured
from simulator.profile import load_profile
from simulator.scenario import Scenario
from simulator.simulate import simulate
from simulator.workload import RateWorkload

PROFILE = "h200-llama-3.1-8b"
LINE = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384"


def marks(line: str, **more) -> str:
    scenario = Scenario.from_command(line, profile=PROFILE, workload=RateWorkload(rate=5, num_prompts=3), **more)
    return "; ".join(not_measured(scenario, load_profile(PROFILE)))


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        LINE + " --max-num-seqs 64 --max-num-batched-tokens 2048 --no-enable-prefix-caching",
        LINE + " --attention-backend FLASH_ATTN",
        LINE + " --cudagraph-capture-sizes 1 2 4 8 16 256 512",
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 16384",
    ],
)
def test_limits_and_names_leave_an_answer_calibrated(line):
    assert marks(line) == ""


@pytest.mark.parametrize(
    ("flags", "mark"),
    [
        ("--enforce-eager", "enforce_eager"),
        ("--no-async-scheduling", "async_scheduling off"),
        ("--kv-cache-dtype fp8", "kv_cache_dtype fp8"),
        ("--tensor-parallel-size 2", "tensor_parallel_size 2"),
        ("--quantization fp8", "quantization fp8"),
        ('--compilation-config \'{"cudagraph_mode":"NONE"}\'', "cudagraph_mode NONE"),
        ("--attention-backend TRITON_ATTN", "attention backend TRITON_ATTN"),
        ("--quantization bitsandbytes", "as 16 bit"),
        ("--cudagraph-capture-sizes 1 2 4", "CUDA graphs up to 4 tokens, usually 512"),
    ],
)
def test_an_engine_that_runs_otherwise_is_marked(flags, mark):
    assert mark in marks(f"{LINE} {flags}")


def test_the_environment_asks_for_an_attention_backend_too():
    assert "attention backend FLASHINFER" in marks(f"VLLM_ATTENTION_BACKEND=FLASHINFER {LINE}")


def test_another_version_gpu_or_model_is_marked():
    assert "measured with vLLM 0.24.0, used for 0.10.0" in marks(LINE, vllm_version="0.10.0")
    assert "calibrated on H200, used for H100" in marks(LINE, gpu="H100")
    assert "used for Qwen/Qwen3-14B" in marks("vllm serve Qwen/Qwen3-14B --max-model-len 8192")


def test_a_gpu_without_a_profile_gets_a_marked_answer():
    scenario = Scenario.from_command(LINE, gpu="H100", workload=RateWorkload(rate=5, num_prompts=3))
    result = simulate(scenario)
    assert not result.provenance.calibrated
    assert any("no calibrated profile" in warning for warning in result.warnings)


def test_a_gpu_with_profiles_is_told_them_if_none_was_given():
    def told(model):
        scenario = Scenario.from_command(
            f"vllm serve {model}", gpu="H200", workload=RateWorkload(rate=5, num_prompts=3)
        )
        return " ".join(simulate(scenario).warnings)

    assert "no --profile was given, measured on it: h200-llama-3.1-8b;" in told("meta-llama/Llama-3.1-8B-Instruct")
    assert "measured on it: h200-llama-2-7b, h200-llama-3.1-8b, " in told("Qwen/Qwen2.5-7B")


def test_a_profile_measured_with_fp8_weights_is_calibrated_for_them_alone():
    profile = load_profile("h200-llama-3.1-8b-fp8")

    def missing(flags):
        command = f"vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384 {flags}"
        scenario = Scenario.from_command(command, profile=profile.name, workload=RateWorkload(rate=1.0, num_prompts=2))
        return not_measured(scenario, profile)

    assert missing("--quantization fp8") == []
    assert missing("")[0].startswith("no quantization, unlike fp8: step times are a first answer")
