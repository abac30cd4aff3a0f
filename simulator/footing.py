"""What an answer rests on: what was measured for it, what was not, and what the user should know about the result.

An answer counts as calibrated if the profile was measured on this GPU, with a model of these dimensions, with this
version of vLLM (0.24 and 0.24.1 are one), and with the engine running the same way.  Limits (batch, tokens, memory) do
not matter: the profile covers them, and `outside` names the range that was left.
"""

from __future__ import annotations

import numpy as np

from simulator import catalogue
from simulator.cuda_graphs import capture_sizes
from simulator.engine_config import EngineConfig
from simulator.memory_terms import is_v0
from simulator.model_spec import ModelSpec
from simulator.profile import Profile, shipped_profiles
from simulator.records import Records, Status
from simulator.scenario import Scenario
from simulator.versions import facts, release

#: What vLLM chose on the GPUs that were measured.
_MEASURED_ATTENTION = ("FLASH_ATTN", "AUTO")
#: What a model is called, and for how long it may run, does not change the time of a step.
_NAMES = {"name", "source", "verified", "max_position_embeddings"}


def not_measured(scenario: Scenario, profile: Profile) -> list[str]:
    """Return, in a line each, in which respects *profile* was not measured for this scenario; empty: calibrated."""
    source, gpu = profile.provenance, scenario.gpu.name
    if not source.calibrated:
        note = source.note.removeprefix("uncalibrated: ")
        return [f"{gpu}: {_no_profile(scenario)}; a roofline with {note}", *_engine(scenario, profile)]
    found = [f"profile {profile.name}: {source.note}"] if source.note else []
    if source.gpu != gpu:
        found.append(f"profile {profile.name} was calibrated on {source.gpu}, used for {gpu}")
    if not _same_model(source.model, scenario.model):
        found.append(f"profile {profile.name} was calibrated on model {source.model}, used for {scenario.model.name}")
    return found + _engine(scenario, profile)


def _no_profile(scenario: Scenario) -> str:
    """Say that nothing was measured on this GPU, or which of the shipped profiles would have been."""
    names = shipped_profiles(scenario.gpu.name)
    if not names:
        return "no calibrated profile"
    model = scenario.model.name.rsplit("/", 1)[-1].lower()
    same = [name for name in names if model.startswith(name.split("-", 1)[1])]
    return f"no --profile was given, measured on it: {', '.join(same or names)}"


def _same_model(name: str, model: ModelSpec) -> bool:
    known = catalogue.model(name)
    if name == model.name or known is None:
        return name == model.name
    return known.model_dump(exclude=_NAMES) == model.model_dump(exclude=_NAMES)


def _engine(scenario: Scenario, profile: Profile) -> list[str]:
    """What about the way the engine runs was not measured."""
    engine, version = scenario.engine, profile.provenance.vllm_version
    if is_v0(engine):
        return [
            f"vLLM {engine.vllm_version} runs its V0 engine: scheduling and blocks are exact, but no V0 was measured; "
            "step times are V1's with V0's graphs and swaps, not calibrated"
        ]
    found = []
    if version and release(version)[:2] != release(engine.vllm_version)[:2]:
        found.append(
            f"step times were measured with vLLM {version}, used for {engine.vllm_version}: scheduled by its rules, "
            "at the measured speed"
        )
    unlike = _unlike(engine, scenario.model, profile)
    return found + [f"{what}: step times are a first answer ({how}), not calibrated" for what, how in unlike]


