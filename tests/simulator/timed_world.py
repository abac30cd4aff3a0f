"""Step costs for tests of the clock: a small model on a round-numbered GPU, with noise."""

from __future__ import annotations

from simulator.engine_config import EngineConfig
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import ModelSpec
from simulator.profile import ModeNoise, Noise, load_profile
from simulator.step_cost import StepCost

MODEL = ModelSpec(
    name="small", num_hidden_layers=16, hidden_size=2048, intermediate_size=8192, num_attention_heads=16,
    num_key_value_heads=8, head_dim=128, vocab_size=32000, max_position_embeddings=8192,
)  # fmt: skip
GPU = GpuSpec(
    name="round", device_name="round", visible_memory_gib=100, memory_bandwidth_bytes_per_s=1e12,
    bf16_flops_per_s=1e14, source="made up",
)  # fmt: skip
SOME_NOISE = ModeNoise(gpu_sigma=0.05, launch_quantiles=(0.9, 1.0, 1.0, 2.0))


def step_cost(engine: EngineConfig) -> StepCost:
    """Return the costs of the reference profile for the small model, with noise in every mode."""
    noise = Noise(none=SOME_NOISE, piecewise=SOME_NOISE, full=SOME_NOISE)
    profile = load_profile("h200-llama-3.1-8b").model_copy(update={"noise": noise})
    return StepCost(profile, MODEL, GPU, engine)
