"""Which bursts to record, in the order of what they tell, inside the limits of a server.

One burst = requests sent at given times, then a pause until all are answered.  Rounds: the first holds what no profile
can do without, the second fills in sizes, the third repeats prompts (noise) and goes to the limits, the fourth puts
sizes between; then they start again with other prompts, until the time is used up.  Evidence for the choice: a few
seconds of these predict as well as a minute of everything; large bursts of long prompts add nothing.

    prompts alone                      compute efficiency by tokens, prefill attention, launch after idle
    decode batches, two contexts       weights, time per request, reading KV
    mixed lengths in one batch         imbalance
    prompts that meet decodes          blocking launches, KV efficiency beside prefills

`warm_up` comes first after every start and is thrown away: the first steps of a server compile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from simulator.request_table import RequestTable

#: Part of the KV cache that a burst may fill: no preemption in a calibration.
MOST_KV = 0.9
#: Decode steps in a batch, and between two prompts that meet decodes.
DECODE_STEPS, MEETING_STEPS = 48, 6
#: Bursts in a row that are too long for the time left, before a run ends.
MOST_TOO_LONG = 24
MEETING_PROMPTS = (512, 128, 2048, 64, 1024, 256)


@dataclass(frozen=True)
class Limits:
    """What a server can hold, in requests and tokens."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    kv_tokens: int


@dataclass(frozen=True)
class Group:
    """Requests that are alike: the first is sent at *first_s*, the others *every_s* apart."""

    count: int
    prompt_tokens: int
    output_tokens: int
    first_s: float = 0.0
    every_s: float = 0.0


@dataclass(frozen=True)
class Burst:
    """Requests of one burst; *key* names it for good, repeats included."""

    key: str
    purpose: str
    groups: tuple[Group, ...]

    @property
    def requests(self) -> int:
        """How many requests it sends."""
        return sum(group.count for group in self.groups)

    @property
    def kv_tokens(self) -> int:
        """KV tokens at most, when all are in flight."""
        return sum(group.count * (group.prompt_tokens + group.output_tokens) for group in self.groups)

    def table(self) -> RequestTable:
        """Return the requests in order of sending."""
        rows = sorted(
            (group.first_s + index * group.every_s, group.prompt_tokens, group.output_tokens)
            for group in self.groups
            for index in range(group.count)
        )
        times, prompts, outputs = (np.array(column) for column in zip(*rows, strict=True))
        return RequestTable.build(arrival_s=times, prompt_tokens=prompts, output_tokens=outputs)

    def can_run(self, limits: Limits) -> bool:
        """Whether the server holds it without waiting, preempting or refusing."""
        longest = max(group.prompt_tokens + group.output_tokens for group in self.groups)
        fits = self.requests <= limits.max_num_seqs and self.kv_tokens <= MOST_KV * limits.kv_tokens
        return fits and longest <= limits.max_model_len


def alone(prompt: int) -> Burst:
    """One prompt on an idle server."""
    return Burst(f"prompt-{prompt}", f"a prompt of {prompt:,} tokens alone", (Group(1, prompt, 3),))


def decode(batch: int, prompt: int) -> Burst:
    """A batch that decodes together."""
    purpose = f"decode batch of {batch} at {prompt:,} tokens"
    return Burst(f"decode-{batch}x{prompt}", purpose, (Group(batch, prompt, DECODE_STEPS),))


