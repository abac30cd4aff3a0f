"""What a model is, as far as memory and time depend on it: dimensions, parameter counts, bytes per weight and token.

All counts are per whole model (not per rank); lengths in tokens, sizes in bytes.  Facts come from the model's Hugging
Face ``config.json`` (`simulator.hf_config`) or from the shipped catalogue (`simulator.catalogue`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

WeightFormat = Literal["bf16", "fp16", "fp32", "fp8", "int8", "awq", "gptq", "int4", "mxfp4", "nvfp4"]

#: Bytes per weight of the quantised linear layers, scales (and zeros) of the usual groups included.
BYTES_PER_WEIGHT: dict[str, float] = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp32": 4.0,
    "fp8": 1.0,
    "int8": 1.0,
    "awq": 0.5 + 2.5 / 128,
    "gptq": 0.5 + 2.5 / 128,
    "int4": 0.5 + 2.0 / 128,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
}


class ModelSpec(BaseModel):
    """Dimensions of one decoder model; names as in ``config.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    architecture: str = "LlamaForCausalLM"
    num_hidden_layers: int = Field(gt=0)
    hidden_size: int = Field(gt=0)
    intermediate_size: int = Field(gt=0)
    num_attention_heads: int = Field(gt=0)
    num_key_value_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)
    vocab_size: int = Field(gt=0)
    max_position_embeddings: int = Field(gt=0)
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    gated_mlp: bool = True
    dtype: str = "bf16"
    quantization: WeightFormat | None = None
    # Features that memory may cover and step time may not.
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    num_shared_experts: int = 0
    first_k_dense_replace: int = 0
    kv_lora_rank: int = 0
    qk_rope_head_dim: int = 0
    q_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    v_head_dim: int = 0
    sliding_window: int | None = None
    is_multimodal: bool = False
    is_hybrid: bool = False  # Mamba or linear-attention layers among the others
    source: str = "given by the user"
    verified: bool = False

    @property
    def attention_weights_per_layer(self) -> int:
        """Weights of the query, key, value and output projections of one layer."""
        if self.kv_lora_rank:
            heads, nope, rope = self.num_attention_heads, self.qk_nope_head_dim, self.qk_rope_head_dim
            v = self.v_head_dim
            q = (
                self.hidden_size * self.q_lora_rank + self.q_lora_rank * heads * (nope + rope)
                if self.q_lora_rank
                else self.hidden_size * heads * (nope + rope)
            )
            kv = self.hidden_size * (self.kv_lora_rank + rope) + self.kv_lora_rank * heads * (nope + v)
            return q + kv + heads * v * self.hidden_size
        query = self.num_attention_heads * self.head_dim
        key_value = 2 * self.num_key_value_heads * self.head_dim
        return self.hidden_size * (query + key_value) + query * self.hidden_size

    def mlp_weights(self, intermediate_size: int) -> int:
        """Weights of one feed-forward block of that width (three matrices when gated)."""
        return (3 if self.gated_mlp else 2) * self.hidden_size * intermediate_size

    @property
    def linear_weights(self) -> int:
        """Weights of all linear layers of the decoder stack (embedding and lm_head apart)."""
        dense_layers = self.num_hidden_layers
        total = self.num_hidden_layers * self.attention_weights_per_layer
        if self.num_experts:
            dense_layers = self.first_k_dense_replace
            moe_layers = self.num_hidden_layers - dense_layers
            experts = self.num_experts + self.num_shared_experts
            router = self.hidden_size * self.num_experts
            total += moe_layers * (experts * self.mlp_weights(self.moe_intermediate_size) + router)
        return total + dense_layers * self.mlp_weights(self.intermediate_size)

    @property
    def embedding_weights(self) -> int:
        """Weights of the token embedding, which is as large as lm_head."""
        return self.vocab_size * self.hidden_size

    @property
    def other_weights(self) -> int:
        """Norms and biases: small, kept so that the parameter count is exact for dense models."""
        norms = self.num_hidden_layers * 2 * self.hidden_size + self.hidden_size
        bias = (self.num_attention_heads + 2 * self.num_key_value_heads) * self.head_dim * self.num_hidden_layers
        return norms + (bias if self.attention_bias else 0)

    @property
    def num_parameters(self) -> int:
        """All weights, tied embeddings counted once."""
        embeddings = self.embedding_weights * (1 if self.tie_word_embeddings else 2)
        return self.linear_weights + embeddings + self.other_weights
