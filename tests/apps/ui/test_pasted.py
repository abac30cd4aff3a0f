"""What people paste becomes a line that can be run; sliders rewrite it and change nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.ui import choices
from apps.ui.line import with_flag, with_model, written
from apps.ui.pasted import logged, read_pasted
from apps.ui.question import Question, check
from simulator.command_line import parse
from simulator.errors import ServecastError
from simulator.startup_log import read_log

LOGS = sorted(Path("tests/data/logs").glob("*.log"))

LINES = [
    "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384",
    "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.11.0 --model Qwen/Qwen3-14B -tp 2 --enforce-eager",
    "args:\n  - --model=Qwen/Qwen3-14B\n  - --gpu-memory-utilization=0.85\n  - --no-enable-prefix-caching\n",
    "VLLM_USE_V1=0 vllm serve Qwen/Qwen3-14B --cuda-graph-sizes 1 2 4",
    'vllm serve Qwen/Qwen3-14B -O \'{"cudagraph_mode": "NONE"}\'',
    "LLM(model='Qwen/Qwen3-14B', max_num_seqs=32)",
]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_start_up_log_becomes_its_start_line_and_keeps_its_memory(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = read_pasted(text)
    assert parse(found["server"]).given["max_model_len"] in (8192, 16384)
    assert found["vllm_version"] == "0.24.0"
    whole, kept = read_log(text), logged(found["log"])
    assert kept is not None
    assert kept == whole.model_copy(update={"stats": ()})
    assert check(Question().with_(**found)).problems == {}


@pytest.mark.parametrize("text", LINES)
def test_a_line_written_again_says_the_same(text: str) -> None:
    args = parse(text)
    again = parse(written(args))
    for name in ("model", "given", "usage_context", "env"):
        assert getattr(again, name) == getattr(args, name)


@pytest.mark.parametrize("text", LINES)
def test_a_slider_changes_its_flag_and_no_other(text: str) -> None:
    before, after = parse(text), parse(with_flag(text, "max_num_batched_tokens", 3072))
    assert after.given == {**before.given, "max_num_batched_tokens": 3072}
    assert parse(with_flag(text, "enforce_eager", False)).given["enforce_eager"] is False
    assert "max_num_seqs" not in parse(with_flag(text, "max_num_seqs", None)).given


def test_a_model_can_be_picked_whatever_the_line_says() -> None:
    assert with_model("vllm serve a/b --max-num-seqs 4", "c/d") == "vllm serve c/d --max-num-seqs 4"
    assert with_model("half a li", "c/d") == "vllm serve c/d"


def test_the_version_of_an_image_is_taken() -> None:
    assert read_pasted(LINES[1])["vllm_version"] == "0.11.0"


@pytest.mark.parametrize("text", ["", "rm -rf /", "INFO 01-01 EngineCore\nINFO 01-02 EngineCore", "x" * 1_000_001])
def test_what_starts_no_server_is_one_sentence(text: str) -> None:
    with pytest.raises(ServecastError) as caught:
        read_pasted(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "tokens", "result"),
    [
        ("512", 64, "64"),
        ("lognormal:300:1.0:8:4000", 128, "lognormal:128:1.0:8:4000"),
        ("lognormal:300:1.0:8:4000", 8192, "lognormal:8192:1.0:8:65536"),
        ("normal:300:20", 100, "normal:100:20"),
    ],
)
def test_a_slider_moves_the_middle_of_a_length(spec: str, tokens: int, result: str) -> None:
    assert choices.with_middle(spec, tokens) == result
    assert choices.middle(result) == tokens


def test_lengths_without_a_middle_have_no_slider() -> None:
    assert choices.middle("uniform:5:9") is None
    assert choices.middle("half typ") is None
