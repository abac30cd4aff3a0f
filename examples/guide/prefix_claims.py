"""Claims about the prefix cache: hits are block arithmetic, which blocks survive is simulated."""

from __future__ import annotations

from guide.judged import CALIBRATED, DEPENDS, H200, HOLDS, LITTLE_KV, NOT, Judged, ask
from simulator.workload import SessionsWorkload


def hit_rate_of_chats() -> Judged:
    """The prefix hit rate of chats is 70 %."""
    words = {
        "rate": 1.5,
        "num_prompts": 900,
        "prompt_tokens": "lognormal:150:0.8",
        "output_tokens": "lognormal:200:0.7",
    }
    kinds = {
        "one turn, no system prompt": ("", {"turns": "1"}),
        "one turn behind a system prompt of 500 tokens": ("", {"turns": "1", "system_prompt_tokens": 500}),
        "5 turns": ("", {"turns": "5"}),
        "8 turns behind a system prompt of 1,000": ("", {"turns": "8", "system_prompt_tokens": 1000}),
        "5 turns, a KV cache of 26,000 tokens": (LITTLE_KV, {"turns": "5"}),
    }
    rates = {
        name: ask(
            f"vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384 {flags}",
            SessionsWorkload(**words, **chat, think_time_s="20"),
            **H200,
        ).summary()["prefix_cache_hit_rate"]
        for name, (flags, chat) in kinds.items()
    }
    near = [0.6 <= rate <= 0.8 for rate in rates.values()]
    return Judged(
        claim="the prefix hit rate of chats is 70 %",
        verdict=HOLDS if all(near) else DEPENDS if any(near) else NOT,
        found="; ".join(f"{name}: {rate:.0%}" for name, rate in rates.items()) + ".",
        regime="Chats that begin 1.5 times a second, 150 tokens asked and 200 answered a turn, 20 s between turns, "
        "Llama-3.1-8B on an H200.",
        turns="How many turns, how long the system prompt is against the rest, and whether the blocks of a chat "
        "survive until its next turn: the cache is what the KV cache has free.",
        basis=f"{CALIBRATED}; which tokens hit, once their blocks are there, is exact",
    )
