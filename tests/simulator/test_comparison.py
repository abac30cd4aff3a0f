"""Two answers side by side."""

from simulator.comparison import compare

A = {"mean_ttft_ms": 100.0, "preemptions": 0, "memory": {"num_gpu_blocks": 10}, "kv_cache_usage_max": 0.5}
B = {"mean_ttft_ms": 110.0, "preemptions": 4, "memory": {"num_gpu_blocks": 12, "num_cpu_blocks": 3}}


def by_key(rows):
    return {row["key"]: row for row in rows}


def test_differences_count_from_a():
    row = by_key(compare(A, B))["mean_ttft_ms"]
    assert (row["a"], row["b"], row["difference"]) == (100, 110, 10)
    assert abs(row["difference_percent"] - 10) < 1e-9


def test_what_one_side_lacks_has_no_difference():
    rows = by_key(compare(A, B))
    assert rows["kv_cache_usage_max"]["difference"] is None
    assert rows["memory.num_cpu_blocks"]["b"] == 3
    assert rows["preemptions"]["difference_percent"] is None  # of nothing
    assert "swapped_out_blocks" not in rows


def test_a_difference_of_every_pair_is_real_and_one_that_changes_sign_is_noise():
    def side(value):
        return {"mean_ttft_ms": value}

    def verdict(*pairs):
        return by_key(compare(side(1), side(2), [(side(a), side(b)) for a, b in pairs]))["mean_ttft_ms"]["verdict"]

    assert verdict((100, 110), (90, 101), (105, 114)) == "real"
    assert verdict((100, 110), (90, 80), (105, 106)) == "noise"
    assert verdict((1, 1), (2, 2)) == "equal"


def test_the_interval_is_students():
    def side(value):
        return {"mean_ttft_ms": value}

    row = by_key(compare(side(0), side(0), [(side(0), side(d)) for d in (1, 2, 3)]))["mean_ttft_ms"]
    half = 2.920 * 1 / 3**0.5  # 90 %, two degrees of freedom, deviation 1
    assert row["mean_difference"] == 2
    assert abs(row["low"] - (2 - half)) < 1e-9
    assert abs(row["high"] - (2 + half)) < 1e-9
