"""A model folder that vLLM serves with dummy weights: config.json and a tokenizer of words, nothing downloaded."""

from __future__ import annotations

import json
from pathlib import Path

VOCABULARY = 2048
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip


def write_tiny_model(folder: Path) -> Path:
    """Write the folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    words = {f"w{number}": number for number in range(VOCABULARY)}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w2"},
    }  # fmt: skip
    special = {"bos_token": "w0", "eos_token": "w1", "unk_token": "w2"}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4096, **special}
    for name, content in (("config", CONFIG), ("tokenizer", tokenizer), ("tokenizer_config", about)):
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder
