"""The life of a server, with small Python programs in vLLM's place."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from calibration.server import Attached, ServerError, VllmServer, _interrupted_later
from simulator.errors import InputError
from tests.calibration.fake_server import FakeServer

HEALTHY = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("content-length", "0"); self.end_headers()
    def log_message(self, *args): pass
port = int(sys.argv[sys.argv.index("--port") + 1])
print("serving", port, flush=True)
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
#: A child in the same group, as vLLM's engine is, and no ear for SIGTERM.
STUBBORN = """
import pathlib, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code])
pathlib.Path(PIDFILE).write_text(str(child.pid))
"""


def server(code: str, tmp_path: Path, timeout_s: float = 20.0, told: list[str] | None = None) -> VllmServer:
    progress = (lambda _: None) if told is None else told.append
    return VllmServer(
        [sys.executable, "-c", code], log=tmp_path / "server.log", startup_timeout_s=timeout_s, progress=progress
    )


def stubborn(pid_file: Path) -> str:
    return STUBBORN.replace("PIDFILE", repr(str(pid_file))) + HEALTHY


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def until(condition, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_a_server_is_healthy_inside_the_block_and_gone_after_it(tmp_path):
    told: list[str] = []
    with server(HEALTHY, tmp_path, told=told) as running:
        running.check()
        Attached(running.url).check()
        pid = running.pid
    assert not is_running(pid)
    assert "serving" in (tmp_path / "server.log").read_text()
    assert "vLLM is up" in told[-1]


def test_a_server_that_dies_at_the_start_shows_the_end_of_its_log(tmp_path):
    code = "import sys; print('torch.OutOfMemoryError: no room'); sys.exit(3)"
    with pytest.raises(ServerError, match="died with exit code 3") as caught, server(code, tmp_path):
        pass
    assert "no room" in caught.value.log_tail
    assert "\n" not in str(caught.value)


def test_a_server_that_is_never_healthy_is_given_up_and_stopped(tmp_path):
    held = server("import time; print('loading', flush=True); time.sleep(600)", tmp_path, timeout_s=1.0)
    with pytest.raises(ServerError, match="not healthy within 1 s") as caught, held:
        pass
    assert "loading" in caught.value.log_tail
    assert not is_running(held.pid)


def test_a_command_that_does_not_exist_is_told_with_a_hint(tmp_path):
    missing = VllmServer(["no-such-vllm"], log=tmp_path / "server.log", hint="say how with --vllm")
    with pytest.raises(ServerError, match=r"is vLLM installed here\? say how with --vllm"), missing:
        pass


def test_a_server_that_dies_later_is_noticed(tmp_path):
    with server(HEALTHY, tmp_path) as running:
        os.kill(running.pid, signal.SIGKILL)
        assert until(lambda: not is_running(running.pid))
        with pytest.raises(ServerError, match="died with signal 9"):
            running.check()


def test_the_whole_group_ends_when_the_block_fails_even_deaf_to_sigterm(tmp_path, monkeypatch):
    monkeypatch.setattr("calibration.server.GRACE_S", 0.5)
    pid_file = tmp_path / "pid"

    def interrupted(running: VllmServer) -> int:
        with running:
            raise KeyboardInterrupt

    started = server(stubborn(pid_file), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        interrupted(started)
    child = int(pid_file.read_text())
    assert not is_running(started.pid)
    assert until(lambda: not is_running(child))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_with_us(tmp_path, number):
    pid_file = tmp_path / "pid"
    (tmp_path / "fake.py").write_text(stubborn(pid_file))
    driver = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        import calibration.server as server
        server.GRACE_S = 0.5
        command = [sys.executable, {str(tmp_path / "fake.py")!r}]
        with server.VllmServer(command, log=Path({str(tmp_path / "server.log")!r})) as running:
            print(running.pid, flush=True)
            time.sleep(600)
    """)
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", driver], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=root
    ) as process:
        pid = int(process.stdout.readline())
        child = int(pid_file.read_text())
        process.send_signal(number)
        assert process.wait(20) != 0
    assert until(lambda: not is_running(pid))
    assert until(lambda: not is_running(child))


def test_attaching_needs_a_healthy_server():
    with FakeServer() as fake:
        attached = Attached(fake.url + "/v1")
        assert attached.url == fake.url
        fake.is_healthy = False
        with pytest.raises(ServerError, match="not healthy any more"):
            attached.check()
    with pytest.raises(InputError, match="start it first"):
        Attached(fake.url)
    with pytest.raises(InputError, match="http://"):
        Attached("localhost:8000")


def test_a_server_is_never_started_and_forgotten():
    """Ctrl-C while the process is being made takes effect when it is known, so that it can be stopped."""
    steps = []

    def start() -> None:
        with _interrupted_later():
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("the process is known")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert steps == ["the process is known"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
