"""Claims about latency: simulated on the card whose step times were measured."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from guide.judged import (
    CALIBRATED,
    CHAT,
    DEPENDS,
    FIRST,
    H200,
    HOLDS,
    LITTLE_KV,
    LLAMA,
    LONG_ANSWERS,
    NOT,
    Judged,
    ask,
    plan,
    seconds,
)
from simulator.errors import ConfigError
from simulator.gpu_spec import GIB
from simulator.result import Result
from simulator.workload import ConcurrencyWorkload, RateWorkload


def block_size_24() -> Judged:
    """Block size 24 halves p99."""
    load = RateWorkload(rate=10, num_prompts=600, **LONG_ANSWERS)
    refused = []
    for version in ("0.24.0", "0.6.3"):
        try:
            plan(f"{LLAMA} --block-size 24", "H200", version)
        except ConfigError as error:
            refused.append(f"{version}: {str(error).split(';')[0]}")
    p99 = {
        size: ask(f"{LLAMA} {LITTLE_KV} --block-size {size}", load, **H200).summary()["p99_ttft_ms"]
        for size in (16, 32)
    }
    return Judged(
        claim="block size 24 halves p99",
        verdict=NOT if len(refused) == 2 else DEPENDS,
        found=f"vLLM refuses it ({'; '.join(refused)}). Between the sizes that exist, p99 TTFT of a server that is out "
        f"of KV cache: {seconds(p99[16])} with 16, {seconds(p99[32])} with 32 ({p99[32] / p99[16] - 1:+.0%}).",
        regime="Llama-3.1-8B, H200 with a KV cache of 26,000 tokens, answers of 500 tokens: where blocks matter most.",
        turns="Nothing makes 24 valid on CUDA. The size moves half a block per request, and how finely prefixes are "
        "shared.",
        basis=f"exact: the refusal; p99 {CALIBRATED}",
    )


def alert_thresholds() -> Judged:
    """Alert at waiting > 50 and KV > 95 %."""
    chats = {"num_prompts": 2500, **CHAT}
    answers = {"num_prompts": 900, **LONG_ANSWERS}
    cases = {
        "compute runs out": ask(LLAMA, RateWorkload(rate=52, **chats), **H200),
        "`max_num_seqs` 32 runs out": ask(f"{LLAMA} --max-num-seqs 32", RateWorkload(rate=16, **chats), **H200),
        "KV cache runs out, a little": ask(f"{LLAMA} {LITTLE_KV}", RateWorkload(rate=7.5, **answers), **H200),
        "KV cache runs out, by far": ask(f"{LLAMA} {LITTLE_KV}", RateWorkload(rate=10, **answers), **H200),
    }
    lines, caught, simple = [], 0, []
    for name, result in cases.items():
        bad, alert, waits = seconds_of(result)
        caught += alert.any()
        simple.append(waits.any())
        when = f"fires {np.argmax(alert) - np.argmax(bad)} s after the first" if alert.any() else "never fires"
        late = float((result.requests.ttft_s > 1).mean())
        lines.append(f"{name}: {late:.0%} of the requests wait more than 1 s, the alert {when}")
    batch = seconds_of(ask(f"{LLAMA} {LITTLE_KV}", ConcurrencyWorkload(concurrency=120, **answers), **H200))[1]
    calm = seconds_of(ask(LLAMA, RateWorkload(rate=12, **chats), **H200))[2]
    lines.append(f"a batch job of 120 clients, as it should be: the alert is on {batch.mean():.0%} of the time")
    return Judged(
        claim="alert at waiting > 50 and KV usage > 95 %",
        verdict=HOLDS if caught == len(cases) else DEPENDS if caught else NOT,
        found="; ".join(lines) + ".",
        regime="Overload of four kinds on an H200, TTFT limit 1 s, both gauges read every second.",
        turns="Only an overload of the KV cache, and a large one, raises both. A queue that is not empty for 5 s would "
        f"have told in {sum(simple)} of the 4 cases, and is {'seen' if calm.any() else 'never seen'} at 12 chats/s, "
        "where all is well. The TTFT histogram tells in every case: it is what is asked for.",
        basis=CALIBRATED,
    )


def seconds_of(result: Result) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for every second: a request sent in it waits more than 1 s; the alert is on; five seconds of queue."""
    lines, requests = result.timeline, result.requests
    waiting = lines["vllm:num_requests_waiting"]
    alert = (waiting > 50) & (lines["vllm:kv_cache_usage_perc"] > 0.95)
    bad = np.zeros(len(lines), dtype=bool)
    late = requests.sent_s[requests.ttft_s > 1].to_numpy().astype(int)
    bad[np.minimum(late, len(lines) - 1)] = True
    return bad, alert.to_numpy(), (waiting.rolling(5).min() > 0).to_numpy()


