import json

import numpy as np
import pytest

from apps import cli
from calibration.accuracy import coverage
from calibration.draws import RunToRun, draw, residual_spread, value_at, with_values
from calibration.intervals import interval, predict_with_intervals, replicated
from simulator import catalogue
from simulator.errors import InputError
from simulator.measured import load_measured, names
from simulator.profile import Covariance, Host, Residuals, load_profile
from simulator.scenario import Scenario
from simulator.workload import RateWorkload

STILL = RunToRun(gpu=0.0, compute=0.0, cpu=0.0)
COMMAND = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384"


def known(spread: float = 0.1):
    """A profile in which one coefficient is uncertain and the model's form has no errors of its own."""
    covariance = Covariance(names=("gpu_time.per_layer_s",), matrix=((spread**2,),))
    return load_profile("h200-llama-3.1-8b").model_copy(
        update={"covariance": covariance, "residuals": {}, "host": Host()}
    )


def scenario(seed: int = 0, requests: int = 20) -> Scenario:
    workload = RateWorkload(rate=8, num_prompts=requests, prompt_tokens="256", output_tokens="32")
    return Scenario.from_command(COMMAND, profile="h200-llama-3.1-8b", workload=workload, seed=seed)


def test_a_draw_moves_what_is_uncertain_and_nothing_else():
    profile = known()
    drawn = [draw(profile, 0, k, STILL) for k in range(400)]
    logs = np.log([one.gpu_time.per_layer_s / profile.gpu_time.per_layer_s for one in drawn])
    assert logs.std() == pytest.approx(0.1, rel=0.1)
    assert abs(logs.mean()) < 0.02
    same = drawn[0].gpu_time.model_copy(update={"per_layer_s": profile.gpu_time.per_layer_s})
    assert (same, drawn[0].launch, drawn[0].host) == (profile.gpu_time, profile.launch, profile.host)


def test_a_slower_host_slows_launches_engine_loop_and_api_server_alike():
    profile = known(0.0)
    drawn = draw(profile, 0, 3, RunToRun(gpu=0.0, compute=0.0, cpu=0.2))
    assert drawn == profile.model_copy(update={"host": Host(cpu_scale=drawn.host.cpu_scale)})
    assert drawn.host.cpu_scale != 1


def test_a_host_that_was_measured_is_less_uncertain():
    def spread(host):
        profile = known(0.0).model_copy(update={"host": host})
        return np.std([np.log(draw(profile, 0, number).host.cpu_scale) for number in range(300)])

    assert spread(Host()) == pytest.approx(0.20, rel=0.1)
    assert spread(Host(cpu_scale=1.5, measured="2026-12-01")) == pytest.approx(0.16, rel=0.1)


def test_draws_are_keyed_by_seed_and_number():
    profile = known()
    assert draw(profile, 5, 2) == draw(profile, 5, 2)
    assert draw(profile, 5, 2) != draw(profile, 5, 3)
    assert draw(profile, 5, 2) != draw(profile, 6, 2)


def test_draws_stay_valid_however_uncertain_the_fit_is():
    profile = load_profile("h200-llama-3.1-8b")
    names_ = profile.covariance.names
    wide = profile.model_copy(
        update={"covariance": Covariance(names=names_, matrix=tuple(map(tuple, (4.0 * np.eye(len(names_))).tolist())))}
    )
    for k in range(20):
        drawn = draw(wide, 0, k)
        assert drawn.gpu_time.roofline_exponent >= 1
        assert all(0 < value <= 1.5 for value in drawn.gpu_time.compute_efficiency)


def test_step_noise_is_not_counted_again_as_residual():
    profile = known()
    residuals = {"all": Residuals(count=9, bias_percent=0, median_percent=2.0, mean_percent=2, p95_percent=5)}
    quiet = profile.noise.model_copy(update={"full": profile.noise.full.model_copy(update={"gpu_sigma": 0.0})})
    seen = profile.model_copy(update={"residuals": residuals, "noise": quiet})
    assert residual_spread(seen) == pytest.approx(0.02965, abs=1e-4)
    assert residual_spread(profile.model_copy(update={"residuals": residuals})) < 0.02965
    assert residual_spread(profile) == 0


