import math

import numpy as np
import pytest

from simulator.errors import InputError
from simulator.rates import arrival_times, parse_shape
from simulator.workload import RateWorkload, traffic


def times(shape: str, n: int, rate: float = 1.0, burstiness: float = 1.0):
    return arrival_times(n, rate, burstiness, np.random.default_rng(5), parse_shape(shape))


def test_steps_send_at_the_rate_of_each_time():
    even = times("steps:0=1,10=4,20=0.5", 60, rate=2.0, burstiness=math.inf)
    # 2/s up to 10 s, 8/s up to 20 s, then 1/s for ever.
    assert even[:3].tolist() == [0.5, 1.0, 1.5]
    assert [int((even <= t).sum()) for t in (10, 20)] == [20, 60]
    assert times("steps:0=1,10=4,20=0.5", 102, rate=2.0, burstiness=math.inf)[-1] == 22.0


def test_steps_with_a_period_begin_again():
    even = times("steps:0=2,30=0:60", 180, burstiness=math.inf)
    assert even[59] == pytest.approx(30)
    assert even[60] == pytest.approx(60.5)
    assert even[-1] == pytest.approx(150)


def test_a_day_has_its_peak_and_its_trough():
    arrivals = times("diurnal:0.8:1000:250", 40_000, rate=40.0)
    assert arrivals[-1] == pytest.approx(1000)  # a whole period: the mean is the rate
    counts = np.histogram(arrivals, bins=10, range=(0, 1000))[0]
    middle = np.arange(50, 1000, 100)
    expected = 4000 * (1 + 0.8 * np.cos(2 * math.pi * (middle - 250) / 1000) * np.sinc(0.1))
    assert counts == pytest.approx(expected, rel=0.1)
    assert parse_shape("diurnal:0.8:1000:250").factor(np.array([250.0, 750.0])) == pytest.approx([1.8, 0.2])


@pytest.mark.parametrize("shape", ["diurnal:1:600", "steps:0=1,5=3,9=0,12=2:40", "steps:0=0,7=2"])
def test_the_integral_of_the_factor_is_inverted(shape):
    found = parse_shape(shape)
    grid = np.linspace(0, 1300, 1_300_001)
    area = np.concatenate(([0.0], np.cumsum(found.factor(grid[:-1] + 0.0005) * np.diff(grid))))
    wanted = np.array([0.5, 3.0, 44.0, 301.0])
    assert np.interp(found.when(wanted), grid, area) == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize("burstiness", [0.25, 4.0])
def test_gaps_keep_their_variation_at_any_rate(burstiness):
    arrivals = times("steps:0=1,1000=5", 40_000, rate=10.0, burstiness=burstiness)
    for begin, end in ((0, 1000), (1000, arrivals[-1])):
        gaps = np.diff(arrivals[(arrivals > begin) & (arrivals < end)])
        assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.05)


def test_a_rate_that_ends_says_how_far_it_came():
    with pytest.raises(InputError, match="after 10 of 30 arrivals"):
        traffic(RateWorkload(rate=1, burstiness=math.inf, num_prompts=30, rate_shape="steps:0=1,10=0"), 0)


def test_arrivals_that_end_too_soon_to_show_the_shape_are_remarked():
    assert "raise --num-prompts" in traffic(RateWorkload(rate=1, num_prompts=30, rate_shape="diurnal:0.5"), 0).notes[0]
    assert traffic(RateWorkload(rate=1, num_prompts=30, rate_shape="diurnal:0.5:25s"), 0).notes == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sine:1", "is not understood"),
        ("steps", "is not understood"),
        ("steps:5=1", "must begin with 0"),
        ("steps:0=1,5=2,4=1", "ascend"),
        ("steps:0=1,5=2:5", "ascend"),
        ("steps:0", "TIME=FACTOR"),
        ("steps:0=x", "'x' is not a number"),
        ("steps:0=0", "nothing is ever sent"),
        ("diurnal:1.5", "from 0 to 1"),
        ("diurnal:1:0", "above 0"),
    ],
)
def test_nonsense_is_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message) as caught:
        RateWorkload(rate=1, rate_shape=text)
    assert "\n" not in str(caught.value)
