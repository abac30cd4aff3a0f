"""Which part of a run counts: without its warm-up and its end, and whether the server kept up at all.

Warm-up: MSER-5 (White, 1997).  The state, the share of the KV cache in use (it fills up as the batch does), is sampled
at `SAMPLES` even times while requests are sent, and averaged in fives.  The cut d minimises

    var(means after d) / (number of them)

over the first half.  In a closed loop the first request of every client is left out too: they all come at once.

End: requests sent after the last one less the median E2E latency are left out, since their answers are written by a
server that empties.

Keeping up, open loop: let N(t) be the requests in the system, and (a, b) the part that counts.  The server does not
keep up if N grows, from the first to the last quarter of (a, b), by more than

    3 % of the requests that came in between   and   3 times the square root of N (Poisson noise)

however good the latencies still look: in a longer run they would not.  A closed loop limits itself.  A list or a trace
is finite and judged whole: nothing is cut, nothing is extrapolated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.engine_state import usage
from simulator.records import Records, Status
from simulator.result import Result
from simulator.workload import RateWorkload

Floats = NDArray[np.float64]

SAMPLES = 200
BATCH = 5
#: Growth of the requests in the system, as a share of arrivals, and in standard deviations, that means overload.
GROWTH_SHARE = 0.03
GROWTH_DEVIATIONS = 3.0


@dataclass(frozen=True)
class Window:
    """The requests sent in [start_s, end_s) count.

    *growth* is the part of the arrivals by which the queue grew; *keeps_up* false if that is overload.  *settled* is
    false if MSER-5 found no steady state in the first half.
    """

    start_s: float
    end_s: float
    growth: float = 0.0
    keeps_up: bool = True
    settled: bool = True

    @property
    def length_s(self) -> float:
        """Seconds the window lasts."""
        return self.end_s - self.start_s

    def holds(self, sent_s: Floats) -> NDArray[np.bool_]:
        """Return which requests count."""
        return np.asarray((sent_s >= self.start_s) & (sent_s < self.end_s))


def whole(records: Records) -> Window:
    """Return the window of a run that is judged whole."""
    return Window(records.start_s, math.nextafter(max(records.end_s, records.start_s), math.inf))


def open_window(records: Records, planned_s: Floats) -> Window:
    """Return the part of an open loop that counts, and whether the server keeps up with it.

    *planned_s* are the times at which the requests were to be sent: a client that holds requests back lets the queue
    grow on its own side.
    """
    planned_s = np.sort(planned_s[np.isfinite(planned_s)])
    found = _cut(records, planned_s, 0)
    growth, keeps_up = _growth(records, planned_s, found)
    return replace(found, growth=growth, keeps_up=keeps_up)


def closed_window(records: Records, herd: int) -> Window:
    """Return the part of a closed loop that counts; its first *herd* requests came all at once."""
    sent = np.asarray(records.sent_s, dtype=np.float64)
    return _cut(records, np.sort(sent[np.isfinite(sent)]), herd)


def _cut(records: Records, sent: Floats, herd: int) -> Window:
    """Return the window within the times *sent*, sorted."""
    if len(sent) < 2 * BATCH or sent[-1] <= sent[0]:
        return whole(records)
    times = np.linspace(sent[0], sent[-1], SAMPLES + 1)[1:]
    cut, settled = mser5(usage(records).at(times))
    start = max(float(times[cut - 1]) if cut else float(sent[0]), float(sent[min(herd, len(sent) // 2)]))
    end = max(float(sent[-1]) - _median_e2el(records), start + (float(sent[-1]) - start) / 2)
    return Window(start, end, settled=settled)


def mser5(values: Floats) -> tuple[int, bool]:
    """Return (how many of *values* to cut at the start, whether the rule is met before the last place it may be)."""
    count = len(values) // BATCH
    means = values[: count * BATCH].reshape(count, BATCH).mean(axis=1)
    half = count // 2
    costs = [float(means[d:].var()) / (count - d) for d in range(half + 1)]
    best = int(np.argmin(costs))
    return best * BATCH, best < half


def _median_e2el(records: Records) -> float:
    lasted = np.asarray(records.last_token_s) - np.asarray(records.sent_s)
    lasted = lasted[np.isfinite(lasted)]
    return float(np.median(lasted)) if len(lasted) else 0.0


def _growth(records: Records, sent: Floats, when: Window) -> tuple[float, bool]:
    """Return by which share of the arrivals the requests in the system grow, and whether that is still noise."""
    start, end = when.start_s, when.end_s
    ends = np.asarray(records.last_token_s, dtype=np.float64)
    ended = np.sort(ends[np.isfinite(ends) & (np.asarray(records.status) == Status.FINISHED)])
    quarter = (end - start) / 4

    def inside(first: float) -> Floats:
        at = np.linspace(first, first + quarter, 50)
        return np.asarray(np.searchsorted(sent, at, side="right") - np.searchsorted(ended, at, side="right"), float)

    before, after = float(inside(start).mean()), float(inside(end - quarter).mean())
    came = float(np.searchsorted(sent, end - quarter / 2) - np.searchsorted(sent, start + quarter / 2))
    growth = (after - before) / max(1.0, came)
    noise = GROWTH_DEVIATIONS * math.sqrt(max(1.0, (before + after) / 2))
    return growth, not (growth > GROWTH_SHARE and after - before > noise)


#: Of a rate that a server keeps up with, so much at least is answered within a run that is long enough.
_ANSWERED = 0.8


def too_short(sent: float, answered: float) -> str | None:
    """Return a warning if a run ended before its requests could pile up: it would meet an SLO at any load.

    *sent* and *answered* are requests/s, of the load and as measured.
    """
    if answered >= _ANSWERED * sent:
        return None
    return (
        f"the runs are too short to tell: {sent:,.4g} requests/s are sent and {answered:,.4g} answered, so they end "
        "before a queue can grow; the true capacity is lower, raise --num-prompts"
    )


def overload(result: Result) -> str | None:
    """Return a warning if *result* is of an open loop at a steady rate with which the server does not keep up."""
    workload = result.scenario.workload
    if not isinstance(workload, RateWorkload) or workload.rate_shape is not None or result.scenario.is_fleet:
        return None
    if math.isinf(workload.rate) or open_window(result.records, result.table.arrival_s).keeps_up:
        return None
    return (
        f"the server does not keep up with {workload.rate:g} requests/s: the queue grows as long as they come, and "
        "latencies would be higher in a longer run; `servecast capacity` finds the rate it can carry"
    )
