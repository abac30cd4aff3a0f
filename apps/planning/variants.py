"""The same question with other flags: resolved again, so that vLLM's own defaults and refusals apply.

    with_settings(scenario, {"max_num_seqs": 128})          flags with underscores; None: vLLM's default
    with_settings(scenario, {}, gpu="L40S")                 on another GPU, with its data sheet's profile

Raises `ConfigError` for what vLLM would refuse; whether it fits is for `memory_of` to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.exports.serve_flags import serve_flags
from simulator import catalogue
from simulator.command_line import ServeArgs
from simulator.memory import MemoryPlan, plan_memory
from simulator.memory_plan import plan_once
from simulator.profile import load_profile
from simulator.resolve import resolve
from simulator.scenario import Scenario


def args_of(scenario: Scenario) -> ServeArgs:
    """Return flags that start the server of *scenario*; takes a tenth of a second, so keep it for many variants."""
    flags = serve_flags(scenario)
    return ServeArgs(model=flags.model, given=flags.given, env=flags.env)


def with_settings(
    scenario: Scenario, settings: Mapping[str, Any], gpu: str | None = None, args: ServeArgs | None = None
) -> Scenario:
    """Return *scenario* with *settings* in place of its own, and on *gpu* if one is named.

    *args* is what `args_of` returned before.  A profile stays with its GPU: on another one the data sheet answers.
    Notes of the resolution replace those before.
    """
    changed = (args or args_of(scenario)).with_settings(settings)
    card = scenario.gpu if gpu is None else catalogue.gpu(gpu)
    engine, notes = resolve(changed, scenario.model, card, scenario.engine.vllm_version)
    profile = scenario.profile
    if profile is not None and card.name != scenario.gpu.name and load_profile(profile).provenance.gpu != card.name:
        profile = None
    return scenario.model_copy(update={"engine": engine, "gpu": card, "profile": profile, "notes": tuple(notes)})


def memory_of(scenario: Scenario) -> MemoryPlan:
    """Return the memory plan of *scenario*'s server, without fixes."""
    plan = plan_memory if scenario.engine.auto_max_model_len else plan_once
    return plan(scenario.engine, scenario.model, scenario.gpu)
