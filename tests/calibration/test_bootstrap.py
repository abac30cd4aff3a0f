import json
from dataclasses import replace

import numpy as np
import pytest

from apps import cli
from calibration.bootstrap import Bursts, bootstrap, covariance_of, resampled
from calibration.fit import Folder
from calibration.recorded_run import take
from simulator.errors import InputError
from simulator.profile import load_profile
from tests.calibration.worlds import BURSTS, DATA, GPU, MODEL, prior_profile, recorded_by


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Ten bursts of a server whose times are exactly the priors'."""
    bursts = [(1, 512, 6), (16, 128, 8), (64, 128, 8), (1, 2048, 6), (4, 2048, 6)] * 2
    return recorded_by(prior_profile(), bursts, tmp_path_factory.mktemp("small") / "steps.jsonl")


def test_bursts_are_cut_where_the_engine_was_idle(small):
    bursts = Bursts.of(small, None)
    assert bursts.numbers.tolist() == list(range(10))
    assert small.steps.prefill_tokens[bursts.steps_of(np.array([3]))].max() == 2048


def test_bursts_are_cut_where_the_client_sent_one():
    folder = Folder.read(DATA, "calib", MODEL, GPU, "0.24.0")
    bursts = Bursts.of(folder.recording, folder.sent)
    assert len(bursts.numbers) == len(np.unique(folder.sent.burst))


def test_a_burst_drawn_twice_counts_twice_and_is_not_joined_to_itself(small):
    bursts = Bursts.of(small, None)
    steps = take(small.steps, bursts.steps_of(np.array([2, 2, 3])))
    alone = (bursts.of_step == 2).sum()
    assert len(steps) == 2 * alone + (bursts.of_step == 3).sum()
    assert not steps.linked[0]
    assert not steps.linked[alone]
    again = replace(small, steps=steps).stretches()
    assert (steps.number[again.first] <= steps.number[again.last]).all()


def test_too_few_bursts_are_refused(tmp_path):
    few = recorded_by(prior_profile(), BURSTS[:3], tmp_path / "steps.jsonl")
    with pytest.raises(InputError, match="3 bursts; resampling needs at least 8"):
        Bursts.of(few, None)


def test_the_covariance_is_that_of_the_logarithms():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(3000, 2)) @ np.array([[0.1, 0.1], [0.0, 0.2]])
    refits = [{"a": float(np.exp(a)), "b": float(3 * np.exp(b)), "zero": 0.0, "still": 5.0} for a, b in draws]
    found = covariance_of(refits)
    assert found.names == ("a", "b")
    assert np.array(found.matrix) == pytest.approx(np.array([[0.01, 0.01], [0.01, 0.05]]), rel=0.1)


def test_no_coefficient_is_less_certain_than_before_anything_was_measured():
    rng = np.random.default_rng(2)
    tail, other = rng.normal(size=(2, 3000))
    refits = [
        {"launch.none.tail_s": float(np.exp(t)), "launch.none.per_layer_s": float(np.exp(t + o))}
        for t, o in zip(tail, other, strict=True)
    ]
    (variance, both), (_, free) = covariance_of(refits).matrix
    assert np.sqrt(variance) == pytest.approx(0.4, rel=1e-3)  # its prior
    assert np.sqrt(free) == pytest.approx(np.sqrt(2), rel=0.05)
    assert both / np.sqrt(variance * free) == pytest.approx(np.sqrt(0.5), rel=0.05)  # the correlation stays


def test_nothing_resampled_is_nothing():
    assert resampled([], np.random.default_rng(0)) == []
    assert len(resampled(["a", "b"], np.random.default_rng(0))) == 2


def test_refits_spread_as_far_as_data_and_priors_leave_open(small):
    """Data tell of the bandwidth; of a mixed step they hold nothing, so its efficiency is as open as its prior."""
    found = bootstrap(prior_profile(), small, None, refits=6, workers=2)
    spread = dict(zip(found.covariance.names, np.sqrt(np.diag(found.covariance.matrix)), strict=True))
    assert spread["gpu_time.compute_efficiency.0"] > 0.03
    assert 0.05 < spread["gpu_time.kv_bandwidth_efficiency_mixed"] < 0.5
    assert spread["gpu_time.bandwidth_efficiency"] < 0.06
    assert 0.03 < spread["launch.none.per_layer_s"] < 0.3
    assert found.gpu_time == prior_profile().gpu_time
    again = bootstrap(prior_profile(), small, None, refits=6, workers=1)
    assert again.covariance == found.covariance


def test_the_command_writes_a_profile_that_intervals_use(tmp_path, capsys):
    path = tmp_path / "p.json"
    words = ["calibrate", "bootstrap", str(DATA), "--profile", "h200-llama-3.1-8b", "-o", str(path), "--refits", "2"]
    assert cli.main([*words, "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert set(data["now"]) >= {"gpu_time.bandwidth_efficiency", "launch.none.per_layer_s", "front_end.token_s"}
    made = load_profile(path)
    assert made.covariance.names == tuple(data["now"])
    assert made.model_copy(update={"covariance": load_profile("h200-llama-3.1-8b").covariance}) == load_profile(
        "h200-llama-3.1-8b"
    )
    assert cli.main([*words[:-1], "1"]) == 1
    assert "at least 2 refits" in capsys.readouterr().err
