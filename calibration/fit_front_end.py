"""Fit the API server: how long requests take to the engine, and tokens to their clients.

In: the first plan of a burst, made by an idle engine, happens when the first request reaches it.  Of n requests sent at
once each advances at rate 1/n (processor sharing), so the first comes through after n times its demand.  A burst counts
as sent at once: a client stamps the requests of a burst one after the other before their bytes leave.  The engine's
input thread (``input_s``) is the prior's: it shows in launches prolonged by arrivals, by about 0.1 ms + 0.25 us per
prompt token for each request, on both models.

Out: one queue.  The message of a step needs ``token_per_stream_s`` of service per token, more for a first token and for
a response that ends; its tokens reach the clients ``token_s`` after their service has ended.  Tokens are matched to
steps in order, in bursts where no two messages were merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from calibration.least_squares import least_squares
from calibration.recording import Floats, Sent, Steps
from calibration.stretches import Stretches
from simulator.profile import FrontEnd

#: Spread of the logarithms around the prior's values.
SPREAD = 0.3
#: What a time is worth: a tenth of a millisecond, and a tenth of itself.
WORTH_S, WORTH = 1e-4, 0.1
IN = ("request_latency_s", "request_latency_per_token_s", "request_demand_s", "request_demand_per_token_s")
Predict = Callable[[FrontEnd], Floats]
OUT = ("token_s", "token_per_stream_s", "first_token_s", "first_token_per_prompt_token_s", "finish_s")


@dataclass(frozen=True, eq=False)
class Arrival:
    """A burst that found an idle engine: requests sent at once, mean prompt, and when the engine planned first."""

    count: int
    prompt_tokens: float
    planned_s: float  # after the first was sent

    def predicted_s(self, front_end: FrontEnd) -> float:
        """When the first request reaches the engine, after it was sent."""
        demand_s = front_end.request_demand_s + front_end.request_demand_per_token_s * self.prompt_tokens
        latency_s = front_end.request_latency_s + front_end.request_latency_per_token_s * self.prompt_tokens
        latency_s += front_end.input_s + front_end.input_per_token_s * self.prompt_tokens
        return self.count * demand_s + latency_s


def arrivals(steps: Steps, stretches: Stretches, sent: Sent) -> list[Arrival]:
    """Return the bursts whose first plan is known to have met an idle engine."""
    found = []
    for burst in np.unique(sent.burst):
        inside = sent.burst == burst
        sent_s = sent.sent_s[inside]
        index = int(np.searchsorted(steps.plan_start_s, sent_s[0]))
        if index < len(steps) and stretches.idle[index] and steps.plan_start_s[index] < sent.last_token_s[inside].max():
            planned_s = float(steps.plan_start_s[index])
            early = sent_s < planned_s
            prompt_tokens = float(sent.prompt_tokens[inside][early].mean())
            found.append(Arrival(int(early.sum()), prompt_tokens, planned_s - float(sent_s[0])))
    return found


@dataclass(frozen=True, eq=False)
class Outputs:
    """Steps of one burst: when emitted, tokens, first tokens, ends, and the median delay of its tokens."""

    emitted_s: Floats
    tokens: NDArray[np.int64]
    first: NDArray[np.int64]
    ended: NDArray[np.int64]
    prompt_tokens: float
    delay_s: Floats

    def predicted_s(self, front_end: FrontEnd) -> Floats:
        """Delays by step according to the queue."""
        first_s = max(0.0, front_end.first_token_s - front_end.token_s)
        first_s += front_end.first_token_per_prompt_token_s * self.prompt_tokens
        service = front_end.token_per_stream_s * self.tokens + first_s * self.first + front_end.finish_s * self.ended
        done_s = np.cumsum(service) + np.maximum.accumulate(self.emitted_s - np.append(0.0, np.cumsum(service)[:-1]))
        return np.asarray(done_s + front_end.token_s - self.emitted_s)


def outputs(steps: Steps, sent: Sent) -> list[Outputs]:
    """Return the bursts whose tokens all arrived one by one, matched to their steps in order."""
    found = []
    for burst in np.unique(sent.burst):
        inside = np.flatnonzero(sent.burst == burst)
        begins, ends = sent.sent_s[inside[0]], sent.last_token_s[inside].max()
        index = np.flatnonzero((steps.update_end_s > begins) & (steps.update_start_s < ends))
        seen = [sent.first_token_s[i] + np.append(0.0, np.cumsum(sent.gaps_ms[i])) / 1e3 for i in inside]
        arrived = np.sort(np.concatenate(seen))
        tokens = steps.sampled[index]
        if len(arrived) != tokens.sum() or len(arrived) != sent.output_tokens[inside].sum():
            continue
        delays = arrived - np.repeat(steps.update_end_s[index], tokens)
        bounds = np.append(0, np.cumsum(tokens))
        pairs = list(pairwise(bounds.tolist()))
        kept = [k for k, (low, high) in enumerate(pairs) if high > low]
        median = np.array([np.median(delays[pairs[k][0] : pairs[k][1]]) for k in kept])
        first = (tokens - steps.decode_reqs[index])[kept]
        going_on = np.append((tokens[kept] - first)[1:], 0)
        found.append(
            Outputs(
                steps.update_end_s[index][kept],
                tokens[kept],
                np.maximum(first, 0),
                np.maximum(tokens[kept] - going_on, 0),
                float(sent.prompt_tokens[inside].mean()),
                median,
            )
        )
    return found


class FrontEndFit:
    """Estimator of the front end.  Learned: `front_end_`, `arrivals_`, `outputs_` (how many bursts told of each)."""

    def __init__(self, start: FrontEnd) -> None:
        self._start = start

    def fit(self, steps: Steps, stretches: Stretches, sent: Sent) -> FrontEndFit:
        """Learn from one recording and its requests."""
        return self.learn(arrivals(steps, stretches, sent), outputs(steps, sent))

    def learn(self, came: Sequence[Arrival], went: Sequence[Outputs]) -> FrontEndFit:
        """Learn from bursts that came in and bursts that went out."""
        self.arrivals_, self.outputs_ = len(came), len(went)
        front_end = self._start
        if came:
            measured = np.array([arrival.planned_s for arrival in came])
            front_end = _refine(
                front_end, IN, measured, lambda f: np.array([arrival.predicted_s(f) for arrival in came])
            )
        if went:
            measured = np.concatenate([burst.delay_s for burst in went])
            front_end = _refine(
                front_end, OUT, measured, lambda f: np.concatenate([burst.predicted_s(f) for burst in went])
            )
        self.front_end_ = front_end
        return self


def _refine(start: FrontEnd, names: tuple[str, ...], measured: Floats, predict: Predict) -> FrontEnd:
    """Least squares over the logarithms of *names*, around their values in *start*."""
    centre = np.log([getattr(start, name) for name in names])
    worth = np.hypot(WORTH_S, WORTH * np.abs(measured))

    def at(logs: Floats) -> FrontEnd:
        return start.model_copy(update=dict(zip(names, np.exp(logs).tolist(), strict=True)))

    def errors(logs: Floats) -> Floats:
        return np.concatenate([(predict(at(logs)) - measured) / worth, (logs - centre) / SPREAD])

    found = least_squares(errors, centre, x_scale="jac")
    return at(found.x)
