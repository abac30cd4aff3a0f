"""Every page in every state it can be in: at first, half typed, does not fit, saturated, not calibrated, linked."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from apps.ui.question import Question, check
from simulator.simulate import simulate

EXPLORER = str(Path(__file__).parents[3] / "apps" / "explorer.py")
LOG = Path("tests/data/logs/h200-vllm-0.24.0-llama-3.1-8b.log")
SMALL = {"num_prompts": "80"}


def opened(page: str = "", **query: str) -> AppTest:
    """Return the page of a visitor who followed a link."""
    at = AppTest.from_file(EXPLORER, default_timeout=120)
    for name, value in query.items():
        at.query_params[name] = value
    at._page_hash = calc_hash(page)
    at.run()
    assert not at.exception, [(each.value, each.stack_trace) for each in at.exception]
    return at


def blocks(at: AppTest, name: str) -> list[str]:
    """Return the texts of the page's own blocks of one class."""
    found = [element.proto.body for element in at.get("html")]
    return [html.unescape(re.sub(r"<[^>]+>", " ", body)) for body in found if f'class="{name}' in body]


def said(at: AppTest) -> str:
    """Return the answer of the page."""
    return " ".join(" ".join(blocks(at, "sc-answer")).split())


def problems(at: AppTest) -> str:
    return " ".join(blocks(at, "sc-problem"))


def kind(at: AppTest) -> str:
    return re.findall(r'class="sc-answer (\w+)"', " ".join(element.proto.body for element in at.get("html")))[0]


def charts(at: AppTest) -> list[dict[str, Any]]:
    return [json.loads(element.proto.spec) for element in at.get("plotly_chart")]


def test_fits_says_so_and_shows_where_the_memory_goes() -> None:
    at = opened()
    assert kind(at) == "yes"
    assert "Llama-3.1-8B fits on one H200" in said(at)
    names = {trace["name"] for trace in charts(at)[0]["data"]}
    assert {"weights", "KV cache", "CUDA graphs (outside the budget)"} <= names


def test_a_model_that_does_not_fit_gets_the_refusal_and_fixes_that_were_checked() -> None:
    at = opened(gpu="L4", server="vllm serve meta-llama/Llama-3.1-8B --max-model-len 131072")
    assert kind(at) == "no"
    assert "does not fit" in said(at)
    assert "max seq len" in said(at)
    assert "--max-model-len" in " ".join(blocks(at, "sc-scroll"))
    assert kind(opened("what_if", gpu="L4", server="vllm serve meta-llama/Llama-3.1-8B")) == "no"


def test_a_pasted_log_becomes_the_server_and_stands_beside_the_prediction() -> None:
    at = opened()
    at.text_area(key="in_server").set_value(LOG.read_text(encoding="utf-8")).run()
    assert at.text_area(key="in_server").value == "vllm serve llama-3.1-8b --max-model-len 16384"
    assert "919,824" in " ".join(blocks(at, "sc-scroll"))
    rows = {tuple(trace["y"]) for trace in charts(at)[0]["data"]}
    assert rows == {("predicted",), ("logged",)}
    assert "z" in at.query_params


def test_what_is_pasted_wrong_is_a_sentence_and_the_last_answer_stays() -> None:
    at = opened("what_if", **SMALL)
    before = said(at)
    at.text_area(key="in_server").set_value("vllm serve meta-llama/Llama-3.1-8B --max-num-seqs many").run()
    assert "max-num-seqs" in problems(at)
    assert said(at) == before
    at.text_area(key="in_server").set_value("half a li").run()
    assert "no vLLM server is started" in problems(at)
    assert said(at) == before


def test_nothing_is_simulated_while_an_input_is_half_typed() -> None:
    at = opened("what_if", **SMALL)
    before = said(at)
    at.text_input(key="in_prompt_tokens").set_value("lognormal:3").run()
    assert "not understood" in problems(at)
    assert said(at) == before
    assert opened("what_if", prompt_tokens="lognormal:3").get("html")
    assert "One more input is needed" in said(opened("what_if", prompt_tokens="lognormal:3"))


