"""How long one plan takes: the graph mode chosen, the costs asked for, the noise applied, the facts recorded.

This is the only place where a plan meets the cost curves.
"""

from __future__ import annotations

from simulator.cuda_graphs import GraphDispatch
from simulator.noise import StepNoise
from simulator.plan import Plan
from simulator.records import Records
from simulator.step_cost import StepCost


class StepTimer:
    """Times of plans for one engine; see `simulator.engine.StepTimer` for the contract."""

    def __init__(self, graphs: GraphDispatch, cost: StepCost, records: Records, noise: StepNoise | None) -> None:
        self._graphs = graphs
        self._cost = cost
        self._records = records
        self._noise = noise
        self.most_tokens = 0
        self.most_decode_reqs = 0
        self.longest_context = 0

    def times(self, plan: Plan, step: int, *, gpu_is_idle: bool) -> tuple[float, float, float, float, float, float]:
        """Return (schedule, launch, start latency, GPU, tail, update) of *plan* in seconds."""
        cost, records, num_reqs, tokens = self._cost, self._records, plan.num_reqs, plan.num_tokens
        mode, padded = self._graphs.dispatch(tokens, num_reqs, tokens == num_reqs)
        gpu_s = cost.gpu_s(
            mode,
            padded,
            tokens,
            num_reqs,
            plan.num_samplers,
            plan.decode_reqs,
            plan.decode_context_sum,
            plan.decode_context_max,
            plan.prefill_attention,
            tokens - plan.decode_reqs,
        )
        launch_s = cost.launch_s(mode, tokens, num_reqs, gpu_is_idle)
        if self._noise is not None:
            normal, uniform = self._noise.draw(step)
            gpu_s *= cost.gpu_noise(mode, normal)
            launch_s *= cost.launch_noise(mode, uniform)
        records.step_mode.append(mode)
        records.step_padded_tokens.append(padded)
        records.step_gpu_s.append(gpu_s)
        self._watch(plan)
        return (
            cost.schedule_s(num_reqs),
            launch_s,
            cost.gpu_start_s,
            gpu_s,
            cost.tail_s(mode),
            cost.update_s(num_reqs),
        )

    def _watch(self, plan: Plan) -> None:
        """Keep the extremes, so that leaving the calibrated range can be reported once, at the end."""
        if plan.num_tokens > self.most_tokens:
            self.most_tokens = plan.num_tokens
        if plan.decode_reqs > self.most_decode_reqs:
            self.most_decode_reqs = plan.decode_reqs
        if plan.decode_context_max > self.longest_context:
            self.longest_context = plan.decode_context_max
