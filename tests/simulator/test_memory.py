"""Memory from configuration alone against logged servers; refusals in vLLM's words; fixes that hold."""

from __future__ import annotations

import pytest

from simulator.errors import DoesNotFitError, UnsupportedError
from simulator.gpu_spec import GIB
from simulator.memory import MemoryPlan, plan_memory
from simulator.memory_terms import engine_kind, graph_bytes, weight_bytes
from tests.simulator.memory_cases import H100, H200, LOGS, MODELS, ROWS, RTX_4090, card, settings

LLAMA, QWEN = MODELS["Llama-3.1-8B"], MODELS["Qwen2.5-32B"]
LLAMA_70B = MODELS["Llama-70B"].model_copy(update={"quantization": None})

#: Allowed error of the KV bytes from configuration alone, per cent: H100 and H200 bf16 dense rows, other V1 rows, V0.
#: In sample: the overheads were fitted on these rows.
TOLERANCE = {"K01": 1, "K13": 1, "K14": 1, "K15": 1, "K08": 1, "K02": 6, "K05": 6, "K03": 6, "K04": 6, "K06": 10}


@pytest.mark.parametrize("name", TOLERANCE)
def test_kv_bytes_from_configuration_alone(name):
    row = ROWS[name]
    available = plan_memory(row.engine, row.model, row.gpu).available_kv_bytes / GIB
    assert available == pytest.approx(row.logged["kv_gib"], rel=TOLERANCE[name] / 100)


@pytest.mark.parametrize(
    ("name", "off_gib"), [("K03", 0.001), ("K06", 0.01), ("K08", 0.015), ("K14", 0.005), ("K11", None)]
)
def test_weights_are_those_the_log_names(name, off_gib):
    row = ROWS[name]
    weights = weight_bytes(row.engine, row.model) / GIB
    expected = row.logged.get("weights_gib", 12.55)
    assert weights == pytest.approx(expected, abs=off_gib or 0.005)


@pytest.mark.parametrize(
    ("changes", "gib"),
    [({}, 14.99), ({"quantization": "fp8"}, 8.49), ({"quantization": "awq"}, 5.37), ({"cpu_offload_gb": 10}, 4.99)],
)
def test_embeddings_stay_in_16_bit_when_linear_layers_are_quantised(changes, gib):
    assert weight_bytes(settings(**changes), LLAMA) / GIB == pytest.approx(gib, abs=0.02)


def test_an_unknown_quantization_is_named():
    with pytest.raises(UnsupportedError, match="quantization 'squeeze'"):
        weight_bytes(settings(quantization="squeeze"), LLAMA)


def test_all_experts_count_and_are_split_over_the_ranks():
    row = ROWS["K09"]
    assert weight_bytes(row.engine, row.model) / GIB == pytest.approx(79.74, rel=0.01)


def test_graphs_are_inside_the_budget_from_0_20_but_for_model_runner_v2_of_0_22_to_0_24():
    def budget(model, version):
        return plan_memory(settings(vllm_version=version), model, H200).term("cuda_graphs").inside_budget

    assert [budget(QWEN, version) for version in ("0.19.0", "0.20.0", "0.24.0")] == [False, True, True]
    assert [budget(LLAMA, version) for version in ("0.19.0", "0.20.0", "0.24.0", "0.28.0")] == [
        False,
        True,
        False,
        True,
    ]
    assert engine_kind(settings(vllm_version="0.23.0", quantization="fp8"), LLAMA) == "runner_v1"


def test_eager_has_no_graphs_and_fewer_tokens_mean_less_activation():
    assert graph_bytes(settings(enforce_eager=True), QWEN) == 0
    small, large = (
        plan_memory(settings(max_num_batched_tokens=tokens, max_num_seqs=seqs), QWEN, H200)
        for tokens, seqs in ((2048, 256), (8192, 1024))
    )
    assert small.term("activation").bytes < large.term("activation").bytes / 3
    assert small.available_kv_bytes > large.available_kv_bytes


def test_the_budget_adds_up():
    plan = plan_memory(settings(), QWEN, H200)
    assert sum(term.bytes for term in plan.terms if term.inside_budget) == plan.requested_bytes
    assert plan.usable_blocks == plan.num_gpu_blocks - 1
    assert plan.fits
    assert plan.refusal is None
    assert plan.fixes == ()
    assert MemoryPlan.model_validate_json(plan.model_dump_json()) == plan


