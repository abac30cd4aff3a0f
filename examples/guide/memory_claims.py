"""Claims about memory: most of them are arithmetic, and the memory plan answers them exactly."""

from __future__ import annotations

from guide.judged import (
    CALIBRATED,
    DEPENDS,
    EXACT,
    FIRST,
    H200,
    HOLDS,
    LONG_ANSWERS,
    NOT,
    Judged,
    ask,
    gib,
    plan,
    seconds,
)
from simulator.result import Result
from simulator.workload import RateWorkload


def max_model_len() -> Judged:
    """A shorter max_model_len halves memory."""
    lines, same = [], True
    for gpu, version in (("A100-80", "0.24.0"), ("A100-80", "0.6.3"), ("L4", "0.6.3")):
        long, short = (
            plan(f"vllm serve meta-llama/Llama-3.1-8B --max-model-len {tokens}", gpu, version)
            for tokens in (32768, 8192)
        )
        same = same and long.requested_bytes == short.requested_bytes
        starts = "" if long.fits else " (at 32,768 it does not start)"
        lines.append(
            f"{gpu}, {version}: {gib(long.requested_bytes)} taken with both, "
            f"KV cache {long.kv_tokens:,} -> {short.kv_tokens:,} tokens{starts}"
        )
    return Judged(
        claim="`max_model_len` 8192 instead of 32768 halves memory",
        verdict=NOT if same else DEPENDS,
        found="; ".join(lines) + ".",
        regime="Memory plans of Llama-3.1-8B. vLLM takes `gpu_memory_utilization` of the card whatever the length; "
        "KV blocks are given out as tokens come, not reserved for the longest request.",
        turns="Whether it starts at all: one request of `max_model_len` must fit. In V0 without chunked prefill, the "
        "profiling run is as long as `max_model_len`, so a shorter one leaves more KV cache.",
        basis=EXACT,
    )


def swap_space() -> Judged:
    """A large swap space helps."""

    def served(version: str, flags: str, gib_of_swap: int) -> Result:
        load = RateWorkload(rate=3, num_prompts=300, **LONG_ANSWERS)
        command = f"vllm serve meta-llama/Llama-2-13b-hf --swap-space {gib_of_swap} {flags}"
        return ask(command, load, gpu="A100-80", version=version)

    def shown(result: Result) -> str:
        found = result.summary()
        return f"{found['request_throughput']:.2f} requests/s, TTFT p99 {seconds(found['p99_ttft_ms'])}"

    small, large = (served("0.6.3", "", size) for size in (4, 50))
    swapping, swapping_50 = (served("0.6.3", "--preemption-mode swap", size) for size in (4, 50))
    new, new_50 = (served("0.17.1", "", size) for size in (4, 50))
    same = [shown(a) == shown(b) for a, b in ((small, large), (swapping, swapping_50), (new, new_50))]
    return Judged(
        claim="set `swap_space` to 50 to 70 % of the GPU's memory",
        verdict=NOT if all(same) else DEPENDS,
        found=f"4 or 50 GiB on an 80 GB card: V0 as it comes {shown(small)} with both "
        f"({small.summary()['preemptions']} preemptions, all recomputed); V0 with `--preemption-mode swap` "
        f"{shown(swapping)} with both; V1 "
        f"{shown(new)} with both (the flag has no effect, and is gone from 0.18 on).",
        regime="Llama-2-13B on an A100-80; answers of 500 tokens (median), more of them than it can serve.",
        turns="V0 with `--preemption-mode swap` dies when the swap space is too small for what is out at one time "
        "(`examples/swap_or_recompute.py`); more than that changes nothing. V1's `--kv-offloading-size` is something "
        "else: a prefix cache on the CPU.",
        basis=f"{FIRST}; that V1 ignores the flag is exact",
    )