def uneven(batch: int, longest: int) -> Burst:
    """A decode batch in which a few contexts are long and most are short."""
    few = max(batch // 16, 1)
    groups = (Group(few, longest, DECODE_STEPS), Group(batch - few, max(longest // 32, 16), DECODE_STEPS))
    return Burst(f"uneven-{batch}x{longest}", "decode batch of uneven lengths", groups)


def meeting(wanted: int, step_s: float, limits: Limits) -> Burst:
    """Prompts of several sizes that arrive while a batch decodes, *step_s* seconds a step."""
    batch = max(1, min(wanted, limits.max_num_seqs - len(MEETING_PROMPTS)))
    sizes = [min(size, limits.max_model_len // 2) for size in MEETING_PROMPTS]
    every = max(0.03, MEETING_STEPS * step_s)
    steps = MEETING_STEPS * (len(sizes) + 4)
    prompts = tuple(Group(1, size, 4, first_s=(index + 3) * every) for index, size in enumerate(sizes))
    return Burst(f"meeting-{batch}", f"prompts that meet {batch} decodes", (Group(batch, 256, steps), *prompts))


def warm_up(limits: Limits) -> list[Burst]:
    """Return what a fresh server runs before anything counts."""
    longest = min(limits.max_num_batched_tokens, 8192, limits.max_model_len - 16)
    batch = min(64, limits.max_num_seqs)
    bursts = [alone(64), alone(longest), decode(batch, 128), decode(min(16, batch), 512)]
    return [replace(burst, key=f"warm-up-{burst.key}") for burst in bursts if burst.can_run(limits)]


def rounds(limits: Limits, step_s: float) -> list[list[Burst]]:
    """Return the rounds in order, what does not fit left out; *step_s* is a guess of a decode step's time."""
    whole, tokens = limits.max_num_seqs, min(limits.max_num_batched_tokens, 8192)
    first = [
        decode(1, 512), alone(512), alone(2048), decode(16, 512), decode(64, 512), meeting(32, step_s, limits),
        decode(16, 2048), alone(128),
    ]  # fmt: skip
    second = [
        alone(1024), alone(4096), alone(tokens), decode(128, 512), decode(64, 2048), uneven(16, 8192), decode(256, 256),
        alone(256),
    ]  # fmt: skip
    third = [
        alone(512), alone(2048), alone(tokens), meeting(96, step_s, limits), decode(4, 8000), alone(16),
        *(decode(batch, 128) for batch in (512, 1024)), decode(whole, 128), uneven(64, 4096),
    ]  # fmt: skip
    fourth = [
        alone(360), alone(720), decode(8, 512), decode(32, 1024), alone(1440), decode(96, 512), alone(2900),
        decode(192, 512), alone(5800), decode(2, 4000), meeting(8, step_s, limits), alone(15000),
    ]  # fmt: skip
    return [_distinct([_shrunk(burst, limits) for burst in part]) for part in (first, second, third, fourth)]


def _shrunk(burst: Burst, limits: Limits) -> Burst | None:
    """Return the burst, a smaller one of its kind where a limit is in the way, or None."""
    if burst.can_run(limits):
        return burst
    if len(burst.groups) > 1:
        return None
    group = burst.groups[0]
    prompt = min(group.prompt_tokens, limits.max_model_len - group.output_tokens)
    by_kv = math.floor(MOST_KV * limits.kv_tokens / (prompt + group.output_tokens)) if prompt > 0 else 0
    count = min(group.count, limits.max_num_seqs, by_kv)
    if count < 1 or prompt < 1:
        return None
    return decode(count, prompt) if group.output_tokens >= DECODE_STEPS else alone(prompt)


def _distinct(bursts: list[Burst | None]) -> list[Burst]:
    """Return each burst once, in order."""
    return list({burst.key: burst for burst in bursts if burst is not None}.values())


def schedule(limits: Limits, step_s: float) -> Iterator[tuple[int, Burst]]:
    """Yield (round, burst) without end; from the second time on a burst's key ends in ``#2``, ``#3`` ..."""
    parts = rounds(limits, step_s)
    seen: dict[str, int] = {}
    if not any(parts):
        return
    for turn in itertools.count():
        for burst in parts[turn % len(parts)]:
            seen[burst.key] = seen.get(burst.key, 0) + 1
            times = seen[burst.key]
            yield turn, replace(burst, key=f"{burst.key}#{times}") if times > 1 else burst
