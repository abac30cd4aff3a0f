"""What a configuration is resolved from, in one place: the user's settings, the model, the GPU, the version's facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simulator.gpu_spec import GpuSpec
from simulator.model_spec import ModelSpec
from simulator.versions import VersionFacts

_POOLING_TASKS = ("embed", "embedding", "classify", "score", "reward", "encode", "pooling")


@dataclass
class Asked:
    """Passed from rule to rule while `simulator.resolve` works; `notes` collects what the user should know."""

    given: dict[str, Any]
    env: dict[str, str]
    usage_context: str
    model: ModelSpec
    gpu: GpuSpec
    version: str
    known: VersionFacts
    generation: str = "V1"
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add *text* once."""
        if text not in self.notes:
            self.notes.append(text)

    def get(self, name: str, default: Any = None) -> Any:
        """Return what the user set, else *default*."""
        value = self.given.get(name)
        return default if value is None else value

    @property
    def is_v0(self) -> bool:
        """Does V0 run?"""
        return self.generation == "V0"

    @property
    def is_pooling(self) -> bool:
        """Is the model used for embeddings and the like, not to generate?"""
        return self.get("task") in _POOLING_TASKS or self.get("runner") == "pooling"

    @property
    def speculative_method(self) -> str | None:
        """The method of speculative decoding, "draft_model" where only a model is named; None without."""
        config = self.get("speculative_config")
        if config:
            return str(config.get("method") or ("ngram" if config.get("model") == "ngram" else "draft_model")).lower()
        model = self.get("speculative_model")
        if model is None:
            return None
        return "ngram" if "ngram" in str(model) else "draft_model"

    @property
    def uses_lora(self) -> bool:
        """Are LoRA adapters served?"""
        return bool(self.get("enable_lora") or self.get("lora_modules"))

    @property
    def attention_backend(self) -> str | None:
        """The backend the user forces, by its name without the old suffix."""
        config = self.get("attention_config", {})
        named = self.get("attention_backend") or config.get("backend") or self.env.get("VLLM_ATTENTION_BACKEND")
        return str(named).upper().removesuffix("_VLLM_V1") if named else None
