"""The one call: a frozen question in, facts and what is derived from them out.

    result = simulate(Scenario.from_command("vllm serve ...", profile="h200-llama-3.1-8b", workload=...))

The same scenario gives the same result, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator import footing
from simulator.fastest import Served, serve
from simulator.fleet import Part, run_fleet
from simulator.fleet_result import FleetResult, merged
from simulator.prepared import prepare
from simulator.prepared import profile_of as profile_of
from simulator.profile import Profile
from simulator.replica import Machine
from simulator.result import Result
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
    ready = prepare(scenario, timed_by)
    engine, cost, host, num_gpu_blocks = ready.engine, ready.cost, ready.host, ready.plan.num_gpu_blocks
    sent = traffic(scenario.workload, scenario.seed, engine.max_model_len)
    table, dropped = apply_over_length(sent.table, engine.max_model_len, scenario.over_length)
    load = Load(table=table, max_concurrency=sent.max_concurrency, user_start_s=sent.user_start_s)
    parts: list[Part] = []
    if scenario.is_fleet:
        machine = Machine(engine=engine, num_gpu_blocks=num_gpu_blocks, cost=cost, scheduler=scheduler, host=host)
        parts = _fleet(scenario, machine, load)
        found = [part.served for part in parts if part.served is not None]
        records = merged(parts, table, num_gpu_blocks, engine.block_size)
    else:
        found = [serve(engine, num_gpu_blocks, cost, load, seed=scenario.seed, scheduler=scheduler, host=host)]
        records = found[0].records
    warnings = [
        *scenario.notes,
        *sent.notes,
        *ready.unmeasured,
        *footing.remarks(scenario),
        *footing.outside(ready.profile, _left_hull(cost, found)),
        *footing.unanswered(records),
    ]
    result = Result(
        scenario=scenario,
        table=table,
        records=records,
        provenance=ready.provenance,
        memory=ready.memory,
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
