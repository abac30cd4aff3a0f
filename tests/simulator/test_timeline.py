import numpy as np
import pytest

from simulator.errors import InputError
from simulator.records import Records
from simulator.timeline import timeline
from tests.simulator.records_world import small_world


def test_each_row_is_the_state_at_the_end_of_its_second():
    rows = timeline(small_world())
    assert rows["time_s"].tolist() == [1, 2, 3, 4, 5, 6]
    assert rows["vllm:num_requests_running"].tolist() == [2, 1, 1, 1, 0, 0]
    assert rows["vllm:num_requests_waiting"].tolist() == [0, 1, 1, 0, 0, 0]
    assert rows["vllm:kv_cache_usage_perc"] == pytest.approx([0.4, 0.5, 0.5, 0.1, 0, 0])


def test_counters_count_at_the_engines_time_stamps():
    rows = timeline(small_world())
    assert rows["vllm:num_preemptions"].tolist() == [0, 1, 1, 1, 1, 1]
    assert rows["vllm:prompt_tokens"].tolist() == [16, 24, 24, 24, 24, 24]
    assert rows["vllm:generation_tokens"].tolist() == [1, 3, 4, 4, 5, 5]
    assert rows["vllm:request_success"].tolist() == [0, 0, 1, 1, 2, 2]
    assert rows["generation_tokens_per_s"].tolist() == [1, 2, 1, 0, 1, 0]


def test_a_longer_interval_sums_up():
    rows = timeline(small_world(), interval_s=3)
    assert rows["time_s"].tolist() == [3, 6]
    assert rows["generation_tokens_per_s"].tolist() == [4 / 3, 1 / 3]


def test_nothing_happened_is_one_row_of_zeros():
    rows = timeline(Records.for_requests(np.array([5]), num_gpu_blocks=2, block_size=16))
    assert [column.tolist() for name, column in rows.items() if name != "time_s"] == [[0]] * 9


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf"), 1e-9])
def test_a_senseless_interval_is_refused(interval):
    with pytest.raises(InputError, match="interval"):
        timeline(small_world(), interval)
