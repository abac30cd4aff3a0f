"""The same question with other flags: resolved again, so that vLLM's own defaults and refusals apply.

    with_settings(scenario, {"max_num_seqs": 128})          flags with underscores; None: vLLM's default
    with_settings(scenario, {}, gpu="L40S")                 on another GPU, with its data sheet's profile

Raises `ConfigError` for what vLLM would refuse, and `DoesNotFitError` is left to the one who plans the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.exports.serve_flags import serve_flags
from simulator import catalogue
from simulator.command_line import ServeArgs
from simulator.memory import MemoryPlan, plan_memory
from simulator.profile import load_profile
from simulator.resolve import resolve
from simulator.scenario import Scenario


def with_settings(scenario: Scenario, settings: Mapping[str, Any], gpu: str | None = None) -> Scenario:
    """Return *scenario* with *settings* in place of its own, and on *gpu* if one is named.

    A profile stays with its GPU: on another one the data sheet answers.  Notes of the resolution replace those before.
    """
    flags = serve_flags(scenario)
    args = ServeArgs(model=flags.model, given=flags.given, env=flags.env).with_settings(settings)
    card = scenario.gpu if gpu is None else catalogue.gpu(gpu)
    engine, notes = resolve(args, scenario.model, card, scenario.engine.vllm_version)
    profile = scenario.profile
    if profile is not None and card.name != scenario.gpu.name and load_profile(profile).provenance.gpu != card.name:
        profile = None
    return scenario.model_copy(update={"engine": engine, "gpu": card, "profile": profile, "notes": tuple(notes)})


def memory_of(scenario: Scenario) -> MemoryPlan:
    """Return the memory plan of *scenario*'s server."""
    return plan_memory(scenario.engine, scenario.model, scenario.gpu)
