import json
import re

import numpy as np
import pytest

from calibration.check import check
from calibration.fit import doubts, fit_profile, logged_version
from calibration.fit_cpu import PRIOR_QUANTILES, launch_quantiles, linear_in_requests
from calibration.fit_front_end import Arrival, FrontEndFit, Outputs
from calibration.fit_gpu import GpuTimeFit, with_values
from calibration.replay import replay
from simulator.errors import InputError
from simulator.profile import Host, parse_profile
from tests.calibration.worlds import BURSTS, DATA, GPU, MODEL, prior_profile, recorded_by, true_values


@pytest.fixture(scope="module")
def fitted():
    return fit_profile(DATA, MODEL, GPU, name="test")


@pytest.mark.parametrize("seed", [0, 1])
def test_known_coefficients_are_found_again(tmp_path, seed):
    true = true_values(np.random.default_rng(seed), 0.06)
    recording = recorded_by(with_values(prior_profile(), true), BURSTS, tmp_path / "w.steps.jsonl")
    fit = GpuTimeFit(prior_profile()).fit([recording])
    assert fit.residuals_[0]["all"].mean_percent < 0.5
    errors = {}
    for path, value in true.items():
        _section, name, *index = path.split(".")
        found = getattr(fit.profile_.gpu_time, name)
        errors[path] = abs((found[int(index[0])] if index else found) / value - 1)
    assert max(errors.values()) < 0.05, errors


@pytest.mark.parametrize(
    ("stretches", "left_out", "words"),
    [
        (0, 0, "the prior alone: no result came on time.*record longer steps"),
        (90, 90, "the prior alone: 90 of 90 stretches.*is that the GPU"),
        (25, 19, "the prior and 6 stretches of steps: 19 of 25 stretches"),
        (12, 2, "the prior and 10 stretches of steps: few steps were recorded; add --resume"),
    ],
)
def test_a_fit_that_rests_on_nothing_says_so_and_what_to_do(fitted, stretches, left_out, words):
    found = {"stretches": float(stretches), "left_out": float(left_out)}
    provenance = fitted.provenance.model_copy(update={"fit": found})
    said = doubts(fitted.model_copy(update={"provenance": provenance}))
    assert re.search(words, said or "")
    assert doubts(fitted) is None


def test_two_hosts_fitted_together_get_a_scale(tmp_path):
    slower = prior_profile().model_copy(update={"host": Host(gpu_scale=1.04)})
    first = recorded_by(prior_profile(), BURSTS[::2], tmp_path / "a.steps.jsonl")
    second = recorded_by(slower, BURSTS[::2], tmp_path / "b.steps.jsonl")
    fit = GpuTimeFit(prior_profile()).fit([first, second])
    assert fit.gpu_scales_[1] / fit.gpu_scales_[0] == pytest.approx(1.04, abs=0.005)


def test_recorded_bursts_are_fitted_within_their_noise(fitted):
    assert fitted.residuals["decode"].median_percent < 2
    assert fitted.residuals["all"].median_percent < 2.5
    assert 0.75 < fitted.gpu_time.bandwidth_efficiency < 0.95
    assert 12e-3 < fitted.launch.none.constant_s + 32 * fitted.launch.none.per_layer_s < 18e-3


def test_a_profile_says_where_it_comes_from(fitted):
    source = fitted.provenance
    assert (source.gpu, source.vllm_version, source.model) == ("H200", "0.24.0", "meta-llama/Llama-3.1-8B")
    assert source.command.startswith("vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384")
    assert source.measured.endswith("-11-30")
    assert {file.name for file in source.files} == {"calib.steps.jsonl.gz", "calib.requests.json.gz", "server.log"}
    assert all(len(file.sha256) == 64 for file in source.files)
    assert fitted.hull.tokens == 8192
    assert fitted.hull.decode_reqs == 256
    assert len(fitted.covariance.matrix) == len(fitted.covariance.names)


def test_a_fitted_profile_survives_its_file(fitted):
    assert parse_profile(fitted.model_dump_json(), "test") == fitted