def enforce_eager() -> Judged:
    """Eager mode reduces overhead."""
    lines, slower = [], []
    for rate in (2, 12, 30):
        load = RateWorkload(rate=rate, num_prompts=300, **CHAT)
        graphs, eager = (ask(f"{LLAMA} {flag}", load, **H200).summary() for flag in ("", "--enforce-eager"))
        slower.append(eager["mean_tpot_ms"] / graphs["mean_tpot_ms"])
        lines.append(f"{rate}/s: TPOT {graphs['mean_tpot_ms']:.1f} -> {eager['mean_tpot_ms']:.1f} ms")
    load = RateWorkload(rate=1, num_prompts=60, **CHAT)
    graphs, eager = (ask(f"{LLAMA} {flag}", load, gpu="L4").summary() for flag in ("", "--enforce-eager"))
    slower.append(eager["mean_tpot_ms"] / graphs["mean_tpot_ms"])
    lines.append(f"an L4, not calibrated, 1/s: {graphs['mean_tpot_ms']:.1f} -> {eager['mean_tpot_ms']:.1f} ms")
    memory = plan(LLAMA, "H200").term("cuda_graphs").bytes / GIB
    return Judged(
        claim="`--enforce-eager` reduces overhead",
        verdict=HOLDS if max(slower) < 0.97 else NOT if min(slower) > 0.97 else DEPENDS,
        found=f"{'; '.join(lines)}. What it saves is {memory:.1f} GiB for the graphs and the time to capture them.",
        regime="Chats on an H200 at three rates. Without graphs the CPU launches every kernel of every step; a small "
        "model on a fast GPU waits for it.",
        turns="Large models and slow cards, whose steps take longer than their launches (the L4): there it costs "
        "nothing, and gains nothing but the graphs' memory.",
        basis="first answer: graphs are calibrated, eager is not, but meets a measured run within 4 % of TPOT (README)",
    )


def high_itl_means_swapping() -> Judged:
    """A high ITL means swapping."""
    load = RateWorkload(rate=2, num_prompts=200, prompt_tokens="uniform:8000:16000", output_tokens="200")
    command = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 32768 --max-num-batched-tokens"
    lines, found = [], {}
    for budget in (8192, 2048, 1024):
        found[budget] = ask(f"{command} {budget}", load, **H200).summary()
        lines.append(f"`max_num_batched_tokens` {budget}: {found[budget]['p99_itl_ms']:.0f} ms")
    plain = ask(LLAMA, RateWorkload(rate=8, num_prompts=300, prompt_tokens="64", output_tokens="200"), **H200).summary()
    preempted = sum(each["preemptions"] for each in found.values())
    ratio = found[8192]["p99_itl_ms"] / plain["p99_itl_ms"]
    return Judged(
        claim="a high ITL means swapping",
        verdict=NOT if preempted == 0 and ratio > 3 else DEPENDS,
        found=f"ITL p99 beside prompts of 8,000 to 16,000 tokens: {', '.join(lines)}, with {preempted} preemptions in "
        f"all; with short prompts {plain['p99_itl_ms']:.0f} ms.",
        regime="Llama-3.1-8B on an H200, 2 documents/s. V1 does not swap: it recomputes, which shows as preemptions. "
        "A token waits for the chunk of somebody else's prompt that runs in the same step.",
        turns="V0 with `--preemption-mode swap` does swap. Look at `vllm:num_preemptions` first: if it stands still, "
        "it is prefill; a smaller `max_num_batched_tokens` trades TTFT for ITL.",
        basis=CALIBRATED,
    )


