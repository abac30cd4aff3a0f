"""What is known about the coefficients before anything is fitted: centres and spreads, and where they come from.

One model alone cannot separate memory bandwidth from overhead per layer, nor a KV tile's cost from a request's: many
pairs fit equally well and carry differently to other sizes.  So every coefficient is fitted as a logarithm with a
Gaussian prior.  Centres: the joint fit of the calibration bursts of Llama-3.1-8B and Qwen2.5-32B on one H200 (vLLM
0.24.0); the shape of the compute efficiency over tokens: single GEMM times on an H200 (aiconfigurator-core 0.12.0,
vLLM 0.24.0, shapes of both models), a flat read up to 128 tokens, then stairs.  Spreads: tight where one model does not
tell (bandwidth, per layer), wide where every recording does.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.profile import Cpu, FrontEnd, GpuTime, Launch, ModeLaunch, Profile, Provenance, Transfer

#: Tokens at which the compute efficiency is fitted.
COMPUTE_TOKENS = (128.0, 192.0, 256.0, 512.0, 1024.0, 2048.0, 8192.0)


@dataclass(frozen=True)
class Prior:
    """Centre and relative spread (standard deviation of the logarithm) of one coefficient, by its path."""

    path: str
    centre: float
    spread: float


PRIORS: tuple[Prior, ...] = (
    Prior("gpu_time.bandwidth_efficiency", 0.845, 0.03),
    Prior("gpu_time.step_s", 0.25e-3, 0.3),
    Prior("gpu_time.per_layer_s", 27e-6, 0.2),
    Prior("gpu_time.activation_factor", 2.4, 0.2),
    Prior("gpu_time.per_kv_tile_s", 23e-9, 0.15),
    Prior("gpu_time.per_request_s", 2.5e-6, 0.5),
    Prior("gpu_time.kv_bandwidth_efficiency", 0.92, 0.05),
    Prior("gpu_time.kv_bandwidth_efficiency_mixed", 0.45, 0.2),
    Prior("gpu_time.attention_efficiency", 0.65, 0.1),
    Prior("gpu_time.kv_block_s", 1.04e-6, 0.1),
    Prior("gpu_time.roofline_exponent", 8.0, 0.3),
    Prior("gpu_time.compute_efficiency.0", 0.50, 0.12),
    Prior("gpu_time.compute_efficiency.1", 0.58, 0.12),
    Prior("gpu_time.compute_efficiency.2", 0.69, 0.12),
    Prior("gpu_time.compute_efficiency.3", 0.76, 0.12),
    Prior("gpu_time.compute_efficiency.4", 0.76, 0.12),
    Prior("gpu_time.compute_efficiency.5", 0.76, 0.12),
    Prior("gpu_time.compute_efficiency.6", 0.71, 0.12),
    Prior("launch.start_s", 1.1e-3, 0.05),
    Prior("launch.idle_start_s", 0.6e-3, 0.7),
    Prior("launch.none.tail_s", 2.5e-3, 0.4),
    Prior("launch.piecewise.tail_s", 1.7e-3, 0.4),
)


def starting_profile(name: str, provenance: Provenance) -> Profile:
    """Return a profile of the priors' centres, to be refined.  CPU and front-end numbers are starting points only."""
    centre = {prior.path: prior.centre for prior in PRIORS}
    return Profile(
        name=name,
        gpu_time=GpuTime(
            compute_tokens=COMPUTE_TOKENS,
            compute_efficiency=tuple(centre[f"gpu_time.compute_efficiency.{k}"] for k in range(len(COMPUTE_TOKENS))),
            attention_slots=132,  # multiprocessors of an H100 or H200
            **{
                path.removeprefix("gpu_time."): value
                for path, value in centre.items()
                if path.startswith("gpu_time.") and ".compute_efficiency." not in path
            },
        ),
        launch=Launch(
            start_s=centre["launch.start_s"],
            idle_start_s=centre["launch.idle_start_s"],
            none=ModeLaunch(constant_s=2.6e-3, per_layer_s=0.353e-3, tail_s=centre["launch.none.tail_s"]),
            piecewise=ModeLaunch(constant_s=2.6e-3, per_layer_s=0.14e-3, tail_s=centre["launch.piecewise.tail_s"]),
            full=ModeLaunch(constant_s=0.6e-3, per_layer_s=0.02e-3),
        ),
        cpu=Cpu(schedule_s=60e-6, schedule_per_request_s=8e-6, update_s=60e-6, update_per_request_s=4.5e-6),
        front_end=FrontEnd(
            request_latency_s=1.8e-3,
            request_latency_per_token_s=0.1e-6,
            request_demand_s=0.7e-3,
            request_demand_per_token_s=0.27e-6,
            input_s=0.1e-3,
            input_per_token_s=0.25e-6,
            first_token_s=1.2e-3,
            first_token_per_prompt_token_s=0.65e-6,
            token_s=0.85e-3,
            token_per_stream_s=47e-6,
            finish_s=70e-6,
        ),
        # vLLM's custom all-reduce in a CUDA graph, 2 to 8 H200s, up to 64 KiB, and large messages
        # (custom_allreduce_perf of aiconfigurator-core 0.12.0, vLLM 0.24.0).
        transfer=Transfer(allreduce_latency_s=4.6e-6, allreduce_bytes_per_s=140e9),
        provenance=provenance,
    )
