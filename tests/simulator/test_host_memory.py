"""Blocks on the CPU, and how long they take to get there."""

import pytest

from simulator import catalogue
from simulator.engine_config import EngineConfig
from simulator.host_memory import host_memory
from simulator.profile import load_profile
from simulator.records import Status
from simulator.scenario import Scenario
from simulator.simulate import simulate
from simulator.v0_rules import NO_SWAP_SPACE
from simulator.workload import RateWorkload

PROFILE = load_profile("h200-llama-3.1-8b")
LLAMA = "meta-llama/Llama-3.1-8B"


def host(**engine):
    settings = {"model": LLAMA, "max_model_len": 4096, "max_num_batched_tokens": 4096, "max_num_seqs": 8}
    return host_memory(EngineConfig(**(settings | engine)), catalogue.model(LLAMA), catalogue.gpu("H200"), PROFILE)


def test_swap_space_counts_by_rank_and_offload_over_all_ranks():
    # A block of 16 tokens of Llama-3.1-8B has 2 MiB.
    v0 = {"engine_generation": "V0", "vllm_version": "0.6.3"}
    assert host(**v0, swap_space=4.0).num_blocks == 2048
    assert host(**v0, swap_space=4.0, tensor_parallel_size=2).num_blocks == 4096
    assert host(kv_offloading_size=4.0).num_blocks == 2048
    assert host(kv_offloading_size=4.0, tensor_parallel_size=2).num_blocks == 2048
    assert host(kv_offloading_size=4.0, kv_offloading_block_factor=4).num_blocks == 512
    assert host() is None
    assert host(**v0, swap_space=0.0).num_blocks == 0


def test_a_block_takes_its_bytes_and_two_copies_a_layer():
    one_by_one = host(vllm_version="0.6.3", swap_space=4.0).transfer
    assert one_by_one.seconds(10) == pytest.approx(10 * ((2 << 20) / (64e9 * 0.86) + 2 * 32 * 2.3e-6))


def test_v1_hands_the_copies_of_a_job_over_at_once():
    batched = host(kv_offloading_size=4.0).transfer
    assert batched.seconds(10) == pytest.approx(10 * ((2 << 20) / (64e9 * 0.86) + 2 * 32 * 1.0e-6))


def scenario(command, **more):
    workload = RateWorkload(rate="inf", num_prompts=40, prompt_tokens="500", output_tokens="200")
    return Scenario.from_command(f"vllm serve {LLAMA} {command}", workload=workload, gpu="H200", **more)


def test_v0_by_its_flags_is_marked_uncalibrated():
    found = simulate(
        scenario(
            "--max-model-len 4096 --swap-space 16 --preemption-mode swap --num-gpu-blocks-override 600",
            vllm_version="0.6.3",
            profile="h200-llama-3.1-8b",
        )
    )
    summary = found.summary()
    assert summary["memory"]["num_cpu_blocks"] == 8192
    assert summary["swapped_out_blocks"] == summary["swapped_in_blocks"] > 0
    assert summary["recomputed_tokens"] == 0
    assert summary["completed"] == 40
    assert not found.provenance.calibrated
    assert any("no V0 was measured" in warning for warning in found.warnings)
    assert {"swapped", "swapped_in", "swapped_out", "free_cpu_blocks", "swap_s"} <= set(found.steps.columns)


def test_recompute_under_the_same_load_copies_nothing():
    flags = "--max-model-len 4096 --preemption-mode recompute --num-gpu-blocks-override 600"
    summary = simulate(scenario(flags, vllm_version="0.6.3")).summary()
    assert summary["swapped_out_blocks"] == 0
    assert summary["recomputed_tokens"] > 0


def test_the_answer_carries_the_death_of_the_engine():
    flags = "--max-model-len 4096 --swap-space 0 --preemption-mode swap --num-gpu-blocks-override 600"
    found = simulate(scenario(flags, vllm_version="0.6.3"))
    summary = found.summary()
    assert summary["engine_died"] == NO_SWAP_SPACE
    assert summary["failed"] == summary["unfinished"] > 0
    assert any(NO_SWAP_SPACE in warning for warning in summary["warnings"])
    assert Status.UNFINISHED in found.records.status


def test_offload_by_either_flag():
    sizes = [
        simulate(scenario(f"--max-model-len 4096 {flag}")).summary()["memory"]["num_cpu_blocks"]
        for flag in (
            "--kv-offloading-size 8",
            '--kv-transfer-config \'{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",'
            ' "kv_connector_extra_config": {"cpu_bytes_to_use": 8589934592}}\'',
        )
    ]
    assert sizes == [4096, 4096]


def test_offload_and_tokens_held_back_are_remarked():
    found = simulate(scenario("--max-model-len 4096 --kv-offloading-size 8", profile="h200-llama-3.1-8b"))
    assert not found.provenance.calibrated
    assert any(warning.startswith("KV offload: step times are a first answer") for warning in found.warnings)
    held = "--max-model-len 4096 --num-scheduler-steps 4 --no-multi-step-stream-outputs"
    assert any(
        "4 of which arrive at a time" in text for text in simulate(scenario(held, vllm_version="0.6.3")).warnings
    )
