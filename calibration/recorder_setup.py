"""Makes a server record itself: a copy of the recorder for its PYTHONPATH, one variable, two flags.

Only the recorder's folder is copied, as ``servecast_recorder``: the server must not see the other packages of the
environment that Servecast runs in.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "servecast_recorder"
VARIABLE = "SERVECAST_RECORD"
#: Seconds for the recorder's last lines to reach the disk.
FLUSHED_S = 1.2


@dataclass(frozen=True)
class RecorderSetup:
    """What a server's start needs to record; *prefix* is the beginning of the names of its files."""

    prefix: Path
    env: Mapping[str, str]
    arguments: tuple[str, ...]

    @property
    def steps_path(self) -> Path:
        """The file of steps."""
        return self.prefix.with_name(self.prefix.name + ".steps.jsonl")

    @property
    def gpu_path(self) -> Path:
        """The file of GPU times; there only if the worker records."""
        return self.prefix.with_name(self.prefix.name + ".gpu.jsonl")


def set_up(
    folder: Path, prefix: Path, *, gpu_times: bool = True, env: Mapping[str, str] | None = None
) -> RecorderSetup:
    """Copy the recorder into *folder* and return how to start a server that records to *prefix*."""
    source, copy = Path(__file__).parent / "recorder", folder / PACKAGE
    copy.mkdir(parents=True, exist_ok=True)
    for module in sorted(source.glob("*.py")):
        shutil.copyfile(module, copy / module.name)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    before = (os.environ if env is None else env).get("PYTHONPATH")
    path = os.pathsep.join([str(folder.resolve()), *([before] if before else [])])
    arguments = ["--scheduler-cls", f"{PACKAGE}.scheduler.RecordingScheduler"]
    if gpu_times:
        arguments += ["--worker-cls", f"{PACKAGE}.worker.RecordingWorker"]
    return RecorderSetup(prefix, {"PYTHONPATH": path, VARIABLE: str(prefix.resolve())}, tuple(arguments))
