"""The recorder without vLLM: stand-ins with the attributes it reads, and a process that is killed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from calibration.recorder import scheduler, worker
from calibration.recorder.steplog import StepLog
from calibration.recorder_setup import PACKAGE, set_up
from calibration.recording import read_steps

ROOT = Path(__file__).parents[2]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class StandIn:
    """A scheduler that has planned one prefill chunk, a one-token prefill end, and two decodes."""

    def __init__(self, vllm_config=None):
        request = SimpleNamespace
        self.requests = {
            "chunk": request(num_computed_tokens=512, num_prompt_tokens=600),
            "end": request(num_computed_tokens=64, num_prompt_tokens=64),
            "one": request(num_computed_tokens=101, num_prompt_tokens=100),
            "two": request(num_computed_tokens=301, num_prompt_tokens=200),
        }
        self.waiting, self.skipped_waiting, self.running = [1, 2], [3], [1, 2, 3, 4]
        pool = SimpleNamespace(num_gpu_blocks=100, get_num_free_blocks=lambda: 7)
        self.kv_cache_manager = SimpleNamespace(block_pool=pool)
        self.block_size, self.max_num_scheduled_tokens, self.max_num_running_reqs = 16, 8192, 256
        self.max_model_len = 4096

    def schedule(self):
        return SimpleNamespace(
            total_num_scheduled_tokens=515,
            num_scheduled_tokens={"one": 1, "two": 1, "end": 1, "chunk": 512},
            preempted_req_ids={"old"}, finished_req_ids={"gone"}, scheduled_spec_decode_tokens={},
            scheduled_new_reqs=[SimpleNamespace(req_id="chunk", prompt_token_ids=[1] * 600, num_computed_tokens=0)],
        )  # fmt: skip

    def update_from_output(self, plan, _output):
        return {}

    def shutdown(self):
        return None


@pytest.fixture
def vllm(monkeypatch):
    """Modules of vLLM with the two scheduler classes."""
    for place, name in ((scheduler.SYNC[0], "Scheduler"), (scheduler.ASYNC[0], "AsyncScheduler")):
        module = ModuleType(place)
        setattr(module, name, type(name, (StandIn,), {}))
        monkeypatch.setitem(sys.modules, place, module)
    module = ModuleType("vllm")
    module.__version__ = "0.24.0"
    monkeypatch.setitem(sys.modules, "vllm", module)


def config(asynchronous: bool) -> SimpleNamespace:
    return SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=8, async_scheduling=asynchronous))


@pytest.mark.parametrize(("asynchronous", "base"), [(True, "AsyncScheduler"), (False, "Scheduler")])
def test_the_settings_choose_the_scheduler(vllm, monkeypatch, asynchronous, base):
    monkeypatch.delenv("SERVECAST_RECORD", raising=False)
    made = scheduler.RecordingScheduler(vllm_config=config(asynchronous))
    assert type(made).__mro__[1].__name__ == base
    assert made.schedule().total_num_scheduled_tokens == 515  # nobody asked for a recording: it works all the same


def test_a_step_is_recorded_as_it_was_planned(vllm, monkeypatch, tmp_path):
    monkeypatch.setenv("SERVECAST_RECORD", str(tmp_path / "calib"))
    made = scheduler.RecordingScheduler(vllm_config=config(True))
    made.update_from_output(made.schedule(), None)
    made.shutdown()
    header, step, update = lines(tmp_path / "calib.steps.jsonl")
    assert {"a": "h", "blocks": 100, "block_size": 16, "max_tok": 8192, "max_run": 256, "async": True}.items() <= (
        header.items()
    )
    expected = {
        "a": "s", "n": 1, "p": [[1, 63], [512, 0]], "d": 2, "dc": 100 + 300, "dm": 300, "w": 3, "r": 4, "f": 7,
        "pre": 1, "pids": ["old"], "new": [["chunk", 600, 0]], "fin": ["gone"],
    }  # fmt: skip
    assert expected.items() <= step.items()
    assert step["t0"] <= step["t1"] <= update["t0"] <= update["t1"]
    assert 0 <= step["o"] < 0.01
    assert (update["a"], update["n"]) == ("u", 1)
    assert len(read_steps(tmp_path / "calib.steps.jsonl", lambda *_: (0, 515))) == 1


def test_a_version_it_does_not_know_never_hurts_the_server(vllm, monkeypatch, tmp_path):
    monkeypatch.setenv("SERVECAST_RECORD", str(tmp_path / "calib"))
    made = scheduler.RecordingScheduler(vllm_config=config(True))
    del made.requests["one"]
    assert made.schedule().total_num_scheduled_tokens == 515
    assert made.schedule() is not None


def test_a_place_that_cannot_be_written_never_hurts_the_server(vllm, monkeypatch, tmp_path):
    monkeypatch.setenv("SERVECAST_RECORD", str(tmp_path / "missing" / "calib"))
    assert scheduler.RecordingScheduler(vllm_config=config(False)).schedule() is not None


def test_lines_reach_the_file_while_the_engine_is_idle(tmp_path):
    log = StepLog(str(tmp_path / "x"))
    log.add({"a": 1})
    time.sleep(1.0)
    assert lines(tmp_path / "x") == [{"a": 1}]


def test_a_killed_server_loses_at_most_a_second(tmp_path):
    code = (
        "import sys, time; from calibration.recorder.steplog import StepLog\n"
        f"log = StepLog({str(tmp_path / 'x')!r})\n"
        "while True:\n    now = time.monotonic(); log.add({'t': now}); print(now, flush=True); time.sleep(0.01)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        deadline = time.monotonic() + 2.2
        last = 0.0
        while time.monotonic() < deadline:
            last = float(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    written = lines(tmp_path / "x")
    assert last - written[-1]["t"] < 1.0


class FakeEvent:
    """A CUDA event on a GPU that works for 10 ms after each launch; waiting for it is an error."""

    now_ms, passed_ms = 0.0, 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at_ms = FakeEvent.now_ms

    def query(self):
        return self.at_ms <= FakeEvent.passed_ms

    def elapsed_time(self, other):
        assert self.query()
        assert other.query()
        return other.at_ms - self.at_ms

    def synchronize(self):
        raise AssertionError("the recorder must never wait for the GPU")


def test_gpu_times_are_read_when_the_gpu_has_passed_and_never_waited_for(tmp_path):
    log = StepLog(str(tmp_path / "g"))
    clock = worker.GpuClock(log, FakeEvent)
    for step in range(1, 5):
        clock.begin(SimpleNamespace(_servecast_step=step))
        FakeEvent.now_ms += 8.0
        clock.end()
        FakeEvent.now_ms += 2.0
        FakeEvent.passed_ms = FakeEvent.now_ms - 10.0  # the GPU is a step behind
    log.flush()
    assert [(row["n"], row["g"], row.get("gap")) for row in lines(tmp_path / "g")] == [
        (1, 0.008, None),
        (2, 0.008, 0.002),
    ]


def test_without_a_gpu_only_host_times_are_recorded(tmp_path):
    log = StepLog(str(tmp_path / "g"))
    clock = worker.GpuClock(log, None)
    clock.begin(SimpleNamespace())
    clock.end()
    log.flush()
    (row,) = lines(tmp_path / "g")
    assert set(row) == {"n", "h0", "h1", "o"}


def test_the_copy_for_the_server_needs_nothing_else(tmp_path):
    setup = set_up(tmp_path / "recorder", tmp_path / "parts" / "01", env={"PYTHONPATH": "/elsewhere"})
    assert setup.env["PYTHONPATH"].split(":") == [str(tmp_path / "recorder"), "/elsewhere"]
    code = f"import {PACKAGE}.scheduler, {PACKAGE}.worker, sys; assert 'calibration' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'recorder')!r}); {code}"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert setup.steps_path == tmp_path / "parts" / "01.steps.jsonl"
