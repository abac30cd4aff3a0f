"""What stands between a question and a run: the engine as it starts, its memory, its costs, and what they rest on."""

from __future__ import annotations

from dataclasses import dataclass

from simulator import footing
from simulator.engine_config import EngineConfig
from simulator.errors import DoesNotFitError, UnsupportedError
from simulator.host_memory import HostMemory, host_memory
from simulator.memory import MemoryPlan, plan_memory
from simulator.memory_plan import with_max_model_len
from simulator.profile import Profile, load_profile
from simulator.result import Provenance
from simulator.roofline import default_profile
from simulator.scenario import Scenario
from simulator.step_cost import StepCost


@dataclass(frozen=True)
class Prepared:
    """A server that is ready to start; *engine* is the scenario's with what the memory decides."""

    scenario: Scenario
    engine: EngineConfig
    plan: MemoryPlan
    profile: Profile
    cost: StepCost
    host: HostMemory | None
    unmeasured: tuple[str, ...]

    @property
    def provenance(self) -> Provenance:
        """Where the numbers will come from."""
        scenario = self.scenario
        return Provenance(
            profile=self.profile.name if scenario.profile is not None else None,
            calibrated=not self.unmeasured,
            gpu=scenario.gpu.name,
            model=scenario.model.name,
            vllm_version=self.engine.vllm_version,
            seed=scenario.seed,
        )

    @property
    def memory(self) -> dict[str, int | float]:
        """The KV cache as simulated."""
        return {
            **({} if self.host is None else {"num_cpu_blocks": self.host.num_blocks}),
            "num_gpu_blocks": self.plan.num_gpu_blocks,
            "block_size": self.plan.block_size,
            "kv_tokens": self.plan.kv_tokens,
            "max_concurrency": self.plan.max_concurrency,
        }


def prepare(scenario: Scenario, timed_by: Profile | None = None) -> Prepared:
    """Return the server of *scenario*; *timed_by* stands in for the profile it names.

    Raises `UnsupportedError` for features the simulation does not cover, `DoesNotFitError` if vLLM would not start.
    """
    engine = scenario.engine
    if engine.unsimulated:
        raise UnsupportedError(
            f"{' and '.join(engine.unsimulated)}: not covered by the simulation yet (`servecast memory` may cover the "
            "memory); leave it out, or see the README for what is modelled"
        )
    plan = plan_memory(engine, scenario.model, scenario.gpu)
    if not plan.fits:
        raise DoesNotFitError(f"{scenario.model.name} does not fit on {scenario.gpu.name}: {plan.refusal}")
    if engine.auto_max_model_len:
        engine = with_max_model_len(engine, plan.max_model_len)
    profile = timed_by or profile_of(scenario)
    cost = StepCost(profile, scenario.model, scenario.gpu, engine)
    host = host_memory(engine, scenario.model, scenario.gpu, profile)
    return Prepared(scenario, engine, plan, profile, cost, host, tuple(footing.not_measured(scenario, profile)))


def profile_of(scenario: Scenario) -> Profile:
    """Return the profile that *scenario* names, or the data sheet's if it names none."""
    return load_profile(scenario.profile) if scenario.profile is not None else default_profile(scenario.gpu)
