"""Randomness keyed by (seed, step): the factor of step n is the same however the simulation came to step n.

Drawn in blocks of 4096 steps from a counter-based generator (Philox), so that a look-up costs an index, and so that a
stretch of steps can be asked for as an array.  Nothing is drawn in sequence: two runs that differ in one early step
still see the same factors later.
"""

from __future__ import annotations

import numpy as np

from simulator.step_cost import Floats, StepCost

BLOCK = 4096
MODES = (0, 1, 2)


class StepNoise:
    """Factors on the GPU time and on the launch of each step, by CUDA-graph mode."""

    def __init__(self, seed: int, stream: int, cost: StepCost) -> None:
        self._seed = seed
        self._stream = stream
        self._cost = cost
        self._block = -1
        self._lists: list[tuple[list[float], list[float]]] = []  # (GPU, launch) of each mode

    def _load(self, block: int) -> None:
        gpu, launch = self.block(block)
        self._lists = list(zip(gpu.tolist(), launch.tolist(), strict=True))
        self._block = block

    def block(self, block: int) -> Floats:
        """Return all factors of one block of steps: (GPU or launch, mode, step within the block)."""
        generator = np.random.Generator(
            np.random.Philox(key=np.array([self._seed, self._stream], dtype=np.uint64), counter=[0, 0, 0, block])
        )
        normals, uniforms = generator.standard_normal(BLOCK), generator.random(BLOCK)
        cost = self._cost
        return np.array(
            [
                [cost.gpu_noise_array(mode, normals) for mode in MODES],
                [cost.launch_noise_array(mode, uniforms) for mode in MODES],
            ]
        )

    def factors(self, mode: int, step: int) -> tuple[float, float]:
        """Return the factors on (GPU time, launch) of *step*."""
        block, index = divmod(step, BLOCK)
        if block != self._block:
            self._load(block)
        gpu, launch = self._lists[mode]
        return gpu[index], launch[index]

    def stretch(self, mode: int, first: int, count: int) -> tuple[list[float], list[float]]:
        """Return the factors of the steps ``first .. first + count - 1``, as `factors` would."""
        gpu_factors: list[float] = []
        launch_factors: list[float] = []
        step, end = first, first + count
        while step < end:
            self.factors(mode, step)
            index = step % BLOCK
            stop = min(BLOCK, index + end - step)
            gpu, launch = self._lists[mode]
            gpu_factors += gpu[index:stop]
            launch_factors += launch[index:stop]
            step += stop - index
        return gpu_factors, launch_factors
