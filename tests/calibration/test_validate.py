"""The comparison on servers whose truth is known: simulations, written down as recordings."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from calibration.bars import BARS, Judged, Verdict
from calibration.client_lag import client_lag, lags_s
from calibration.explain import explain
from calibration.mechanisms import Mechanism
from calibration.phases import EMIT_TO_CLIENT, PLAN_TO_EMIT, TOKEN, TTFT, Contribution, contributions
from calibration.recorded_run import read_run
from calibration.trace import of_records
from calibration.validate import judge, predict
from calibration.validation_data import to_data
from calibration.validation_inputs import Judging, of_measured, of_recorded, of_server
from simulator import catalogue
from simulator.errors import InputError
from simulator.measured import load_measured
from simulator.simulate import simulate
from tests.calibration.recorded_world import (
    COMMAND,
    MODEL,
    PROFILE,
    PretendServer,
    question,
    record,
    slower_launches,
)

RUN_8B = Path(__file__).parents[1] / "data" / "run-8b"
GPU = catalogue.gpu("H200")
SPEC = catalogue.model(MODEL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Recordings of the server as predicted (same), and of one with 4 ms slower launches (slow)."""
    made = tmp_path_factory.mktemp("recorded")
    record(question(), made, "same")
    record(question(), made, "slow", timed_by=slower_launches(4e-3))
    record(question(), made, "late", late_s=0.3)
    record(question(), made, "broken", failed=2)
    record(question(rate=20), made, "another-rate")
    return made


def judged(folder, *names, **bars):
    return of_recorded(folder, names, PROFILE, Judging(bars=bars or None))


# traces and phases ----------------------------------------------------------------------------------------------------


def test_a_recording_gives_the_trace_of_the_simulation_it_was_made_from(folder):
    ours = of_records(simulate(question()).records)
    theirs = read_run(folder, "same", SPEC, GPU).trace
    assert theirs.matched.all()
    zero = ours.requests.sent_s
    assert theirs.requests.sent_s == pytest.approx(zero, abs=1e-6)
    for name in ("first_plan_s", "first_token_s", "last_token_s"):
        assert getattr(theirs.requests, name) == pytest.approx(getattr(ours.requests, name), abs=1e-6)
    assert (theirs.requests.first_step == ours.requests.first_step).all()
    for name in ("mode", "tokens", "decode_reqs", "running", "waiting", "free_blocks"):
        assert (getattr(theirs.steps, name) == getattr(ours.steps, name)).all()


def test_a_prompt_in_chunks_is_one_prompt(tmp_path):
    long = question(requests=6, rate=50, prompt_tokens="6000", output_tokens="4")
    record(long, tmp_path, "long")
    ours, theirs = of_records(simulate(long).records), read_run(tmp_path, "long", SPEC, GPU).trace
    assert theirs.matched.all()
    assert (theirs.requests.first_step == ours.requests.first_step).all()
    assert theirs.requests.first_plan_s == pytest.approx(ours.requests.first_plan_s, abs=1e-6)
    assert (ours.steps.plan_s[ours.requests.first_step] > ours.requests.first_plan_s).any()


def test_the_phases_add_up_to_the_errors_of_the_means(folder):
    found = judged(folder, "slow")
    prediction, run = found.prediction, found.runs[0]
    effects = {m: sum(one.effect_ms for one in found.contributions if one.metric == m) for m in (TTFT, TOKEN)}
    assert effects[TTFT] == pytest.approx(prediction.value("mean_ttft_ms") - run.measured.summary()["mean_ttft_ms"])
    assert effects[TOKEN] == pytest.approx(
        prediction.value("mean_itl_ms") - run.measured.summary()["mean_itl_ms"], abs=1e-4
    )


def test_equal_sides_have_no_contributions():
    trace = of_records(simulate(question()).records)
    assert max(abs(one.effect_ms) for one in contributions([trace], trace)) < 1e-9


# causes ---------------------------------------------------------------------------------------------------------------


def test_slower_launches_are_found_and_named(folder):
    found = judged(folder, "slow")
    assert found.verdict is Verdict.missed
    ttft, token = found.explanations
    assert ttft.largest.phase == PLAN_TO_EMIT
    assert ttft.largest.title == "plan to emit of mixed steps, no CUDA graph"
    assert ttft.mechanism.what == "launch, no CUDA graph, busy"
    assert ttft.mechanism.difference == pytest.approx(-4.0, abs=0.6)
    means = [simulate(question(), timed_by=by).summary()["mean_ttft_ms"] for by in (None, slower_launches(4e-3))]
    assert ttft.error_ms == pytest.approx(means[0] - means[1], rel=0.4)  # the prediction averages other seeds
    assert token.mechanism.what == "launch, no CUDA graph, busy"
    assert "launch, no CUDA graph, busy: predicted" in found.words()