def test_v0_plans_swap_blocks_and_has_no_null_block():
    row = ROWS["K06"]
    plan = plan_memory(row.engine, row.model, row.gpu)
    assert plan.num_cpu_blocks == 9362
    assert plan.usable_blocks == plan.num_gpu_blocks


def test_v0_refuses_a_length_above_the_pool_in_its_own_words():
    row = ROWS["K04"]
    plan = plan_memory(row.engine, row.model, row.gpu)
    tokens = plan.num_gpu_blocks * 16
    assert plan.refusal == (
        f"The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache "
        f"({tokens}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the"
        " engine."
    )
    # a shorter length also shrinks V0's profiling run, so more starts than the pool of the refused run would hold
    assert plan.largest_max_model_len > tokens


@pytest.mark.parametrize(("version", "whose"), [("0.10.2", "models's"), ("0.22.0", "model's")])
def test_v1_refuses_a_length_above_the_pool_in_its_own_words(version, whose):
    engine = settings(vllm_version=version, max_model_len=131072, max_num_batched_tokens=2048, max_num_seqs=256)
    plan = plan_memory(engine, LLAMA, RTX_4090)
    available = round(plan.available_kv_bytes / GIB, 2)
    start = (
        f"To serve at least one request with the {whose} max seq len (131072), (16.0 GiB KV cache is needed, which is "
        f"larger than the available KV cache memory ({available} GiB). Based on the available memory, the estimated "
        f"maximum model length is {plan.num_gpu_blocks * 16}. Try increasing `gpu_memory_utilization` or decreasing "
        "`max_model_len` when initializing the engine."
    )
    assert plan.refusal is not None
    assert plan.refusal.startswith(start)
    assert plan.largest_max_model_len == plan.num_gpu_blocks * 16


@pytest.mark.parametrize("utilization", [0.05, 0.19])
def test_no_room_beside_the_weights_is_refused_and_logged_negative(utilization):
    plan = plan_memory(settings(gpu_memory_utilization=utilization), LLAMA, H100)
    assert plan.refusal is not None
    assert plan.refusal.startswith(
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine"
    )
    assert plan.available_kv_bytes < 0
    assert (plan.num_gpu_blocks, plan.usable_blocks, plan.kv_tokens) == (0, 0, 0)
    assert plan.largest_max_model_len == 0


def test_strict_raises_with_the_refusal():
    with pytest.raises(DoesNotFitError, match="Llama-70B does not fit on H100: No available memory"):
        plan_memory(settings(), LLAMA_70B, H100, strict=True)


def test_an_override_of_one_block_is_honoured_and_then_refused():
    plan = plan_memory(settings(num_gpu_blocks_override=1), LLAMA, H200)
    assert (plan.num_gpu_blocks, plan.usable_blocks, plan.largest_max_model_len) == (1, 0, 16)
    assert not plan.fits
    assert [fix.flags for fix in plan.fixes] == [
        "drop --num-gpu-blocks-override", "--num-gpu-blocks-override 1024", "--max-model-len 16",
    ]  # fmt: skip


def test_kv_cache_memory_bytes_ignores_the_utilization():
    plans = [
        plan_memory(settings(kv_cache_memory_bytes=4 * GIB, gpu_memory_utilization=share), LLAMA, H200)
        for share in (0.2, 0.9)
    ]
    assert {plan.num_gpu_blocks for plan in plans} == {2048}
    assert not plans[0].term("kv_cache").inside_budget


def test_auto_length_shrinks_to_what_fits():
    engine = settings(max_model_len=131072, auto_max_model_len=True, max_num_batched_tokens=2048, max_num_seqs=256)
    plan = plan_memory(engine, LLAMA, RTX_4090)
    assert plan.fits
    assert plan.max_model_len == plan.largest_max_model_len == plan.num_gpu_blocks * 16
    assert plan_memory(engine, LLAMA, H200).max_model_len == 131072
    refused = plan_memory(engine, LLAMA_70B, H100)
    assert refused.refusal is not None
    assert refused.refusal.startswith("Cannot auto-fit max_model_len: not enough GPU memory")


