"""What the nearest changes of flags would do to a capacity, each really simulated with the same random numbers.

    +0.05 gpu_memory_utilization    +53,000 KV tokens, capacity unchanged
    max_num_batched_tokens x2       capacity +4 %

Both servers, as it is and changed, are searched near the known capacity (`apps.planning.local`) with the same seeds and
one run a look, and compared with each other; a change within `CLOSE_ENOUGH` is called unchanged.  A flag that vLLM
refuses, or that does not fit, says so instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from apps.planning.capacity import Capacity
from apps.planning.local import Found, Near, search_all, slope_between
from apps.planning.measure import Ask, Run, measure
from apps.planning.runs import Failure, Workers
from apps.planning.variants import args_of, memory_of, with_settings
from simulator.engine_config import EngineConfig
from simulator.errors import ServecastError
from simulator.memory_terms import is_v0
from simulator.scenario import Scenario
from simulator.workload import table

#: Changes of the capacity, as a share, that one run a look does not tell from none.
CLOSE_ENOUGH = 0.02
_STEP, _MOST_UTILIZATION = 0.05, 0.98


@dataclass(frozen=True)
class Marginal:
    """One change: *settings* in words, and what it does; *load* is the capacity with it, *share* the change of it."""

    change: str
    settings: dict[str, Any]
    kv_tokens: int | None
    load: float | None
    share: float | None
    effect: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def marginals(
    found: Capacity, *, workers: Workers = None, told: Callable[[int], None] = lambda _: None
) -> list[Marginal]:
    """Return the changes worth a look, those that help most first; empty for a server without a capacity.

    *told* hears of the runs as they end, and may raise to stop.
    """
    if found.load is None or found.next_load is None or found.point is None:
        return []
    low, high = found.point, next(point for point in found.points if point.load == found.next_load)
    ask = Ask(found.scenario, found.slo, found.axis, found.load, found.requests)
    base: Run = measure(ask)
    told(1)
    slope, known = slope_between(low, high), base.score
    tasks, waiting, done = [Near(ask, slope)], [], []
    kv_tokens, args = base.kv_tokens, args_of(found.scenario)
    for change, settings in changes(found.scenario):
        try:
            server = with_settings(found.scenario, settings, args=args)
            plan = memory_of(server)
            if not plan.fits:
                done.append(Marginal(change, settings, None, None, None, "does not fit in the GPU's memory"))
                continue
        except ServecastError as error:
            done.append(Marginal(change, settings, None, None, None, f"refused: {error}"))
            continue
        changed = Ask(server, found.slo, found.axis, found.load, found.requests)
        tasks.append(Near(changed, slope, known))
        waiting.append((change, settings, plan.kv_tokens - kv_tokens))
    first, *others = search_all(tasks, workers=workers, told=told)
    assert isinstance(first, Found)
    told_apart = [_marginal(*each, outcome, first, found) for each, outcome in zip(waiting, others, strict=True)]
    return sorted(told_apart, key=lambda each: -(each.share if each.share is not None else -9)) + done


def _marginal(
    change: str, settings: dict[str, Any], kv_tokens: int, outcome: Found | Failure, base: Found, found: Capacity
) -> Marginal:
    more = f"{kv_tokens:+,} KV tokens, " if kv_tokens else ""
    if isinstance(outcome, Failure):
        return Marginal(change, settings, kv_tokens, None, None, f"{more}{outcome}")
    assert found.load is not None
    same = outcome.looks == 1 and outcome.load == found.load  # the very same run
    share = 0.0 if same else outcome.load / base.load - 1
    effect = "capacity unchanged" if abs(share) < CLOSE_ENOUGH else f"capacity {share:+.0%}"
    return Marginal(change, settings, kv_tokens, found.load * (1 + share), share, more + effect)


def changes(scenario: Scenario) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the changes of flags to look at: (in words, settings)."""
    engine = scenario.engine
    if engine.kv_cache_memory_bytes is None and engine.num_gpu_blocks_override is None:
        yield from _utilization(engine)
    yield "max_num_seqs x2", {"max_num_seqs": 2 * engine.max_num_seqs}
    if engine.enable_chunked_prefill or is_v0(engine):
        yield "max_num_batched_tokens x2", {"max_num_batched_tokens": 2 * engine.max_num_batched_tokens}
        half = engine.max_num_batched_tokens // 2
        if half >= max(engine.max_num_seqs, engine.block_size):
            yield "max_num_batched_tokens /2", {"max_num_batched_tokens": half}
    if len(table(scenario.workload, scenario.seed).segment_id):
        now = engine.enable_prefix_caching
        yield f"prefix caching {'off' if now else 'on'}", {"enable_prefix_caching": not now}
    if not is_v0(engine):
        now = engine.async_scheduling
        yield f"async scheduling {'off' if now else 'on'}", {"async_scheduling": not now}
        if engine.enable_chunked_prefill and not engine.long_prefill_token_threshold:
            quarter = max(engine.block_size, engine.max_num_batched_tokens // 4)
            yield f"long_prefill_token_threshold {quarter}", {"long_prefill_token_threshold": quarter}
    if engine.enforce_eager:
        yield "enforce_eager off", {"enforce_eager": False}
    if engine.kv_cache_dtype == "auto" and scenario.gpu.fp8_flops_per_s:
        yield "kv_cache_dtype fp8 (not calibrated)", {"kv_cache_dtype": "fp8"}


def _utilization(engine: EngineConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    now = engine.gpu_memory_utilization
    for step in (_STEP, -_STEP):
        then = round(min(now + step, _MOST_UTILIZATION), 4)
        if then > 0 and abs(then - now) > 1e-9:
            yield f"{then - now:+.2f} gpu_memory_utilization", {"gpu_memory_utilization": then}
