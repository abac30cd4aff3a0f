"""One step's plan: what the scheduler decided, as data.

A plan says who gets how many tokens, in service order, and carries the sums the step cost needs, so that nobody walks
over the requests again.  Contexts are tokens of KV that exist before the step.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    cohort_size: further requests, not listed, that decode in lock-step (`simulator.cohort`): one token each; they
        are part of all the sums above.
    leavers: those of them whose last token this is, in order of admission.

    V0 only (`simulator.v0_scheduler`):

    num_prefills: the first so many of *requests* are prompts or parts of prompts.
    ignored: requests that vLLM ends without a token, because they can never run.
    swapped_in, swapped_out: blocks copied from and to the CPU before the step.
    forced: how many of *preempted* made room for a more important request; vllm:num_preemptions leaves them out.
    is_continuation: a further model step of a multi-step run: nothing was decided, the scheduler was not called.
    """

    __slots__ = ("admitted", "cohort_size", "decode_context_max", "decode_context_sum", "decode_reqs", "forced",
                 "ignored", "is_continuation", "leavers", "num_prefills", "num_tokens", "preempted",
                 "prefill_attention", "requests", "samplers", "swapped_in", "swapped_out", "tokens")  # fmt: skip

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
        self.cohort_size = 0
        self.leavers: list[Request] = []
        self.num_prefills = 0
        self.ignored: Sequence[Request] = ()
        self.swapped_in = 0
        self.swapped_out = 0
        self.forced = 0
        self.is_continuation = False

    @property
    def num_reqs(self) -> int:
        """Requests that are served."""
        return self.cohort_size + len(self.requests)

    @property
    def num_samplers(self) -> int:
        """Requests that yield a token."""
        return self.cohort_size + len(self.samplers)

    @property
    def is_prompt_step(self) -> bool:
        """Whether V0 runs a prompt in this step, which makes it an eager one."""
        return self.num_prefills > 0
