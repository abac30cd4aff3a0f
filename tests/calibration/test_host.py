from pathlib import Path

import pytest

from calibration.fit import Folder, logged_version
from calibration.host import BELIEF, COMPUTE_BELIEF, measure_host, refresh_host
from simulator import catalogue
from simulator.errors import InputError
from simulator.profile import Host, load_profile
from tests.calibration.worlds import BURSTS, GPU, MODEL, prior_profile, recorded_by

RECORDINGS = Path(__file__).parents[2] / "recordings" / "h200-vllm-0.24.0" / "llama-3.1-8b"


def recorded_on(host, folder, bursts=BURSTS):
    recorded_by(prior_profile().model_copy(update={"host": host}), bursts, folder / "calib.steps.jsonl")
    return refresh_host(prior_profile(), folder, MODEL, GPU).host


def test_refresh_finds_a_slower_gpu_and_a_slower_cpu(tmp_path):
    host = recorded_on(Host(gpu_scale=1.05, cpu_scale=1.5), tmp_path)
    assert host.gpu_scale == pytest.approx(1 + BELIEF * 0.05, abs=0.003)
    assert host.cpu_scale == pytest.approx(1.5, abs=0.01)
    assert host.launch_scale == pytest.approx(1.0, abs=0.03)


def test_slower_prompts_are_told_from_slower_decodes(tmp_path):
    prompts = [(1, 2048, 6), (4, 2048, 6), (1, 4000, 6), (2, 1500, 6)] * 2
    host = recorded_on(Host(compute_scale=1.06), tmp_path, bursts=[*BURSTS, *prompts])
    assert host.gpu_scale == pytest.approx(1.0, abs=0.003)
    assert host.compute_scale == pytest.approx(1 + COMPUTE_BELIEF * 0.06, abs=0.015)


def test_the_api_server_is_measured_where_bursts_came_and_went():
    probes = [measured(folder, "probe") for folder in ("default", "mbt2048", "thrice")]
    for host in probes:  # its own speed: the engine loop of these hosts is 1.2 to 1.5 times the profile's
        assert 1.2 < host.cpu_scale < 1.6
        assert 0.85 < host.cpu_scale * host.front_end_scale < 1.2
    assert measured("clean", "c64").front_end_scale == 1.0  # one long burst tells nothing


def test_slower_launches_alone_are_believed_as_far_as_there_are_launches(tmp_path):
    host = recorded_on(Host(launch_scale=1.2), tmp_path)
    assert host.cpu_scale == pytest.approx(1.0, abs=0.01)
    assert 1.05 < host.launch_scale <= 1.2


def test_a_recording_of_nothing_but_prompts_says_what_to_record(tmp_path):
    with pytest.raises(InputError, match="too few steps to tell this host's speed; record 5 s of load"):
        recorded_on(Host(), tmp_path, bursts=BURSTS[:1])


def measured(folder, workload):
    model, gpu = catalogue.model("meta-llama/Llama-3.1-8B"), catalogue.gpu("H200")
    place = RECORDINGS / folder
    read = Folder.read(place, workload, model, gpu, logged_version(place))
    return measure_host(load_profile("h200-llama-3.1-8b"), read.recording, read.sent)


def test_two_runs_on_one_slow_host_agree_about_it():
    first, second = (measured("clean", name) for name in ("c64", "c24"))
    assert first.cpu_scale == pytest.approx(second.cpu_scale, rel=0.1)
    assert first.cpu_scale > 1.4


def test_launches_follow_the_speed_of_the_engine_loop():
    for folder, name in (("clean", "c24"), ("clean", "long4"), ("seqs16", "chat12"), ("serving", "fix8")):
        assert measured(folder, name).launch_scale == pytest.approx(1.0, abs=0.08)


def test_without_graphs_launches_stand_for_the_cpu():
    host = measured("eager", "fix8")
    assert (host.gpu_scale, host.launch_scale) == (1.0, 1.0)
    assert host.cpu_scale == pytest.approx(1.05, abs=0.1)


def test_without_overlap_the_engine_loop_tells():
    assert measured("sync", "fix8").cpu_scale == pytest.approx(1.0, abs=0.05)