def test_a_slower_way_out_is_found_and_named(tmp_path):
    from simulator.profile import load_profile

    profile = load_profile(PROFILE)
    slow = profile.front_end.model_copy(update={"first_token_s": profile.front_end.first_token_s + 0.02})
    record(question(), tmp_path, "slow", timed_by=profile.model_copy(update={"front_end": slow}))
    ttft = judged(tmp_path, "slow").explanations[0]
    assert ttft.largest.phase == EMIT_TO_CLIENT
    assert ttft.mechanism.what == "emit to client, 5th percentile"


def test_a_slower_host_is_named_and_measuring_it_before_mends_the_prediction(tmp_path):
    from simulator.profile import Host, load_profile

    slow = load_profile(PROFILE).model_copy(update={"host": Host(cpu_scale=1.6)})
    record(question(requests=100), tmp_path, "run", timed_by=slow)
    record(question(requests=80, rate=6), tmp_path, "before", timed_by=slow)
    unaware = judged(tmp_path, "run")
    assert unaware.verdict is Verdict.missed
    assert unaware.host.seen.cpu_scale == pytest.approx(1.6, abs=0.02)
    assert "took 1.60 times what was expected of this host" in unaware.words()
    ttft = next(row for row in to_data(unaware)["metrics"] if row["name"] == "ttft_mean")
    assert ttft["error_percent"] < -15
    assert abs(ttft["error_percent_at_host_speed"]) < 5
    aware = of_recorded(tmp_path, ["run"], PROFILE, Judging(), host_from="before")
    assert aware.verdict is Verdict.passed
    assert not aware.host.is_other
    assert aware.prediction.profile.host.measured == "2026-11-30"


def test_a_server_probed_before_is_predicted_at_its_speed(tmp_path):
    from calibration import host_probe
    from simulator.profile import Host, load_profile

    slow = load_profile(PROFILE).model_copy(update={"host": Host(cpu_scale=1.4)})

    def probed_server(command, traffic, folder, names):
        PretendServer(question(), slow)(command, traffic, folder, names)
        record(question(requests=40, rate=6), folder, host_probe.NAME, timed_by=slow)

    told = []
    found = of_server(question(), COMMAND, probed_server, tmp_path, Judging(), progress=told.append)
    assert any(line.startswith("this host: GPU 1.0") and "CPU 1.40" in line for line in told)
    assert found.verdict is Verdict.passed


def test_slower_steps_are_found_and_named(tmp_path):
    from simulator.profile import Host, load_profile

    profile = load_profile(PROFILE).model_copy(update={"host": Host(gpu_scale=1.2)})
    record(question(prompt_tokens="100"), tmp_path, "slow", timed_by=profile)
    token = judged(tmp_path, "slow").explanations[1]
    assert token.largest.title == "interval of decode steps alone"
    assert token.mechanism.what == "step time, decodes alone"
    assert 100 * (token.mechanism.measured / token.mechanism.predicted - 1) == pytest.approx(20, abs=3)


def test_what_the_recording_cannot_tell_is_not_claimed():
    largest = Contribution(TTFT, PLAN_TO_EMIT, 5.0, 9.0, -4.0, 1.0, 0, mixed=True)
    assert "does not tell why" in explain([largest], [])[0].words()
    equal = Mechanism("GPU time", "step time", 5.0, 5.1, "ms", 9, kind="mixed")
    assert "which requests shared which steps" in explain([largest], [equal])[0].words()
    slow = Mechanism("GPU time", "step time", 5.0, 8.0, "ms", 9, kind="mixed")
    assert explain([largest], [equal, slow])[0].mechanism is slow
    fast = Mechanism("GPU time", "step time", 9.0, 5.0, "ms", 9, kind="mixed")  # in the other direction
    assert explain([largest], [fast])[0].mechanism is None


def test_steps_that_are_missing_are_noted(folder, tmp_path):
    record(question(), tmp_path, "cut")
    path = tmp_path / "cut.steps.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[: len(lines) // 2])))
    found = judged(tmp_path, "cut")
    assert 0.3 < found.runs[0].trace.matched.mean() < 0.7
    assert "others' steps are missing" in " ".join(to_data(found)["measured"]["notes"])


def test_a_server_with_other_kv_blocks_is_noted(folder, tmp_path):
    small = question().model_copy(
        update={"engine": question().engine.model_copy(update={"num_gpu_blocks_override": 2000})}
    )
    record(small, tmp_path, "small")
    notes = to_data(judged(tmp_path, "small"))["measured"]["notes"]
    assert any("the server had 2,000 KV blocks" in note for note in notes)


