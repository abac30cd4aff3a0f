"""Does it fit, and what is left for the KV cache?  The one call others use: `plan_memory`.

The terms and what is fitted: `simulator.memory_terms`.  Block arithmetic: `simulator.kv_layout`.  Budget and refusals:
`simulator.memory_plan`.  Fixes: `simulator.memory_fixes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.engine_config import EngineConfig
from simulator.errors import DoesNotFitError
from simulator.gpu_spec import GpuSpec
from simulator.memory_fixes import suggest_fixes
from simulator.memory_plan import Fix, MemoryPlan, Term, gib, largest_that_starts, plan_once, with_max_model_len
from simulator.model_spec import ModelSpec

__all__ = ["Fix", "MemoryPlan", "Term", "gib", "plan_memory"]


def plan_memory(
    engine: EngineConfig,
    model: ModelSpec,
    gpu: GpuSpec,
    *,
    gpus: Sequence[GpuSpec] = (),
    strict: bool = False,
) -> MemoryPlan:
    """Plan the memory of one rank; the plan says whether vLLM would start, and if not, what to change.

    With ``auto_max_model_len`` (``--max-model-len -1``) the length shrinks to what fits.  *gpus* may be offered as
    fixes.  *strict* raises DoesNotFitError with vLLM's own refusal instead of returning a plan that does not fit.
    """
    if engine.auto_max_model_len:
        longest = largest_that_starts(engine, model, gpu)
        if 0 < longest < engine.max_model_len:
            engine = with_max_model_len(engine, longest)
    plan = plan_once(engine, model, gpu)
    if plan.fits:
        return plan
    if strict:
        raise DoesNotFitError(f"{model.name} does not fit on {gpu.name}: {plan.refusal}")
    return plan.model_copy(update={"fixes": suggest_fixes(engine, model, gpu, gpus)})
