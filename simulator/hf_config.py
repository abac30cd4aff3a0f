"""A model's facts from its Hugging Face ``config.json``, or from the catalogue by its name.

`model_spec_from_config` reads the key names of Llama, Mistral, Qwen, Gemma, Phi, DeepSeek, GPT-2, OPT, Falcon, GPT-NeoX
and their like, the nested ``text_config`` of multimodal models, and ``quantization_config``.  The longest context is
derived as vLLM derives it: ``max_position_embeddings``, stretched by ``rope_scaling`` where the type asks for it.

Not modelled: layers that differ from each other other than dense against MoE (NAS models), encoder-decoder models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator import catalogue
from simulator.errors import ConfigError, InputError, UnsupportedError, validated
from simulator.model_spec import ModelSpec
from simulator.quantization import format_of_config

_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "kv_n_heads")
_FFN = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff")
_VOCAB = ("vocab_size", "padded_vocab_size")
_LENGTH = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "max_sequence_length",
    "n_ctx",
)  # fmt: skip
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_topk", "moe_top_k")
_TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
_OTHER_MODES = ("vision_config", "audio_config", "vision_tower", "mm_vision_tower", "visual")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOT_GATED = _words(
    "opt gpt2 gpt_neox gptj gpt_bigcode gpt_neo falcon RefinedWeb RefinedWebModel phi bloom mpt starcoder2 persimmon "
    "nemotron codegen"
)
_TIED_BY_DEFAULT = _words(
    "gpt2 opt bloom falcon mpt gpt_bigcode gemma gemma2 gemma3 gemma3_text gemma4 gemma4_text cohere cohere2 starcoder2"
)
_QKV_BIAS = _words("qwen qwen2 qwen2_moe qwen2_vl qwen2_5_vl opt gpt2 phi gpt_bigcode bloom gpt_neox")
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
_RECURRENT = ("mamba", "linear_attention", "recurrent", "conv", "m")


def load_model(name_or_path: str | Path | None) -> ModelSpec:
    """Return the model of a ``config.json``, of a folder that holds one, or of the catalogue by its name.

    Raises `ConfigError` with the closest names for an unknown one, `InputError` for a file that cannot be read.
    """
    if name_or_path is None or not str(name_or_path).strip():
        raise ConfigError("no model is named; give it as in `vllm serve meta-llama/Llama-3.1-8B`")
    name = str(name_or_path).strip()
    path = config = Path(name)
    try:
        config = path / "config.json" if path.is_dir() else path
        is_file = config.is_file()
    except (OSError, ValueError):  # no name of a file: too long, or with a zero byte
        is_file = False
    if is_file and (config.suffix == ".json" or path.is_dir()):
        return _from_file(config, name)
    if config.suffix == ".json":
        raise InputError(f"{name}: there is no such file; give the path of the model's config.json")
    found = catalogue.model(name)
    if found is None:
        near = ", ".join(catalogue.closest_models(name))
        raise ConfigError(
            f"model {name[:80]!r} is not in the catalogue (closest: {near}); any other model works with "
            "--model-config config.json"
        )
    return found


def _from_file(path: Path, name: str) -> ModelSpec:
    config = _read(path)
    quantized = path.parent / "hf_quant_config.json"
    if "quantization_config" not in config and path.name == "config.json" and quantized.is_file():
        config["quantization_config"] = {"quant_method": "modelopt", **_read(quantized).get("quantization", {})}
    return model_spec_from_config(config, str(config.get("_name_or_path") or name))


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: is not a readable config.json ({error}); give the model's own file") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: holds a {type(data).__name__}, not a JSON object; give the model's own config.json")
    return data


def model_spec_from_config(config: Mapping[str, Any], name: str) -> ModelSpec:
    """Return the facts in a ``config.json``; raises `InputError` naming the key that is missing or senseless."""
    text = _text_part(config)
    kind = str(text.get("model_type") or config.get("model_type") or "")
    if config.get("is_encoder_decoder") or text.get("is_encoder_decoder"):
        raise UnsupportedError(f"{name}: encoder-decoder models are not covered; only decoder models are")
    hidden, heads = _number(text, _HIDDEN, name), _number(text, _HEADS, name)
    layers = _number(text, _LAYERS, name)
    latent = _first(text, ("kv_lora_rank",)) or 0
    data = {
        "name": name,
        "architecture": _architecture(config, text),
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": _first(text, _FFN) or 4 * hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": _kv_heads(text, kind, heads),
        "head_dim": _head_dim(text, hidden, heads, latent),
        "vocab_size": _number(text, _VOCAB, name),
        "max_position_embeddings": longest_context(text, name),
        "tie_word_embeddings": _tied(config, text, kind),
        "attention_bias": bool(text.get("attention_bias") or text.get("qkv_bias") or kind in _QKV_BIAS),
        "gated_mlp": kind not in _NOT_GATED,
        "dtype": _dtype(config, text),
        "quantization": format_of_config(config.get("quantization_config") or config.get("compression_config"), name),
        "sliding_window": _sliding_window(text),
        "is_multimodal": any(config.get(key) for key in _OTHER_MODES),
        "is_hybrid": _is_hybrid(text),
        "source": "config.json given by the user",
        **_experts(text, layers, name),
    }
    if latent:
        data |= {
            key: _first(text, (key,)) or 0
            for key in ("kv_lora_rank", "qk_rope_head_dim", "q_lora_rank", "qk_nope_head_dim", "v_head_dim")
        }
    return validated(ModelSpec, data, f"{name}: config.json")


def _architecture(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    for part in (config, text):
        names = part.get("architectures")
        if isinstance(names, list) and names:
            return str(names[0])
    return "LlamaForCausalLM"


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part that describes the language model (its own keys win over the outer ones)."""
    for key in _TEXT:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            return _text_part({**config, key: None, **inner})
    attention = config.get("attn_config")  # MPT
    return {**attention, **config} if isinstance(attention, Mapping) else config


