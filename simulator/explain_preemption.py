"""When preemption began, and what would have prevented it, as arithmetic on the requests that ran then.

At the first preemption n requests were running.  At their full length they need ``sum(ceil(length / block_size))`` KV
blocks (each as if it shared no prefix); what the cache lacks of that is the missing memory, and ``max_num_seqs`` that
would have fitted is how many such requests the cache holds.  Both are first guesses, to be checked by simulation: who
comes later may be longer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.records import Records


@dataclass(frozen=True)
class Onset:
    """The first preemption of a run.

    Attributes
    ----------
    step, time_s: the step that threw somebody out, and when it was planned.
    running, waiting: requests after that plan, the victims counted as running.
    preemptions, requests, recomputed_tokens: in the whole run: times, requests it happened to, tokens computed again.
    usable_blocks, needed_blocks: KV blocks there are, and that those running need at their full length.
    fitting_seqs: how many such requests fit.
    peak_running: most requests running after a plan of the run, victims counted: a limit of so many changes nothing.
    """

    step: int
    time_s: float
    running: int
    waiting: int
    preemptions: int
    requests: int
    recomputed_tokens: int
    usable_blocks: int
    needed_blocks: int
    fitting_seqs: int
    peak_running: int

    @property
    def missing_blocks(self) -> int:
        """Blocks more that would have held everybody who ran then."""
        return max(0, self.needed_blocks - self.usable_blocks)


def onset(records: Records) -> Onset | None:
    """Return the first preemption; None if there was none."""
    preempted = np.asarray(records.step_preempted, dtype=np.int64)
    steps = np.flatnonzero(preempted)
    if not len(steps):
        return None
    step = int(steps[0])
    time_s = records.step_plan_s[step]
    begun = np.asarray(records.first_scheduled_s, dtype=np.float64) <= time_s
    ended = np.asarray(records.last_token_s, dtype=np.float64) < time_s
    lengths = (np.asarray(records.prompt_tokens) + np.asarray(records.output_tokens))[begun & ~ended]
    blocks = -(-lengths // records.block_size)
    usable = records.usable_blocks or records.num_gpu_blocks - 1
    needed = int(blocks.sum())
    return Onset(
        step=step,
        time_s=float(time_s),
        running=records.step_running[step] + int(preempted[step]),
        waiting=records.step_waiting[step] - int(preempted[step]),
        preemptions=int(preempted.sum()),
        requests=int((np.asarray(records.preemptions) > 0).sum()),
        recomputed_tokens=int(sum(records.recomputed_tokens)),
        usable_blocks=usable,
        needed_blocks=needed,
        peak_running=int((np.asarray(records.step_running) + preempted).max()),
        fitting_seqs=max(1, int(usable // blocks.mean())) if needed else 1,
    )
