"""``servecast explore`` refuses before it starts anything; the pages travel in the wheel."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from apps.cli import main


def test_a_port_that_somebody_has_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["explore", "--port", port, "--no-browser"]) == 1
    assert f"port {port}" in capsys.readouterr().err


def test_without_streamlit_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "streamlit.web", None)
    assert main(["explore", "--no-browser"]) == 1
    told = capsys.readouterr().err
    assert "pip install" in told
    assert told.count("\n") == 1


def test_fewer_than_two_workers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "--workers", "1"]) == 1
    assert "workers" in capsys.readouterr().err


def test_the_server_keeps_what_it_is_told_to_keep() -> None:
    import tomllib

    folder = Path(__file__).parents[2] / "apps"
    with open(folder / ".streamlit" / "config.toml", "rb") as file:
        told = tomllib.load(file)
    assert told["server"]["maxUploadSize"] <= 10
    assert told["browser"]["gatherUsageStats"] is False
    assert (folder / "ui" / "icon.png").is_file()
