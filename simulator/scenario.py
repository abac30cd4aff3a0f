"""One frozen question: which server, which model on which GPU, timed by which profile, under which load.

The command line, Python and pages all make a `Scenario`; `simulator.simulate.simulate` answers it.  JSON and back gives
an equal scenario, and the same scenario gives the same result.  Schema: ``docs/schemas.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from simulator import data_text
from simulator.autoscaler import Autoscaler
from simulator.engine_config import EngineConfig
from simulator.errors import InputError, validated
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import ModelSpec
from simulator.routing import Routing
from simulator.traces import OverLength
from simulator.workload import Workload

SCHEMA_VERSION = 1


class Scenario(BaseModel):
    """A server, its model and GPU, the profile that times it, and the load; frozen, with a JSON round trip.

    *profile* is the name of a shipped profile or a path; None asks for a data-sheet answer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = Field(default=SCHEMA_VERSION, ge=1, le=SCHEMA_VERSION)
    engine: EngineConfig
    model: ModelSpec
    gpu: GpuSpec
    profile: str | None = None
    workload: Workload
    over_length: OverLength = "fail"
    seed: int = Field(default=0, ge=0, lt=2**63)
    #: How many such servers there are at the start, which of them gets a request, and whether their number changes.
    replicas: int = Field(default=1, ge=1, le=1000)
    router: Routing = Routing()
    autoscaler: Autoscaler | None = None
    #: Remarks on how the question was read (flags that were not understood ...); they become warnings of the result.
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _replicas_within_limits(self) -> Scenario:
        scaler = self.autoscaler
        if scaler is not None and not scaler.min <= self.replicas <= scaler.max:
            raise InputError(
                f"{self.replicas} replicas at the start are not within autoscale min={scaler.min}, max={scaler.max}; "
                "change one of them"
            )
        return self

    @property
    def is_fleet(self) -> bool:
        """Whether there is more than one server, or may be."""
        return self.replicas > 1 or self.autoscaler is not None

    def to_json(self, indent: int | None = 2) -> str:
        """Return the scenario as JSON text that `from_json` reads back."""
        return self.model_dump_json(indent=indent)

    @classmethod
    def from_json(cls, text: str, name: str = "scenario") -> Scenario:
        """Return the scenario written in *text*; `InputError` of one line, also for a newer schema."""
        return cls._from_data(data_text.parse(text, name, "json"), name)

    def to_text(self, name: str) -> str:
        """Return the scenario as TOML, YAML or JSON text, by the suffix of *name*; `from_text` reads it back."""
        return data_text.dump(self.model_dump(mode="json"), name)

    @classmethod
    def from_text(cls, text: str, name: str) -> Scenario:
        """Return the scenario written in *text*, TOML, YAML or JSON by the suffix of *name*; errors as `from_json`."""
        return cls._from_data(data_text.parse(text, name), name)

    @classmethod
    def _from_data(cls, data: Any, name: str) -> Scenario:
        if not isinstance(data, dict):
            raise InputError(
                f"{name}: must be a JSON object (or a table), got {type(data).__name__}; write it with to_json"
            )
        given = data.get("schema_version", SCHEMA_VERSION)
        if isinstance(given, int) and given > SCHEMA_VERSION:
            raise InputError(f"{name}: schema_version {given} is newer than {SCHEMA_VERSION}; update servecast")
        return validated(cls, data, name)

    @classmethod
    def from_command(
        cls,
        text: str,
        *,
        workload: Workload,
        profile: str | None = None,
        gpu: str | None = None,
        vllm_version: str | None = None,
        model_config: str | Path | None = None,
        model: ModelSpec | None = None,
        settings: Mapping[str, Any] | None = None,
        over_length: OverLength = "fail",
        seed: int = 0,
    ) -> Scenario:
        """Return the scenario of a server that is started by the command *text* (`simulator.command_line.parse`).

        Without *gpu* it is the profile's; one of the two must be given.  *model_config* is a path, of a ``config.json``
        for a model the catalogue does not know; *model* stands in for the one that is named, and no file is read.
        *settings* (flags with underscores) stand in for those of the command; None is vLLM's default.  Remarks of the
        parser and of the resolution become notes.
        """
        from simulator import catalogue
        from simulator.command_line import parse
        from simulator.hf_config import load_model
        from simulator.profile import load_profile
        from simulator.resolve import resolve

        if gpu is None:
            if profile is None:
                raise InputError(
                    "no GPU: give --profile NAME (its GPU is taken), or --gpu NAME for a data-sheet answer"
                )
            gpu = load_profile(profile).provenance.gpu
        args, card = parse(text), catalogue.gpu(gpu)
        if settings:
            args = args.with_settings(settings)
        if model is None:
            model = load_model(str(model_config) if model_config is not None else args.model)
        engine, notes = resolve(args, model, card, vllm_version)
        data = {
            "engine": engine, "model": model, "gpu": card, "profile": profile, "workload": workload,
            "over_length": over_length, "seed": seed, "notes": tuple(notes),
        }  # fmt: skip
        return validated(cls, data, "scenario")
