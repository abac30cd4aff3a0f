"""A browser looks at the explorer only when asked to (`make test-browser`): SERVECAST_BROWSER=/usr/bin/chromium."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("SERVECAST_BROWSER") else ["test_*.py"]
