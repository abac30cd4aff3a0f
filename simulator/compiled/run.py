"""From a server's settings and load to the flat world of the compiled loop, and from its facts to records.

`CompiledServer` is what `simulator.server.Server` is for V1 without offload; the records are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.blocks import BlockPool
from simulator.compiled import layout
from simulator.compiled.layout import State, records_of
from simulator.compiled.loop import advance
from simulator.cuda_graphs import GraphDispatch
from simulator.engine_config import EngineConfig
from simulator.noise import StepNoise
from simulator.profile import FrontEnd
from simulator.request_table import RequestTable
from simulator.rules import SchedulerRules
from simulator.step_cost import StepCost

#: Requests in flight for which there is room at first, and facts that fit before they are taken out.
_SLOTS, _FACTS = 1024, 8192

#: What is put into one visit to Python: (steps planned, steps emitted, requests ended, runs closed, gaps with a pause).
Facts = tuple[Any, Any, Any, Any, Any]


def settings_of(rules: SchedulerRules, pool: BlockPool, times: FrontEnd, *, listens: bool) -> Any:
    """Return the constants of the world (`layout.SETTINGS`) but for the tables."""
    first_s = max(0.0, times.first_token_s - times.token_s)
    values = {
        "max_num_seqs": rules.max_num_seqs,
        "max_num_batched_tokens": rules.max_num_batched_tokens,
        "max_model_len": rules.max_model_len,
        "is_async": rules.async_scheduling,
        "priority_policy": rules.priority_policy,
        "enable_chunked_prefill": rules.enable_chunked_prefill,
        "long_prefill_token_threshold": rules.long_prefill_token_threshold,
        "reserve_full": rules.scheduler_reserve_full_isl,
        "watermark_blocks": int(rules.watermark * pool.num_blocks),
        "unfit_blocks_queue": rules.unfit_prompt_blocks_queue,
        "self_victim_ends_loop": rules.self_victim_ends_loop,
        "length_guard": rules.async_length_guard,
        "lone_ignores_threshold": rules.lone_request_ignores_threshold,
        "num_blocks": pool.num_blocks,
        "block_size": pool.block_size,
        "caching": pool.caching,
        "unhashed_to_head": pool.unhashed_to_head,
        "bucket_mask": (1 << max(4, int(pool.num_blocks - 1).bit_length())) - 1,
        "listens": listens,
        "first_s": first_s,
        "request_demand_s": times.request_demand_s,
        "request_demand_per_token_s": times.request_demand_per_token_s,
        "request_latency_s": times.request_latency_s,
        "request_latency_per_token_s": times.request_latency_per_token_s,
        "input_s": times.input_s,
        "input_per_token_s": times.input_per_token_s,
        "first_token_per_prompt_token_s": times.first_token_per_prompt_token_s,
        "token_s": times.token_s,
        "token_per_stream_s": times.token_per_stream_s,
        "finish_s": times.finish_s,
    }
    settings = records_of(layout.SETTINGS, 1)
    for name, value in values.items():
        settings[name] = value
    return settings


class CompiledServer:
    """One engine behind one API server, on the flat world; `run` hands out facts until nothing happens any more."""

    def __init__(
        self,
        engine: EngineConfig,
        pool: BlockPool,
        cost: StepCost,
        *,
        seed: int | None,
        num_requests: int,
        longest_tokens: int,
        max_concurrency: int | None = None,
    ) -> None:
        rules = SchedulerRules.of(engine)
        places = num_requests if max_concurrency is None else max_concurrency
        self._noise = None if seed is None else StepNoise(seed, 1, cost)
        self._noise_block = -1
        settings = settings_of(rules, pool, cost.front_end, listens=places < num_requests)
        running = min(rules.max_num_seqs, num_requests)
        longest = min(longest_tokens, rules.max_model_len)
        width = -(-longest // pool.block_size) + 1
        dispatch = GraphDispatch(engine)
        settings["max_capture_size"] = dispatch.max_capture_size
        w = records_of(layout.WORLD, 1)
        w["engine"], w["clients"] = layout.WORK, layout.READY
        w["free_places"], w["num_free"], w["fresh"] = places, pool.num_blocks - 1, 1
        w["cpu_free_s"], w["alarm_s"], w["free_slot"] = -np.inf, np.inf, 1
        most_tokens = max(rules.max_num_batched_tokens, dispatch.max_capture_size)
        lanes = np.zeros((running, width), np.int32)
        lanes[:, 0] = np.arange(1, running + 1)
        facts = _FACTS + 4 * running
        self.state = State(
            world=w[0],
            settings=settings[0],
            costs=cost.costs,
            linear_s=cost.linear_table(most_tokens),
            head_s=cost.head_table(running),
            dispatch=_dispatch_table(dispatch),
            noise=np.ones((2, 3, layout.CHUNK)),
            rows=records_of(layout.ROW, 1),
            segment_id=np.zeros(0, np.int64),
            segment_tokens=np.zeros(0, np.int64),
            requests=_linked(records_of(layout.REQUEST, _SLOTS), 1),
            blocks=records_of(layout.BLOCK, pool.num_blocks),
            buckets=np.zeros(int(settings["bucket_mask"][0]) + 1, np.int32),
            lanes=lanes,
            hits=np.zeros(width, np.int32),
            running=np.zeros(running, np.int64),
            queue=np.zeros(_SLOTS, np.int64),
            served=np.zeros(running, np.int64),
            granted=np.zeros(running, np.int64),
            samplers=np.zeros((2, running), np.int64),
            sampler_rows=np.zeros((2, running), np.int64),
            plans=records_of(layout.PLAN, 2),
            events=records_of(layout.EVENT, facts),
            jobs=records_of(layout.EVENT, _SLOTS),
            planned=records_of(layout.PLANNED, layout.CHUNK),
            emitted=records_of(layout.EMITTED, layout.CHUNK + 4),
            ended=records_of(layout.ENDED, facts),
            runs=records_of(layout.RUN, facts),
            pauses=np.zeros(facts),
        )

    def load(self, table: RequestTable, *, is_last: bool) -> None:
        """Append the rows of *table* to what is to be sent; the rows before must have been sent."""
        s = self.state
        w = s.world
        kept = self._compact_segments()
        rows = records_of(layout.ROW, len(table))
        rows["num_prompt"], rows["num_output"] = table.prompt_tokens, table.output_tokens
        rows["priority"], rows["arrival_s"] = table.priority, table.arrival_s
        rows["segment_start"], rows["segment_stop"] = table.segment_start[:-1] + kept, table.segment_start[1:] + kept
        w.rows_offset = w.next_row
        w.rows_loaded = w.next_row + len(table)
        w.all_loaded = is_last
        self.state = s._replace(
            rows=rows,
            segment_id=np.concatenate((s.segment_id[:kept], table.segment_id)),
            segment_tokens=np.concatenate((s.segment_tokens[:kept], table.segment_end)),
        )

    def _compact_segments(self) -> int:
        """Keep the prefixes of requests in flight only; return how many segments those are."""
        s, kept = self.state, 0
        ids, tokens = s.segment_id.copy(), s.segment_tokens.copy()
        for slot in np.flatnonzero(s.requests["segment_stop"] > s.requests["segment_start"]).tolist():
            request = s.requests[slot]
            if request.row < 0:
                continue
            old = slice(request.segment_start, request.segment_stop)
            count = old.stop - old.start
            s.segment_id[kept : kept + count], s.segment_tokens[kept : kept + count] = ids[old], tokens[old]
            request.segment_start, request.segment_stop = kept, kept + count
            kept += count
        return kept

    def run(self, take: Callable[[Facts], None]) -> None:
        """Simulate to the end of what is loaded; *take* gets the facts in pieces, which it must copy."""
        w = self.state.world
        while True:
            self._draw_noise()
            advance(self.state)
            s = self.state
            planned = w.planned if w.planned == layout.CHUNK or w.finished else 0
            take((s.planned[:planned], s.emitted[: w.emitted], s.ended[: w.ended], s.runs[: w.runs],
                  s.pauses[: w.pauses]))  # fmt: skip
            w.planned -= planned
            w.emitted = w.ended = w.runs = w.pauses = 0
            if w.finished or (w.next_row == w.rows_loaded and not w.all_loaded):
                return
            self._make_room()

    def unfinished(self) -> Facts:
        """Return what is known of the requests still in flight when nothing happens any more."""
        s = self.state
        left = s.requests[s.requests["row"] >= 0]
        left = left[left["num_prompt"] > 0]  # slot 0 is nobody
        facts = records_of(layout.ENDED, len(left))
        for name, source in (
            ("row", "row"),
            ("prompt_tokens", "num_prompt"),
            ("cached_tokens", "cached_tokens"),
            ("recomputed_tokens", "recomputed_tokens"),
            ("sent_s", "sent_s"),
            ("engine_arrival_s", "engine_s"),
            ("first_scheduled_s", "scheduled_s"),
            ("first_token_s", "first_token_s"),
        ):
            facts[name] = left[source]
        facts["last_token_s"] = np.nan
        return s.planned[:0], s.emitted[:0], facts, s.runs[:0], s.pauses[:0]

    def _draw_noise(self) -> None:
        block = int(self.state.world.step) // layout.CHUNK
        if self._noise is not None and block != self._noise_block:
            self.state.noise[:] = self._noise.block(block)
            self._noise_block = block

    def _make_room(self) -> None:
        """Double what is nearly full."""
        s = self.state
        if s.world.free_slot == 0:
            slots = len(s.requests)
            requests = _linked(_grown(s.requests), slots)
            s.world.free_slot = slots
            s = s._replace(requests=requests, queue=np.resize(s.queue, 2 * slots), jobs=_grown(s.jobs))
        if s.world.num_events * 2 > len(s.events):
            s = s._replace(events=_grown(s.events))
        self.state = s


def _grown(records: Any) -> Any:
    return np.resize(records, 2 * len(records)).view(np.recarray)


def _linked(requests: Any, first: int) -> Any:
    """Chain the slots from *first* on as free ones."""
    requests["behind"][first:] = np.arange(first + 1, len(requests) + 1)
    requests["behind"][-1] = 0
    requests["row"][first:] = -1
    return requests


def _dispatch_table(dispatch: GraphDispatch) -> Any:
    """Return (mode, padded tokens) by (is every request a decode, tokens)."""
    tokens = range(dispatch.max_capture_size + 1)
    return np.array([[dispatch.dispatch(n, n, uniform) for n in tokens] for uniform in (False, True)], np.int64)
