"""The one call: a frozen question in, facts and what is derived from them out.

    result = simulate(Scenario.from_command("vllm serve ...", profile="h200-llama-3.1-8b", workload=...))

The same scenario gives the same result, byte for byte.
"""

from __future__ import annotations

import numpy as np

from simulator.cohort import CohortScheduler
from simulator.errors import DoesNotFitError, UnsupportedError
from simulator.host_memory import HostMemory, host_memory
from simulator.memory import MemoryPlan, plan_memory
from simulator.memory_plan import with_max_model_len
from simulator.memory_terms import is_v0
from simulator.profile import Profile, load_profile
from simulator.records import Records, Status
from simulator.result import Provenance, Result
from simulator.roofline import basis, default_profile
from simulator.scenario import Scenario
from simulator.scheduler import V1Scheduler
from simulator.server import Load, Server
from simulator.step_cost import StepCost
from simulator.traces import apply_over_length
from simulator.workload import traffic


def simulate(
    scenario: Scenario, *, scheduler: type[V1Scheduler] = CohortScheduler, timed_by: Profile | None = None
) -> Result:
    """Return what the server of *scenario* does under its workload.

    *timed_by* stands in for the profile the scenario names, e.g. one of its draws (`calibration.intervals`).
    *scheduler* `V1Scheduler` goes step by step and gives the same result more slowly.  Raises `UnsupportedError` for
    features the simulation does not cover, `DoesNotFitError` if vLLM would not start, `InputError` for a workload that
    cannot be read.
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
    sent = traffic(scenario.workload, scenario.seed)
    table, dropped = apply_over_length(sent.table, engine.max_model_len, scenario.over_length)
    cost = StepCost(profile, scenario.model, scenario.gpu, engine)
    load = Load(table=table, max_concurrency=sent.max_concurrency)
    host = host_memory(engine, scenario.model, scenario.gpu, profile)
    server = Server(engine, memory.num_gpu_blocks, cost, load, seed=scenario.seed, scheduler=scheduler, host=host)
    records = server.run()
    rests_on = basis(profile, scenario.model.name, scenario.gpu.name)
    timer = server.timer
    outside = cost.leaving_hull(timer.most_tokens, timer.most_decode_reqs, timer.longest_context)
    warnings = [
        *scenario.notes,
        *sent.notes,
        *([rests_on] if rests_on else []),
        *_first_answers(scenario),
        *_simplified(scenario),
        *([_outside(profile, outside)] if outside else []),
        *_unanswered(records),
    ]
    return Result(
        scenario=scenario,
        table=table,
        records=records,
        provenance=Provenance(
            profile=profile.name if scenario.profile is not None else None,
            calibrated=rests_on is None and not _first_answers(scenario),
            gpu=scenario.gpu.name,
            model=scenario.model.name,
            vllm_version=engine.vllm_version,
            seed=scenario.seed,
        ),
        memory=_memory(memory, host),
        warnings=tuple(warnings),
        dropped=dropped,
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


def _first_answers(scenario: Scenario) -> list[str]:
    """What the step times of this scenario were never measured with."""
    engine, found = scenario.engine, []
    if is_v0(engine):
        found.append(
            f"vLLM {engine.vllm_version} runs its V0 engine: scheduling and blocks are exact, but no V0 was measured; "
            "step times are V1's with V0's graphs and swaps, not calibrated"
        )
    if engine.tensor_parallel_size > 1:
        found.append(
            f"tensor_parallel_size {engine.tensor_parallel_size}: step times are a first answer "
            "(work divided by the ranks, plus all-reduces), not calibrated"
        )
    quantization = engine.quantization or scenario.model.quantization
    if quantization:
        found.append(f"quantization {quantization}: step times are a first answer (bytes per weight), not calibrated")
    return found


def _simplified(scenario: Scenario) -> list[str]:
    interval = scenario.engine.stream_interval
    if interval == 1:
        return []
    return [f"stream_interval {interval}: ITL is given per token, as if every token had a message of its own"]


def _outside(profile: Profile, names: tuple[str, ...]) -> str:
    hull = profile.hull
    ranges = ", ".join(f"{name} (calibrated up to {getattr(hull, name):,})" for name in names)
    return f"outside the range profile {profile.name} was calibrated in: {ranges}; these step times are extrapolated"


def _unanswered(records: Records) -> list[str]:
    status = np.asarray(records.status)
    rejected, unfinished = int((status == Status.REJECTED).sum()), int((status == Status.UNFINISHED).sum())
    ignored = int((status == Status.IGNORED).sum())
    found = []
    if ignored:
        found.append(
            f"{ignored} requests were ignored: longer than the prompt limit or than the KV cache, V0 ends them without "
            "an error, the rest of their tokens is missing (raise max_num_batched_tokens or gpu_memory_utilization)"
        )
    if rejected:
        found.append(
            f"{rejected} requests can never be scheduled: prompt and output need more KV blocks than the "
            f"{records.num_gpu_blocks - 1} usable ones; vLLM would let the first of them block the queue for ever "
            "(raise gpu_memory_utilization, or lower max_model_len)"
        )
    if records.died:
        found.append(f"the engine died after {records.died_s:.1f} s, {unfinished} requests unanswered: {records.died}")
    elif unfinished:
        found.append(f"{unfinished} requests were never finished: nothing in the engine could go on")
    return found
