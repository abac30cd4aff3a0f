"""What V1's KV offload copies to the CPU: blocks of prompts, once a plan has filled them.

* A block is copied if it lies wholly in the prompt and its content is not in the tier (or on the way there).
* A store without room in the tier is skipped, and tried again when the request is served again.
* Blocks of a request that has left may be needed before their copy is made: the plan that takes them, or that throws
  out their owner, has to wait for these copies (`OffloadPlan.flush`).

`simulator.offload_scheduler` adds what is read back.  Source: offloading/scheduler.py of vLLM 0.24.
"""

from __future__ import annotations

from itertools import chain

from simulator.offload_plan import OffloadPlan, Transfer, WatchedPool
from simulator.offload_tier import CpuTier
from simulator.request import Request
from simulator.rules import SchedulerRules
from simulator.scheduler import V1Scheduler


class StoringScheduler(V1Scheduler):
    """V1's policy over a GPU pool and a CPU tier, whose blocks hold *factor* GPU blocks each."""

    blocks: WatchedPool

    def __init__(
        self, rules: SchedulerRules, blocks: WatchedPool, tier: CpuTier, *, factor: int = 1, defers_frees: bool = True
    ) -> None:
        super().__init__(rules, blocks)
        self._defers_frees = defers_frees and rules.async_scheduling
        self.tier = tier
        self.factor = factor
        self.skipped_stores = 0
        self._transfers: dict[int, list[Transfer]] = {}  # row -> on the way
        self._to_store: dict[int, int] = {}  # row -> next block of the prompt (in blocks of the tier)
        self._stored: set[int] = set()  # rows whose whole prompt was seen to
        self._orphans: dict[int, list[Transfer]] = {}  # block of a request that has left -> its stores

    def _keys(self, request: Request, start_tokens: int, end_tokens: int) -> list[int]:
        """Return the tier's keys of the blocks from the one that holds *start_tokens* to the last full one."""
        size, factor = self.blocks.block_size * self.factor, self.factor
        first, last = start_tokens // size, end_tokens // size
        return [request.block_key(index * factor + factor - 1) for index in range(first, last)]

    def _order_flushes(self, plan: OffloadPlan) -> None:
        """Note the copies that must be done before *plan* runs."""
        for victim in plan.preempted:
            plan.flush += self._transfers.get(victim.row, [])
        if self._orphans:
            newcomers = [request for request, _cached in plan.admitted] + [load.request for load in plan.loads]
            taken = chain(self.blocks.handed_out, *(request.blocks for request in newcomers))  # shared ones as well
            again = (store for block in taken for store in self._orphans.get(block, ()))
            plan.flush += dict.fromkeys(again)

    def _order_stores(self, plan: OffloadPlan) -> None:
        """Order copies of the blocks of prompts that this plan fills."""
        size, to_store = self.blocks.block_size * self.factor, self._to_store
        for request, n in zip(plan.requests, plan.tokens, strict=True):
            start = to_store.get(request.row)
            if start is None:
                continue
            end = min(request.num_computed_tokens + n, request.num_tokens, request.num_prompt_tokens) // size
            keys = self._keys(request, start * size, end * size)
            new = self.tier.begin_store(keys) if keys else []
            if new is None:
                self.skipped_stores += 1
                continue
            to_store[request.row] = end
            if end == request.num_prompt_tokens // size:
                del to_store[request.row]
                self._stored.add(request.row)
            if new:
                self.tier.touch(self._keys(request, 0, request.num_tokens))
                wanted = set(new)
                copied = [
                    block
                    for index, key in enumerate(keys, start)
                    if key in wanted
                    for block in request.blocks[index * self.factor : (index + 1) * self.factor]
                ]
                store = Transfer(request, new, copied, is_store=True)
                self._transfers.setdefault(request.row, []).append(store)
                plan.stores.append(store)

    def _preempt(self, victim: Request) -> None:
        super()._preempt(victim)
        if victim.row in self._stored:  # as its prompt is computed again, what the tier has lost is stored again
            self._stored.remove(victim.row)
            self._to_store[victim.row] = victim.num_prompt_tokens // (self.blocks.block_size * self.factor)

    def _store_done(self, store: Transfer) -> None:
        self.tier.end_store(store.keys)
        for block in store.blocks if self._orphans else ():
            waiting_for = self._orphans.get(block)
            if waiting_for is not None and store in waiting_for:
                waiting_for.remove(store)
                if not waiting_for:
                    del self._orphans[block]

    def _finish(self, request: Request) -> None:
        for store in self._transfers.get(request.row, ()):
            for block in store.blocks:
                self._orphans.setdefault(block, []).append(store)
        self._to_store.pop(request.row, None)
        self._stored.discard(request.row)
        super()._finish(request)
