import numpy as np
import pytest

from calibration.fit_gpu import kinds, relative_errors
from calibration.recording import read_steps
from calibration.stretches import LaunchBounds, find
from tests.calibration.worlds import BURSTS, prior_profile, recorded_by


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return recorded_by(prior_profile(), BURSTS, tmp_path_factory.mktemp("made") / "w.steps.jsonl")


def test_the_true_times_predict_every_stretch(recording):
    errors = relative_errors(recording, recording.stretches(), prior_profile())
    assert len(errors) > 250
    assert np.abs(errors).max() < 1e-6


def test_a_result_seen_soon_after_the_next_plan_may_have_waited_for_its_launch(tmp_path):
    """Three decodes of 5 ms; the second is planned 4 ms before the first result, the third 1 ms before the second."""
    lines = ['{"a":"h","t":0,"max_tok":8192,"max_run":1024}']
    for n, planned, seen in ((1, 0.000, 0.006), (2, 0.002, 0.011), (3, 0.010, 0.016)):
        lines += [
            f'{{"a":"s","n":{n},"t0":{planned},"t1":{planned},"p":[],"d":1,"dc":{9 + n},"dm":{9 + n}}}',
            f'{{"a":"u","n":{n},"t0":{seen},"t1":{seen}}}',
        ]
    path = tmp_path / "w.steps.jsonl"
    path.write_text("\n".join(lines))
    steps = read_steps(path, lambda tokens, reqs, uniform: (2, tokens))
    found = find(steps, LaunchBounds(none_s=30e-3, piecewise_s=10e-3, full_s=3e-3))
    assert found.on_time.tolist() == [True, False, True]
    assert list(zip(found.first.tolist(), found.last.tolist(), strict=True)) == [(0, 0), (1, 2)]
    assert found.launch_end_s[2] == 0.011


def test_stretches_do_not_overlap_and_say_what_they_are(recording):
    stretches = recording.stretches()
    assert (stretches.first[1:] > stretches.last[:-1]).all()
    names = kinds(stretches, recording.steps)
    assert set(names) <= {"idle", "decode", "mixed", "prefill"}
    assert (names == "idle").sum() == len(BURSTS)
