"""Many simulations at once: what comes back, from whom, and what happens when something goes wrong."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from apps.planning.runs import Failure, run_all, run_many
from simulator.errors import DoesNotFitError, InputError, ServecastError


def halve(number: int) -> int:
    if number == 3:
        raise DoesNotFitError("three does not\n fit")
    if number == 5:
        raise ValueError("odd")
    return number // 2


def who(_: int) -> int:
    time.sleep(0.02)
    return os.getpid()


def threads(_: int) -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def die(number: int) -> int:
    if number == 2:
        os._exit(9)
    return number


@pytest.mark.parametrize("workers", [1, 2])
def test_every_task_comes_back_once_with_its_index_and_failures_do_not_stop_the_others(workers):
    found = dict(run_many(halve, range(8), workers=workers))
    assert [found[index] for index in (0, 1, 2, 4, 6, 7)] == [0, 0, 1, 2, 3, 3]
    assert found[3] == Failure("DoesNotFitError", "three does not fit")
    assert found[3].expected
    assert str(found[3]) == "three does not fit"
    assert not found[5].expected
    assert str(found[5]) == "ValueError: odd"


def test_results_come_in_the_order_of_the_tasks_if_asked():
    assert [index for index, _ in run_many(halve, range(8), workers=2, ordered=True)] == list(range(8))
    assert run_all(halve, [4, 0, 3], workers=2) == [2, 0, Failure("DoesNotFitError", "three does not fit")]


def test_the_next_call_finds_the_workers_warm_and_each_computes_with_one_thread():
    pids = set(run_all(who, range(8), workers=2)) | set(run_all(who, range(8), workers=2))
    assert len(pids) <= 2  # under load one of them may get everything
    assert os.getpid() not in pids
    assert set(run_all(threads, range(2), workers=2)) == {"1"}


def test_one_worker_is_this_process():
    assert set(run_all(who, range(2), workers=1)) == {os.getpid()}


def test_no_tasks_give_no_results():
    assert list(run_many(halve, [])) == []


def test_a_page_is_told_how_far_it_is():
    told = []
    run_all(halve, range(3), workers=1, progress=lambda done, of: told.append((done, of)))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_generator_closed_early_leaves_no_work_behind():
    results = run_many(who, range(1000), workers=2)
    next(results)
    began = time.monotonic()
    results.close()
    assert time.monotonic() - began < 10
    assert len(run_all(who, range(4), workers=2)) == 4


def test_a_worker_that_dies_ends_in_one_line():
    with pytest.raises(ServecastError, match="a worker process died"):
        list(run_many(die, range(50), workers=2))
    assert run_all(halve, [0, 2], workers=2) == [0, 1]


def test_less_than_one_worker_is_refused_before_any_work():
    with pytest.raises(InputError, match="workers must be at least 1, got 0"):
        run_many(halve, [1], workers=0)


def test_ctrl_c_keeps_what_was_yielded_and_leaves_no_process(tmp_path):
    script = tmp_path / "long.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys, time
            from apps.planning.runs import run_many

            def slow(number):
                time.sleep(0.05)
                return os.getpid()

            try:
                for index, pid in run_many(slow, range(10_000), workers=2):
                    print(pid, flush=True)
            except KeyboardInterrupt:
                sys.exit(130)
            """
        )
    )
    running = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[3],
    )
    pids = {int(running.stdout.readline()) for _ in range(6)}
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to every process
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130, err
    assert err == ""
    pids |= {int(line) for line in out.split()}
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
