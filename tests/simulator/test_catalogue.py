import pytest

from simulator import catalogue, shipped
from simulator.errors import ConfigError
from simulator.hf_config import load_model


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("meta-llama/Llama-3.1-8B", 8.03),
        ("meta-llama/Llama-3.1-8B-Instruct", 8.03),
        ("meta-llama/Llama-3.1-70B", 70.55),
        ("meta-llama/Llama-3.1-70B-Instruct", 70.55),
        ("meta-llama/Llama-2-7b-hf", 6.74),
        ("meta-llama/Llama-2-7b-chat-hf", 6.74),
        ("meta-llama/Llama-2-13b-hf", 13.02),
        ("meta-llama/Llama-3.2-1B", 1.24),
        ("meta-llama/Llama-3.2-3B-Instruct", 3.21),
        ("Qwen/Qwen3-14B", 14.77),
        ("Qwen/Qwen3-8B", 8.19),
        ("Qwen/Qwen3-0.6B", 0.60),
        ("Qwen/Qwen3-32B", 32.76),
        ("Qwen/Qwen3-30B-A3B", 30.53),
        ("Qwen/Qwen2.5-32B", 32.76),
        ("Qwen/Qwen2.5-32B-Instruct", 32.76),
        ("Qwen/Qwen2.5-1.5B", 1.54),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1.54),
        ("Qwen/Qwen2.5-7B-Instruct", 7.62),
        ("Qwen/Qwen2.5-72B", 72.71),
        ("mistralai/Mistral-7B-v0.1", 7.24),
        ("mistralai/Mistral-7B-Instruct-v0.3", 7.25),
        ("mistralai/Mixtral-8x7B-v0.1", 46.70),
        ("deepseek-ai/DeepSeek-V3", 671.03),
        ("deepseek-ai/DeepSeek-R1", 671.03),
        ("openai/gpt-oss-120b", 116.8),
        ("microsoft/phi-4", 14.66),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1.10),
        ("01-ai/Yi-34B", 34.39),
    ],
)
def test_parameter_counts_are_the_published_ones(name, billions):
    assert catalogue.model(name).num_parameters / 1e9 == pytest.approx(billions, abs=0.006 * max(1, billions / 10))


def test_every_model_names_its_source_and_unverified_ones_say_so():
    models = [catalogue.model(name) for name in catalogue.model_names()]
    assert len(models) > 80
    assert all(model.verified or "unverified" in model.source for model in models)


def test_names_are_compared_without_case():
    assert catalogue.model("QWEN/qwen3-14b").name == "Qwen/Qwen3-14B"
    assert catalogue.model("meta-llama/llama-2-7b-CHAT-hf").name == "meta-llama/Llama-2-7b-chat-hf"


def test_a_twin_shares_every_number():
    base, twin = catalogue.model("meta-llama/Llama-3.1-8B"), catalogue.model("meta-llama/Llama-3.1-8B-Instruct")
    assert twin == base.model_copy(update={"name": twin.name})


def test_a_mirror_or_a_local_folder_is_found_by_its_last_part_and_marked():
    for name in ("unsloth/Meta-Llama-3.1-8B-Instruct", "/models/Llama-3.1-8B-Instruct/"):
        spec = catalogue.model(name)
        assert spec.name == name
        assert spec.num_hidden_layers == 32
        assert not spec.verified
        assert spec.source.startswith("taken as meta-llama/Llama-3.1-8B-Instruct")


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("TheBloke/Llama-2-7B-Chat-AWQ", "awq"),
        ("TheBloke/Llama-2-13B-chat-GPTQ", "gptq"),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8", "fp8"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "int8"),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16", "int4"),
        ("nvidia/Llama-3.1-8B-Instruct-NVFP4", "nvfp4"),
    ],
)
def test_a_quantised_copy_of_a_known_model_has_its_dimensions_and_fewer_bytes(name, weights):
    spec = catalogue.model(name)
    assert spec.quantization == weights
    assert f"by its name, {weights} weights of" in spec.source


def test_an_unknown_model_is_refused_with_the_closest_names_and_the_way_out():
    with pytest.raises(ConfigError, match="not in the catalogue") as error:
        load_model("meta-llama/Lama-3.1-8b")
    assert "meta-llama/Llama-3.1-8B" in str(error.value)
    assert "--model-config" in str(error.value)


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("H200", "H200"),
        ("h200", "H200"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("H100-80GB", "H100"),
        ("A100", "A100-80"),
        ("a100-80gb", "A100-80"),
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("A100-40GB", "A100-40"),
        ("4090", "RTX 4090"),
        ("rtx-4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("l40s", "L40S"),
        ("Tesla T4", "T4"),
    ],
)
def test_spellings_of_a_gpu(spelled, name):
    assert catalogue.gpu(spelled).name == name


@pytest.mark.parametrize("name", ["H200", "H100", "A100-80", "A100-40", "L40S", "L4", "A10G", "RTX 4090", "B200"])
def test_the_gpus_everybody_asks_for_are_there_with_sources(name):
    spec = catalogue.gpu(name)
    assert spec.source
    assert 1e11 < spec.memory_bandwidth_bytes_per_s < 1e13
    assert 1e13 < spec.bf16_flops_per_s < 1e16


def test_an_unknown_gpu_is_refused_with_all_names():
    with pytest.raises(ConfigError, match="is not known; known are H200, H100"):
        catalogue.gpu("MI300X")
    with pytest.raises(ConfigError, match="is not known"):
        catalogue.gpu("")


def test_the_shipped_files_are_found():
    assert shipped.path("profiles", "models.json").is_file()
    assert shipped.path("profiles", "gpus.json").is_file()