def test_replay_through_the_time_lines_hits_the_total(fitted):
    found = check(fitted, DATA, MODEL, GPU, workload="calib")
    assert abs(found.replay_total_percent) < 5
    assert found.residuals["decode"].median_percent < 2


def test_replay_of_its_own_times_is_exact(tmp_path):
    recording = recorded_by(prior_profile(), BURSTS, tmp_path / "w.steps.jsonl")
    again = replay(recording, prior_profile())
    assert np.abs(again.run_errors).max() < 1e-6
    assert again.predicted_s == pytest.approx(again.measured_s, abs=1e-6)


def test_a_recording_without_requests_keeps_the_front_end_of_the_prior(tmp_path):
    recorded_by(prior_profile(), BURSTS, tmp_path / "calib.steps.jsonl")
    assert fit_profile(tmp_path, MODEL, GPU, name="x").front_end.request_demand_s == pytest.approx(0.7e-3)


def test_front_end_parameters_are_found_again():
    start = prior_profile().front_end
    true = start.model_copy(update={"request_demand_s": 0.9e-3, "token_per_stream_s": 55e-6, "token_s": 1.1e-3})
    came = [Arrival(n, p, 0.0) for n in (1, 2, 8, 32, 128) for p in (32, 512, 2048)]
    came = [Arrival(a.count, a.prompt_tokens, a.predicted_s(true)) for a in came]
    went = []
    for streams in (1, 8, 64, 200):
        emitted = np.cumsum(np.full(24, 0.006))
        counts = np.full(24, streams)
        first, ended = np.zeros(24, dtype=np.int64), np.zeros(24, dtype=np.int64)
        first[0], ended[-1] = streams, streams
        made = Outputs(emitted, counts, first, ended, 64.0, np.zeros(24))
        went.append(Outputs(emitted, counts, first, ended, 64.0, made.predicted_s(true)))
    found = FrontEndFit(start).learn(came, went).front_end_
    assert found.request_demand_s == pytest.approx(0.9e-3, rel=0.03)
    assert found.token_per_stream_s == pytest.approx(55e-6, rel=0.03)
    assert found.token_s == pytest.approx(1.1e-3, rel=0.1)


def test_a_queue_of_outputs_backs_up_when_steps_are_shorter_than_the_service():
    front_end = prior_profile().front_end.model_copy(update={"token_per_stream_s": 1e-3, "token_s": 0.0})
    zeros = np.zeros(3, dtype=np.int64)
    queue = Outputs(np.array([1.0, 1.001, 1.002]), np.full(3, 2), zeros, zeros, 0.0, np.zeros(3))
    assert queue.predicted_s(front_end) == pytest.approx([0.002, 0.003, 0.004])


def test_robust_line_ignores_outliers():
    reqs = np.arange(1, 101)
    seconds = 50e-6 + 7e-6 * reqs
    seconds[::10] += 5e-3
    assert linear_in_requests(seconds, reqs) == pytest.approx((50e-6, 7e-6), rel=0.1)


def test_few_launches_leave_the_prior_nearly_alone():
    for mode, prior in PRIOR_QUANTILES.items():
        assert launch_quantiles(np.zeros(0), mode) == prior
        assert launch_quantiles(np.ones(3), mode) == pytest.approx(prior, abs=0.07)


def test_a_missing_workload_names_what_is_there():
    with pytest.raises(InputError, match=r"no nothing\.steps\.jsonl or \.gz; has calib"):
        fit_profile(DATA, MODEL, GPU, name="x", workload="nothing")


def test_a_folder_without_a_log_is_taken_as_the_default_version(tmp_path):
    assert logged_version(tmp_path) == "0.24.0"
    (tmp_path / "server.log").write_text("Initializing a V1 LLM engine (v0.23.1) with config: x\n")
    assert logged_version(tmp_path) == "0.23.1"


def test_numbers_in_a_shipped_profile_are_short(fitted):
    assert len(json.dumps(fitted.model_dump(mode="json"))) < 20_000
