"""V1's scheduler with KV offload to the CPU (``--kv-offloading-size``): a second level of the prefix cache.

* Store: see `simulator.offload_stores`.
* Load: a request whose prefix goes on in the tier gets blocks for it and waits (WAITING_FOR_REMOTE_KVS) outside
  `running`: it counts for no limit and cannot be thrown out.  When the copy is done it is admitted behind it; of a
  prompt that was found whole exactly the last token is computed again.
* A request whose next blocks are just being written, or read for somebody else, or that still has copies of its own
  on the way, is passed over until that is over.
* The blocks of a load must be free beyond what prompts in progress still need.

Clockless: `schedule` orders copies (`OffloadPlan`), the engine makes them and reports them to `transfers_done`.
Source: v1/core/sched/scheduler.py and offloading/scheduler.py of 0.24.  Not modelled: generated tokens in the tier
(``offload_prompt_only`` false), the lmcache backend, failing loads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from simulator.offload_plan import OffloadPlan, Transfer, WatchedPool
from simulator.offload_stores import StoringScheduler
from simulator.offload_tier import CpuTier, Found
from simulator.plan import Plan
from simulator.request import Request, Status
from simulator.rules import SchedulerRules


class OffloadScheduler(StoringScheduler):
    """V1's policy over a GPU pool and a CPU tier."""

    def __init__(
        self, rules: SchedulerRules, blocks: WatchedPool, tier: CpuTier, *, factor: int = 1, defers_frees: bool = True
    ) -> None:
        super().__init__(rules, blocks, tier, factor=factor, defers_frees=defers_frees)
        self.skipped: deque[Request] = deque()  # passed over for a reason that is not capacity
        self.external_queries_tokens = 0
        self.external_hits_tokens = 0
        self.latest_hits: dict[int, int] = {}  # row -> tokens found in the tier at its latest admission
        self._arrived: set[int] = set()  # rows whose load is done
        self._being_loaded: set[int] = set()
        self._in_progress: dict[int, Request] = {}  # prompts that will need more blocks, loads among them

    # -- what the engine loop needs -------------------------------------------------------------------------------

    @property
    def has_requests(self) -> bool:
        """Whether anything is waiting or running, or a copy is on the way."""
        return bool(self.running or self.skipped or self._transfers) or len(self.waiting) > 0

    @property
    def has_transfers(self) -> bool:
        """Whether a copy is on the way (or ordered)."""
        return bool(self._transfers)

    def counts(self) -> tuple[int, int, int]:
        """Return (running requests, waiting requests with those passed over, free blocks)."""
        return len(self.running), len(self.waiting) + len(self.skipped), self.blocks.num_free

    def schedule(self) -> OffloadPlan:
        """Return the plan of the next step; it may order copies without having tokens."""
        plan = OffloadPlan()
        self.blocks.handed_out.clear()
        budget = self._serve_running(plan, 0, self.rules.max_num_batched_tokens)
        if not plan.preempted and budget > 0:
            self._admit_all(plan, budget)
        self._order_flushes(plan)
        self._order_stores(plan)
        self._account(plan)
        for row, request in list(self._in_progress.items()):
            if request.status is Status.RUNNING and request.num_computed_tokens >= request.num_tokens:
                del self._in_progress[row]
        if self._defers_frees and plan.num_tokens:
            self.blocks.begin_step({request.row for request in plan.requests})
        return plan

    def update(self, plan: Plan) -> tuple[list[Request], list[Request]]:
        """See `V1Scheduler.update`."""
        if self._defers_frees and plan.num_tokens:
            self.blocks.end_step()
        return super().update(plan)

    def transfers_done(self, transfers: Iterable[Transfer]) -> None:
        """Take in the report that *transfers* are done."""
        for transfer in transfers:
            row = transfer.request.row
            mine = self._transfers[row]
            mine.remove(transfer)
            if not mine:
                del self._transfers[row]
            if transfer.is_store:
                self._store_done(transfer)
            else:
                self.tier.end_load(transfer.keys)
                self._being_loaded.difference_update(transfer.keys)
                self._arrived.add(row)

    # -- admission ------------------------------------------------------------------------------------------------

    def _admit_all(self, plan: OffloadPlan, budget: int) -> None:
        """Admit from the heads of both queues until a limit is met or somebody does not fit."""
        passed_over: list[Request] = []
        while budget > 0 and len(self.running) < self.rules.max_num_seqs and (self.waiting or self.skipped):
            request = self._head()
            if request.status is Status.WAITING_FOR_REMOTE_KVS and not self._wake(request):
                passed_over.append(self._pop(request))
                continue
            hits, found = self._look_up(request)
            if found is None:
                passed_over.append(self._pop(request))
                continue
            computed = request.num_computed_tokens or len(hits) * self.blocks.block_size + found
            if found:
                if not self._fits(request, hits, computed, self._reserved()):
                    break
                self._begin_load(plan, self._pop(request), hits, found)
                passed_over.append(request)
                continue
            n = request.num_tokens - computed
            if self.rules.long_prefill_token_threshold:
                n = min(n, self.rules.long_prefill_token_threshold)
            if not self.rules.enable_chunked_prefill and n > budget:
                if self.rules.unfit_prompt_blocks_queue:
                    break
                passed_over.append(self._pop(request))
                continue
            n = min(n, budget)
            if not self._fits(request, hits, computed + n, 0):
                break
            self._enter(plan, self._pop(request), hits, computed, n)
            budget -= n
        self.skipped.extendleft(reversed(passed_over))

    def _head(self) -> Request:
        if not self.skipped:
            return self.waiting.head()
        if not self.rules.priority_policy or not self.waiting:
            return self._first_skipped()
        first, other = self._first_skipped(), self.waiting.head()
        return first if _key(first) < _key(other) else other

    def _first_skipped(self) -> Request:
        return min(self.skipped, key=_key) if self.rules.priority_policy else self.skipped[0]

    def _pop(self, request: Request) -> Request:
        if self.waiting and self.waiting.head() is request:
            return self.waiting.pop()
        self.skipped.remove(request)
        return request

    def _wake(self, request: Request) -> bool:
        """Make a request whose load is done an ordinary waiting one; return whether it is."""
        if request.row not in self._arrived:
            return False
        self._arrived.remove(request.row)
        if self.blocks.caching:
            self.blocks.register(request, request.num_computed_tokens)
        request.num_computed_tokens = min(request.num_computed_tokens, request.num_tokens - 1)
        request.status = Status.PREEMPTED if request.num_preemptions else Status.WAITING
        return True

    def _look_up(self, request: Request) -> tuple[list[int], int | None]:
        """Return the GPU's hit and the tokens found beyond it in the tier (None: ask again)."""
        if request.num_computed_tokens:  # its load is done
            return [], 0
        hits = self.blocks.find_hits(request)
        cached = len(hits) * self.blocks.block_size
        if self.blocks.caching and request.num_preemptions == 0:
            self.prefix_queries_tokens += request.num_tokens
            self.prefix_hits_tokens += cached
        if request.row in self._transfers:
            return hits, None
        found = self._look_up_tier(request, cached)
        self.tier.touch(self._keys(request, 0, request.num_tokens))
        return hits, found

    def _look_up_tier(self, request: Request, cached: int) -> int | None:
        size = self.blocks.block_size * self.factor
        keys = self._keys(request, cached, request.num_tokens)
        count, later = 0, False
        for key in keys:
            found = self.tier.find(key)
            if found is Found.MISS:
                break
            count += 1
            later |= found is Found.LATER
        tokens = (cached // size + count) * size - cached
        if not count or tokens < size:
            return 0
        if later or (self._being_loaded and not self._being_loaded.isdisjoint(keys[:count])):
            return None
        return tokens

    def _fits(self, request: Request, hits: list[int], end_tokens: int, reserved: int) -> bool:
        """Return whether the blocks up to *end_tokens* (and, if so ruled, of the whole sequence) are free."""
        rules, blocks = self.rules, self.blocks
        free = blocks.num_free - (self.watermark_blocks if self.running else 0)
        held = len(hits) + len(request.blocks) - blocks.count_idle(hits)
        longest, size = rules.max_model_len, blocks.block_size
        if rules.scheduler_reserve_full_isl and -(-min(request.num_tokens, longest) // size) - held > free:
            return False
        return -(-min(end_tokens, longest) // size) - held <= free - reserved

    def _reserved(self) -> int:
        """Return how many blocks the prompts in progress still need."""
        size, longest = self.blocks.block_size, self.rules.max_model_len
        return sum(
            max(0, -(-min(request.num_tokens, longest) // size) - len(request.blocks))
            for request in self._in_progress.values()
        )

    def _begin_load(self, plan: OffloadPlan, request: Request, hits: list[int], found: int) -> None:
        """Give *request* the blocks of what was *found* and order the copies."""
        blocks, row, cached = self.blocks, request.row, len(hits) * self.blocks.block_size
        if hits:
            blocks.take_hits(request, hits)
        computed = cached + found
        blocks.grow(request, -(-computed // blocks.block_size) - len(hits))
        keys = self._keys(request, cached, computed)
        self.tier.begin_load(keys)
        if blocks.caching:
            self._being_loaded.update(keys)
        load = Transfer(request, keys, request.blocks[len(hits) :], is_store=False)
        self._transfers.setdefault(row, []).append(load)
        plan.loads.append(load)
        self._count(request, request.num_tokens - cached, found)
        self._stored.discard(row)
        self._to_store[row] = computed // (blocks.block_size * self.factor)
        request.num_computed_tokens = computed
        request.status = Status.WAITING_FOR_REMOTE_KVS
        self._in_progress[row] = request

    def _count(self, request: Request, queries: int, found: int) -> None:
        self.latest_hits[request.row] = found
        if request.num_preemptions == 0:
            self.external_queries_tokens += queries
            self.external_hits_tokens += found

    def _enter(self, plan: OffloadPlan, request: Request, hits: list[int], computed: int, n: int) -> None:
        """Admit *request* to `running`."""
        if not request.num_computed_tokens:
            self._count(request, request.num_tokens - computed, 0)
            self._admit(plan, request, hits, n)
        else:
            needed = -(-(computed + n) // self.blocks.block_size) - len(request.blocks)
            if needed > 0:
                self.blocks.grow(request, needed)
            self._join(plan, request, computed, n)
        if computed + n < request.num_tokens:
            self._in_progress[request.row] = request
        if request.row not in self._stored:
            self._to_store.setdefault(request.row, 0)

    def _join(self, plan: OffloadPlan, request: Request, computed: int, n: int) -> None:
        """Put a request that has its blocks and *computed* tokens into `running` and into *plan*."""
        if self.blocks.caching:
            self.blocks.register(request, min(computed + n, request.num_tokens))
        if request.num_cached_tokens < 0:
            request.num_cached_tokens = computed
        request.status = Status.RUNNING
        request.planned_tokens = n
        request.order = self._admissions
        self._admissions += 1
        self.running.append(request)
        plan.admitted.append((request, computed))
        plan.requests.append(request)
        plan.tokens.append(n)

    # -- leaving --------------------------------------------------------------------------------------------------

    def _preempt(self, victim: Request) -> None:
        super()._preempt(victim)
        self._in_progress.pop(victim.row, None)

    def _finish(self, request: Request) -> None:
        self._in_progress.pop(request.row, None)
        super()._finish(request)

    def _leave_queue(self, request: Request) -> None:
        if request in self.skipped:
            self.skipped.remove(request)
        else:
            super()._leave_queue(request)


def _key(request: Request) -> tuple[int, float, Any]:
    return request.priority, request.arrival, request.tie_break
