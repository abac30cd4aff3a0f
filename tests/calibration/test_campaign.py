"""Bursts against a fake server: what is kept, what is not, how a run goes on after it broke."""

import asyncio
import gzip
import json

import pytest

from calibration.burst_time import BurstTime
from calibration.bursts import Limits
from calibration.campaign import Campaign, RunStoppedError, metrics
from calibration.campaign_files import FinishedBurst, RunFolder, header_of
from calibration.client import Target
from calibration.fit import engine_of
from calibration.recording import read_requests, read_steps
from calibration.server import Attached
from simulator import catalogue
from simulator.errors import InputError
from simulator.hf_config import load_model
from simulator.roofline import default_profile
from simulator.step_cost import StepCost
from tests.calibration.fake_server import Call, FakeServer, well

LIMITS = Limits(max_num_seqs=4, max_num_batched_tokens=256, max_model_len=256, kv_tokens=2000)
FACTS = {"model": "m", "serve_args": ""}


def campaign(fake: FakeServer, folder: RunFolder, **other) -> Campaign:
    model, gpu = load_model("meta-llama/Llama-3.1-8B"), catalogue.gpu("H200")
    engine = engine_of({"max_tok": 256, "max_run": 4}, model, "0.24.0", enforce_eager=False)
    times = BurstTime(StepCost(default_profile(gpu), model, gpu, engine), engine, LIMITS)
    target = Target(fake.url, "tiny", 2048, silence_s=0.5)
    return Campaign(Attached(fake.url), target, LIMITS, times, folder, "01", **other)


def opened(tmp_path, resume: bool = False) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.open(FACTS, resume=resume)
    return folder


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr("calibration.campaign.PAUSE_S", 0.0)
    monkeypatch.setattr("calibration.campaign.DYING_S", 0.0)


def test_bursts_are_kept_until_the_time_is_used_up(tmp_path):
    folder, told = opened(tmp_path), []
    with FakeServer() as fake:
        run = campaign(fake, folder, progress=told.append)
        assert "used up" in run.run(2.0)
    kept = folder.good()
    assert [burst.key for burst in kept][:2] == ["decode-1x208", "prompt-253"]
    assert len(kept) == sum("expected" in line for line in told)
    assert kept[0].metrics["vllm:prompt_tokens_total"] == 1
    assert all(not burst.key.startswith("warm-up") for burst in kept)
    assert run.next_up


def test_a_run_goes_on_where_it_stopped(tmp_path):
    with FakeServer() as fake:
        campaign(fake, opened(tmp_path)).run(1.8)
        before = [burst.key for burst in opened(tmp_path, resume=True).good()]
        campaign(fake, opened(tmp_path, resume=True)).run(1.8)
    after = [burst.key for burst in RunFolder(tmp_path / "run").good()]
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert len(set(after)) == len(after)


def test_another_run_is_not_mixed_in(tmp_path):
    opened(tmp_path).save(burst("prompt-8", "01", (0.0, 1.0)))
    with pytest.raises(InputError, match="--resume"):
        opened(tmp_path)
    with pytest.raises(InputError, match="was run with serve_args '', now it is '--x'"):
        RunFolder(tmp_path / "run").open({"model": "m", "serve_args": "--x"}, resume=True)


