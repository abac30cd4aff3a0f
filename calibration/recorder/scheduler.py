"""A scheduler that decides as vLLM's own does and records every step.

`RecordingScheduler` makes an asynchronous or a synchronous one, as the server's settings say: with the wrong base vLLM
would break.  One JSON line an event, times in seconds of ``time.monotonic``:

    h  header: t, blocks (null block included), block_size, max_tok, max_run, async, vllm
    s  schedule() returned: n step, t0, t1, p [[new tokens, context], ...] of prefill chunks, d decodes, dc and dm sum
       and maximum of their contexts, w waiting, r running, f free blocks, o seconds spent recording;
       where there are any: pre number of preempted requests and pids their ids, new [[id, prompt tokens, cached], ...]
       of requests seen first, fin ids of requests that ended before this plan, spec draft tokens
    u  update_from_output() of step n returned: t0, t1, fl seconds spent writing since the server started
"""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

from .steplog import StepLog, logger, prefix

SYNC = ("vllm.v1.core.sched.scheduler", "vllm.v1.core.scheduler")  # the second: 0.7
ASYNC = ("vllm.v1.core.sched.async_scheduler",)
_STEP = "_servecast_step"


def base_class(asynchronous: bool) -> Any:
    """Return the scheduler class of the installed vLLM."""
    name, places = ("AsyncScheduler", ASYNC) if asynchronous else ("Scheduler", SYNC)
    for place in places:
        try:
            return getattr(importlib.import_module(place), name)
        except ImportError:
            continue
    raise ImportError(f"this vLLM has no {name} in {' or '.join(places)}; recording needs the V1 engine")


def is_asynchronous(*args: Any, **kwargs: Any) -> bool:
    """Return whether a scheduler built with these arguments has to be the asynchronous one."""
    for value in (*kwargs.values(), *args):
        config = getattr(value, "scheduler_config", value)
        if hasattr(config, "max_num_seqs"):
            return bool(getattr(config, "async_scheduling", False))
    return False


class StepRecorder:
    """Turns plans and updates into records."""

    def __init__(self, scheduler: Any, log: StepLog, asynchronous: bool) -> None:
        self._log = log
        self._step = 0
        self._pool = getattr(getattr(scheduler, "kv_cache_manager", None), "block_pool", None)
        self._broken = False
        log.add(self._header(scheduler, asynchronous))

    def _header(self, scheduler: Any, asynchronous: bool) -> dict[str, Any]:
        vllm = importlib.import_module("vllm")
        return {
            "a": "h", "t": time.monotonic(), "blocks": getattr(self._pool, "num_gpu_blocks", None),
            "block_size": getattr(scheduler, "block_size", None),
            "max_tok": getattr(scheduler, "max_num_scheduled_tokens", None),
            "max_run": getattr(scheduler, "max_num_running_reqs", None),
            "max_len": getattr(scheduler, "max_model_len", None),
            "async": asynchronous, "vllm": str(getattr(vllm, "__version__", "")), "pid": os.getpid(),
        }  # fmt: skip

    def planned(self, scheduler: Any, plan: Any, started: float, ended: float) -> None:
        """Record one plan that holds tokens."""
        if self._broken:
            return
        try:
            self._step += 1
            setattr(plan, _STEP, self._step)
            self._log.add(self._record(scheduler, plan, started, ended))
        except Exception:
            self._give_up()

    def updated(self, plan: Any, started: float) -> None:
        """Record that the results of *plan* have been taken in."""
        step = getattr(plan, _STEP, None)
        if step is not None and not self._broken:
            now = time.monotonic()
            self._log.add({"a": "u", "n": step, "t0": round(started, 6), "t1": round(now, 6),
                           "fl": round(self._log.flush_s, 6)})  # fmt: skip

    def close(self) -> None:
        """Write what is waiting."""
        self._log.flush()

    def _record(self, scheduler: Any, plan: Any, started: float, ended: float) -> dict[str, Any]:
        requests = scheduler.requests
        chunks: list[list[int]] = []
        decodes = total = longest = 0
        for name, tokens in plan.num_scheduled_tokens.items():
            request = requests[name]
            context = request.num_computed_tokens - tokens  # already advanced by this plan
            if tokens > 1 or context < request.num_prompt_tokens:
                chunks.append([tokens, context])
            else:
                decodes += 1
                total += context
                if context > longest:
                    longest = context
        waiting = len(scheduler.waiting) + len(getattr(scheduler, "skipped_waiting", ()))
        record = {
            "a": "s", "n": self._step, "t0": round(started, 6), "t1": round(ended, 6), "p": chunks, "d": decodes,
            "dc": total, "dm": longest, "w": waiting, "r": len(scheduler.running),
            "f": self._pool.get_num_free_blocks() if self._pool is not None else None,
        }  # fmt: skip
        _add_rare(record, plan)
        record["o"] = round(time.monotonic() - ended, 7)
        return record

    def _give_up(self) -> None:
        self._broken = True
        logger.exception("servecast: this vLLM cannot be recorded; the server goes on without")


def _add_rare(record: dict[str, Any], plan: Any) -> None:
    """Add what most steps do not have."""
    preempted = getattr(plan, "preempted_req_ids", None)
    if preempted:
        record["pre"], record["pids"] = len(preempted), sorted(preempted)
    if plan.scheduled_new_reqs:
        record["new"] = [
            [new.req_id, len(new.prompt_token_ids or ()), new.num_computed_tokens] for new in plan.scheduled_new_reqs
        ]
    if plan.finished_req_ids:
        record["fin"] = sorted(plan.finished_req_ids)
    drafts = getattr(plan, "scheduled_spec_decode_tokens", None)
    if drafts:
        record["spec"] = sum(map(len, drafts.values()))


def recording_class(asynchronous: bool) -> Any:
    """Return a subclass of vLLM's scheduler that records."""
    base = base_class(asynchronous)

    class Recording(base):  # type: ignore[misc,valid-type]
        """The scheduler of the server, recorded."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._servecast: StepRecorder | None = None
            path = prefix()
            if path is None:
                return
            try:
                self._servecast = StepRecorder(self, StepLog(_steps_path(path, args, kwargs)), asynchronous)
            except Exception:
                logger.exception("servecast: cannot record to %s; the server goes on without", path)

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            started = time.monotonic()
            plan = super().schedule(*args, **kwargs)
            if self._servecast is not None and plan.total_num_scheduled_tokens:
                self._servecast.planned(self, plan, started, time.monotonic())
            return plan

        def update_from_output(self, plan: Any, *args: Any, **kwargs: Any) -> Any:
            started = time.monotonic()
            outputs = super().update_from_output(plan, *args, **kwargs)
            if self._servecast is not None:
                self._servecast.updated(plan, started)
            return outputs

        def shutdown(self, *args: Any, **kwargs: Any) -> Any:
            if self._servecast is not None:
                self._servecast.close()
            return super().shutdown(*args, **kwargs)

    return Recording


def _steps_path(path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the file of this engine: data parallel ranks after the first get their number."""
    rank = 0
    for value in (*kwargs.values(), *args):
        rank = rank or int(getattr(getattr(value, "parallel_config", None), "data_parallel_rank", 0) or 0)
    return f"{path}{f'-dp{rank}' if rank else ''}.steps.jsonl"


class RecordingScheduler:
    """What ``--scheduler-cls`` names: making one gives a recording scheduler of the right kind."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a scheduler, asynchronous if the settings say so."""
        return recording_class(is_asynchronous(*args, **kwargs))(*args, **kwargs)
