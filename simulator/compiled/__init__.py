"""The loop of a V1 engine over flat arrays, compiled by numba; the same records as the other paths, bit by bit."""
