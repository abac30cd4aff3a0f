import numpy as np

from simulator.engine_state import running, usage, waiting
from simulator.records import Records
from tests.simulator.records_world import add_step, small_world

TIMES = np.array([-1, 0, 0.9, 1, 2.5, 3.5, 4, 5, 60])


def test_a_state_lasts_from_plan_to_plan_and_ends_with_the_last_request():
    assert running(small_world()).at(TIMES).tolist() == [0, 1, 1, 2, 1, 1, 1, 0, 0]
    assert waiting(small_world()).at(TIMES).tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0]
    assert np.allclose(usage(small_world()).at(TIMES), [0, 0.2, 0.2, 0.4, 0.5, 0.5, 0.1, 0, 0])


def test_the_engine_is_empty_between_two_requests_but_not_while_the_next_one_is_already_planned():
    records = small_world()
    records.first_scheduled_s[1] = 4.0
    records.run_first_step[0] = 3  # request 1 lives in step 3 only
    del records.run_request[2], records.run_first_step[2], records.run_steps[2]
    assert running(records).at(np.array([2.9, 3.0, 3.9, 4.0])).tolist() == [1, 0, 0, 1]
    records.step_plan_s[3] = records.first_scheduled_s[1] = 2.5  # planned while step 2 is in flight
    assert running(records).at(np.array([2.9, 3.0, 3.9, 5.0])).tolist() == [1, 1, 1, 0]


def test_a_step_still_in_flight_at_the_end_is_no_error():
    records = Records.for_requests(np.array([5]), num_gpu_blocks=11, block_size=16)
    add_step(records, 0, 1, 1)
    del records.step_emit_s[0], records.step_deliver_s[0]
    records.first_scheduled_s[0] = 0.0
    assert running(records).at(np.array([0, 9.0])).tolist() == [1, 1]