def _first(config: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = config.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value and abs(value) < 1e15:
            return int(value)
    return None


def _number(config: Mapping[str, Any], keys: tuple[str, ...], name: str) -> int:
    value = _first(config, keys)
    if value is None:
        raise InputError(f"{name}: config.json has no number under {keys[0]}; give the model's complete config.json")
    if value <= 0:
        raise InputError(f"{name}: config.json: {keys[0]} must be positive, got {value}")
    return value


def _kv_heads(text: Mapping[str, Any], kind: str, heads: int) -> int:
    if kind in ("falcon", "RefinedWeb", "RefinedWebModel") and not text.get("new_decoder_architecture"):
        return 1 if text.get("multi_query", True) else heads
    if text.get("multi_query") and kind == "gpt_bigcode":
        return 1
    return _first(text, _KV_HEADS) or heads


def _head_dim(text: Mapping[str, Any], hidden: int, heads: int, latent: int) -> int:
    if latent:
        parts = (_first(text, ("qk_nope_head_dim",)) or 0) + (_first(text, ("qk_rope_head_dim",)) or 0)
        return parts or hidden // heads
    return _first(text, ("head_dim", "kv_channels", "attention_head_dim")) or hidden // heads


def _tied(config: Mapping[str, Any], text: Mapping[str, Any], kind: str) -> bool:
    for part in (text, config):
        if isinstance(part.get("tie_word_embeddings"), bool):
            return bool(part["tie_word_embeddings"])
    return kind in _TIED_BY_DEFAULT


def _dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    given = text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype") or config.get("dtype")
    return _DTYPES.get(str(given).removeprefix("torch."), "bf16")


def _sliding_window(text: Mapping[str, Any]) -> int | None:
    """Return the window if any layer uses it; Qwen's config.json names one that is switched off."""
    window = _first(text, ("sliding_window", "sliding_window_size"))
    kinds = text.get("layer_types")
    if not window or text.get("use_sliding_window") is False:
        return None
    if isinstance(kinds, list) and kinds and not any("sliding" in str(kind) for kind in kinds):
        return None
    return window


def _is_hybrid(text: Mapping[str, Any]) -> bool:
    kinds = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(kinds, list) and any(str(kind) in _RECURRENT for kind in kinds):
        return True
    return any(text.get(key) for key in ("hybrid_override_pattern", "mamba_d_state", "ssm_state_size", "state_size"))


def _experts(text: Mapping[str, Any], layers: int, name: str) -> dict[str, int]:
    """Return the fields of a mixture of experts; ``first_k_dense_replace`` is the number of dense layers."""
    experts = _first(text, _EXPERTS)
    if not experts or experts < 2:
        return {}
    width = _first(text, ("moe_intermediate_size", "expert_ffn_hidden_size", *_FFN))
    if not width or width < 0:
        raise InputError(f"{name}: config.json has experts but no moe_intermediate_size; give the complete file")
    shared = _first(text, ("n_shared_experts", "num_shared_experts")) or 0
    shared_width = _first(text, ("shared_expert_intermediate_size", "shared_intermediate_size")) or 0
    if str(text.get("model_type", "")).startswith("llama4"):
        shared = 1
    without = text.get("mlp_only_layers")
    dense = _first(text, ("first_k_dense_replace",)) or (len(without) if isinstance(without, list) else 0)
    step = _first(text, ("decoder_sparse_step", "interleave_moe_layer_step")) or 1
    if step > 1 and not dense:
        dense = layers - layers // step
    return {
        "num_experts": experts,
        "num_experts_per_tok": _first(text, _EXPERTS_PER_TOKEN) or 1,
        "moe_intermediate_size": width,
        "num_shared_experts": shared or -(-shared_width // width),
        "first_k_dense_replace": min(dense, layers),
    }


def longest_context(text: Mapping[str, Any], name: str) -> int:
    """Return the longest context in tokens as vLLM derives it: the positions, stretched by the rope scaling."""
    lengths = [value for key in _LENGTH if (value := _first(text, (key,))) is not None and value > 0]
    length = min(lengths) if lengths else 2048
    scaling = text.get("rope_scaling") or text.get("rope_parameters")
    return stretched(length, scaling) if isinstance(scaling, Mapping) else length


def stretched(length: int, scaling: Mapping[str, Any]) -> int:
    """Return *length* under a rope scaling: ``su``, ``longrope``, ``llama3`` and ``mrope`` leave it as it is."""
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    factor = scaling.get("factor")
    if kind in ("su", "longrope", "llama3", "mrope", "default", "proportional") or not isinstance(factor, (int, float)):
        return length
    if not 0 < factor < 1e6:
        raise InputError(f"rope scaling factor must be a positive number, got {factor}")
    original = _first(scaling, ("original_max_position_embeddings",)) if kind == "yarn" else None
    return int((original or length) * factor)