def _unlike(engine: EngineConfig, model: ModelSpec, profile: Profile) -> list[tuple[str, str]]:
    """What differs from the engines that were measured, and how it is answered all the same."""
    found = []
    if engine.tensor_parallel_size > 1:
        how = "work divided by the ranks, plus all-reduces"
        found.append((f"tensor_parallel_size {engine.tensor_parallel_size}", how))
    quantization, measured = engine.quantization or model.quantization, profile.provenance.quantization
    if quantization != measured:
        how = "bytes per weight, and fp8 at the GPU's fp8 rate"
        how = "as 16 bit, to which vLLM unpacks them in every step" if quantization == "bitsandbytes" else how
        found.append((f"quantization {quantization}" if quantization else f"no quantization, unlike {measured}", how))
    if engine.kv_cache_dtype not in ("auto", "bfloat16", "float16"):
        found.append((f"kv_cache_dtype {engine.kv_cache_dtype}", "bytes per value"))
    if engine.attention_backend not in (None, *_MEASURED_ATTENTION):
        found.append((f"attention backend {engine.attention_backend}", "attention at FlashAttention's speed"))
    if engine.enforce_eager or engine.cudagraph_mode != "FULL_AND_PIECEWISE":
        mode = "enforce_eager" if engine.enforce_eager else f"cudagraph_mode {engine.cudagraph_mode}"
        found.append((mode, "launches of steps without a graph, as large steps have them"))
    elif 0 < max(engine.cudagraph_capture_sizes, default=0) < _usual_capture(engine):
        largest = f"CUDA graphs up to {max(engine.cudagraph_capture_sizes)} tokens, usually {_usual_capture(engine)}"
        found.append((largest, "launches of the steps above without a graph, as large steps have them"))
    if not engine.async_scheduling:
        found.append(("async_scheduling off", "the same costs, one after the other"))
    if engine.kv_offloading_size:
        found.append(("KV offload", "copies at the link's rate, which do not slow the steps beside them"))
    return found


def _usual_capture(engine: EngineConfig) -> int:
    """Return the largest CUDA graph that vLLM captures for this batch if it is not told otherwise, in tokens."""
    return max(capture_sizes(engine.max_num_seqs, engine.max_num_batched_tokens, facts(engine.vllm_version)), default=0)


def remarks(scenario: Scenario) -> list[str]:
    """Return what is simplified in this scenario without making its times wrong."""
    engine, found = scenario.engine, []
    if (interval := engine.stream_interval) != 1:
        found.append(f"stream_interval {interval}: ITL is given per token, as if every token had a message of its own")
    if (steps := engine.num_scheduler_steps) > 1 and not engine.multi_step_stream_outputs:
        found.append(f"multi_step_stream_outputs off: ITL is given per token, {steps} of which arrive at a time")
    return found


def outside(profile: Profile, names: tuple[str, ...]) -> list[str]:
    """Return the warning that the hull of *profile* was left in the dimensions *names*; empty if it was not."""
    if not names:
        return []
    hull = profile.hull
    ranges = ", ".join(f"{name} (calibrated up to {getattr(hull, name):,})" for name in names)
    return [f"outside the range profile {profile.name} was calibrated in: {ranges}; these step times are extrapolated"]


def unanswered(records: Records) -> list[str]:
    """Return which requests got no answer, and why."""
    status = np.asarray(records.status)
    rejected, unfinished = int((status == Status.REJECTED).sum()), int((status == Status.UNFINISHED).sum())
    ignored = int((status == Status.IGNORED).sum())
    found = []
    if ignored:
        found.append(
            f"{ignored} requests were ignored: longer than the prompt limit or than the KV cache, V0 ends them without "
            "an error, the rest of their tokens is missing (raise max_num_batched_tokens or gpu_memory_utilization)"
        )
    if rejected:
        found.append(
            f"{rejected} requests can never be scheduled: prompt and output need more KV blocks than the "
            f"{records.num_gpu_blocks - 1} usable ones; vLLM would let the first of them block the queue for ever "
            "(raise gpu_memory_utilization, or lower max_model_len)"
        )
    if records.died:
        what = "hangs" if records.died.startswith("vLLM hangs") else "died"
        found.append(
            f"the engine {what} after {records.died_s:.1f} s, {unfinished} requests unanswered: {records.died}"
        )
    elif unfinished:
        found.append(f"{unfinished} requests were never finished: nothing in the engine could go on")
    return found
