"""How long a burst will take: a profile's step times, corrected by the bursts measured so far.

Prefill steps hold as many tokens as fit, decodes of the whole batch follow, each at a middle context.  On an unknown
GPU, or on a CPU, the first bursts correct the scale.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from calibration.bursts import DECODE_STEPS, MOST_TOO_LONG, Burst, Limits, schedule, warm_up
from simulator.cuda_graphs import GraphDispatch
from simulator.engine_config import EngineConfig
from simulator.step_cost import StepCost

#: Seconds of a burst besides its steps: sending, the last answers, the pause before the next one.
AROUND_S = 0.35
_REMEMBERED = 6


class BurstTime:
    """Estimates in seconds; `learn` corrects them."""

    def __init__(self, cost: StepCost, engine: EngineConfig, limits: Limits) -> None:
        self._cost, self._limits = cost, limits
        self._dispatch = GraphDispatch(engine).dispatch
        self._ratios: list[float] = []

    @property
    def scale(self) -> float:
        """Measured over estimated so far; 1 before anything was measured."""
        return statistics.median(self._ratios[-_REMEMBERED:]) if self._ratios else 1.0

    def learn(self, burst: Burst, measured_s: float) -> None:
        """Take in how long *burst* took, from its first sending to its last answer."""
        self._ratios.append(measured_s / max(self._raw_s(burst), 1e-4))

    def seconds(self, burst: Burst) -> float:
        """Return the expected duration, the pause included."""
        return self.scale * self._raw_s(burst) + AROUND_S

    def decode_step_s(self, batch: int = 32, context: int = 512) -> float:
        """Return the expected time of one decode step."""
        return self.scale * self._decode_s(batch, context)

    def _raw_s(self, burst: Burst) -> float:
        longest = max(group.output_tokens for group in burst.groups)
        main = [group for group in burst.groups if group.output_tokens >= DECODE_STEPS] or list(burst.groups)
        batch = sum(group.count for group in main)
        context = sum(group.count * group.prompt_tokens for group in main) // batch
        prefill = sum(group.count * self._prefill_s(group.prompt_tokens, group.count) for group in burst.groups)
        span = max(group.first_s + group.every_s * (group.count - 1) for group in burst.groups)
        return max(prefill + longest * self._decode_s(batch, context + longest // 2), span)

    def _decode_s(self, batch: int, context: int) -> float:
        mode, padded = self._dispatch(batch, batch, True)
        sums = (batch, batch * context, context, 0.0, 0)
        return self._cost.gpu_s(int(mode), padded, batch, batch, batch, *sums)

    def _prefill_s(self, prompt: int, count: int) -> float:
        """Return the time of one prompt's share of its steps."""
        tokens = min(prompt * count, self._limits.max_num_batched_tokens)
        reqs = max(1, tokens // prompt)
        mode, padded = self._dispatch(tokens, reqs, False)
        attention = prompt * prompt / 2.0 * tokens / prompt
        step = self._cost.gpu_s(int(mode), padded, tokens, reqs, reqs, 0, 0.0, 0.0, attention, tokens)
        step = max(step, self._cost.launch_s(int(mode), tokens, reqs, True))
        return step * math.ceil(prompt * count / tokens) / count


@dataclass(frozen=True)
class PlannedBurst:
    """A burst that fits the time left: its round (0 first; -1 the warm-up), and when it is expected to end."""

    turn: int
    burst: Burst
    expected_s: float
    ends_s: float


def planned(limits: Limits, times: BurstTime, budget_s: float) -> Iterator[PlannedBurst]:
    """Yield the bursts that fit into *budget_s*, in order, as `calibration.campaign` would choose them.

    The warm-up runs twice: once to compile, once to learn how fast the server is.
    """
    spent_s = 0.0
    for burst in (*warm_up(limits), *warm_up(limits)):
        spent_s += times.seconds(burst)
        yield PlannedBurst(-1, burst, times.seconds(burst), spent_s)
    too_long = 0
    for turn, burst in schedule(limits, times.decode_step_s()):
        expected_s = times.seconds(burst)
        if spent_s + expected_s > budget_s:
            too_long += 1
            if too_long >= MOST_TOO_LONG or spent_s >= budget_s:
                return
            continue
        too_long = 0
        spent_s += expected_s
        yield PlannedBurst(turn, burst, expected_s, spent_s)
