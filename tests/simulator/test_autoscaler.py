"""The HPA's rule, look by look."""

from __future__ import annotations

import pytest

from simulator.autoscaler import Autoscaler, Decisions
from simulator.errors import InputError


def wanted(signal_sums, text="min=1,max=8,target=10,interval=10s,cooldown=30s", start=2) -> list[int]:
    """Return how many there are after each look, if they come and go at once."""
    settings = Autoscaler.parse(text)
    decisions, count, found = Decisions(settings, start), start, []
    for number, total in enumerate(signal_sums, start=1):
        decisions.read(number * settings.interval_s, total)
        count = decisions.wanted(number * settings.interval_s, count)
        found.append(count)
    return found


def test_the_sum_of_the_signal_over_the_target_is_wanted():
    assert wanted([35, 52, 400]) == [4, 6, 8]


def test_within_the_tolerance_nothing_changes():
    assert wanted([21.9, 18.1, 22.1]) == [2, 2, 3]


def test_fewer_only_when_nothing_more_was_wanted_within_the_cool_down():
    assert wanted([60, 10, 10, 10, 10]) == [6, 6, 6, 6, 1]


def test_what_was_read_late_decides_late():
    assert wanted([60, 0, 0], "min=1,max=8,target=10,interval=10s,cooldown=0s,delay=10s") == [2, 6, 1]


def test_limits_hold_without_any_signal():
    assert wanted([0] * 6, "min=2,max=8,target=10,interval=10s,cooldown=30s", start=3) == [3, 3, 3, 2, 2, 2]


def test_options_carry_units_and_defaults_are_those_of_kubernetes():
    found = Autoscaler.parse("max=4,target=0.8,signal=kv_cache_usage,startup=2min,cooldown_s=90")
    assert (found.min, found.startup_s, found.cooldown_s, found.interval_s, found.tolerance) == (1, 120, 90, 15, 0.1)
    assert Autoscaler.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max=4", "autoscale: target: Field required"),
        ("max=4,target=1,signal=cpu", "autoscale: signal"),
        ("min=5,max=4,target=1", "swap them"),
        ("max=4,target=1,startup=soon", "autoscale startup: 'soon' is not a time"),
        ("max=4,target=1,speed=2", "autoscale: speed"),
        ("max=4,target=1,interval=0", "autoscale: interval_s"),
    ],
)
def test_nonsense_is_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message) as caught:
        Autoscaler.parse(text)
    assert "\n" not in str(caught.value)