def test_what_if_shows_the_simulations_numbers_with_intervals() -> None:
    at = opened("what_if", **SMALL)
    scenario = check(Question(num_prompts=80)).scenario
    assert scenario is not None
    summary = simulate(scenario).summary()
    numbers = " ".join(blocks(at, "sc-scroll"))
    for name in ("ttft", "tpot", "itl", "e2el"):
        for statistic in ("mean", "p50", "p90", "p95", "p99"):
            assert f"{summary[f'{statistic}_{name}_ms']:,.2f}" in numbers
    assert "90 % interval of 20 runs" in " ".join(caption.value for caption in at.caption)
    assert kind(at) == "yes"
    assert len(charts(at)) == 6
    for one in charts(at):
        axes = {name: axis.get("title", {}).get("text") for name, axis in one["layout"].items() if "axis" in name[:5]}
        assert all(title for name, title in axes.items() if name.startswith("yaxis"))
        assert any(title for name, title in axes.items() if name.startswith("xaxis"))


def test_a_slider_changes_the_question_the_answer_and_the_link() -> None:
    at = opened("what_if", **SMALL)
    before = said(at)
    at.select_slider(key="in_rate_slider").set_value(20.0).run()
    assert not at.exception
    assert "At 20 requests/s" in said(at)
    assert said(at) != before
    assert at.query_params["rate"] == "20.0"
    assert said(opened("what_if", rate="20.0", **SMALL)) == said(at)


def test_a_knob_writes_its_flag_into_the_line() -> None:
    at = opened()
    at.select_slider(key="in_flag_max_num_seqs").set_value(64).run()
    assert at.text_area(key="in_server").value.endswith("--max-num-seqs 64")
    at.selectbox(key="in_model").set_value("Qwen/Qwen3-14B").run()
    assert at.text_area(key="in_server").value.startswith("vllm serve Qwen/Qwen3-14B --max-model-len 16384")


def test_saturation_says_that_waiting_times_mean_nothing() -> None:
    at = opened("what_if", rate="200", num_prompts="2000", output_tokens="256", prompt_tokens="1024")
    assert kind(at) == "no"
    assert "does not keep up" in said(at)


def test_a_card_without_a_profile_is_marked_on_every_page() -> None:
    for page in ("what_if", "trust"):
        at = opened(page, profile="", gpu="L40S", **SMALL)
        text = said(at) + " ".join(blocks(at, "sc-badges"))
        assert "not calibrated" in text.lower() or "not a calibrated one" in text


def test_other_loads_are_answered() -> None:
    at = opened("what_if", load="concurrency", concurrency="4", **SMALL)
    assert "With 4 clients" in said(at)
    at = opened("what_if", load="trace", over_length="drop", **SMALL)
    assert "azure-conv-2023" in said(at)
    csv = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i},100,5\n" for i in range(9))
    assert "requests of your file" in said(opened("what_if", load="file", requests_csv=csv))


def test_compare_asks_for_a_change_then_tells_real_from_noise() -> None:
    at = opened("compare", **SMALL)
    assert "B is the same as A" in said(at)
    at.button(key="idea_max_num_seqs").click().run()
    assert not at.exception
    at = opened("compare", b_server="vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 4", **SMALL)
    assert "TTFT p50" in said(at)
    assert "(worse)" in said(at)
    assert "real" in " ".join(blocks(at, "sc-scroll"))
    at.select_slider(key="in_replications").set_value(0).run()
    assert "One run each" in said(at)


