"""Comparisons with the real engines run only when asked for: SERVECAST_ENGINE_TESTS=1."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("SERVECAST_ENGINE_TESTS") == "1" else ["test_*.py"]
