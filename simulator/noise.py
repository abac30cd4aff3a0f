"""Randomness keyed by (seed, step): the factor of step n is the same however the simulation came to step n.

Drawn in blocks of 4096 steps from a counter-based generator (Philox), so that a look-up costs an index, and so that a
stretch of steps can be asked for as an array.  Nothing is drawn in sequence: two runs that differ in one early step
still see the same factors later.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK = 4096

Floats = NDArray[np.float64]


class StepNoise:
    """Independent draws per step and stream: standard normals and uniforms."""

    __slots__ = ("_arrays", "_block", "_normals", "_seed", "_stream", "_uniforms")

    def __init__(self, seed: int, stream: int) -> None:
        self._seed = seed
        self._stream = stream
        self._block = -1
        self._arrays = (np.zeros(0), np.zeros(0))
        self._normals: list[float] = []
        self._uniforms: list[float] = []

    def _load(self, block: int) -> None:
        generator = np.random.Generator(np.random.Philox(key=[self._seed, self._stream], counter=[0, 0, 0, block]))
        self._arrays = generator.standard_normal(BLOCK), generator.random(BLOCK)
        self._normals, self._uniforms = (array.tolist() for array in self._arrays)
        self._block = block

    def draw(self, step: int) -> tuple[float, float]:
        """Return (standard normal, uniform in [0, 1)) of *step*."""
        block, index = divmod(step, BLOCK)
        if block != self._block:
            self._load(block)
        return self._normals[index], self._uniforms[index]

    def draws(self, first: int, count: int) -> tuple[Floats, Floats]:
        """Return the normals and the uniforms of the steps ``first .. first + count - 1``, as `draw` would."""
        pieces: list[tuple[Floats, Floats]] = []
        step, end = first, first + count
        while step < end:
            self.draw(step)
            index = step % BLOCK
            stop = min(BLOCK, index + end - step)
            pieces.append((self._arrays[0][index:stop], self._arrays[1][index:stop]))
            step += stop - index
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate([piece[0] for piece in pieces]), np.concatenate([piece[1] for piece in pieces])
