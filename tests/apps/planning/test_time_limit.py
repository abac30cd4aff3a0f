"""A limit of time that cuts work short, and nothing else."""

import importlib
import sys
import time

import pytest

from apps.planning.time_limit import OutOfTimeError, time_limit


def spin(_=None):
    while True:
        pass


class Grumbles:
    """Takes its time to die; what is raised meanwhile is dropped by Python."""

    def __del__(self):
        until = time.monotonic() + 0.15
        while time.monotonic() < until:
            pass


def die_slowly_then_spin():
    grumbler = Grumbles()
    del grumbler
    spin()


def test_work_that_takes_too_long_is_cut_short():
    began = time.monotonic()
    with pytest.raises(OutOfTimeError), time_limit(0.05):
        spin()
    assert time.monotonic() - began < 5


def test_work_that_is_done_in_time_is_left_alone():
    with time_limit(30):
        done = sum(range(1000))
    with time_limit(None):
        done += 1
    assert done == 499501


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_limit_that_is_lost_in_a_destructor_is_told_again():
    with pytest.raises(OutOfTimeError), time_limit(0.05):
        die_slowly_then_spin()


def test_an_import_is_not_cut_short_but_what_comes_after_it(tmp_path, monkeypatch):
    slow = tmp_path / "slow_to_import.py"
    slow.write_text(
        "import time\nuntil = time.monotonic() + 0.3\nwhile time.monotonic() < until:\n    pass\nDONE = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OutOfTimeError), time_limit(0.05):
        spin(importlib.import_module("slow_to_import"))
    assert sys.modules["slow_to_import"].DONE == 1
