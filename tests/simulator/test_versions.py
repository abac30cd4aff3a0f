"""One row a rule of the release history: the last version without it, the first with it."""

import pytest

from simulator.errors import ConfigError
from simulator.versions import facts, release


@pytest.mark.parametrize(
    ("field", "before", "after", "old", "new"),
    [
        ("v1_available", "0.6.3", "0.7.3", False, True),
        ("engine", "0.7.3", "0.8.5", "V0", "V1"),
        ("v0_available", "0.10.2", "0.11.0", True, False),
        ("v1_priority_policy", "0.8.5", "0.9.2", False, True),
        ("excludes_a100", "0.8.5", "0.9.2", False, True),
        ("big_device_max_num_seqs", "0.7.3", "0.8.5", 256, 1024),
        ("async_scheduling_available", "0.9.2", "0.10.2", False, True),
        ("async_scheduling_default", "0.13.0", "0.14.0", False, True),
        ("unfit_prompt_blocks_queue", "0.11.2", "0.14.0", False, True),
        ("full_sequence_check", "0.18.0", "0.19.0", False, True),
        ("gpu_memory_utilization", "0.19.0", "0.20.0", 0.90, 0.92),
        ("graphs_in_memory_budget", "0.19.0", "0.20.0", False, True),
        ("kv_log_is_concurrency_times_length", "0.20.0", "0.22.0", False, True),
        ("unhashed_blocks_to_head", "0.23.0", "0.24.0", False, True),
        ("watermark_available", "0.23.0", "0.24.0", False, True),
        ("self_victim_ends_loop", "0.24.0", "0.33.0", True, False),
        ("has_160_gib_tier", "0.24.0", "0.33.0", False, True),
        ("swap_space_flag", "0.17.1", "0.18.0", True, False),
        ("kv_offload_flag", "0.10.2", "0.11.2", False, True),
        ("cudagraph_mode", "0.10.2", "0.11.2", "PIECEWISE", "FULL_AND_PIECEWISE"),
        ("capture_rule", "0.9.2", "0.10.2", "step8_to_512", "step8_to_2x"),
        ("capture_rule", "0.10.2", "0.11.2", "step8_to_2x", "step8_then_16"),
        ("block_sizes", "0.6.3", "0.7.3", (8, 16, 32), (8, 16, 32, 64, 128)),
        ("block_sizes", "0.7.3", "0.8.5", (8, 16, 32, 64, 128), (1, 8, 16, 32, 64, 128)),
        ("block_sizes", "0.10.2", "0.11.2", (1, 8, 16, 32, 64, 128), (1, 8, 16, 32, 64, 128, 256)),
        ("block_sizes", "0.17.1", "0.18.0", (1, 8, 16, 32, 64, 128, 256), None),
    ],
)
def test_a_rule_changes_between_two_versions(field, before, after, old, new):
    assert getattr(facts(before), field) == old
    assert getattr(facts(after), field) == new


@pytest.mark.parametrize("spelled", ["0.8.5", "v0.8.5", "0.8.5.post1", "0.8.5+cu124", " 0.8.5 ", "0.8.5rc1"])
def test_spellings_of_a_version(spelled):
    assert release(spelled) == (0, 8, 5)


def test_two_numbers_are_enough():
    assert release("0.24") == (0, 24, 0)


def test_a_newer_version_is_taken_as_the_newest_known_and_says_so():
    known = facts("1.2.0")
    assert known.has_160_gib_tier
    assert "newer than the newest version known" in known.note
    assert facts("0.33.4").note is None


def test_an_older_version_is_taken_as_the_oldest_known_and_says_so():
    assert "older than the oldest" in facts("0.5.5").note
    assert facts("0.5.5").engine == "V0"


@pytest.mark.parametrize("nonsense", ["", "latest", "banana", "0", "v", "1e3", "0.24.0.0.0x" * 0 + "-1.2", "٠.٢٤"])
def test_nonsense_is_refused_in_one_line(nonsense):
    with pytest.raises(ConfigError, match="is not a version") as error:
        facts(nonsense)
    assert "\n" not in str(error.value)