def apply(flags: str, engine, gpu):
    """Settings after a fix's *flags*."""
    words = flags.split()
    for flag, value in zip(words[::2], words[1::2], strict=True):
        if flag == "--gpu":
            gpu = {"H200": H200, "H100": H100}[value]
            continue
        name = flag.removeprefix("--").replace("-", "_")
        kind = type(getattr(engine, name) or "")
        engine = engine.model_copy(update={name: kind(value)})
    return engine, gpu


@pytest.mark.parametrize(
    ("changes", "model", "gpu", "first"),
    [
        (
            {"max_model_len": 131072, "max_num_batched_tokens": 2048, "max_num_seqs": 256},
            LLAMA,
            RTX_4090,
            "--max-model-len",
        ),
        ({"max_model_len": 131072}, LLAMA_70B, H100, "--tensor-parallel-size 4"),
        ({"max_model_len": 4096, "gpu_memory_utilization": 0.1}, LLAMA, H100, "--gpu-memory-utilization 0.22"),
        ({"max_model_len": 131072, "gpu_memory_utilization": 0.05}, LLAMA, H100, "--gpu-memory-utilization 0.41"),
        ({"max_model_len": 32768, "gpu_memory_utilization": 0.85}, QWEN, H100, "--gpu-memory-utilization"),
    ],
)
def test_three_fixes_are_offered_and_every_one_starts(changes, model, gpu, first):
    engine = settings(**changes)
    plan = plan_memory(engine, model, gpu, gpus=(H100, H200))
    assert len(plan.fixes) == 3
    assert plan.fixes[0].flags.startswith(first)
    for fix in plan.fixes:
        again = plan_memory(*apply_in_order(fix.flags, engine, model, gpu))
        assert again.fits, fix
        assert (again.kv_tokens, again.max_model_len) == (fix.kv_tokens, fix.max_model_len)


def test_a_model_far_too_large_is_offered_several_bigger_gpus():
    huge = LLAMA_70B.model_copy(update={"num_hidden_layers": 460})
    plan = plan_memory(settings(max_model_len=131072), huge, RTX_4090, gpus=(H100, H200))
    assert [fix.flags for fix in plan.fixes] == [
        "--gpu H200 --tensor-parallel-size 8",
        "--gpu H200 --tensor-parallel-size 8 --quantization fp8",
        "--gpu H200 --tensor-parallel-size 4 --quantization awq",
    ]


def apply_in_order(flags, engine, model, gpu):
    engine, gpu = apply(flags, engine, gpu)
    return engine, model, gpu


def test_one_token_more_than_the_largest_length_does_not_start():
    def plan(length):
        engine = settings(max_model_len=length, max_num_batched_tokens=2048, max_num_seqs=256)
        return plan_memory(engine, LLAMA, RTX_4090)

    longest = plan(131072).largest_max_model_len
    assert (plan(longest).fits, plan(longest + 1).fits) == (True, False)


def test_doubts_are_noted():
    row = ROWS["K07"]
    assert any("multimodal" in note for note in plan_memory(row.engine, row.model, row.gpu).notes)
    plan = plan_memory(settings(num_gpu_blocks_override=50_000), LLAMA, RTX_4090)
    assert any("more than the GPU has" in note for note in plan.notes)


def test_a_close_call_is_called_close():
    longest = plan_memory(settings(max_model_len=131072, max_num_seqs=256), LLAMA, RTX_4090).largest_max_model_len
    near, far = (
        plan_memory(settings(max_model_len=n, max_num_seqs=256), LLAMA, RTX_4090) for n in (longest, longest // 2)
    )
    assert "within this estimate's error" in near.notes[0]
    assert far.notes == ()


def test_a_smaller_card_never_holds_more():
    sizes = [plan_memory(settings(), LLAMA, card("x", gib)).num_gpu_blocks for gib in (10, 16, 24, 40, 80, 140)]
    assert sizes == sorted(sizes)


def test_the_three_logs_are_there():
    assert set(LOGS) == {"llama-3.1-8b", "qwen2.5-1.5b", "qwen2.5-32b"}
