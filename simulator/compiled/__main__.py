"""``python -m simulator.compiled``: compile the loop and keep it, once for an installation."""

import sys
import time

from simulator.compiled.jit import is_available
from simulator.compiled.keeping import prepare

begin = time.perf_counter()
prepare()
if is_available():
    sys.stdout.write(f"the compiled loop is ready ({time.perf_counter() - begin:.1f} s)\n")
else:
    sys.stdout.write("numba is not installed: the simulator runs as pure Python, with the same numbers\n")
