"""How long a plan of V0 takes: `StepTimer`, without graphs for prompts, and the copies of swapping before the step.

CUDA graphs serve steps of decodes alone, and only while every context fits ``max_seq_len_to_capture``; everything else
is launched kernel by kernel (source: model_runner.py of 0.6.3, _use_captured_graph).  A continuation of a
multi-step run costs no scheduling.  Not calibrated: the coefficients are V1's, V0's Python took longer.
"""

from __future__ import annotations

from simulator.cuda_graphs import GraphDispatch
from simulator.engine_config import EngineConfig
from simulator.noise import StepNoise
from simulator.plan import Plan
from simulator.records import Records
from simulator.step_cost import StepCost
from simulator.step_timer import StepTimer
from simulator.swap_records import SwapRecords
from simulator.transfer_cost import TransferCost


class V0Timer:
    """Times of V0's plans; see `simulator.engine.StepTimer` for the contract."""

    def __init__(
        self,
        engine: EngineConfig,
        cost: StepCost,
        transfer: TransferCost,
        records: Records,
        swap: SwapRecords,
        noise: StepNoise | None,
    ) -> None:
        eager = engine.model_copy(update={"enforce_eager": True})
        self._eager = StepTimer(GraphDispatch(eager), cost, records, noise)
        self._captured = StepTimer(GraphDispatch(engine), cost, records, noise)
        self._transfer = transfer
        self._swap = swap
        self._longest_captured = min(engine.max_seq_len_to_capture, engine.max_model_len)

    def times(self, plan: Plan, step: int, *, gpu_is_idle: bool) -> tuple[float, float, float, float, float, float]:
        """Return (schedule, launch, start latency, copies and GPU, tail, update) of *plan* in seconds."""
        is_eager = plan.is_prompt_step or plan.decode_context_max >= self._longest_captured
        timer = self._eager if is_eager else self._captured
        schedule_s, launch_s, start_s, gpu_s, tail_s, update_s = timer.times(plan, step, gpu_is_idle=gpu_is_idle)
        swap_s = self._transfer.seconds(plan.swapped_in + plan.swapped_out)
        self._swap.step_swap_s.append(swap_s)
        return 0.0 if plan.is_continuation else schedule_s, launch_s, start_s, swap_s + gpu_s, tail_s, update_s

    @property
    def most_tokens(self) -> int:
        """Most tokens of a step."""
        return max(self._eager.most_tokens, self._captured.most_tokens)

    @property
    def most_decode_reqs(self) -> int:
        """Most decodes in a step."""
        return max(self._eager.most_decode_reqs, self._captured.most_decode_reqs)

    @property
    def longest_context(self) -> int:
        """Longest context of a decode."""
        return max(self._eager.longest_context, self._captured.longest_context)
