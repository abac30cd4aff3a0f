import numpy as np
import pytest

from simulator.durations import parse, seconds
from simulator.errors import InputError
from simulator.mixes import SessionsWorkload
from simulator.workload import ConcurrencyWorkload, traffic


@pytest.mark.parametrize(
    ("text", "value"), [("20", 20.0), ("20s", 20.0), ("500ms", 0.5), ("2min", 120.0), ("0", 0.0), ("1.5h", 5400.0)]
)
def test_a_number_may_carry_its_unit(text, value):
    assert seconds(text) == value
    assert parse(text).sample(3, np.random.default_rng(0)).tolist() == [value] * 3


@pytest.mark.parametrize(
    ("text", "mean"),
    [("exponential:20", 20), ("uniform:5:30s", 17.5), ("lognormal:20:0.5", 20 * np.exp(0.125)), ("choice:5,10,60", 25)],
)
def test_the_sample_mean_is_the_stated_mean(text, mean):
    durations = parse(text)
    assert durations.mean_s == pytest.approx(mean)
    assert durations.sample(100_000, np.random.default_rng(0)).mean() == pytest.approx(mean, rel=0.02)


def test_what_is_left_of_a_time_in_progress_has_the_mean_of_renewal_theory():
    """E[residual] = E[X^2] / (2 E[X]): half of a constant, the whole mean of an exponential."""
    for text, left in (("20", 10), ("exponential:20", 20), ("uniform:0:30", 10)):
        assert parse(text).residual(50_000, np.random.default_rng(0)).mean() == pytest.approx(left, rel=0.06)
    assert parse("0").residual(3, np.random.default_rng(0)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-1", "'-1' is not a time from 0"),
        ("soon", "'soon' is not a time"),
        ("1.2.3", "'1.2.3' is not a time"),
        ("uniform:5:1", "swap them"),
        ("lognormal:5:x", "SIGMA must be"),
        ("weibull:5", "is not understood"),
        ("", "is not a time"),
        ("nan", "is not a time"),
        ("1e99", "is not a time"),
    ],
)
def test_nonsense_is_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("think", "told"), [("20", True), ("exponential:20", False), ("0", False)])
def test_users_who_all_pause_alike_are_told_to_fall_into_step(think, told):
    """With one constant pause a queue gathers the users, and they come back together."""
    loop = ConcurrencyWorkload(concurrency=50, think_time_s=think, num_prompts=100)
    chats = SessionsWorkload(users=50, turns="4", think_time_s=think, num_prompts=100)
    for workload in (loop, chats):
        assert any("fall into step" in note for note in traffic(workload, seed=0).notes) == told
    assert traffic(ConcurrencyWorkload(concurrency=1, think_time_s=think, num_prompts=9), seed=0).notes == ()