def more_seqs_raise_ttft() -> Judged:
    """A larger max_num_seqs raises TTFT."""
    loads = {
        "chats, 14/s": ("", RateWorkload(rate=14, num_prompts=800, **CHAT)),
        "256 clients at once": ("", ConcurrencyWorkload(concurrency=256, num_prompts=1000, **CHAT)),
        "out of KV cache": (LITTLE_KV, RateWorkload(rate=10, num_prompts=600, **LONG_ANSWERS)),
    }
    lines, changes = [], []
    for name, (flags, load) in loads.items():
        found = [ask(f"{LLAMA} {flags} --max-num-seqs {n}", load, **H200).summary() for n in (16, 64, 256)]
        changes += [b["p50_ttft_ms"] / a["p50_ttft_ms"] for a, b in pairwise(found)]
        ttft = ", ".join(seconds(each["p50_ttft_ms"]) for each in found)
        tpot = ", ".join(f"{each['mean_tpot_ms']:.1f}" for each in found)
        lines.append(f"{name}: TTFT p50 {ttft}, TPOT {tpot} ms")
    return Judged(
        claim="a larger `max_num_seqs` raises TTFT",
        verdict=HOLDS if min(changes) > 1.05 else DEPENDS if max(changes) > 1.05 else NOT,
        found=f"With 16, 64, 256: {'; '.join(lines)}.",
        regime="Llama-3.1-8B on an H200 under three loads. Fewer slots mean waiting in the queue: TTFT counts that.",
        turns="What it raises is TPOT, as more requests share a step. Once something else binds (KV cache, arrivals) "
        "it changes nothing. A TTFT that counts from admission, not from sending, would rise.",
        basis=CALIBRATED,
    )


def throughput_of_a_7b() -> Judged:
    """256/4096 triples throughput."""
    load = RateWorkload(rate="inf", num_prompts=600, prompt_tokens="512", output_tokens="128")

    def throughput(flags: str, model: str = "meta-llama/Llama-2-7b-hf") -> float:
        return ask(f"vllm serve {model} {flags}", load, gpu="A100-40").summary()["output_throughput"]

    wanted, mistral = "--max-num-seqs 256 --max-num-batched-tokens 4096", "mistralai/Mistral-7B-v0.3"
    set_to, grouped = throughput(wanted), throughput(wanted, mistral) / throughput("", mistral)
    others = {"as it comes (256, 2048)": ""} | {flag: flag for flag in (f"--max-num-seqs {n}" for n in (64, 16, 4))}
    ratios = {name: set_to / throughput(flags) for name, flags in others.items()}
    return Judged(
        claim="`max_num_seqs` 256 and `max_num_batched_tokens` 4096 triple throughput (7B, A100-40)",
        verdict=HOLDS if min(ratios.values()) > 2.7 else NOT if ratios["as it comes (256, 2048)"] < 1.1 else DEPENDS,
        found=f"{set_to:,.0f} output tokens/s; against {', '.join(f'{name} x{r:.2f}' for name, r in ratios.items())}.",
        regime="Llama-2-7B, 600 requests of 512 + 128 tokens, all at once. Its KV cache takes 0.5 MB a token, so the "
        "A100-40 has room for some 70 requests: 256 slots are never filled, and preemption eats what they promise.",
        turns="What it is compared with: 4 slots are soon beaten threefold. A 7B with grouped KV heads has room for "
        f"four times the requests, but the defaults already allow them (Mistral-7B: x{grouped:.2f}).",
        basis=FIRST,
    )


def seventy_b_on_four() -> Judged:
    """A 70B on four A100-80 gives 3000 to 5000 tokens/s."""
    command = "vllm serve meta-llama/Llama-3.1-70B -tp 4 --max-model-len 8192"
    loads = {
        "everything at once, 128 + 512 tokens": RateWorkload(
            rate="inf", num_prompts=600, prompt_tokens="128", output_tokens="512"
        ),
        "everything at once, 512 + 128": RateWorkload(
            rate="inf", num_prompts=600, prompt_tokens="512", output_tokens="128"
        ),
        "everything at once, 2048 + 128": RateWorkload(
            rate="inf", num_prompts=300, prompt_tokens="2048", output_tokens="128"
        ),
        "32 clients, 512 + 256": ConcurrencyWorkload(
            concurrency=32, num_prompts=160, prompt_tokens="512", output_tokens="256"
        ),
    }
    lines, outputs = [], []
    for name, load in loads.items():
        found = ask(command, load, gpu="A100-80").summary()
        outputs.append(found["output_throughput"])
        lines.append(
            f"{name}: {found['output_throughput']:,.0f} out, {found['total_token_throughput']:,.0f} in and out"
        )
    inside = [3000 <= each <= 5000 for each in outputs]
    return Judged(
        claim="a 70B on four A100-80 gives 3,000 to 5,000 tokens/s",
        verdict=HOLDS if all(inside) else DEPENDS if any(inside) else NOT,
        found=f"Tokens/s: {'; '.join(lines)}.",
        regime="Llama-3.1-70B in 16 bit, tensor parallel over four A100-80 with NVLink.",
        turns="Which tokens are counted, how long prompts are against answers, how many requests run at a time. A "
        "number without these three says nothing.",
        basis=FIRST,
    )
