"""What takes GPU memory beside the KV cache: weights, activations, non-torch memory, CUDA graphs.  Bytes of one rank.

    weights    = sum(weights / ranks * bytes of their format) + embedding and lm_head in 16 bit + rotary table
    activation = max(forward, sampling) of the profiling run
        forward  = max_num_batched_tokens * (3 * intermediate + k * hidden) * 2 B
                   k = 1 compiled, 3 eager, 4 without FlashAttention; MoE: top_k times the expert's share
        sampling = c * max_num_seqs * vocab * 4 B + h * max_num_batched_tokens * hidden * 2 B
                   c, h = 3.5, 2 model runner V1 (logits in 16 and 32 bit, probabilities, noise; hidden states twice)
                          1.5, 1 model runner V2 (logits in 16 and 32 bit)
                          9.7, 1 V0 (top-k/top-p by sorting)
    graphs     = 0.14 MiB * layers * graphs (runner V1), 0.30 MiB (runner V2)

The shapes are read in the wheels of vLLM 0.24.0, 0.22.0, 0.19.0 and 0.6.3 (``profile_run``, the samplers).  **Fitted
in sample**, on the rows of ``tests/data/kv_memory.csv`` and three H200 start-up logs: k, V0's 9.7 (two public V0 logs),
MiB per graph and layer (0.90 and 0.39 GiB logged for 64 and 28 layers), and `OTHER_GIB`: non-torch memory and whatever
the shapes miss, one number per kind of engine.  So the errors shown for those rows are no test.  Public logs of five
other servers (A100-40, A6000, H100 and V100 before 0.20, Llama-3.1-8B and Qwen2.5-7B; L40S, Qwen3-14B, 0.28) come
within 0.5 %, but the constant for V1 before 0.20 was chosen with three of them in view.

Weights on a rank reproduce logged sizes to 0.01 GiB (Llama-3.1-8B 14.99, Qwen2.5-32B 61.04, a 70B in fp8 16.96 of 4).
Not modelled: multimodal encoders (K07: 36 GiB of vision activations), LoRA buffers, draft models, MLA workspaces, other
processes on the GPU.
"""

from __future__ import annotations

from simulator.engine_config import EngineConfig
from simulator.errors import UnsupportedError
from simulator.gpu_spec import GIB, GpuSpec
from simulator.kv_layout import dtype_bytes, kv_heads_per_rank, layers_per_rank
from simulator.model_spec import BYTES_PER_WEIGHT, ModelSpec
from simulator.quantization import FORMATS
from simulator.versions import facts, release

MIB = 1 << 20

#: Non-torch memory plus what the shapes above miss, GiB.  "old": V1 before 0.20 (K02, K08), and several ranks (NCCL).
OTHER_GIB = {"v0": 0.20, "old": 0.70, "runner_v1": 0.31, "runner_v2": 0.54}

#: (copies of the fp32 logits, copies of the hidden states) alive at the peak of the sampler's dummy run.
_SAMPLER_COPIES = {"v0": (9.7, 1), "old": (3.5, 2), "runner_v1": (3.5, 2), "runner_v2": (1.5, 1)}

_GRAPH_MIB = {"v0": 0.14, "old": 0.14, "runner_v1": 0.14, "runner_v2": 0.30}

#: Architectures that use model runner V2 by default, by the first version that does.  The 0.22.0 wheel has Qwen3 alone;
#: row K01, a Llama logged as "0.22 or later", shows runner V2's terms, so 0.22 is taken like 0.23.
_RUNNER_V2 = (
    ((0, 24, 0), {"DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM"}),
    ((0, 22, 0), {"LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"}),
)

#: Values of --quantization by the format of the weights; bitsandbytes quantises to 4 bits while loading.
_FORMATS = {**FORMATS, "bitsandbytes": "int4"}


def is_v0(engine: EngineConfig) -> bool:
    """Is this vLLM's V0 engine?  As resolved, else by the version."""
    return (engine.engine_generation or facts(engine.vllm_version).engine) == "V0"


def engine_kind(engine: EngineConfig, model: ModelSpec) -> str:
    """Which profiling run this engine does: ``v0``, ``old`` (V1 before 0.20), ``runner_v1`` or ``runner_v2``."""
    if is_v0(engine):
        return "v0"
    version = release(engine.vllm_version)
    if version < (0, 20, 0):
        return "old"
    plain = not model.num_experts and not weight_format(engine, model)
    for since, architectures in _RUNNER_V2:
        if version >= since and model.architecture in architectures and (plain or version >= (0, 24, 0)):
            return "runner_v2"
    return "runner_v1"


def weight_format(engine: EngineConfig, model: ModelSpec) -> str | None:
    """Format of the quantised linear layers, or None.  The checkpoint's own format wins over the flag."""
    if model.quantization not in (None, "bf16", "fp16", "fp32"):
        return model.quantization
    if engine.quantization is None:
        return None
    if engine.quantization not in _FORMATS:
        raise UnsupportedError(
            f"quantization {engine.quantization!r}: bytes per weight unknown without the checkpoint's config.json; "
            f"known are {', '.join(sorted(_FORMATS))}"
        )
    return _FORMATS[engine.quantization]


