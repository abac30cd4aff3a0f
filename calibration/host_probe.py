"""A few seconds of load that tell how fast a host is, sent to a server before the run that is judged.

Bursts as a calibration records them (`calibration.bursts`): decodes in two batches, prompts that meet decodes, a prompt
alone.  `calibration.host` reads the host's scales from their steps.  Evidence: over seven runs on three hosts the mean
TTFT was 7 % off with the scales of such a probe, 19 % with the profile as calibrated (docs/accuracy.md).
"""

from __future__ import annotations

import time
from typing import Any

from calibration.bursts import Burst, Limits, alone, decode, meeting
from calibration.client import Target, replay

#: Name of the probe among the recorded runs of a folder.
NAME = "host-probe"
#: Seconds between bursts, so that each finds an idle server; and a guess of a decode step's time.
PAUSE_S, STEP_S = 0.1, 0.006
#: What the bursts assume of a server that does not tell.
LIMITS = Limits(max_num_seqs=64, max_num_batched_tokens=2048, max_model_len=4096, kv_tokens=30_000)


def bursts(max_model_len: int | None) -> list[Burst]:
    """Return the bursts of a probe, those left out that the server would refuse."""
    limits = LIMITS if max_model_len is None else Limits(64, 2048, min(4096, max_model_len), 30_000)
    wanted = [decode(16, 512), meeting(24, STEP_S, limits), alone(2000), decode(48, 256), meeting(8, STEP_S, limits),
              meeting(24, STEP_S, limits)]  # fmt: skip
    return [burst for burst in wanted if burst.can_run(limits)]


def send(target: Target, max_model_len: int | None, seed: int) -> list[dict[str, Any]]:
    """Send the bursts one after the other; return their documents (`calibration.answers`)."""
    documents = []
    for number, burst in enumerate(bursts(max_model_len)):
        documents.append(replay(target, burst.table(), seed=seed, run=2_000_000 + number).to_dict())
        time.sleep(PAUSE_S)
    return documents
