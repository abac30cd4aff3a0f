import numpy as np

from simulator.records import Records
from simulator.token_times import token_times


def test_times_are_those_asked_for_one_by_one():
    records = Records.for_requests(np.array([4, 4, 4]), num_gpu_blocks=10, block_size=16)
    records.step_deliver_s.extend([1.0, 2.0, 3.0, 4.0, 5.0])
    for request, first, steps in ((1, 1, 1), (0, 0, 2), (1, 3, 2), (0, 4, 1)):
        records.run_request.append(request)
        records.run_first_step.append(first)
        records.run_steps.append(steps)
    records.first_token_s[0], records.first_token_s[1] = 1.5, 2.0  # the first token is a little late
    found = list(token_times(records))
    assert [times.tolist() for times in found] == [[1.5, 2.0, 5.0], [2.0, 4.0, 5.0], []]
    assert all(np.array_equal(times, records.token_times(row)) for row, times in enumerate(found))
