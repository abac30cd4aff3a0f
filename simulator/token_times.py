"""When each token of each request reached its client: one pass over the runs of `Records`.  O(tokens)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulator.records import Floats, Records


def token_times(records: Records) -> Iterator[Floats]:
    """Yield, request by request in the order of the workload, the times of its tokens at the client in seconds.

    An array is empty where no token came.  The same times as `Records.token_times`, which looks for one request only.
    """
    request, first, steps = (
        np.asarray(column, dtype=np.int64)
        for column in (records.run_request, records.run_first_step, records.run_steps)
    )
    deliver = np.asarray(records.step_deliver_s, dtype=np.float64)
    order = np.lexsort((first, request))
    bounds = np.searchsorted(request[order], np.arange(records.num_requests + 1))
    for row in range(records.num_requests):
        mine = order[bounds[row] : bounds[row + 1]]
        if not len(mine):
            yield np.zeros(0)
            continue
        times = np.concatenate(
            [deliver[begin : begin + count] for begin, count in zip(first[mine], steps[mine], strict=True)]
        )
        begun_s = records.first_token_s[row]
        times = np.maximum(times, begun_s)
        times[0] = begun_s
        yield times
