import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cuda_graphs import CaptureOverrides, GraphDispatch, GraphMode, capture_sizes
from simulator.engine_config import EngineConfig
from simulator.errors import ConfigError
from simulator.versions import facts

NEW, V0 = facts("0.24.0"), facts("0.6.3")


def dispatch_of(sizes=(1, 2, 4, 8, 16), **settings):
    engine = EngineConfig(
        model="m",
        max_model_len=64,
        max_num_batched_tokens=64,
        **{"max_num_seqs": 8, "cudagraph_capture_sizes": sizes, **settings},
    )
    return GraphDispatch(engine).dispatch


def test_sizes_step_by_8_below_256_and_by_16_above_up_to_512():
    sizes = capture_sizes(1024, 8192, NEW)
    assert sizes == (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
    assert len(sizes) == 51


def test_sizes_end_at_twice_max_num_seqs():
    assert capture_sizes(10, 8192, NEW) == (1, 2, 4, 8, 16)


def test_max_num_batched_tokens_is_captured_itself_when_it_is_below_the_limit():
    assert capture_sizes(64, 100, NEW)[-2:] == (96, 100)


@pytest.mark.parametrize(
    ("version", "largest", "count"),
    [("0.8.5", 512, 67), ("0.9.2", 512, 67), ("0.10.2", 64, 11), ("0.11.2", 64, 11), ("0.24.0", 64, 11)],
)
def test_sizes_of_32_sequences_by_version(version, largest, count):
    sizes = capture_sizes(32, 8192, facts(version))
    assert (sizes[-1], len(sizes)) == (largest, count)


@pytest.mark.parametrize(
    ("seqs", "sizes"), [(1, (1,)), (2, (1, 2)), (3, (1, 2, 4)), (5, (1, 2, 4, 8)), (17, (1, 2, 4, 8, 16, 24))]
)
def test_v0_captures_decode_batches_up_to_max_num_seqs_rounded_up(seqs, sizes):
    assert capture_sizes(seqs, 2048, V0, engine_generation="V0") == sizes


def test_explicit_sizes_win_and_larger_ones_than_the_budget_are_dropped():
    overrides = CaptureOverrides(cudagraph_capture_sizes=(8, 2, 2, 4096))
    assert capture_sizes(256, 2048, NEW, overrides) == (2, 8)


def test_a_maximum_alone_replaces_the_default_maximum():
    assert capture_sizes(256, 2048, NEW, CaptureOverrides(max_cudagraph_capture_size=24)) == (1, 2, 4, 8, 16, 24)


def test_one_old_cuda_graph_size_is_a_maximum_and_several_are_the_sizes():
    old = facts("0.10.2")
    assert capture_sizes(256, 2048, old, CaptureOverrides(cuda_graph_sizes=(16,))) == (1, 2, 4, 8, 16)
    assert capture_sizes(256, 2048, old, CaptureOverrides(cuda_graph_sizes=(16, 3))) == (3, 16)


def test_interactivity_captures_every_size_up_to_32():
    sizes = capture_sizes(256, 2048, NEW, CaptureOverrides(interactivity=True))
    assert sizes[:33] == (*range(1, 33), 40)


@pytest.mark.parametrize(
    "overrides",
    [
        {"cudagraph_capture_sizes": (1, 2), "max_cudagraph_capture_size": 8},
        {"cudagraph_capture_sizes": (0, 2)},
        {"cudagraph_capture_sizes": (10**9,)},
        {"max_cudagraph_capture_size": 10**9},
    ],
)
def test_sizes_that_contradict_or_cannot_be_are_refused(overrides):
    with pytest.raises(ConfigError, match="capture_size"):
        capture_sizes(256, 10**10, NEW, CaptureOverrides(**overrides))


def test_a_uniform_decode_is_full_and_padded_to_the_next_size():
    dispatch = dispatch_of()
    assert dispatch(3, 3, True) == (GraphMode.FULL, 4)
    assert dispatch(8, 8, True) == (GraphMode.FULL, 8)


def test_a_mixed_step_is_piecewise():
    assert dispatch_of()(5, 3, False) == (GraphMode.PIECEWISE, 8)


def test_above_the_largest_size_there_is_no_graph_and_no_padding():
    assert dispatch_of()(17, 17, True) == (GraphMode.NONE, 17)
    assert dispatch_of()(1000, 3, False) == (GraphMode.NONE, 1000)


def test_full_graphs_end_at_max_num_seqs():
    dispatch = dispatch_of(max_num_seqs=10)
    assert dispatch(8, 8, True) == (GraphMode.FULL, 8)
    assert dispatch(9, 9, True) == (GraphMode.PIECEWISE, 16)  # padded to 16, above 10


@pytest.mark.parametrize(
    ("mode", "uniform", "mixed"),
    [
        ("FULL_AND_PIECEWISE", (GraphMode.FULL, 4), (GraphMode.PIECEWISE, 4)),
        ("PIECEWISE", (GraphMode.PIECEWISE, 4), (GraphMode.PIECEWISE, 4)),
        ("FULL", (GraphMode.FULL, 4), (GraphMode.FULL, 4)),
        ("FULL_DECODE_ONLY", (GraphMode.FULL, 4), (GraphMode.NONE, 3)),
        ("NONE", (GraphMode.NONE, 3), (GraphMode.NONE, 3)),
    ],
)
def test_each_mode(mode, uniform, mixed):
    dispatch = dispatch_of(cudagraph_mode=mode)
    assert dispatch(3, 3, True) == uniform
    assert dispatch(3, 2, False) == mixed


def test_enforce_eager_has_no_graphs():
    assert dispatch_of(enforce_eager=True)(3, 3, True) == (GraphMode.NONE, 3)


def test_v0_uses_its_largest_graph_for_a_full_batch():
    dispatch = dispatch_of((1, 2, 4, 8), max_num_seqs=5, engine_generation="V0", cudagraph_mode="FULL_DECODE_ONLY")
    assert dispatch(5, 5, True) == (GraphMode.FULL, 8)
    assert dispatch(5, 2, False) == (GraphMode.NONE, 5)


@given(st.integers(1, 600), st.booleans(), st.integers(1, 400))
def test_padding_never_shrinks_a_step_and_ends_on_a_captured_size(tokens, uniform, seqs):
    sizes = capture_sizes(seqs, 2048, NEW)
    mode, padded = dispatch_of(sizes, max_num_seqs=seqs)(tokens, tokens, uniform)
    assert padded >= tokens
    assert padded in sizes if mode else padded == tokens
    assert mode != GraphMode.FULL or padded <= seqs
