"""The one call: a frozen question in, facts and what is derived from them out.

    result = simulate(Scenario.from_command("vllm serve ...", profile="h200-llama-3.1-8b", workload=...))

The same scenario gives the same result, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator import footing
from simulator.errors import DoesNotFitError, UnsupportedError
from simulator.fastest import Served, serve
from simulator.fleet import Part, run_fleet
from simulator.fleet_result import FleetResult, merged
from simulator.host_memory import HostMemory, host_memory
from simulator.memory import MemoryPlan, plan_memory
from simulator.memory_plan import with_max_model_len
from simulator.profile import Profile, load_profile
from simulator.replica import Machine
from simulator.result import Provenance, Result
from simulator.roofline import default_profile
from simulator.scenario import Scenario
from simulator.scheduler import V1Scheduler
from simulator.server import Load
from simulator.step_cost import StepCost
from simulator.traces import apply_over_length
from simulator.workload import traffic


def simulate(
    scenario: Scenario, *, scheduler: type[V1Scheduler] | None = None, timed_by: Profile | None = None
) -> Result:
    """Return what the server of *scenario* does under its workload; a `FleetResult` if it is several replicas.

    *timed_by* stands in for the profile the scenario names, e.g. one of its draws (`calibration.intervals`).
    *scheduler* asks for one of the Python paths, which give the same result more slowly: `CohortScheduler`, or
    `V1Scheduler`, step by step.  Raises `UnsupportedError` for features the simulation does not cover,
    `DoesNotFitError` if vLLM would not start, `InputError` for a workload that cannot be read.
    """
    engine = scenario.engine
    if engine.unsimulated:
        raise UnsupportedError(
            f"{' and '.join(engine.unsimulated)}: not covered by the simulation yet (`servecast memory` may cover the "
            "memory); leave it out, or see the README for what is modelled"
        )
    memory = plan_memory(engine, scenario.model, scenario.gpu)
    if not memory.fits:
        raise DoesNotFitError(f"{scenario.model.name} does not fit on {scenario.gpu.name}: {memory.refusal}")
    if engine.auto_max_model_len:
        engine = with_max_model_len(engine, memory.max_model_len)
    profile = timed_by or profile_of(scenario)
    sent = traffic(scenario.workload, scenario.seed, engine.max_model_len)
    table, dropped = apply_over_length(sent.table, engine.max_model_len, scenario.over_length)
    cost = StepCost(profile, scenario.model, scenario.gpu, engine)
    load = Load(table=table, max_concurrency=sent.max_concurrency, user_start_s=sent.user_start_s)
    host = host_memory(engine, scenario.model, scenario.gpu, profile)
    parts: list[Part] = []
    if scenario.is_fleet:
        machine = Machine(
            engine=engine, num_gpu_blocks=memory.num_gpu_blocks, cost=cost, scheduler=scheduler, host=host
        )
        parts = _fleet(scenario, machine, load)
        found = [part.served for part in parts if part.served is not None]
        records = merged(parts, table, memory.num_gpu_blocks, engine.block_size)
    else:
        found = [serve(engine, memory.num_gpu_blocks, cost, load, seed=scenario.seed, scheduler=scheduler, host=host)]
        records = found[0].records
    unmeasured = footing.not_measured(scenario, profile)
    warnings = [
        *scenario.notes,
        *sent.notes,
        *unmeasured,
        *footing.remarks(scenario),
        *footing.outside(profile, _left_hull(cost, found)),
        *footing.unanswered(records),
    ]
    result = Result(
        scenario=scenario,
        table=table,
        records=records,
        provenance=Provenance(
            profile=profile.name if scenario.profile is not None else None,
            calibrated=not unmeasured,
            gpu=scenario.gpu.name,
            model=scenario.model.name,
            vllm_version=engine.vllm_version,
            seed=scenario.seed,
        ),
        memory=_memory(memory, host),
        warnings=tuple(warnings),
        dropped=dropped,
    )
    return FleetResult.of(result, parts, engine.tensor_parallel_size) if scenario.is_fleet else result


def _fleet(scenario: Scenario, machine: Machine, load: Load) -> list[Part]:
    return run_fleet(
        machine,
        load,
        scenario.router,
        replicas=scenario.replicas,
        autoscaler=scenario.autoscaler,
        seed=scenario.seed,
    )


def _left_hull(cost: StepCost, found: Sequence[Served]) -> tuple[str, ...]:
    """Return the dimensions in which some engine went beyond what was calibrated."""
    return cost.leaving_hull(
        max(served.most_tokens for served in found),
        max(served.most_decode_reqs for served in found),
        max(served.longest_context for served in found),
    )


def profile_of(scenario: Scenario) -> Profile:
    """Return the profile that *scenario* names, or the data sheet's if it names none."""
    return load_profile(scenario.profile) if scenario.profile is not None else default_profile(scenario.gpu)


def _memory(plan: MemoryPlan, host: HostMemory | None) -> dict[str, int | float]:
    return {
        **({} if host is None else {"num_cpu_blocks": host.num_blocks}),
        "num_gpu_blocks": plan.num_gpu_blocks,
        "block_size": plan.block_size,
        "kv_tokens": plan.kv_tokens,
        "max_concurrency": plan.max_concurrency,
    }
