"""A scenario for tests that need one but not what it says."""

from simulator.engine_config import EngineConfig
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import ModelSpec
from simulator.scenario import Scenario
from simulator.workload import RateWorkload


def small_scenario(**changes) -> Scenario:
    model = ModelSpec(
        name="tiny", num_hidden_layers=2, hidden_size=64, intermediate_size=128, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, vocab_size=100, max_position_embeddings=4096,
    )  # fmt: skip
    gpu = GpuSpec(
        name="toy", device_name="Toy", visible_memory_gib=16, memory_bandwidth_bytes_per_s=1e12, bf16_flops_per_s=1e14,
        source="made up",
    )  # fmt: skip
    engine = EngineConfig(model="tiny", max_model_len=4096, max_num_batched_tokens=2048, max_num_seqs=16)
    return Scenario(**{"engine": engine, "model": model, "gpu": gpu, "workload": RateWorkload(rate=2.0), **changes})
