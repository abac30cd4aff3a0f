import pytest

from simulator.pipeline import Pipeline


def test_overlapped_steps_follow_each_other_without_a_gap():
    line = Pipeline(2)
    assert line.launch(0.0, 1.0, 1.0, 0.5, 10.0, 0.0) == 2.0  # GPU 1.5 .. 11.5
    assert line.launch(2.0, 1.0, 1.0, 0.5, 10.0, 0.0) == 4.0  # GPU 11.5 .. 21.5
    assert line.result_ready_s() == 11.5
    line.pop(12.5)
    assert line.launch(12.5, 1.0, 1.0, 0.5, 10.0, 0.0) == 14.5
    assert line.result_ready_s() == 21.5


def test_a_long_launch_holds_back_the_result_of_the_step_before():
    line = Pipeline(2)
    line.launch(0.0, 0.0, 1.0, 0.0, 5.0, 0.0)
    line.launch(1.0, 0.0, 14.0, 0.0, 3.0, 2.0)
    assert line.result_ready_s() == 15.0  # done at 5, seen when the CPU is free
    line.pop(15.0)
    assert line.result_ready_s() == 17.0  # launch-bound: tail after the launch


def test_one_plan_at_a_time_leaves_the_gpu_idle_between():
    line = Pipeline(1)
    line.launch(0.0, 1.0, 1.0, 0.5, 4.0, 0.0)
    assert line.result_ready_s() == 5.5
    line.pop(6.0)
    assert not line.gpu_idle(6.0)  # the loop goes on at once: it has not slept
    assert line.gpu_idle(6.1)
    line.launch(6.0, 1.0, 1.0, 0.5, 4.0, 0.0)
    assert line.result_ready_s() == 11.5


def test_a_fresh_engine_has_slept():
    assert Pipeline(2).gpu_idle(0.0)


def test_an_arrival_prolongs_the_launch_and_a_launch_bound_step():
    line = Pipeline(2)
    line.launch(0.0, 0.0, 10.0, 0.0, 3.0, 2.0)
    assert line.prolong_launch(4.0) == 14.0
    assert line.result_ready_s() == 16.0


def test_an_arrival_prolongs_the_launch_but_not_a_step_the_gpu_is_busy_with():
    line = Pipeline(2)
    line.launch(0.0, 0.0, 2.0, 0.0, 30.0, 0.0)
    line.prolong_launch(4.0)
    assert line.result_ready_s() == pytest.approx(30.0)


@pytest.mark.parametrize("depth", [1, 2])
def test_running_ahead_is_the_loop_step_by_step(depth):
    gpu_s = [3.0, 5.0, 1.0, 0.5, 4.0]
    launch_s = [1.0, 1.0, 2.5, 1.0, 1.0]
    schedule_s, start_s, tail_s, update_s = 0.1, 0.2, 0.3, 0.4
    plain, ahead = Pipeline(depth), Pipeline(depth)
    now_s = 0.0
    if depth == 2:
        for line in (plain, ahead):
            now_s = line.launch(0.0, schedule_s, 1.0, start_s, 2.0, tail_s)
    turns = ahead.run_ahead(now_s, gpu_s, launch_s, (schedule_s, start_s, tail_s, update_s), 1e9, update_s)
    ahead.commit(turns[-1])
    ends = []
    for gpu, launch in zip(gpu_s, launch_s, strict=True):
        plain.launch(now_s, schedule_s, launch, start_s, gpu, tail_s)
        now_s = plain.result_ready_s() + update_s
        plain.pop(now_s)
        ends.append(now_s)
    assert [turn[0] for turn in turns] == pytest.approx(ends)
    assert ahead.gpu_end_s == pytest.approx(plain.gpu_end_s)
