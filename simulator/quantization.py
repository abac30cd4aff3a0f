"""Weight formats: what a checkpoint's ``quantization_config`` and a ``--quantization`` value mean in bytes per weight.

Source: Hugging Face ``config.json`` conventions and vLLM's list of quantization methods (0.6 to 0.24).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from simulator.errors import UnsupportedError
from simulator.model_spec import WeightFormat


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: `--quantization` values that quantise an unquantised checkpoint while it is loaded.
ONLINE = _words(
    "fp8 bitsandbytes experts_int8 tpu_int8 ptpc_fp8 deepspeedfp torchao quark rtn fp8_per_tensor fp8_per_block mxfp8 "
    "online inc ipex mxfp4 int8_per_channel_weight_only"
)

#: All values of `--quantization` of some version from 0.6 to 0.24.
METHODS = ONLINE | _words(
    "aqlm awq awq_marlin auto-round auto_round bitblas compressed-tensors cpu_awq cpu_gptq fbgemm_fp8 fp_quant gguf "
    "gptq gptq_bitblas gptq_marlin gptq_marlin_24 gpt_oss_mxfp4 hqq marlin modelopt modelopt_fp4 modelopt_mixed "
    "modelopt_mxfp8 moe_wna16 neuron_quant petit_nvfp4 qqq squeezellm humming nvfp4 int8"
)

#: Values of `--quantization` by the weight format that they mean for sure.
FORMATS: dict[str, WeightFormat] = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "ptpc_fp8": "fp8", "modelopt": "fp8", "fp8_per_tensor": "fp8",
    "fp8_per_block": "fp8", "awq": "awq", "awq_marlin": "awq", "cpu_awq": "awq", "gptq": "gptq", "gptq_marlin": "gptq",
    "marlin": "gptq", "gptq_marlin_24": "gptq", "experts_int8": "int8", "tpu_int8": "int8", "int8": "int8",
    "mxfp4": "mxfp4", "gpt_oss_mxfp4": "mxfp4", "modelopt_fp4": "nvfp4", "nvfp4": "nvfp4", "petit_nvfp4": "nvfp4",
}  # fmt: skip


_GROUPS: dict[str, WeightFormat] = {"8 float": "fp8", "8 int": "int8", "4 int": "int4", "4 float": "nvfp4"}


def format_of_config(config: Any, name: str) -> WeightFormat | None:
    """Return the weight format of a ``quantization_config``, None without one; `UnsupportedError` for an unknown."""
    if not isinstance(config, Mapping) or not config:
        return None
    method = str(config.get("quant_method") or config.get("quant_algo") or "").lower()
    bits = config.get("bits") or config.get("w_bit")
    if method in ("gptq", "awq", "auto-round", "auto_round", "hqq", "marlin") and bits == 8:
        return "int8"
    if method in ("auto-round", "auto_round", "hqq"):
        return "int4"
    if method == "bitsandbytes":
        return "int4" if config.get("load_in_4bit") or config.get("_load_in_4bit") else "int8"
    if method.startswith("modelopt") or "quant_algo" in config:
        return _by_algorithm(str(config.get("quant_algo") or method), name)
    if method == "compressed-tensors" or "config_groups" in config:
        return _by_groups(config, name)
    known = FORMATS.get(method)
    if known is None:
        raise UnsupportedError(
            f"{name}: quantization method {method[:40]!r} of the checkpoint is not covered; known are "
            f"{', '.join(sorted(get_args(WeightFormat)))} and what amounts to them"
        )
    return known


def _by_algorithm(algorithm: str, name: str) -> WeightFormat:
    algorithm = algorithm.upper()
    if "FP4" in algorithm:
        return "mxfp4" if "MXFP4" in algorithm else "nvfp4"
    if "FP8" in algorithm or algorithm == "MODELOPT":
        return "fp8"
    if "W4A16" in algorithm or "INT4" in algorithm:
        return "int4"
    if "INT8" in algorithm or "W8A" in algorithm:
        return "int8"
    if algorithm in ("MIXED_PRECISION", "MODELOPT_MIXED"):
        return "fp8"
    raise UnsupportedError(f"{name}: quantization algorithm {algorithm[:40]!r} of the checkpoint is not covered")


def _by_groups(config: Mapping[str, Any], name: str) -> WeightFormat:
    groups = config.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping):
            found = _GROUPS.get(f"{weights.get('num_bits')} {weights.get('type')}")
            if found is not None:
                return "mxfp4" if found == "nvfp4" and weights.get("group_size") == 32 else found
    raise UnsupportedError(f"{name}: its compressed-tensors weights are neither 8 nor 4 bits wide; not covered")
