"""Drive the real vLLM 0.6.3 scheduler and engine loop, without torch and without a model.

The wheel from PyPI (``pip download --no-deps vllm==0.6.3``, unpacked) is named by the environment variable VLLM063.
Everything heavy (torch, transformers, the model executor) is replaced by empty stand-ins; the scheduler, the block
manager, the sequences, the output processors and ``LLMEngine.step`` are the real ones.  The model returns a new, unique
token for every sampling request (2, the EOS token, where ``eos_at`` says).

``python tests/engine/drive_v0.py SCENARIOS.json OUT.json`` records events in the golden format, with these additions to
``config``: lookahead, steps (num_scheduler_steps), is_async (async output processing), delay (scheduler_delay_factor),
policy, durations (seconds between scheduler calls, repeated), ends_at_mml (as the engine does; else it goes on).

A plan is recorded if anything was served, ignored, preempted or swapped.  With steps > 1 an update says how many tokens
each request got; with async output processing its reasons are those of the requests that were found to have ended in
this engine step.  ``["died", step, error]`` ends a run in which the engine raises.

Needs msgspec, numpy, psutil, pyyaml, packaging, cloudpickle, pydantic.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import itertools
import json
import logging
import os
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

STAND_INS = (
    "torch", "transformers", "ray", "vllm.model_executor", "vllm.triton_utils", "vllm.distributed", "vllm.multimodal",
    "vllm.transformers_utils", "vllm.platforms", "vllm.attention", "vllm.executor", "vllm.usage", "vllm.version",
    "vllm.inputs.registry", "vllm.inputs.preprocess", "vllm.tracing", "vllm.spec_decode", "vllm.entrypoints",
    "vllm.engine.arg_utils", "vllm.engine.metrics",
)  # fmt: skip

MOST_STEPS = 3000


class StandInClass(type):
    """A class whose missing attributes are mocks."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class StandIn(types.ModuleType):
    """A module in which every capitalised name is a class of its own and every other name a mock."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = StandInClass(name, (), {}) if name[0].isupper() else MagicMock(name=name)
        setattr(self, name, value)
        return value


class StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a `StandIn` for every module of `STAND_INS`."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if any(name == known or name.startswith(known + ".") for known in STAND_INS):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> StandIn:
        module = StandIn(spec.name)
        module.__path__ = []  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: Any) -> None: ...


def install(folder: Path) -> None:
    """Make ``import vllm`` find the unpacked wheel."""
    package = types.ModuleType("vllm")
    package.__path__ = [str(folder / "vllm")]  # type: ignore[attr-defined]
    sys.modules["vllm"] = package
    sys.meta_path.insert(0, StandInFinder())


class Clock:
    """Stands in for the module `time` inside the scheduler."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def perf_counter(self) -> float:
        return self.now