def test_numbers_at_paths_are_read_and_replaced():
    profile = with_values(known(), {"gpu_time.compute_efficiency.1": 0.5, "launch.none.tail_s": 0.001})
    assert value_at(profile, "gpu_time.compute_efficiency.1") == 0.5
    assert value_at(profile, "launch.none.tail_s") == 0.001


def test_the_interval_of_one_more_value():
    low, high = interval(np.exp([-1.0, 0.0, 1.0]), 0.9)
    assert (low, high) == (pytest.approx(0.0343, rel=1e-2), pytest.approx(29.15, rel=1e-2))  # t(2, .95) = 2.92
    assert interval(np.array([0.0, 0.0, 3.0]), 0.9)[0] == 0
    assert interval(np.array([0.9, 1.0, 0.95]), 0.9, "kv_cache_usage_max")[1] == 1


def test_intervals_are_seeded_and_leave_the_prediction_alone():
    first, again = (predict_with_intervals(scenario(), replications=5) for _ in range(2))
    assert first.intervals == again.intervals
    assert first.intervals["level"] == 0.9
    plain = first.summary() | {"intervals": None}
    from simulator.simulate import simulate

    assert simulate(scenario()).summary() == plain
    json.loads(first.to_json())


def test_two_workers_give_the_same_numbers_as_one():
    assert replicated(scenario(), 5, workers=2) == replicated(scenario(), 5, workers=1)


def test_a_higher_level_and_a_wider_spread_widen_every_interval():
    narrow = predict_with_intervals(scenario(), replications=6, level=0.5).intervals
    wide = predict_with_intervals(scenario(), replications=6, level=0.95).intervals
    latencies = [key for key in narrow if key.endswith("_ms")]
    assert all(wide[k][0] <= narrow[k][0] <= narrow[k][1] <= wide[k][1] for k in latencies)
    rough = predict_with_intervals(scenario(), replications=6, level=0.5, spread=RunToRun(gpu=0.1, cpu=0.5)).intervals
    key = "mean_ttft_ms"
    assert rough[key][1] / rough[key][0] > narrow[key][1] / narrow[key][0]


def test_too_few_replications_are_refused():
    with pytest.raises(InputError, match="at least 5"):
        predict_with_intervals(scenario(), replications=2)


def test_nine_in_ten_metrics_of_measured_runs_lie_in_their_interval(capsys):
    """Of ten runs no profile was fitted on; 80 to 97 % is what honest intervals of level 90 % give."""
    found = [coverage(load_measured(name), "h200-llama-3.1-8b", 20) for name in names()]
    assert sum(one.count for one in found) == 210
    assert 0.80 <= sum(one.inside for one in found) / 210 <= 0.97
    assert cli.main(["accuracy", "h200-llama-3.1-8b-c32", "--replications", "5"]) == 0
    assert "inside their 90 % interval:" in capsys.readouterr().out


def test_the_command_line_shows_them_on_request(capsys):
    words = [COMMAND, "--profile", "h200-llama-3.1-8b", "--rate", "8", "--num-prompts", "20", "--prompt-tokens", "256"]
    assert cli.main(["simulate", *words, "--replications", "5"]) == 0
    assert "90 % intervals of 5 replications" in capsys.readouterr().out
    assert cli.main(["simulate", *words]) == 0
    assert "interval" not in capsys.readouterr().out
    assert cli.main(["simulate", *words, "--replications", "1"]) == 1


def test_intervals_of_an_uncalibrated_answer_say_what_they_lack():
    question = scenario()
    foreign = question.model_copy(update={"gpu": catalogue.gpu("H100")})
    assert "lacks" not in predict_with_intervals(question, replications=5).intervals
    assert "not calibrated" in predict_with_intervals(foreign, replications=5).intervals["lacks"][0]
