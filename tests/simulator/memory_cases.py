"""The logged servers of ``tests/data/kv_memory.csv`` as models, GPUs and settings; the logs themselves."""

from __future__ import annotations

import csv
from pathlib import Path

from simulator.engine_config import EngineConfig
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import ModelSpec

DATA = Path(__file__).parent.parent / "data"
LOGS = {path.stem.rsplit("0.24.0-")[1]: path for path in sorted((DATA / "logs").glob("h200-*.log"))}
CAPTURE_SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))

#: Labels of the rows that are no version, as a version that behaves so.
VERSIONS = {
    "0.22+": "0.24.0",
    "V1 (Dec 2025)": "0.13.0",
    "0.3.x": "0.3.3",
    "V0 (about 0.7)": "0.7.3",
    "0.6.6+": "0.6.6",
}


def spec(
    name, layers, hidden, inner, heads, kv_heads, head_dim, vocab, positions, architecture="LlamaForCausalLM", **more
):
    return ModelSpec(
        name=name, architecture=architecture, num_hidden_layers=layers, hidden_size=hidden, intermediate_size=inner,
        num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim, vocab_size=vocab,
        max_position_embeddings=positions, **more,
    )  # fmt: skip


def qwen2(*dimensions, **more):
    return spec(*dimensions, architecture="Qwen2ForCausalLM", attention_bias=True, **more)


MODELS = {
    model.name: model
    for model in (
        spec("Llama-3.1-8B", 32, 4096, 14336, 32, 8, 128, 128256, 131072),
        spec("Llama-2-7B", 32, 4096, 11008, 32, 32, 128, 32000, 4096),
        spec("Llama-70B", 80, 8192, 28672, 64, 8, 128, 128256, 131072, quantization="fp8"),
        spec("Mistral-7B", 32, 4096, 14336, 32, 8, 128, 32000, 32768, architecture="MistralForCausalLM"),
        spec("opt-125m", 12, 768, 3072, 12, 12, 64, 50272, 2048, tie_word_embeddings=True, gated_mlp=False),
        spec("Llama-3.2-11B-Vision", 40, 4096, 14336, 32, 8, 128, 128256, 131072, is_multimodal=True),
        qwen2("Qwen2.5-1.5B", 28, 1536, 8960, 12, 2, 128, 151936, 32768, tie_word_embeddings=True),
        qwen2("Qwen2.5-14B", 48, 5120, 13824, 40, 8, 128, 152064, 32768),
        qwen2("Qwen2.5-32B", 64, 5120, 27648, 40, 8, 128, 152064, 32768),
        spec(
            "DeepSeek-671B (MLA)", 61, 7168, 18432, 128, 128, 128, 129280, 163840, architecture="DeepseekV3ForCausalLM",
            quantization="fp8", num_experts=256, num_experts_per_tok=8, moe_intermediate_size=2048,
            num_shared_experts=1, first_k_dense_replace=3, kv_lora_rank=512,
            qk_rope_head_dim=64, q_lora_rank=1536, qk_nope_head_dim=128, v_head_dim=128,
        ),
    )
}  # fmt: skip


def card(name, visible_gib, capability=9.0):
    return GpuSpec(
        name=name,
        device_name=name,
        visible_memory_gib=visible_gib,
        memory_bandwidth_bytes_per_s=3e12,
        bf16_flops_per_s=9e14,
        compute_capability=capability,
        source="test",
    )


H200, H100 = card("H200", 139.81), card("H100", 79.2)
RTX_4090 = card("RTX 4090", 23.516, 8.9)


def settings(**changes):
    values = {
        "model": "m", "max_model_len": 16384, "max_num_batched_tokens": 8192, "max_num_seqs": 1024,
        "cudagraph_capture_sizes": CAPTURE_SIZES, **changes,
    }  # fmt: skip
    return EngineConfig(**values)


class Row:
    """One logged server."""

    def __init__(self, row: dict[str, str]) -> None:
        self.id, self.logged = row["id"], {name: float(row[name]) for name in NUMBERS if row[name]}
        self.model = MODELS[row["model"]]
        version = VERSIONS.get(row["vllm_version"], row["vllm_version"])
        self.version = "0.6.3" if version.startswith("V0") else version
        self.v0 = self.version < "0.8" and int(self.version.split(".")[1]) < 8
        visible = float(row["visible_gib"] or "24")
        self.gpu = card(row["gpu"], visible, {"T4": 7.5, "RTX-3090": 8.6, "RTX-4090": 8.9}.get(row["gpu"], 9.0))
        self.engine = self._engine(row, visible)

    def _engine(self, row: dict[str, str], visible: float) -> EngineConfig:
        length = int(row["max_model_len"])
        tokens, seqs = (max(length, 2048), 256) if self.v0 else (8192, 1024) if visible >= 70 else (2048, 256)
        return settings(
            model=row["model"],
            vllm_version=self.version,
            max_model_len=length,
            max_num_batched_tokens=int(row["max_num_batched_tokens"] or tokens),
            max_num_seqs=seqs,
            gpu_memory_utilization=float(row["gpu_memory_utilization"]),
            tensor_parallel_size=int(row["tp"]),
            enforce_eager=row["enforce_eager"] == "yes",
            enable_chunked_prefill=not self.v0,
            cudagraph_mode="FULL_DECODE_ONLY" if self.v0 else "FULL_AND_PIECEWISE",
            swap_space=float(row["swap_space_gib"]) if row["swap_space_gib"] else None,
        )


NUMBERS = (
    "weights_gib",
    "kv_gib",
    "num_gpu_blocks",
    "kv_tokens",
    "max_concurrency",
    "num_cpu_blocks",
    "activation_gib",
)
ROWS = {row["id"]: Row(row) for row in csv.DictReader((DATA / "kv_memory.csv").open())}
