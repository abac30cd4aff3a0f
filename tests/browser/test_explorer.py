"""The served explorer in a real Chromium: paste, turn, compare, follow a link, download; ten visitors at once.

make test-browser
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from apps.ui.question import Question, check
from simulator.simulate import simulate
from tests.browser.served import answer, browser, served, settled, visit

LOG = Path(__file__).parents[1] / "data" / "logs" / "h200-vllm-0.24.0-llama-3.1-8b.log"
#: A machine that does other things as well is given more time; the bar itself is 2 s and 1.5 s.
PATIENCE = float(os.environ.get("SERVECAST_PATIENCE", "3"))


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with served() as address:
        yield address


@pytest.fixture(scope="module")
def one_chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def chromium(one_chromium: Browser) -> Iterator[Browser]:
    """Give the browser; visitors leave when the test ends."""
    yield one_chromium
    for context in one_chromium.contexts:
        context.close()


def summary_of(**changes: object) -> dict[str, float]:
    scenario = check(Question().with_(**changes)).scenario
    assert scenario is not None
    return simulate(scenario).summary()


def shows(page: Page, value: float) -> None:
    expect(page.locator(".sc-table").first).to_contain_text(f"{value:,.2f}", timeout=60_000)


def test_the_first_answer_is_there_in_two_seconds_and_a_change_in_one_and_a_half(site: str, chromium: Browser) -> None:
    begun = time.monotonic()
    page = visit(chromium, f"{site}/what_if")
    first = time.monotonic() - begun
    settled(page)
    before = answer(page)
    begun = time.monotonic()
    page.get_by_label("Rate, exactly (requests/s)").fill("13")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "before => document.querySelector('.sc-answer').innerText.replace(/\\s+/g, ' ').trim() !== before", arg=before
    )
    change = time.monotonic() - begun
    assert first < 2 * PATIENCE
    assert change < 1.5 * PATIENCE
    assert page.complaints == []  # type: ignore[attr-defined]


def test_a_pasted_log_is_read_and_stands_beside_the_prediction(site: str, chromium: Browser) -> None:
    page = visit(chromium, site)
    area = page.get_by_role("textbox", name="Start line, args or log")
    area.fill(LOG.read_text(encoding="utf-8"))
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("Predicted beside your log")).to_be_visible(timeout=30_000)
    expect(area).to_have_value("vllm serve llama-3.1-8b --max-model-len 16384")
    settled(page)
    assert "z=" in page.url
    assert page.complaints == []  # type: ignore[attr-defined]


def test_a_slider_moved_by_the_keyboard_changes_answer_and_address_and_the_link_restores_it(
    site: str, chromium: Browser
) -> None:
    page = visit(chromium, f"{site}/what_if?num_prompts=200")
    settled(page)
    slider = page.get_by_role("slider", name="Rate (requests/s)")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".sc-answer").first).to_contain_text("At 14 requests/s", timeout=30_000)
    settled(page)
    assert "rate=14" in page.url
    expected = summary_of(rate=14.0, num_prompts=200)
    shows(page, expected["mean_ttft_ms"])
    other = visit(chromium, page.url)
    settled(other)
    shows(other, expected["mean_ttft_ms"])
    assert answer(other) == answer(page)
    assert page.complaints + other.complaints == []  # type: ignore[attr-defined]


def test_two_servers_are_compared_and_pages_keep_the_question(site: str, chromium: Browser) -> None:
    page = visit(chromium, f"{site}/what_if?num_prompts=200")
    page.get_by_role("link", name="Compare").click()
    expect(page.locator(".sc-answer").first).to_contain_text("B is the same as A", timeout=30_000)
    page.get_by_role("button", name="64 sequences").click()
    expect(page.locator(".sc-answer").first).to_contain_text("B against A", timeout=30_000)
    settled(page)
    assert "b_server=" in page.url
    assert "num_prompts=200" in page.url
    page.get_by_role("link", name="Trust").click()
    expect(page.locator(".sc-answer").first).to_contain_text("Calibrated for this model", timeout=30_000)
    assert page.complaints == []  # type: ignore[attr-defined]


def test_the_report_the_scenario_and_the_results_are_downloaded(site: str, chromium: Browser, tmp_path: Path) -> None:
    page = visit(chromium, f"{site}/what_if?num_prompts=100")
    settled(page)
    texts = {}
    for label, name in (("Report", "report.html"), ("Scenario", "scenario.json"), ("Results (JSON)", "result.json")):
        with page.expect_download(timeout=60_000) as coming:
            page.get_by_role("button", name=label, exact=True).click()
        assert coming.value.suggested_filename == name
        coming.value.save_as(tmp_path / name)
        texts[name] = (tmp_path / name).read_text(encoding="utf-8")
    expected = summary_of(num_prompts=100)
    assert texts["report.html"].lower().startswith("<!doctype html")
    result = json.loads(texts["result.json"])
    assert {key: result[key] for key in expected} == expected
    assert json.loads(texts["scenario.json"])["workload"]["num_prompts"] == 100
    assert page.complaints == []  # type: ignore[attr-defined]


def test_a_bad_upload_of_five_megabytes_is_a_sentence(site: str, chromium: Browser) -> None:
    page = visit(chromium, f"{site}/what_if?num_prompts=100&load=file")
    for name, content in (
        ("noise.csv", os.urandom(5_000_000)),
        ("long.csv", b"arrival_s,prompt_tokens,output_tokens\n" + b"0.0,100,10\n" * 450_000),
        ("words.csv", b"what,is,this\n" + b"some,words,in a row\n" * 8),
    ):
        page.locator("input[type=file]").first.set_input_files(
            {"name": name, "mimeType": "text/csv", "buffer": content}
        )
        words = {"noise.csv": "UTF-8", "long.csv": "lines", "words.csv": "column"}[name]
        expect(page.locator(".sc-problem").filter(has_text=words).first).to_be_visible(timeout=30_000)
        settled(page)
        page.get_by_role("button", name="Remove").first.click()
    assert page.complaints == []  # type: ignore[attr-defined]


def test_a_search_for_the_capacity_shows_its_progress_and_can_be_cancelled(site: str, chromium: Browser) -> None:
    page = visit(chromium, f"{site}/capacity")
    page.get_by_role("button", name="Find the capacity").click()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible(timeout=30_000)
    expect(page.locator(".sc-answer").first).to_contain_text("simulations", timeout=240_000)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Find the capacity")).to_be_visible(timeout=30_000)
    assert page.complaints == []  # type: ignore[attr-defined]


def test_ten_visitors_at_once_see_their_own_numbers(site: str, chromium: Browser) -> None:
    rates = [4.0 + number for number in range(10)]
    pages = [visit(chromium, f"{site}/what_if?num_prompts=150&rate={rate}") for rate in rates]
    for page, rate in zip(pages, rates, strict=True):
        shows(page, summary_of(rate=rate, num_prompts=150)["mean_ttft_ms"])
        expect(page.locator(".sc-answer").first).to_contain_text(f"At {rate:g} requests/s")
    for page in pages:
        assert page.complaints == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["", "what_if", "compare", "capacity", "trust"])
def test_a_narrow_window_needs_no_scrolling_to_the_side(site: str, chromium: Browser, name: str) -> None:
    page = visit(chromium, f"{site}/{name}?num_prompts=100", width=390, height=844)
    settled(page)
    wide = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth - window.innerWidth")
    assert wide <= 0
