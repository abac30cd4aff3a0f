"""Copies between GPU and pinned host memory, timed as vLLM's swapping makes them: ``python3 transfer_probe.py``.

One process, one stream, one asynchronous copy after the other, then a wait; the median of several rounds.  Prints JSON:
by direction and size of a piece, seconds per copy.  A straight line through them, ``per_copy_s + bytes / rate``, gives
the two terms of `simulator.profile.Transfer`.  Needs the CUDA driver only, no package; stands alone, so that it can be
copied to a machine with a GPU.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import time

SIZES = (16 << 10, 64 << 10, 160 << 10, 1 << 20, 8 << 20, 256 << 20)
ROUNDS = 7
BUFFER = 256 << 20


def main() -> int:
    """Measure and print."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        code = getattr(cuda, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} failed with CUDA error {code}")

    device, context, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    name = ctypes.create_string_buffer(100)
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDeviceGetName", name, 100, device)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuStreamCreate", ctypes.byref(stream), 0)
    host, gpu = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(BUFFER), 0)
    call("cuMemAlloc_v2", ctypes.byref(gpu), ctypes.c_size_t(BUFFER))
    found: dict[str, dict[str, float]] = {}
    for direction in ("out", "in"):
        found[direction] = {}
        for size in SIZES:
            found[direction][str(size)] = _seconds_per_copy(cuda, stream, host.value or 0, gpu.value, size, direction)
    sys.stdout.write(json.dumps({"gpu": name.value.decode(), "seconds_per_copy": found}, indent=1) + "\n")
    return 0


def _seconds_per_copy(
    cuda: ctypes.CDLL, stream: ctypes.c_void_p, host: int, gpu: int, size: int, direction: str
) -> float:
    """Return the time of one of many copies of *size* bytes; the pieces lie one behind the other."""
    pieces = BUFFER // size
    jobs: list[tuple[object, ...]]
    count = max(4, min(4000, (1 << 30) // size))
    places = [(index % pieces) * size for index in range(count)]
    bytes_ = ctypes.c_size_t(size)
    if direction == "out":
        copy = cuda.cuMemcpyDtoHAsync_v2
        jobs = [(ctypes.c_void_p(host + at), ctypes.c_uint64(gpu + at), bytes_, stream) for at in places]
    else:
        copy = cuda.cuMemcpyHtoDAsync_v2
        jobs = [(ctypes.c_uint64(gpu + at), ctypes.c_void_p(host + at), bytes_, stream) for at in places]
    times: list[float] = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for job in jobs:
            copy(*job)
        cuda.cuStreamSynchronize(stream)
        times.append((time.perf_counter() - begin) / count)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
