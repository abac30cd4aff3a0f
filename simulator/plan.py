"""One step's plan: what the scheduler decided, as data.

A plan says who gets how many tokens, in service order, and carries the sums the step cost needs, so that nobody walks
over the requests again.  Contexts are tokens of KV that exist before the step.
"""

from __future__ import annotations

from simulator.request import Request


class Plan:
    """Grants of one engine step, and their sufficient statistics.

    Attributes
    ----------
    requests, tokens: who is served, in service order, with how many tokens each.
    admitted: requests that joined `running` in this plan, with the tokens they did not have to compute.
    preempted: requests thrown out while planning.
    num_tokens: sum of *tokens*.
    decode_reqs, decode_context_sum, decode_context_max: requests with one token and their contexts.
    prefill_attention: sum over the other grants n of n * (context + n / 2).
    samplers: requests that yield a token in this step.
    """

    __slots__ = ("admitted", "decode_context_max", "decode_context_sum", "decode_reqs", "num_tokens", "preempted",
                 "prefill_attention", "requests", "samplers", "tokens")  # fmt: skip

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.tokens: list[int] = []
        self.samplers: list[Request] = []
        self.admitted: list[tuple[Request, int]] = []
        self.preempted: list[Request] = []
        self.num_tokens = 0
        self.decode_reqs = 0
        self.decode_context_sum = 0
        self.decode_context_max = 0
        self.prefill_attention = 0.0

    @property
    def is_uniform_decode(self) -> bool:
        """Whether every request has exactly one token, so that a FULL graph can be used."""
        return self.num_tokens == len(self.requests)
