"""What only V0 has, by engine step: requests on the CPU, its blocks, what was copied.  See `simulator.records`."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class SwapRecords:
    """Columns beside those of `Records`, one row an engine step.

    Attributes
    ----------
    num_cpu_blocks: blocks of the swap space.
    step_swapped: requests whose KV lies on the CPU, after the step was planned.
    step_free_cpu_blocks: free blocks of the swap space, then.
    step_swapped_in, step_swapped_out: blocks copied to and from the GPU before the step.
    step_swap_s: time of these copies in seconds; the step waits for them.
    """

    num_cpu_blocks: int
    step_swapped: array[int] = field(default_factory=lambda: array("q"))
    step_free_cpu_blocks: array[int] = field(default_factory=lambda: array("q"))
    step_swapped_in: array[int] = field(default_factory=lambda: array("q"))
    step_swapped_out: array[int] = field(default_factory=lambda: array("q"))
    step_swap_s: array[float] = field(default_factory=lambda: array("d"))


SWAP_COLUMNS = ("step_swapped", "step_free_cpu_blocks", "step_swapped_in", "step_swapped_out", "step_swap_s")