class Drive:
    """One scenario on a real scheduler and a real ``LLMEngine.step``."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        import vllm.core.scheduler
        from vllm.sequence import SequenceStatus

        self.config = scenario["config"]
        self.clock = vllm.core.scheduler.time = Clock()  # type: ignore[attr-defined]
        self.status = SequenceStatus
        self.groups: dict[str, Any] = {}
        self.eos_at: dict[str, int] = {}
        self.arrivals: dict[int, list[Any]] = {}
        self.events: list[Any] = []
        self.step = 0
        self.planned: list[Any] | None = None
        self._make_engine()
        for index, entry in enumerate(scenario["requests"]):
            self._make_group(index, entry)

    def _make_configs(self) -> tuple[Any, Any]:
        from vllm.config import CacheConfig, SchedulerConfig

        config = self.config
        steps = config.get("steps", 1)
        scheduler_config = SchedulerConfig(
            max_num_batched_tokens=config["mbt"],
            max_num_seqs=config["seqs"],
            max_model_len=config["mml"],
            num_lookahead_slots=max(config.get("lookahead", 0), steps - 1),
            delay_factor=config.get("delay", 0.0),
            enable_chunked_prefill=config.get("chunked", False),
            preemption_mode=config.get("mode"),
            num_scheduler_steps=steps,
            policy=config.get("policy", "fcfs"),
        )
        cache_config = CacheConfig(config["B"], 0.9, 0, "auto", enable_prefix_caching=config.get("pc", False))
        cache_config.num_gpu_blocks = config["blocks"]
        cache_config.num_cpu_blocks = config.get("cpu_blocks", 1000)
        return scheduler_config, cache_config

    def _make_engine(self) -> None:
        from vllm.core.scheduler import Scheduler
        from vllm.engine import llm_engine

        scheduler_config, cache_config = self._make_configs()
        engine = self.engine = object.__new__(llm_engine.LLMEngine)
        context = self.context = llm_engine.SchedulerContext(multi_step_stream_outputs=True)
        callback = functools.partial(engine._process_model_outputs, ctx=context)
        is_async = bool(self.config.get("is_async", False))
        self.scheduler = Scheduler(scheduler_config, cache_config, None, 1, callback if is_async else None)
        plan = self.scheduler.schedule
        self.scheduler.schedule = lambda: self._record_plan(plan())  # type: ignore[method-assign]
        nothing = types.SimpleNamespace(create=lambda *args, **more: None)
        llm_engine.RequestOutputFactory = nothing  # type: ignore[attr-defined,misc]
        engine.__dict__.update(
            scheduler=[self.scheduler],
            scheduler_contexts=[context],
            scheduler_config=scheduler_config,
            cache_config=cache_config,
            parallel_config=types.SimpleNamespace(pipeline_parallel_size=1),
            model_config=types.SimpleNamespace(embedding_mode=False),
            speculative_config=None,
            cached_scheduler_outputs=[llm_engine.SchedulerOutputState()],
            async_callbacks=[callback],
            process_request_outputs_callback=None,
            use_cached_outputs=False,
            model_executor=MagicMock(execute_model=self._execute),
            do_log_stats=lambda *args: None,
            do_tracing=lambda *args: None,
            output_processor=self._make_output_processor(scheduler_config),
        )

    def _make_output_processor(self, scheduler_config: Any) -> Any:
        from vllm.engine.output_processor.multi_step import MultiStepOutputProcessor
        from vllm.engine.output_processor.single_step import SingleStepOutputProcessor
        from vllm.engine.output_processor.stop_checker import StopChecker

        tokenizer = types.SimpleNamespace(eos_token_id=2)
        longest = self.config["mml"] if self.config.get("ends_at_mml") else 1 << 60
        checker = StopChecker(longest, lambda seq: tokenizer)
        if scheduler_config.num_scheduler_steps > 1:
            return MultiStepOutputProcessor(
                MagicMock(), [self.scheduler], itertools.count(), lambda seq: tokenizer, checker
            )
        return SingleStepOutputProcessor(scheduler_config, None, [self.scheduler], itertools.count(), checker)

    def _make_group(self, index: int, entry: dict[str, Any]) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.sequence import Sequence, SequenceGroup

        inputs = {"prompt": None, "prompt_token_ids": entry["prompt"]}
        sequence = Sequence(index, inputs, self.config["B"], eos_token_id=2)
        eos_at = entry.get("eos_at") or 0
        params = SamplingParams(max_tokens=entry["max_tokens"], ignore_eos=not eos_at, detokenize=False)
        name = entry["id"]
        arrival, priority = entry.get("arrival") or 0.0, entry.get("priority") or 0
        self.groups[name] = SequenceGroup(name, [sequence], arrival, params, priority=priority)
        self.eos_at[name] = eos_at
        self.arrivals.setdefault(entry["after_step"], []).append(self.groups[name])

    # -- the model ------------------------------------------------------------------------------------------------

    def _execute(self, execute_model_req: Any) -> list[Any]:
        """Stand in for the model runners: one step (model_runner.py) or one of several (multi_step_model_runner.py)."""
        metadata = execute_model_req.seq_group_metadata_list
        callback = execute_model_req.async_callback
        if callback is not None:
            callback()
        state = metadata[0].state if metadata else None
        if state is None or state.num_steps == 1:
            return [[self._sample(entry, 0) for entry in metadata]]
        if state.current_step == 0:
            self.outputs: list[Any] = []
            self.known = {entry.request_id: self._outputs(entry.request_id) for entry in metadata}
        self.outputs.append([self._sample(entry, state.current_step) for entry in metadata])
        if state.remaining_steps > 1:
            return [self.outputs[-1]]
        if callback is None:
            return self.outputs
        for number, output in enumerate(self.outputs[:-1]):
            self.context.append_output(
                outputs=[output],
                seq_group_metadata_list=self.context.seq_group_metadata_list,
                scheduler_outputs=self.context.scheduler_outputs,
                is_async=False,
                is_last_step=False,
                is_first_step_output=number == 0,
            )
            callback()
        return [self.outputs[-1]]

    def _outputs(self, name: str) -> int:
        return int(self.groups[name].seqs[0].get_output_len())

    def _sample(self, metadata: Any, step: int) -> Any:
        from vllm.sequence import CompletionSequenceGroupOutput, Logprob, SequenceOutput

        name = metadata.request_id
        if not metadata.do_sample:
            return CompletionSequenceGroupOutput([], None)
        sequence = self.groups[name].seqs[0]
        number = 1 + (self.known[name] + step if metadata.state.num_steps > 1 else self._outputs(name))
        token = 2 if number == self.eos_at[name] else 1_000_000 + 10_000 * sequence.seq_id + number
        return CompletionSequenceGroupOutput([SequenceOutput(sequence.seq_id, token, {token: Logprob(0.0)})], None)

    # -- events ---------------------------------------------------------------------------------------------------

    @staticmethod
    def _ids(groups: Any) -> list[str]:
        return [group.request_id for group in groups]

    def _record_plan(self, result: Any) -> Any:
        metadata, outputs, _ = result
        served = list(outputs.scheduled_seq_groups)
        swaps = len(outputs.blocks_to_swap_in), len(outputs.blocks_to_swap_out)
        ignored = self._ids(outputs.ignored_seq_groups)
        if not (served or ignored or outputs.preempted or any(swaps)):
            return result
        self.step += 1
        split, scheduler = outputs.num_prefill_groups, self.scheduler
        grants = [[entry.seq_group.request_id, entry.token_chunk_size] for entry in served]
        computed = {entry.request_id: len(entry.computed_block_nums) for entry in metadata if entry.is_prompt}
        self.planned = [name for name, _ in grants]
        manager = scheduler.block_manager
        self.events.append(
            [
                "plan",
                self.step,
                grants[:split],
                grants[split:],
                self._ids(scheduler.running),
                self._ids(scheduler.waiting),
                self._ids(scheduler.swapped),
                *swaps,
                outputs.preempted,
                manager.get_num_free_gpu_blocks(),
                manager.get_num_free_cpu_blocks(),
                ignored,
                {name: blocks for name, blocks in computed.items() if blocks},
            ]
        )
        return result

    def _engine_step(self) -> None:
        """Run ``LLMEngine.step`` until the next scheduler call is due, and record the update."""
        before = {name: self._outputs(name) for name in self.groups}
        open_ones = [name for name, group in self.groups.items() if not group.is_finished()]
        self.planned = None
        while True:
            self.engine.step()
            if not self.engine._has_remaining_steps(self.engine.cached_scheduler_outputs[0].seq_group_metadata_list):
                break
        reasons = {name: self._reason(name) for name in open_ones if self.groups[name].is_finished()}
        reasons = {name: reason for name, reason in reasons.items() if reason != "ignored"}
        if self.planned is None and not reasons:
            return
        new = {name: self._outputs(name) - before[name] for name in self.planned or ()}
        new = {name: count for name, count in new.items() if count}
        free = self.scheduler.block_manager.get_num_free_gpu_blocks()
        self.events.append(["update", self.step, new if self.config.get("steps", 1) > 1 else list(new), reasons, free])

    def _reason(self, name: str) -> str:
        status = self.groups[name].seqs[0].status
        if status == self.status.FINISHED_STOPPED:
            return "stop"
        return "length" if status == self.status.FINISHED_LENGTH_CAPPED else "ignored"

    def run(self) -> list[Any]:
        """Return the events of the scenario."""
        durations = itertools.cycle(self.config.get("durations", [1.0]))
        done = 0
        while True:
            due = [group for after in sorted(self.arrivals) if after <= done for group in self.arrivals[after]]
            self.arrivals = {after: groups for after, groups in self.arrivals.items() if after > done}
            for group in due:
                self.scheduler.add_seq_group(group)
            if due:
                self.events.append(["arrive", self._ids(due)])
            before = len(self.events)
            if self.scheduler.has_unfinished_seqs():
                self.clock.now += next(durations)
                try:
                    self._engine_step()
                except Exception as error:  # whatever ends the engine is what we want to know
                    words = "" if isinstance(error, KeyError) else str(error)
                    self.events.append(["died", self.step, f"{type(error).__name__}: {words}".removesuffix(": ")])
                    return self.events
            if self.step > MOST_STEPS:  # it goes round in circles
                return [*self.events, ["endless", self.step]]
            if len(self.events) > before:
                done = self.step
            elif self.arrivals:
                done = max(done, min(self.arrivals))
            else:
                return self.events


def main(scenarios: str, out: str) -> None:
    """Record the events of all scenarios of a file."""
    install(Path(os.environ["VLLM063"]))
    logging.disable(logging.CRITICAL)
    golden = json.loads(Path(scenarios).read_text())
    for scenario in golden["scenarios"]:
        scenario["events"] = Drive(scenario).run()
    Path(out).write_text(json.dumps(golden))


if __name__ == "__main__":
    main(*sys.argv[1:])