def test_a_real_run_with_slow_launches_is_explained_by_them():
    found = of_recorded(RUN_8B, ["fix8"], PROFILE, Judging())
    assert found.verdict is Verdict.passed
    assert found.runs[0].trace.matched.all()
    ttft = found.explanations[0]
    assert ttft.largest.title == "plan to emit of mixed steps, no CUDA graph"
    assert ttft.largest.effect_ms / ttft.error_ms > 0.7
    assert ttft.mechanism.what == "launch, no CUDA graph, busy"
    assert ttft.mechanism.measured == pytest.approx(16.8, abs=0.3)
    assert ttft.mechanism.count > 100


# verdicts -------------------------------------------------------------------------------------------------------------


def test_the_same_server_passes_and_its_numbers_are_those_of_the_simulation(folder):
    found = judged(folder, "same")
    assert found.verdict is Verdict.passed
    assert {one.name for one in found.metrics if one.bar_percent} == set(BARS)
    assert found.words() == "pass: 7 metrics within their bars"


def test_a_bar_is_kept_up_to_its_last_percent():
    def metric(predicted, bar):
        return Judged("ttft_p50", "TTFT p50", "ms", predicted, 100.0, None, 95.0, 106.0, bar)

    assert metric(110.0, 10.0).error_percent == pytest.approx(10)
    assert [metric(value, 10.1).keeps_bar for value in (89.0, 90.0, 110.0, 111.0)] == [False, True, True, False]
    assert metric(110.0, None).keeps_bar is None
    assert metric(0.0, 5.0).is_inside is True
    assert Judged("x", "x", "ms", 1.0, None, None, None, None, 5.0).keeps_bar is None


def test_repeats_show_their_spread(folder):
    found = judged(folder, "same", "slow")
    ttft = next(one for one in found.metrics if one.name == "ttft_mean")
    means = [run.measured.summary()["mean_ttft_ms"] for run in found.runs]
    assert ttft.measured == pytest.approx(np.mean(means))
    assert ttft.spread_percent == pytest.approx(100 * (means[1] - means[0]) / np.mean(means))


def test_a_slow_client_is_not_judged(folder):
    found = judged(folder, "late")
    assert found.verdict is Verdict.not_judged
    assert "the client was the bottleneck: it sent 300.0 ms late" in found.words()


def test_failed_requests_are_told_and_not_judged(folder):
    found = judged(folder, "broken")
    assert found.verdict is Verdict.not_judged
    assert "2 requests failed on the server; the first: connection closed" in found.words()


def test_other_requests_are_refused(folder, tmp_path):
    record(question(requests=10), tmp_path, "few")
    with pytest.raises(InputError, match="not the predicted ones"):
        judge(predict(question()), [read_run(tmp_path, "few", SPEC, GPU)])


def test_an_unknown_bar_is_refused(folder):
    with pytest.raises(InputError, match="no metric is called speed"):
        judged(folder, "same", speed=3.0)


def test_a_missing_run_is_named_with_those_there_are(folder):
    with pytest.raises(InputError, match=r"no nothing\.requests\.json or \.gz; has another-rate, broken, late, same"):
        judged(folder, "nothing")


def test_lag_in_a_closed_loop_counts_from_the_answer_that_made_room():
    run = load_measured("h200-llama-3.1-8b-c32")
    lag = lags_s(run)
    assert len(lag) == 192
    assert np.median(lag) < 1e-3
    assert not client_lag(run).is_bottleneck


# both sides -----------------------------------------------------------------------------------------------------------


def test_the_prediction_comes_first_and_the_server_gets_the_predicted_requests(tmp_path):
    told = []
    server = PretendServer(question())
    found = of_server(question(), COMMAND, server, tmp_path, Judging(), repeats=2, progress=told.append)
    assert found.verdict is Verdict.passed
    assert told[0] == "predicting"
    assert "now measuring" in told[1]
    assert server.asked == [COMMAND]
    assert [run.name for run in found.runs] == ["run1", "run2"]
    assert next(one for one in found.metrics if one.name == "ttft_mean").spread_percent is not None


def test_a_measured_run_without_steps_is_judged_but_not_explained():
    found = of_measured(["h200-llama-3.1-8b-chat12"], PROFILE, Judging())
    assert found.verdict is Verdict.passed
    assert found.explanations == ()


def test_the_data_of_a_report_are_plain_json(folder):
    data = to_data(of_recorded(folder, ["slow"], PROFILE, Judging(replications=5)))
    again = json.loads(json.dumps(data, allow_nan=False))
    assert (again["schema_version"], again["kind"], again["verdict"]) == (1, "validation", "miss")
    assert {"predicted", "measured", "metrics", "explanations", "contributions", "mechanisms", "pictures"} <= set(again)
    assert len(again["pictures"]["ttft_ms"]["measured"]) == 101
    row = next(one for one in again["metrics"] if one["name"] == "ttft_p50")
    assert row["low"] < row["predicted"] < row["high"]
    assert again["explanations"][0]["mechanism"] == "launch, no CUDA graph, busy"