def _linear_weights_per_rank(engine: EngineConfig, model: ModelSpec) -> float:
    """Linear weights of one rank, before pipeline parallelism: split by TP, but for what is replicated."""
    ranks, layers = engine.tensor_parallel_size, model.num_hidden_layers
    experts = 0
    if model.num_experts:
        moe_layers = layers - model.first_k_dense_replace
        experts = moe_layers * model.num_experts * model.mlp_weights(model.moe_intermediate_size)
    split = (model.linear_weights - experts) / ranks + experts / (ranks * engine.data_parallel_size)
    if model.kv_lora_rank:  # the down projections to the latents are whole on every rank
        down = model.hidden_size * (model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim)
        return split + layers * down * (1 - 1 / ranks)
    extra_heads = kv_heads_per_rank(engine, model) - model.num_key_value_heads / ranks
    return split + layers * model.hidden_size * 2 * model.head_dim * extra_heads


def weight_bytes(engine: EngineConfig, model: ModelSpec) -> int:
    """Weights of the fullest rank as loaded; vLLM's "Model loading took"."""
    size, form = dtype_bytes(engine), weight_format(engine, model)
    per_weight = BYTES_PER_WEIGHT[form] if form else size
    stages = engine.pipeline_parallel_size
    share = layers_per_rank(engine, model) / model.num_hidden_layers
    padded_vocab = -(-model.vocab_size // 64) * 64
    matrices = 1 if model.tie_word_embeddings or stages > 1 else 2
    embeddings = matrices * padded_vocab * model.hidden_size / engine.tensor_parallel_size * size
    rotary = model.max_position_embeddings * (model.qk_rope_head_dim or model.head_dim) * size
    linear = _linear_weights_per_rank(engine, model) * share * per_weight
    total = linear + embeddings + model.other_weights * share * size + rotary
    return max(0, int(total - engine.cpu_offload_gb * GIB))


def _forward_width(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec, kind: str) -> float:
    """Values per token alive at the peak of one layer: the feed-forward block and copies of the hidden state."""
    compiled = kind != "v0" and not engine.enforce_eager
    copies = 1 if compiled else 3 if gpu.compute_capability >= 8.0 else 4
    matrices = 3 if model.gated_mlp else 2
    ranks = engine.tensor_parallel_size
    width = matrices * model.intermediate_size / ranks
    if model.num_experts:
        routed = matrices * model.moe_intermediate_size / ranks + model.hidden_size
        width = max(width if model.first_k_dense_replace else 0.0, model.num_experts_per_tok * routed)
    return width + copies * model.hidden_size


def activation_bytes(engine: EngineConfig, model: ModelSpec, gpu: GpuSpec) -> int:
    """Peak of the profiling run: a forward pass over max_num_batched_tokens, then sampling for max_num_seqs rows."""
    kind, size, tokens = engine_kind(engine, model), dtype_bytes(engine), engine.max_num_batched_tokens
    forward = tokens * _forward_width(engine, model, gpu, kind) * size
    logits, hidden = _SAMPLER_COPIES[kind]
    rows = min(engine.max_num_seqs, tokens)
    sampling = logits * rows * model.vocab_size * 4 + hidden * tokens * model.hidden_size * size
    return int(max(forward, sampling))


def other_bytes(engine: EngineConfig, model: ModelSpec) -> int:
    """Non-torch memory (cuBLAS, NCCL, kernels) and the remainder; fitted, see the module's text."""
    kind = engine_kind(engine, model)
    several = kind != "v0" and engine.tensor_parallel_size * engine.pipeline_parallel_size > 1
    return int((OTHER_GIB["old"] if several else OTHER_GIB[kind]) * GIB)


def num_graphs(engine: EngineConfig) -> int:
    """CUDA graphs captured: one a size and mode; full graphs only up to max_num_seqs tokens."""
    if engine.enforce_eager or engine.cudagraph_mode == "NONE":
        return 0
    sizes = engine.cudagraph_capture_sizes
    full = sum(1 for size in sizes if size <= engine.max_num_seqs)
    return {
        "PIECEWISE": len(sizes), "FULL": len(sizes), "FULL_DECODE_ONLY": full, "FULL_AND_PIECEWISE": len(sizes) + full,
    }[engine.cudagraph_mode]  # fmt: skip


def graph_bytes(engine: EngineConfig, model: ModelSpec) -> int:
    """Memory of the captured CUDA graphs."""
    per_layer = _GRAPH_MIB[engine_kind(engine, model)] * MIB
    return int(per_layer * layers_per_rank(engine, model) * num_graphs(engine))


def graphs_in_budget(engine: EngineConfig, model: ModelSpec) -> bool:
    """Does the graph estimate come off the KV budget?

    From 0.20 with model runner V1.  V2 estimates 0 in 0.24; a public log of 0.28 counts graphs again (taken from 0.25).
    """
    if not facts(engine.vllm_version).graphs_in_memory_budget:
        return False
    return engine_kind(engine, model) == "runner_v1" or release(engine.vllm_version) >= (0, 25, 0)
