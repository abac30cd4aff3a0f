"""The shipped models and GPUs, by name: ``profiles/models.json`` and ``profiles/gpus.json``, each fact with its source.

Names are compared without regard to case and punctuation.  A model is also found by its last part (a mirror, or a local
folder named like the original) and under the name of a quantised copy; `ModelSpec.source` then says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from simulator import shipped
from simulator.errors import ConfigError, InputError, validated
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import ModelSpec, WeightFormat

#: Ends of repository names that say how the weights were quantised.
_SUFFIXES: tuple[tuple[str, WeightFormat], ...] = (
    (r"-(?:w8a8|quantized\.w8a8|int8|gptq-int8|gptq-8bit|w8a16|quantized\.w8a16)", "int8"),
    (r"-gptq(?:-int4|-4bit.*|-w4a16)?", "gptq"),
    (r"-(?:awq-int4|awq|awq-4bit)", "awq"),
    (r"-(?:fp8|fp8-dynamic|fp8-static|fp8-kv|fp8-block|fp8-static-pertensor|fp8-dynamic-pertensor)", "fp8"),
    (r"-(?:w4a16|quantized\.w4a16|int4|bnb-4bit|unsloth-bnb-4bit)", "int4"),
    (r"-(?:nvfp4|fp4|nvfp4a16)", "nvfp4"),
)


def gpu(name: str) -> GpuSpec:
    """Return the GPU called *name* ("H200", "NVIDIA H100 80GB HBM3", "a100-80gb", "4090"...), else `ConfigError`."""
    found = _gpus().get(_plain(name).removeprefix("nvidia").removeprefix("geforce"))
    if found is None:
        raise ConfigError(f"GPU {name.strip()[:60]!r} is not known; known are {', '.join(gpu_names())}")
    return found


def gpu_names() -> list[str]:
    """Return the names of the GPUs, in the order of the file."""
    return list(dict.fromkeys(spec.name for spec in _gpus().values()))


def model(name: str) -> ModelSpec | None:
    """Return the model called *name*, or None; under another name than the catalogue's, `source` says what was done."""
    entries = _models()
    found = entries.get(name.strip().lower().rstrip("/"))
    if found is not None:
        return found
    last = _last_part(name)
    spec = _by_last_part().get(last)
    if spec is not None:
        return _renamed(spec, name, "taken as", spec.quantization)
    for suffix, weight_format in _SUFFIXES:
        cut = re.fullmatch(rf"(.+?){suffix}", last)
        spec = _by_last_part().get(cut[1]) if cut else None
        if spec is not None:
            return _renamed(spec, name, f"by its name, {weight_format} weights of", weight_format)
    return None


def model_names() -> list[str]:
    """Return the names of the models with their twins, in the order of the file."""
    return list(dict.fromkeys(spec.name for spec in _models().values()))


def closest_models(name: str, count: int = 3) -> list[str]:
    """Return the *count* names most like *name*."""
    wanted = _last_part(name[:120])

    def likeness(known: str) -> float:
        return SequenceMatcher(None, wanted, _last_part(known)).ratio()

    return sorted(model_names(), key=likeness, reverse=True)[:count]


def _renamed(spec: ModelSpec, name: str, how: str, weight_format: WeightFormat | None) -> ModelSpec:
    source = f"{how} {spec.name} ({spec.source})"
    return spec.model_copy(
        update={"name": name.strip(), "source": source, "verified": False, "quantization": weight_format}
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _last_part(name: str) -> str:
    return name.strip().lower().rstrip("/").rsplit("/", 1)[-1].removeprefix("meta-")


def _entries(file: str, key: str) -> Iterable[tuple[dict[str, Any], list[str]]]:
    """Yield (fields, aliases) of every entry of a shipped file."""
    path = shipped.path("profiles", file)
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))[key]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: the shipped {key} cannot be read ({error}); install servecast again") from None
    for entry in entries:
        fields = dict(entry)
        yield fields, fields.pop("aliases", [])


@lru_cache(maxsize=1)
def _gpus() -> dict[str, GpuSpec]:
    found: dict[str, GpuSpec] = {}
    for fields, aliases in _entries("gpus.json", "gpus"):
        spec = validated(GpuSpec, fields, "gpus.json")
        for name in (spec.name, spec.device_name, *aliases):
            found[_plain(name).removeprefix("nvidia").removeprefix("geforce")] = spec
    return found


@lru_cache(maxsize=1)
def _models() -> dict[str, ModelSpec]:
    found: dict[str, ModelSpec] = {}
    for fields, aliases in _entries("models.json", "models"):
        spec = validated(ModelSpec, fields, "models.json")
        for name in (spec.name, *aliases):
            found[name.lower()] = spec if name == spec.name else spec.model_copy(update={"name": name})
    return found


@lru_cache(maxsize=1)
def _by_last_part() -> dict[str, ModelSpec]:
    """Return the models by the last part of their names; the first in the file wins."""
    found: dict[str, ModelSpec] = {}
    for spec in _models().values():
        found.setdefault(_last_part(spec.name), spec)
    return found
