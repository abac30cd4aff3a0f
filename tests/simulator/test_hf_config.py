"""Configurations cut down to the keys that matter; the numbers are those of the public files."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import ConfigError, InputError, ServecastError, UnsupportedError
from simulator.hf_config import load_model, model_spec_from_config

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


def spec(**changes):
    config = {key: value for key, value in {**LLAMA, **changes}.items() if value is not ...}
    return model_spec_from_config(config, "m")


def grouped(bits, kind):
    weights = {"num_bits": bits, "type": kind}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


def test_a_llama():
    found = spec()
    assert found.num_parameters == 8_030_261_248
    assert (found.head_dim, found.dtype, found.quantization, found.gated_mlp) == (128, "bf16", None, True)


def test_head_dim_is_not_always_hidden_over_heads():
    assert spec(head_dim=64).head_dim == 64
    assert spec(head_dim=None).head_dim == 128


def test_without_kv_heads_every_head_has_its_own():
    assert spec(num_key_value_heads=...).num_key_value_heads == 32


def test_the_language_model_of_a_multimodal_one_lies_in_text_config():
    outer = {"architectures": ["Qwen3VLForConditionalGeneration"], "text_config": LLAMA, "vision_config": {"depth": 27}}
    found = model_spec_from_config(outer, "m")
    assert found.is_multimodal
    assert found.num_hidden_layers == 32
    assert found.architecture == "Qwen3VLForConditionalGeneration"


def test_deepseek_has_a_latent_and_experts():
    found = spec(
        model_type="deepseek_v3", kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128,
        q_lora_rank=1536, n_routed_experts=256, num_experts_per_tok=8, n_shared_experts=1, first_k_dense_replace=3,
        moe_intermediate_size=2048, hidden_size=7168, intermediate_size=18432, num_hidden_layers=61,
        num_attention_heads=128, num_key_value_heads=128, vocab_size=129280,
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
    )  # fmt: skip
    assert found.num_parameters / 1e9 == pytest.approx(671.03, abs=0.01)
    assert (found.kv_lora_rank, found.head_dim, found.quantization) == (512, 192, "fp8")


def test_a_v2_lite_without_query_latent():
    assert (
        spec(kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, q_lora_rank=None).q_lora_rank
        == 0
    )


def test_mixtral_experts_are_as_wide_as_intermediate_size():
    found = spec(num_local_experts=8, num_experts_per_tok=2)
    assert (found.num_experts, found.num_experts_per_tok, found.moe_intermediate_size) == (8, 2, 14336)


def test_qwen_moe_shared_expert_counts_in_units_of_one_expert():
    found = spec(num_experts=60, moe_intermediate_size=1408, shared_expert_intermediate_size=5632)
    assert found.num_shared_experts == 4


def test_every_other_layer_dense():
    assert spec(num_local_experts=16, interleave_moe_layer_step=2).first_k_dense_replace == 16


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({"sliding_window": 4096}, 4096),
        ({"sliding_window": None}, None),
        ({"sliding_window": 32768, "use_sliding_window": False}, None),
        ({"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"]}, 128),
        ({"sliding_window": 4096, "layer_types": ["full_attention"] * 4}, None),
    ],
)
def test_a_window_counts_only_where_layers_use_it(changes, window):
    assert spec(**changes).sliding_window == window


@pytest.mark.parametrize(
    ("config", "format_"),
    [
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        (grouped(8, "float"), "fp8"),
        (grouped(8, "int"), "int8"),
        (grouped(4, "int"), "int4"),
        (grouped(4, "float"), "nvfp4"),
        ({}, None),
    ],
)  # fmt: skip
def test_weight_formats(config, format_):
    assert spec(quantization_config=config).quantization == format_


def test_an_unknown_weight_format_is_refused_by_name():
    with pytest.raises(UnsupportedError, match="'quip' of the checkpoint is not covered"):
        spec(quantization_config={"quant_method": "quip"})


@pytest.mark.parametrize(
    ("scaling", "longest"),
    [
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 131072),
        ({"type": "linear", "factor": 4.0}, 4 * 131072),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"type": "longrope", "factor": 32.0}, 131072),
        ({"rope_type": "default"}, 131072),
        (None, 131072),
    ],
)
def test_the_longest_context_under_rope_scaling(scaling, longest):
    assert spec(rope_scaling=scaling).max_position_embeddings == longest


def test_gpt2_spelling_tied_embeddings_and_two_matrices():
    found = model_spec_from_config(
        {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
         "n_positions": 1024, "vocab_size": 50257}, "gpt2",
    )  # fmt: skip
    assert (found.intermediate_size, found.gated_mlp, found.tie_word_embeddings) == (3072, False, True)
    assert found.num_parameters / 1e6 == pytest.approx(124, rel=0.02)


def test_falcon_shares_one_kv_head():
    assert spec(model_type="falcon", multi_query=True, num_key_value_heads=...).num_key_value_heads == 1


def test_opt_spelling():
    assert spec(model_type="opt", intermediate_size=..., ffn_dim=3072).intermediate_size == 3072


def test_qwen2_has_biases_that_its_config_does_not_mention():
    assert spec(model_type="qwen2").attention_bias


def test_mamba_layers_make_a_hybrid():
    assert spec(layer_types=["mamba", "attention"]).is_hybrid
    assert spec(layer_types=["linear_attention", "full_attention"]).is_hybrid
    assert not spec().is_hybrid


def test_a_missing_key_is_named():
    with pytest.raises(InputError, match="no number under hidden_size"):
        spec(hidden_size=...)


@pytest.mark.parametrize("value", [0, -1])
def test_a_senseless_number_is_refused(value):
    with pytest.raises(InputError, match="num_hidden_layers must be positive"):
        spec(num_hidden_layers=value)


def test_encoder_decoder_models_are_refused_by_name():
    with pytest.raises(UnsupportedError, match="encoder-decoder"):
        spec(is_encoder_decoder=True)


def test_a_folder_or_a_file_can_be_given(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert load_model(tmp_path).num_hidden_layers == 32
    assert load_model(str(tmp_path / "config.json")).hidden_size == 4096


def test_modelopt_writes_its_format_beside_the_config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    assert load_model(tmp_path).quantization == "fp8"


@pytest.mark.parametrize("text", ["", "{", "[1]", "nonsense", "\udcff"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError, match=r"config\.json") as error:
        load_model(path)
    assert "\n" not in str(error.value)


def test_a_file_that_does_not_exist_is_named():
    with pytest.raises(InputError, match="no such file"):
        load_model("nowhere/config.json")


@pytest.mark.parametrize("nothing", [None, "", "  "])
def test_no_model_is_refused(nothing):
    with pytest.raises(ConfigError, match="no model is named"):
        load_model(nothing)


_ODD = st.sampled_from([
    None, True, False, -1, 0, 1, 3, 10**30, 0.5, float("nan"), float("inf"), "", "x", [], ["x"], [1], [None], {},
    {"x": 1}, {"factor": 0, "type": "yarn"}, {"factor": 2.0, "type": "linear"}, {"factor": "2", "type": "yarn"},
    {"quant_method": None}, {"quant_method": "compressed-tensors", "config_groups": {"g": 1}}, {"quant_algo": 4},
])  # fmt: skip
_KEYS = st.sampled_from(
    [*LLAMA, "head_dim", "text_config", "quantization_config", "rope_scaling", "layer_types", "sliding_window",
     "num_experts", "moe_intermediate_size", "mlp_only_layers", "kv_lora_rank", "qk_rope_head_dim", "vision_config"]
)  # fmt: skip


@given(st.dictionaries(_KEYS, _ODD, max_size=4))
def test_whatever_a_config_holds_it_is_a_model_or_one_line(changes):
    with contextlib.suppress(ServecastError):
        model_spec_from_config({**LLAMA, **changes}, "m")


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b", "a/" * 3000])
def test_a_name_that_no_file_can_have_is_an_unknown_model(name):
    with pytest.raises(ConfigError, match="is not in the catalogue"):
        load_model(name)
