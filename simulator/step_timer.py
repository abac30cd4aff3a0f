"""How long one plan takes: the graph mode chosen, the costs asked for, the noise applied, the facts recorded.

This is the only place where a plan meets the cost curves.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import mul

from simulator.cuda_graphs import GraphDispatch
from simulator.noise import StepNoise
from simulator.pipeline import FixedTimes
from simulator.plan import Plan
from simulator.records import Records
from simulator.step_cost import StepCost


@dataclass(frozen=True, slots=True)
class Stretch:
    """Times of consecutive steps of one shape; *fixed_s* is (schedule, start latency, tail, update)."""

    mode: int
    padded_tokens: int
    gpu_s: list[float]
    launch_s: list[float]
    fixed_s: FixedTimes


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
            gpu_factor, launch_factor = self._noise.factors(mode, step)
            gpu_s *= gpu_factor
            launch_s *= launch_factor
        records.step_mode.append(mode)
        records.step_padded_tokens.append(padded)
        records.step_gpu_s.append(gpu_s)
        self.watch(tokens, plan.decode_reqs, plan.decode_context_max)
        return (
            cost.schedule_s(num_reqs),
            launch_s,
            cost.start_s(gpu_is_idle),
            gpu_s,
            cost.tail_s(mode),
            cost.update_s(num_reqs),
        )

    def watch(self, tokens: int, decode_reqs: int, context: int) -> None:
        """Keep the extremes, so that leaving the calibrated range can be reported once, at the end."""
        if tokens > self.most_tokens:
            self.most_tokens = tokens
        if decode_reqs > self.most_decode_reqs:
            self.most_decode_reqs = decode_reqs
        if context > self.longest_context:
            self.longest_context = context

    def shortest_turn_s(self, size: int, context_sum: int, context_max: int) -> float:
        """Return about the least time between two of the coming steps of *size* decodes."""
        mode, padded = self._graphs.dispatch(size, size, True)
        gpu_s = self._cost.gpu_s(mode, padded, size, size, size, size, context_sum, context_max, 0.0, 0)
        return max(gpu_s, self._cost.launch_s(mode, size, size, False))

    def stretch(self, size: int, context_sum: int, context_max: int, first_step: int, count: int) -> Stretch:
        """Return the times of *count* steps that serve the same *size* decodes, whose contexts grow by one a step."""
        cost = self._cost
        mode, padded = self._graphs.dispatch(size, size, True)
        decode_s = cost.decode_stretch_s(padded, size, context_sum, context_max, count)
        typical_s = cost.launch_s(mode, size, size, False)
        # Lists, not arrays: most stretches are shorter than what a handful of numpy calls costs.
        if self._noise is None:
            gpu_s, launch_s = decode_s, [typical_s] * count
        else:
            gpu_factors, launch_factors = self._noise.stretch(mode, first_step, count)
            gpu_s = list(map(mul, decode_s, gpu_factors))
            launch_s = [typical_s * factor for factor in launch_factors]
        fixed_s = (cost.schedule_s(size), cost.gpu_start_s, cost.tail_s(mode), cost.update_s(size))
        return Stretch(mode, padded, gpu_s, launch_s, fixed_s)
