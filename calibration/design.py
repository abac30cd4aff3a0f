"""Which bursts to record so that every coefficient is seen: prompts alone, decode batches, and both together.

One burst = so many requests sent at once, then a pause until all are answered.  A few seconds of these give the same
accuracy as a minute of everything (issue of identifiability apart: see `calibration.priors`).  Prompts must be unique
token ids, outputs of exact length (``ignore_eos``); discard the first steps of a fresh server, which compile.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Burst:
    """Requests sent at once, all alike; *refresh*: also part of the short run that re-measures a host."""

    purpose: str
    requests: int
    prompt_tokens: int
    output_tokens: int
    repeats: int = 1
    refresh: bool = False


FULL_DESIGN: tuple[Burst, ...] = (
    Burst("warm-up, discarded", 16, 512, 32, 1, True),
    Burst("one prompt: launch after idle", 1, 128, 3, 4, True),
    Burst("one prompt: compute efficiency", 1, 512, 3, 2, True),
    Burst("one prompt: compute efficiency", 1, 1024, 3, 2),
    Burst("one prompt: compute efficiency", 1, 2048, 3, 2, True),
    Burst("one prompt: compute efficiency", 1, 4096, 3, 2),
    Burst("one prompt: prefill attention", 1, 8192, 3, 2),
    Burst("decode, batch 1", 1, 512, 48, 1, True),
    Burst("decode, batch 16", 16, 512, 48, 1, True),
    Burst("decode, batch 64", 64, 512, 48, 1, True),
    Burst("decode, batch 128", 128, 512, 48),
    Burst("decode, batch 256", 256, 128, 48),
    Burst("decode, longer contexts: reading KV", 16, 2048, 48, 1, True),
    Burst("decode, longer contexts: reading KV", 64, 2048, 48),
    Burst("decode, long contexts", 4, 8000, 48),
    Burst("prompts beside decodes: blocking launches; send one request each 50 ms meanwhile", 32, 256, 200, 1, True),
)
