"""Figures keep what the eye needs: colours with contrast in both themes, units, nothing drawn without bound."""

from __future__ import annotations

import numpy as np
import pytest

from apps.ui import tasks, words
from apps.ui.figures import style
from apps.ui.figures.latency import distribution, shares_of
from apps.ui.figures.strip import MAX_REQUESTS, most_telling_window, strip
from apps.ui.question import Question, check

COLOURS = [style.BLUE, style.ORANGE, style.GREEN, style.PINK, style.OCHRE, style.GREY]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("page", ["#ffffff", "#12161b"])
@pytest.mark.parametrize("colour", COLOURS)
def test_every_colour_has_a_contrast_of_three_on_both_pages(colour: str, page: str) -> None:
    light, dark = sorted((luminance(colour), luminance(page)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3


def test_a_distribution_is_thinned_but_keeps_its_tail() -> None:
    values = np.random.default_rng(0).exponential(100.0, 20_000)
    x, shares = shares_of(values)
    assert len(x) <= 400
    assert x[-20:] == sorted(values)[-20:]
    assert shares[-1] == 100
    assert shares_of([np.nan]) == ([], [])
    assert distribution("TTFT", {"none": shares_of([])}).layout.xaxis.title.text == "ms"


def test_a_strip_draws_a_bounded_number_of_requests_and_says_what_it_left_out() -> None:
    scenario = check(Question(rate=float("inf"), num_prompts=400, output_tokens="30")).scenario
    assert scenario is not None
    run = tasks.run(scenario.to_json(None))
    start, end = most_telling_window(run.requests, 5.0)
    worst = run.requests.loc[run.requests["ttft_s"].idxmax()]
    assert start <= worst["sent_s"] <= end
    figure, left_out = strip(run.requests, run.steps, 0.0, 60.0, run.limit_tokens)
    rows = {y for trace in figure.data if trace.name in ("waits", "prefill", "decode") for y in trace.y}
    assert len(rows) <= MAX_REQUESTS
    assert f"{400 - MAX_REQUESTS} more requests" in left_out


@pytest.mark.parametrize(
    ("value", "text"),
    [(6.34, "6.3 ms"), (114.7, "115 ms"), (999.7, "1 s"), (1560.0, "1.56 s"), (125_000.0, "2 min 5 s"),
     (None, "no value")],
)  # fmt: skip
def test_milliseconds_as_people_say_them(value: float | None, text: str) -> None:
    assert words.ms(value) == text


def test_ends_of_intervals_have_three_digits_that_count() -> None:
    assert [words.three(value) for value in (0.0, 6.017, 123.4, 1477.64)] == ["0", "6.02", "123", "1,480"]
