"""A recording against our scheduler: the same requests, taken in when the real engine took them in, plan by plan.

The recorder notes who is scheduled first in which step and how many wait; that tells which requests had arrived before
each plan.  Times play no part: every plan must hold the same chunks, decodes, contexts, queue and free blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simulator.blocks import BlockPool
from simulator.request import Request
from simulator.request_table import RequestTable
from simulator.rules import SchedulerRules
from simulator.scheduler import V1Scheduler
from simulator.versions import facts

Record = dict[str, Any]


def fresh_scheduler(header: Record, version: str) -> V1Scheduler:
    """Return our scheduler with the limits of the recorded engine."""
    known = facts(version)
    rules = SchedulerRules(
        max_num_seqs=header["max_run"],
        max_num_batched_tokens=header["max_tok"],
        max_model_len=header["max_len"],
        async_scheduling=header["async"],
        scheduler_reserve_full_isl=known.full_sequence_check,
        unfit_prompt_blocks_queue=known.unfit_prompt_blocks_queue,
        self_victim_ends_loop=known.self_victim_ends_loop,
    )
    blocks = BlockPool(
        header["blocks"], header["block_size"], caching=True, unhashed_to_head=known.unhashed_blocks_to_head
    )
    return V1Scheduler(rules, blocks)


def in_order_of_arrival(records: Iterable[Record], table: RequestTable) -> list[Request]:
    """Return the requests as they were first scheduled; rows of one prompt length come in the table's order."""
    rows: dict[int, list[int]] = {}
    for row, length in enumerate(table.prompt_tokens.tolist()):
        rows.setdefault(length, []).append(row)
    lengths = [length for record in records for _, length, _ in record.get("new", ())]
    return [Request(row, length, int(table.output_tokens[row])) for length in lengths for row in [rows[length].pop(0)]]


def first_difference(header: Record, records: list[Record], table: RequestTable, version: str) -> str | None:
    """Return None if every plan of one burst equals ours, else where they part."""
    scheduler = fresh_scheduler(header, version)
    arriving = in_order_of_arrival(records, table)
    if len(arriving) != len(table):
        return f"{len(arriving)} requests were scheduled, {len(table)} were sent"
    seen = delivered = 0
    plans: dict[int, Any] = {}
    for record in records:
        if record["a"] == "u":
            if record["n"] in plans:
                scheduler.update(plans.pop(record["n"]))
            continue
        seen += len(record.get("new", ()))
        due = arriving[delivered : seen + record["w"]]
        delivered += len(due)
        scheduler.add(due)
        before = {request.row: request.num_computed_tokens for request in arriving}
        plan = scheduler.schedule()
        plans[record["n"]] = plan
        ours = _described(scheduler, plan, before)
        theirs = {name: record[name] for name in ours}
        if ours != theirs:
            return f"step {record['n']}: recorded {theirs}, ours {ours}"
    return f"{scheduler.counts()[0]} requests are left running" if scheduler.has_requests else None


def _described(scheduler: V1Scheduler, plan: Any, before: dict[int, int]) -> Record:
    running, waiting, free = scheduler.counts()
    chunks = [
        [tokens, before[request.row]]
        for request, tokens in zip(plan.requests, plan.tokens, strict=True)
        if tokens > 1 or before[request.row] < request.num_prompt_tokens
    ]
    contexts = [
        before[request.row]
        for request, tokens in zip(plan.requests, plan.tokens, strict=True)
        if tokens == 1 and before[request.row] >= request.num_prompt_tokens
    ]
    return {
        "p": chunks, "d": len(contexts), "dc": sum(contexts), "dm": max(contexts, default=0), "w": waiting,
        "r": running, "f": free,
    }  # fmt: skip
