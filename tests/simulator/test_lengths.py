import numpy as np
import pytest

from simulator.errors import InputError
from simulator.lengths import MAX_TOKENS, parse


def draw(text: str, n: int = 50_000):
    return parse(text).sample(n, np.random.default_rng(0))


def test_a_plain_number_is_a_constant():
    assert draw("512", 3).tolist() == [512, 512, 512]
    assert parse("512").mean == 512


def test_uniform_includes_both_ends():
    assert sorted(set(draw("uniform:50:53").tolist())) == [50, 51, 52, 53]


def test_lognormal_has_the_median_and_stays_inside_its_limits():
    lengths = draw("lognormal:300:1.0:8:4000")
    assert lengths.min() == 8
    assert lengths.max() == 4000
    assert np.median(lengths) == pytest.approx(300, rel=0.02)


def test_lengths_without_limits_are_at_least_one_and_never_overflow():
    assert draw("normal:2:5").min() == 1
    assert draw("lognormal:300:400").max() == MAX_TOKENS


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "uniform:50:300",
        "lognormal:300:1.0:8:4000",
        "lognormal:180:0.8",
        "normal:100:40:90",
        "normal:9:0",
        "choice:10,20,90",
    ],
)
def test_the_sample_mean_is_the_stated_mean(text):
    lengths = draw(text, 200_000)
    margin = 4 * lengths.std() / np.sqrt(len(lengths)) + 0.05  # rounding to whole tokens
    assert abs(lengths.mean() - parse(text).mean) < margin


def test_the_same_seed_gives_the_same_lengths():
    assert np.array_equal(draw("lognormal:300:1"), draw("lognormal:300:1"))


@pytest.mark.parametrize(
    "text",
    ["", "-5", "0", "5.5", "nan", "inf", "uniform:5", "uniform:9:5", "uniform:0:5", "uniform:1:2:3", "lognormal:300",
     "lognormal:nan:1", "lognormal:300:-1", "lognormal:300:inf", "lognormal:300:1:9:8", "lognormal:0:1", "normal:x:1",
     "choice:", "choice:4,", "poisson:3", "512:", "99999999999999999999"],
)  # fmt: skip
def test_nonsense_is_refused_in_one_line_that_quotes_it(text):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)
