"""What must hold in any V0 world: blocks are conserved, no token is lost, everything comes to an end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import EngineDiedError
from simulator.request import Status
from simulator.v0_rules import LIVELOCK, NO_FREE_BLOCKS, NO_SWAP_SPACE
from tests.simulator.worlds_v0 import V0World

BLOCK = 4


@st.composite
def worlds(draw, caching=None):
    """A small engine with 1 to 12 requests, delivered at steps 0 to 20."""
    chunked = draw(st.booleans())
    lengths = draw(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=12))
    world = V0World(
        gpu=draw(st.one_of(st.integers(1, 40), st.integers(100, 140))),
        cpu=draw(st.integers(0, 40)),
        block_size=BLOCK,
        caching=draw(st.booleans()) if caching is None else caching,
        chunked=chunked,
        max_num_seqs=draw(st.integers(1, 8)),
        max_num_batched_tokens=draw(st.sampled_from([8, 16, 64] if chunked else [64, 128])),
        max_model_len=64,
        preemption_mode=draw(st.sampled_from(["swap", "recompute"])),
        num_scheduler_steps=draw(st.sampled_from([1, 1, 3])),
        num_lookahead_slots=draw(st.sampled_from([0, 0, 5])),
        async_output_processing=draw(st.booleans()),
        scheduler_delay_factor=draw(st.sampled_from([0.0, 1.5])),
    )
    arrivals = [draw(st.integers(0, 20)) for _ in lengths]
    return world, list(zip(arrivals, lengths, strict=True))


def run(world, requests, check):
    """Run to the end; return the error that ended it, if one did."""
    waiting, step = sorted(enumerate(requests), key=lambda entry: entry[1][0]), 0
    got = {}
    while waiting or world.scheduler.has_requests:
        while waiting and waiting[0][1][0] <= step:
            row, (_, (prompt, outputs)) = waiting.pop(0)
            shared = [1000 + index for index in range(min(row % 3 * 3, prompt // BLOCK))]
            world.add_request(f"r{row}", prompt, outputs, arrival=float(step), shared_keys=shared)
        try:
            plan = world.scheduler.schedule(float(step))
        except EngineDiedError as error:
            return str(error), got
        yielded, _ended = world.scheduler.update(plan)
        for request in yielded:
            got[request.row] = got.get(request.row, 0) + 1
        check(world, plan)
        step += 1
        if not plan.requests and not waiting and world.scheduler.has_requests:
            return world.scheduler.stuck, got
    return None, got


def held_blocks(world):
    requests = [request for request in world.requests.values() if request.capacity]
    swapped = sum(request.capacity for request in requests if request.status is Status.SWAPPED)
    running = sum(request.capacity for request in requests if request.status is Status.RUNNING)
    ended = sum(  # multi-step: until the end of the run
        request.capacity for request in world.scheduler.running if request.status is Status.FINISHED
    )
    return (running + ended) // BLOCK, swapped // BLOCK


@settings(deadline=None, max_examples=150)
@given(worlds(caching=False))
def test_blocks_are_conserved_over_gpu_and_cpu_together(drawn):
    world, requests = drawn

    def check(world, _plan):
        blocks, (gpu, cpu) = world.blocks, held_blocks(world)
        assert blocks.gpu.num_free + gpu == blocks.gpu.num_blocks
        assert blocks.cpu.num_free + cpu + world.scheduler.lost_cpu_blocks == blocks.cpu.num_blocks
        assert blocks.gpu.num_free >= 0
        assert blocks.cpu.num_free >= 0

    run(world, requests, check)


@settings(deadline=None, max_examples=150)
@given(worlds(caching=True))
def test_with_prefix_caching_blocks_are_never_overdrawn_and_all_come_back(drawn):
    world, requests = drawn

    def check(world, _plan):
        for tier in (world.blocks.gpu, world.blocks.cpu):
            assert 0 <= len(tier.evictor) <= tier.num_free <= tier.num_blocks

    error, _got = run(world, requests, check)
    if error is None and not world.scheduler.lost_cpu_blocks:
        assert world.free == (world.blocks.gpu.num_blocks, world.blocks.cpu.num_blocks)


@settings(deadline=None, max_examples=200)
@given(worlds())
def test_every_request_gets_all_its_tokens_or_is_ignored_or_the_engine_says_why_not(drawn):
    world, requests = drawn
    ignored = set()

    def check(_world, plan):
        ignored.update(request.row for request in plan.ignored)

    error, got = run(world, requests, check)
    assert error in (None, NO_SWAP_SPACE, NO_FREE_BLOCKS, LIVELOCK) or error.startswith("vLLM hangs: swapped request")
    for request in world.requests.values():
        tokens = got.get(request.row, 0)
        assert request.num_tokens == request.num_prompt_tokens + tokens
        if error is None:
            assert request.status is Status.FINISHED
            if request.row not in ignored:
                assert request.num_tokens == request.end_tokens


@settings(deadline=None, max_examples=100)
@given(worlds(), st.integers(0, 12))
def test_no_number_of_cpu_blocks_makes_swapping_hang_silently(drawn, cpu):
    world, requests = drawn
    world.blocks.cpu.num_blocks = world.blocks.cpu.num_free = cpu
    error, _got = run(world, requests, lambda world, plan: None)
    assert error is not None or not world.scheduler.has_requests