def test_a_run_that_has_measured_nothing_may_begin_again(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.open({"serve_args": "--max-modle-len 1"}, resume=False)
    folder.log.write_text("unrecognized arguments")
    folder.open({"serve_args": "--max-model-len 1"}, resume=False)
    assert json.loads((folder.path / "run.json").read_text()) == {"serve_args": "--max-model-len 1"}
    folder.new_part()
    assert (folder.path / "server-1.log").read_text() == "unrecognized arguments"


def failing_from(number: int):
    async def reply(call: Call) -> None:
        if call.number < number:
            await well(call)
        else:
            await call.raw(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n")

    return reply


def hanging_from(number: int):
    async def reply(call: Call) -> None:
        await (well(call) if call.number < number else asyncio.sleep(60))

    return reply


@pytest.mark.parametrize(("reply", "words"), [(failing_from(24), "HTTP 500"), (hanging_from(24), "nothing came")])
def test_a_server_that_fails_half_way_leaves_what_was_measured(tmp_path, reply, words):
    folder = opened(tmp_path)
    with FakeServer(reply) as fake, pytest.raises(RunStoppedError, match=words):
        campaign(fake, folder).run(60.0)
    assert folder.good()
    assert words in (folder.bursts()[-1].dropped or "")


def test_one_failed_request_drops_its_burst_and_the_run_goes_on(tmp_path):
    failed: list[int] = []

    async def once(call: Call) -> None:
        fails = not failed and fake.in_flight > 1 and len(call.body["prompt"]) > 200
        if fails:
            failed.append(call.number)
        await (failing_from(0) if fails else well)(call)

    folder = opened(tmp_path)
    with FakeServer(once) as fake:
        campaign(fake, folder).run(2.0)
    (dropped,) = [burst for burst in folder.bursts() if burst.dropped]
    assert dropped.dropped.startswith("1 of 4 requests failed; the first: HTTP 500")
    assert folder.bursts()[-1] != dropped


def test_a_run_ends_when_enough_is_known(tmp_path, monkeypatch):
    with FakeServer() as fake:
        run = campaign(fake, opened(tmp_path), is_enough=lambda: "enough is known", ask_every_s=0.0)
        assert run.run(60.0) == "enough is known"
    assert len(run.next_up) == 1


def test_metrics_are_summed_over_labels():
    with FakeServer() as fake:
        assert metrics(fake.url) == {"vllm:cache_config_info": 1.0, "vllm:prompt_tokens_total": 0.0}
    assert metrics(fake.url) == {}


# What is put together -----------------------------------------------------------------------------------------------


def burst(key: str, part: str, window: tuple[float, float], dropped: str | None = None) -> FinishedBurst:
    request = {"i": 0, "t": 0.0, "send": 0.0, "isl": 8, "osl": 2, "ttft": 0.1, "e2e": 0.2, "n": 2, "itl": [100.0]}
    requests = {"t_base": window[0], "duration": 0.2, "conc": None, "requests": [request], "failed": []}
    return FinishedBurst(key, key, part, window, requests, dropped)


def write_part(folder: RunFolder, part: str, starts: list[float], tail: str = "") -> None:
    lines = [{"a": "h", "t": 0.0, "blocks": 10, "block_size": 16, "max_tok": 256, "max_run": 4}]
    for number, start in enumerate(starts, 1):
        step = {"a": "s", "n": number, "t0": start, "t1": start + 0.001, "p": [[8, 0]], "d": 0, "dc": 0, "dm": 0}
        lines += [step, {"a": "u", "n": number, "t0": start + 0.01, "t1": start + 0.011}]
    gpu = [{"n": number, "h0": start, "h1": start + 0.001, "g": 0.01} for number, start in enumerate(starts, 1)]
    folder.prefix(part).with_name(f"{part}.gpu.jsonl").write_text("".join(json.dumps(row) + "\n" for row in gpu))
    path = folder.prefix(part).with_name(f"{part}.steps.jsonl")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)


def steps_of(folder: RunFolder):
    return read_steps(folder.path / "calib.steps.jsonl.gz", lambda tokens, *_: (0, tokens))


def test_only_steps_of_good_bursts_are_put_together(tmp_path):
    folder = opened(tmp_path)
    write_part(folder, "01", [1.0, 2.0, 2.1, 5.0, 8.0], tail='{"a":"s","n":6,"t')  # warm-up first; killed at last
    folder.save(burst("a", "01", (2.0, 2.2)))
    folder.save(burst("b", "01", (5.0, 5.2), dropped="1 of 1 requests failed"))
    folder.save(burst("c", "01", (8.0, 8.2)))
    assert folder.assemble() == 3
    steps = steps_of(folder)
    assert steps.plan_start_s.tolist() == [2.0, 2.1, 8.0]
    assert steps.linked.tolist() == [False, True, False]
    assert header_of(folder.prefix("01"))["max_tok"] == 256
    assert read_requests(folder.path / "calib.requests.json.gz").sent_s.tolist() == [2.0, 8.0]


def test_parts_follow_each_other_even_after_a_reboot(tmp_path):
    folder = opened(tmp_path)
    for part, start in (("01", 100.0), ("02", 3.0)):
        write_part(folder, part, [start])
        folder.save(burst(f"b{part}", part, (start, start + 0.2)))
    assert folder.new_part() == "03"
    assert folder.assemble() == 2
    steps = steps_of(folder)
    assert steps.plan_start_s[1] > steps.plan_end_s[0] + 1
    assert steps.linked.tolist() == [False, False]
    sent = read_requests(folder.path / "calib.requests.json.gz").sent_s
    assert sent == pytest.approx(steps.plan_start_s)
    gpu = [json.loads(line) for line in gzip.decompress((folder.path / "calib.gpu.jsonl.gz").read_bytes()).splitlines()]
    assert [row["n"] for row in gpu] == steps.number.tolist()
    assert [row["h0"] for row in gpu] == pytest.approx(steps.plan_start_s)


def test_without_steps_nothing_is_written(tmp_path):
    folder = opened(tmp_path)
    assert folder.assemble() == 0
    assert not list(folder.path.glob("calib.*"))


def test_a_late_client_keeps_its_steps_and_loses_its_times(tmp_path):
    folder = opened(tmp_path)
    write_part(folder, "01", [1.0])
    late = burst("a", "01", (1.0, 1.2))
    folder.save(FinishedBurst(**{**late.__dict__, "late_client": "the client was busy"}))
    assert folder.assemble() == 1
    assert not (folder.path / "calib.requests.json.gz").exists()


def test_a_log_of_an_earlier_start_is_kept(tmp_path):
    folder = opened(tmp_path)
    folder.log.write_text("first")
    folder.new_part()
    assert (folder.path / "server-1.log").read_text() == "first"