def chunked_prefill_memory() -> Judged:
    """Chunked prefill saves memory."""
    lines, shares = [], []
    cases = [("0.24.0", "Llama-3.1-8B", "A100-80", length) for length in (8192, 32768, 131072)]
    cases += [("0.6.3", "Llama-3.1-8B", "A100-80", 32768), ("0.6.3", "Llama-3.2-1B", "L4", 131072)]
    for version, model, gpu, length in cases:
        off = "--enable-chunked-prefill=False" if version == "0.6.3" else "--no-enable-chunked-prefill"
        command = f"vllm serve meta-llama/{model} --max-model-len {length}"
        chunks, whole = (plan(f"{command} {flag}", gpu, version) for flag in ("--enable-chunked-prefill", off))
        saved = whole.term("activation").bytes - chunks.term("activation").bytes
        shares.append(saved / chunks.visible_bytes)
        lines.append(f"{version}, {model}, {gpu}, {length:,}: {gib(saved)} ({shares[-1]:.0%} of the card)")
    return Judged(
        claim="chunked prefill saves 30 % of memory",
        verdict=HOLDS if min(shares) > 0.25 else DEPENDS if max(shares) > 0.25 else NOT,
        found="Saved in the profiling run, by version, model, card and `max_model_len`: " + "; ".join(lines) + ".",
        regime="Memory plans. What is saved is the room for activations of one step, since without chunks a step must "
        "hold the longest prompt; it becomes KV cache, the total stays `gpu_memory_utilization` of the card.",
        turns="`max_model_len` against the card: only a very long context on a small card comes near. V1 has "
        "chunked prefill on anyway, so nothing is "
        "left to save; `max_num_batched_tokens` sets that room directly.",
        basis=EXACT,
    )


def quantization() -> Judged:
    """Weight formats save so many percent."""
    promised = {"awq": 0.50, "gptq": 0.60, "fp8": 0.75}
    lines, right = [], []
    for model, ranks in (("Llama-3.1-8B", 1), ("Llama-3.1-70B", 4)):
        command = f"vllm serve meta-llama/{model} --max-model-len 8192 -tp {ranks}"
        full = plan(command, "A100-80")
        shares = []
        for form, share in promised.items():
            small = plan(f"{command} --quantization {form}", "A100-80")
            saved = 1 - small.term("weights").bytes / full.term("weights").bytes
            right.append(abs(saved - share) < 0.05)
            shares.append(f"{form} {saved:.0%} (KV cache {small.kv_tokens / full.kv_tokens - 1:+.0%})")
        lines.append(f"{model} on {ranks} x A100-80: {', '.join(shares)}")
    return Judged(
        claim="awq, gptq, fp8 save 50, 60, 75 %",
        verdict=HOLDS if all(right) else NOT,
        found="Saved of the weights: " + "; ".join(lines) + ".",
        regime="Memory plans. Four bits (awq, gptq: the same) with scales and zeros save more than eight (fp8); the "
        "embedding and the head stay 16 bit, which a small model feels more. Of the card's memory nothing is saved: "
        "what the weights leave becomes KV cache.",
        turns="The model's size (embedding and head against the rest), a checkpoint that quantises the head as well. "
        "Whether it is faster is another question, and not calibrated here.",
        basis=EXACT,
    )


def block_size_for_documents() -> Judged:
    """Large blocks suit long documents."""
    load = RateWorkload(rate=1.6, num_prompts=150, prompt_tokens="uniform:8000:16000", output_tokens="200")
    command = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 32768 --gpu-memory-utilization 0.18"
    small, large = (ask(f"{command} --block-size {size}", load, **H200) for size in (16, 64))
    before, after = small.summary(), large.summary()
    wasted = {size: (size - 1) / 2 for size in (16, 64)}
    change = after["p99_ttft_ms"] / before["p99_ttft_ms"] - 1
    return Judged(
        claim="block size 64 suits long documents",
        verdict=HOLDS if change < -0.05 else NOT,
        found=f"TTFT p99 {seconds(before['p99_ttft_ms'])} with 16, {seconds(after['p99_ttft_ms'])} with 64 "
        f"({change:+.1%}); output {before['output_throughput']:.0f} and {after['output_throughput']:.0f} tokens/s; "
        f"wasted in each request's last block {wasted[16]:.1f} and {wasted[64]:.1f} tokens of 12,000 (mean).",
        regime="Documents of 8,000 to 16,000 tokens, an H200 with a small KV cache. Scheduling, waste and prefix "
        "hits by block are exact; kernels that run at another speed with another block size are not modelled.",
        turns="Kernels: an MLA model wants 64 (FlashMLA), and vLLM sets that by itself. Shared prefixes turn it the "
        "other way: hits are whole blocks, so large blocks lose up to 63 tokens of each.",
        basis=CALIBRATED,
    )
