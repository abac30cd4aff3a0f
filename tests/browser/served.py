"""The explorer as ``servecast explore`` serves it, and a Chromium that looks at it; for the tests and the pictures."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

#: A closed machine has no use for what Chromium fetches on its own.
_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--force-color-profile=srgb",
]  # fmt: skip
#: The front end looks for its server under the page's own path first; and drivers talk of their own speed.
_HARMLESS = ("404 (Not Found)", "GL Driver Message")


@contextlib.contextmanager
def served() -> Iterator[str]:
    """Give the address of an explorer that has come up."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "apps.cli", "explore", "--port", str(port), "--no-browser"]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_for(f"http://127.0.0.1:{port}/_stcore/health", server)
            time.sleep(4)  # as a server is that somebody started before the visitor came
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(20)


def _wait_for(address: str, server: subprocess.Popen[bytes], limit_s: float = 60) -> None:
    begun = time.monotonic()
    while time.monotonic() - begun < limit_s:
        assert server.poll() is None, "the explorer has ended"
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise AssertionError(f"no answer at {address} in {limit_s} s")


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Give a headless Chromium: the one SERVECAST_BROWSER names."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=os.environ["SERVECAST_BROWSER"], args=_FLAGS)
        try:
            yield chromium
        finally:
            chromium.close()


def visit(chromium: Browser, address: str, *, dark: bool = False, width: int = 1280, height: int = 900) -> Page:
    """Return a page of a new visitor at *address*, its answer there; what the console complains of is collected."""
    context = chromium.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", accept_downloads=True
    )
    page = context.new_page()
    complaints: list[str] = []
    page.complaints = complaints  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: _note(message, complaints))
    page.goto(address)
    page.wait_for_selector(".sc-answer", timeout=60_000)
    return page


def _note(message: Any, complaints: list[str]) -> None:
    if message.type == "error" and not any(words in message.text for words in _HARMLESS):
        complaints.append(message.text)


def settled(page: Page, limit_s: float = 120) -> None:
    """Wait until nothing runs any more and every chart is drawn."""
    page.wait_for_function(
        """() => document.querySelector('[data-test-script-state]')?.dataset.testScriptState === 'notRunning'
        && [...document.querySelectorAll('[data-testid=stPlotlyChart]')].every(
            chart => chart.offsetParent === null || chart.querySelector('.main-svg'))""",
        timeout=1000 * limit_s,
    )
    page.wait_for_timeout(400)


def answer(page: Page) -> str:
    """Return the sentence on top."""
    return " ".join(page.locator(".sc-answer").first.inner_text().split())
