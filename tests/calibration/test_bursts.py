import itertools

import pytest

from calibration.burst_time import BurstTime
from calibration.bursts import MOST_KV, Limits, alone, decode, meeting, schedule, uneven, warm_up
from calibration.fit import engine_of
from calibration.precision import standard_errors, steps_that_matter
from simulator import catalogue
from simulator.hf_config import load_model
from simulator.profile import load_profile
from simulator.roofline import default_profile
from simulator.step_cost import StepCost

LARGE = Limits(1024, 8192, 16_384, 900_000)
SMALL = Limits(8, 512, 1024, 4000)
MODEL, GPU = load_model("meta-llama/Llama-3.1-8B"), catalogue.gpu("H200")


def engine(limits: Limits):
    header = {"max_tok": limits.max_num_batched_tokens, "max_run": limits.max_num_seqs}
    return engine_of(header, MODEL, "0.24.0", enforce_eager=False)


def times(limits: Limits = LARGE) -> BurstTime:
    return BurstTime(StepCost(default_profile(GPU), MODEL, GPU, engine(limits)), engine(limits), limits)


@pytest.mark.parametrize("limits", [LARGE, SMALL, Limits(1, 64, 128, 200), Limits(256, 2048, 4096, 10_000)])
def test_every_burst_fits_the_server(limits):
    chosen = [burst for _, burst in itertools.islice(schedule(limits, 0.01), 150)]
    assert chosen
    for burst in [*warm_up(limits), *chosen]:
        assert burst.requests <= limits.max_num_seqs
        assert burst.kv_tokens <= MOST_KV * limits.kv_tokens
        requests = burst.table()
        assert (requests.prompt_tokens + requests.output_tokens).max() <= limits.max_model_len


def test_what_no_profile_can_do_without_comes_first():
    first = [burst.key for turn, burst in itertools.islice(schedule(LARGE, 0.01), 60) if turn == 0]
    assert {"decode-1x512", "decode-16x512", "decode-64x512", "prompt-512", "prompt-2048", "meeting-32"} <= set(first)


def test_the_largest_batch_is_max_num_seqs():
    limits = Limits(300, 8192, 16_384, 900_000)
    third = [burst.key for turn, burst in itertools.islice(schedule(limits, 0.01), 60) if turn == 2]
    assert "decode-300x128" in third


def test_repeats_have_names_of_their_own():
    keys = [burst.key for _, burst in itertools.islice(schedule(LARGE, 0.01), 200)]
    assert len(set(keys)) == len(keys)
    assert {"prompt-512", "prompt-512#2"} <= set(keys)


def test_a_server_that_holds_nothing_gives_no_burst():
    assert list(schedule(Limits(1, 16, 2, 2), 0.01)) == []


def test_prompts_meet_decodes_while_these_last():
    burst = meeting(32, 0.01, LARGE)
    requests = burst.table()
    decodes = requests.output_tokens > 48
    assert requests.arrival_s[~decodes].min() > 0
    assert requests.arrival_s.max() < requests.output_tokens[decodes].min() * 0.01


def test_uneven_batches_have_few_long_contexts():
    lengths = uneven(64, 4096).table().prompt_tokens
    assert sorted(lengths)[-4:] == [4096] * 4
    assert sorted(lengths)[0] == 128


def test_the_expected_time_is_that_of_the_steps_on_a_known_gpu():
    assert 0.2 < times().seconds(decode(1, 512)) - 0.35 < 0.3  # 48 steps of 5 ms
    assert times().seconds(alone(8192)) > times().seconds(alone(512))


def test_measured_bursts_correct_the_expected_time():
    expected = times()
    before = expected.seconds(decode(16, 512)) - 0.35
    for batch in (1, 16, 64):
        burst = decode(batch, 512)
        expected.learn(burst, 10 * (times().seconds(burst) - 0.35))
    assert expected.seconds(decode(16, 512)) - 0.35 == pytest.approx(10 * before)


def test_a_budget_of_a_minute_covers_the_needed_rounds():
    needed = sum(times().seconds(burst) for turn, burst in itertools.islice(schedule(LARGE, 0.01), 60) if turn < 2)
    assert needed < 40


def test_a_measured_profile_knows_decodes_better_than_short_prompts():
    profile = load_profile("h200-llama-3.1-8b")
    errors = standard_errors(profile, MODEL, GPU, engine(LARGE), LARGE)
    assert errors["decode batch of 16 at 512 tokens"] < errors["a prompt of 512 tokens alone"] < 0.1
    assert list(errors.values()) == sorted(errors.values(), reverse=True)


def test_without_a_covariance_nothing_is_claimed():
    assert standard_errors(default_profile(GPU), MODEL, GPU, engine(LARGE), LARGE) == {}


def test_only_steps_inside_the_limits_are_asked_for():
    assert max(step.decodes for step in steps_that_matter(SMALL)) <= 32
    assert max(step.prefill for step in steps_that_matter(SMALL)) <= 512
