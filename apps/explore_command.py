"""``servecast explore``: the what-if explorer in the browser."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Where the page is served.")]
Host = Annotated[
    str, typer.Option("--host", help="Address to listen on; 0.0.0.0 shares it with the network, without a password.")
]
Workers = Annotated[int, typer.Option("--workers", min=2, max=64, help="Processes that simulate.")]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")]


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("explore")(explore_command)


def explore_command(port: Port = 8501, host: Host = "127.0.0.1", workers: Workers = 2, browser: Browser = True) -> None:
    """Open the explorer: does it fit, what will users feel, what to change.

    Pages to paste a start line or a log into, turn knobs and compare.  The address of a page holds the whole question,
    so a link restores it.  Nothing that is pasted is run.

    Example:

    \b
      servecast explore --port 8600 --no-browser
    """
    import os
    import threading
    from pathlib import Path

    from simulator.errors import InputError

    try:
        from streamlit import config
        from streamlit.web import bootstrap

        from apps.ui.work import WORKERS, desk
    except ImportError as error:
        raise InputError(
            f"the explorer needs {error.name}, which is not installed; pip install 'streamlit>=1.60' plotly pebble"
        ) from None
    _check_free(host, port)
    os.environ[WORKERS] = str(workers)
    threading.Thread(target=_warm, args=(desk,), daemon=True).start()
    options = {
        "server_port": port,
        "server_address": host,
        "server_headless": not browser,
        "server_fileWatcherType": "none",
    }
    script = str(Path(__file__).with_name("explorer.py"))
    config._main_script_path = script  # where `streamlit run` looks for .streamlit/config.toml as well
    bootstrap.load_config_options(options)
    bootstrap.run(script, False, [], options)


def _warm(desk: object) -> None:
    """Load what the first visitor would wait for."""
    assert callable(desk)
    desk()
    for page in ("fits", "what_if", "compare", "capacity", "trust"):
        importlib.import_module(f"apps.ui.page_{page}")


def _check_free(host: str, port: int) -> None:
    """Refuse a port that somebody has, before anything is started."""
    import socket

    from simulator.errors import InputError

    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise InputError(
                f"cannot listen on {host} port {port} ({error.strerror}); give another --host or --port"
            ) from None
