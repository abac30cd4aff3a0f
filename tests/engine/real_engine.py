"""The real vLLM as a function from scenarios to events, in a process of its own.

The interpreter with vLLM is named by VLLM_PYTHON (default: this one), so that our own environment stays without torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

DRIVER = Path(__file__).with_name("drive_v1.py")


class RealEngine:
    """A running `drive_v1`; use it in a ``with`` statement."""

    def __init__(self) -> None:
        python = os.environ.get("VLLM_PYTHON", sys.executable)
        self._process = subprocess.Popen(
            [python, str(DRIVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.version: str = self._answer()

    def __enter__(self) -> RealEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def record(self, scenarios: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return *scenarios* with events, without those that do not end."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(scenarios) + "\n")
        self._process.stdin.flush()
        recorded: list[dict[str, Any]] = self._answer()
        return recorded

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{DRIVER.name} has died; its messages are above (is vllm importable by VLLM_PYTHON?)")
        return json.loads(line)
