"""A file of JSON lines that grows while a server runs, and loses half a second when the server is killed.

`add` costs the engine's thread one append; a thread of its own turns records into text and writes them twice a second,
also while the engine is idle.  Nothing here may hurt the server: when the disk is full, recording ends with a message.
"""

from __future__ import annotations

import atexit
import collections
import json
import logging
import os
import threading
import time
from typing import Any, Deque, Dict  # noqa: UP035  (older servers run on Python 3.9)

PREFIX_VARIABLE = "SERVECAST_RECORD"
FLUSH_S = 0.5

logger = logging.getLogger("vllm.servecast")  # vLLM shows what is logged under its own name


def prefix() -> str | None:
    """Return where to record, or None when nobody asked."""
    return os.environ.get(PREFIX_VARIABLE) or None


class StepLog:
    """Records waiting to be written, and the file they go to."""

    def __init__(self, path: str) -> None:
        self.flush_s = 0.0
        self._waiting: Deque[Dict[str, Any]] = collections.deque()  # noqa: UP006
        self._lock = threading.Lock()
        self._open = True
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115  (lives as long as the server)
        atexit.register(self.flush)
        threading.Thread(target=self._flush_for_ever, name="servecast-recorder", daemon=True).start()

    def add(self, record: Dict[str, Any]) -> None:  # noqa: UP006
        """Keep *record* until the next flush.  Appending to a deque is atomic, so no lock is taken."""
        if self._open:
            self._waiting.append(record)

    def flush(self) -> None:
        """Write what is waiting; ``flush_s`` adds up the time, which the engine's thread may have waited for."""
        started = time.thread_time()
        with self._lock:
            try:
                while self._waiting:
                    self._file.write(json.dumps(self._waiting.popleft(), separators=(",", ":")) + "\n")
                self._file.flush()
            except (OSError, ValueError) as error:
                self._open = False
                self._waiting.clear()
                logger.warning("servecast: recording ended: %s", error)
        self.flush_s += time.thread_time() - started

    def _flush_for_ever(self) -> None:
        while self._open:
            time.sleep(FLUSH_S)
            self.flush()