def test_compare_shows_the_command_lines_rows(capsys: pytest.CaptureFixture[str]) -> None:
    from apps.cli import main

    b = "vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 4"
    asked = Question()
    code = main([
        "compare", asked.server, b, "--profile", asked.profile, "--rate", "12", "--num-prompts", "80",
        "--prompt-tokens", asked.prompt_tokens, "--output-tokens", asked.output_tokens, "--replications", "4",
    ])  # fmt: skip
    printed = [re.split(r"\s{2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
    rows = {cells[0]: cells[1:] for cells in printed if len(cells) == 9 and not cells[0].startswith("-")}
    assert code == 0
    assert len(rows) > 10
    shown = " ".join(" ".join(blocks(opened("compare", b_server=b, **SMALL), "sc-scroll")).split())
    for cells in list(rows.values())[1:]:
        assert " ".join(cells) in shown


def test_capacity_waits_to_be_asked_shows_progress_and_can_be_cancelled() -> None:
    at = opened("capacity")
    assert "How much load" in said(at)
    at.button(key="capacity_start").click().run()
    assert "Searching" in said(at) or "Waiting" in said(at)
    at.button(key="capacity_cancel").click().run()
    assert "How much load" in said(at)


def test_capacity_says_that_no_load_meets_an_slo_and_what_it_misses() -> None:
    at = opened("capacity", slo="ttft_p99=1ms")
    at.button(key="capacity_start").click().run()
    until(at, lambda: "No load meets" in said(at))
    assert kind(at) == "no"
    assert charts(at)


def test_an_slo_that_cannot_be_read_is_a_sentence_beside_it() -> None:
    at = opened("capacity", slo="ttft=fast")
    assert "is no target" in problems(at)
    assert "One more input" in said(at)


def test_trust_shows_measured_runs_and_the_range_with_this_question_in_it() -> None:
    at = opened("trust", **SMALL)
    assert kind(at) == "yes"
    assert "Calibrated for this model" in said(at)
    shown = " ".join(blocks(at, "sc-scroll"))
    assert "c24" in shown
    assert "sat48" in shown  # a miss, shown like a hit
    assert "in 90 % interval" in shown
    at = opened("trust", load="concurrency", concurrency="400", num_prompts="500", output_tokens="32")
    assert "leaves the measured range" in said(at)


def test_a_damaged_link_opens_with_a_sentence() -> None:
    at = opened("", z="%%%", rate="many")
    assert "damaged" in problems(at)
    assert "the default is taken" in problems(at)
    assert kind(at) == "yes"


def test_a_saved_scenario_stands_in_for_server_and_load() -> None:
    scenario = check(Question(num_prompts=80, rate=15.0)).scenario
    assert scenario is not None
    at = opened("what_if", scenario_json=scenario.to_json(None))
    wanted = simulate(scenario).summary()
    assert f"{wanted['mean_ttft_ms']:,.2f}" in " ".join(blocks(at, "sc-scroll"))
    at.button(key="forget_scenario").click().run()
    assert "scenario_json" not in at.query_params


def test_start_again_forgets_everything() -> None:
    at = opened("", gpu="L4", rate="3")
    at.button(key="reset").click().run()
    assert at.query_params == {} or not dict(at.query_params)
    assert "on one H200" in said(at)


def until(at: AppTest, ready: Callable[[], bool], limit_s: float = 120) -> None:
    """Run the page again, as its timer would, until it is *ready*."""
    begun = time.monotonic()
    while not ready():
        assert time.monotonic() - begun < limit_s, said(at)
        time.sleep(0.2)
        at.run()


def test_a_stranger_s_link_never_breaks_a_page() -> None:
    for query in (
        {"rate": "1e300"},
        {"rate": "inf", "num_prompts": "50"},
        {"concurrency": "-9007199254740991", "load": "concurrency"},
        {"prompt_tokens": "1" * 3000},
        {"server": "<script>alert(1)</script>"},
        {"gpu": "<b>x</b>", "profile": "../x", "vllm_version": "'"},
        {"num_prompts": "0"},
        {"b_server": "x", "b_gpu": "nothing"},
    ):
        opened("compare" if "b_server" in query else "what_if", **query)
