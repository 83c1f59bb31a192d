"""How late each call was issued, and what made it late.

A call is *due* at its recorded time (open loop) or some pause after its thread's previous call
(closed loop). Until it is issued three things can hold it up, one after the other:

* its thread is still busy with the call before;
* a call of another thread, which comes before it in the recorded order, has not ended;
* nothing is in the way any more, but the task does not run: a timer fires late, it is woken late,
  it gets no CPU, or the replayer itself takes the time.

What the first is due to is told by the calls that came late in one go before it in the same
thread: it is divided in proportion to how much longer than recorded they took, how long they
waited for other threads, and how long the machine did not run them. So the lateness of every call
is the sum of three parts, in integer nanoseconds:

* ``slower_calls``: calls of its thread took longer than recorded;
* ``dependencies``: calls of other threads had to end first;
* ``machine``: the machine, or the replayer, did not run the task in time.

The last is the replay's own error. The others are what the target does to the load, as far as
calls are not slower because the machine is busy.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.replay.pace import Pace
from spoolscope.replay.plan import FORK, Ops
from spoolscope.traces.flat import NONE

Int = npt.NDArray[np.int64]
MS = 1_000_000
# The drift is told from the medians of this many groups: one stall is no drift.
GROUPS = 128


@dataclass(frozen=True)
class Lateness:
    """Of the calls asked for, ns; each array has one element per call.

    Attributes:
        due: When it was due, since the start.
        slower_calls, dependencies, machine: Parts of issue - due; they add up to it exactly.
        idle: How long it was not run although nothing was in its way: its own part of machine.
        slept: Its task had slept until it was due, and waited for nothing else.
        waited: Its task had waited for a call of another thread.
    """

    due: Int
    slower_calls: Int
    dependencies: Int
    machine: Int
    idle: Int
    slept: npt.NDArray[np.bool_]
    waited: npt.NDArray[np.bool_]

    @property
    def total(self) -> Int:
        """Issue minus due."""
        return self.slower_calls + self.dependencies + self.machine


def previous(ops: Ops, issue: Int, end: Int) -> tuple[Int, Int]:
    """Return what each operation follows in its thread, ns: (its end here, its recorded end).

    The first operation of a thread follows the issue of its fork, or the start.
    """
    order = np.argsort(ops["thread"], kind="stable")
    same = np.zeros(len(ops), np.bool_)
    same[1:] = ops["thread"][order[1:]] == ops["thread"][order[:-1]]
    here, recorded = np.zeros(len(ops), np.int64), np.zeros(len(ops), np.int64)
    later, earlier = order[same], order[np.flatnonzero(same) - 1]
    here[later], recorded[later] = end[earlier], ops["end_ns"][earlier]
    forks = np.flatnonzero((ops["op"] == FORK) & (ops["arg"] != NONE))
    if len(forks):
        fork_of = np.full(int(max(ops["thread"].max(), ops["arg"][forks].max())) + 1, -1, np.int64)
        fork_of[ops["arg"][forks]] = forks
        first = order[~same]
        first = first[fork_of[ops["thread"][first]] >= 0]
        fork = fork_of[ops["thread"][first]]
        here[first], recorded[first] = issue[fork], ops["start_ns"][fork]
    return here, recorded


def lateness(
    ops: Ops, outcomes: npt.NDArray[np.void], made: npt.NDArray[np.bool_], pace: Pace
) -> Lateness:
    """Take the lateness of calls apart.

    Args:
        ops: All operations of the plan.
        outcomes: Their results.
        made: Which operations are asked for: those executed.
        pace: How they were paced; it must have a schedule.
    """
    issue, ready = outcomes["issue_ns"], outcomes["ready_ns"]
    before, recorded = previous(ops, issue, outcomes["end_ns"])
    if pace.factor is None:
        due = before + np.maximum(ops["start_ns"] - recorded, 0)
    else:
        due = (ops["start_ns"] / pace.factor).astype(np.int64)
    due = np.minimum(due, issue)
    free = np.minimum(np.maximum(due, before), issue)
    held = np.clip(ready, free, issue)
    behind, waited, idle = free - due, held - free, issue - held
    took = (ops["end_ns"] - ops["start_ns"]) / (pace.factor or 1.0)
    longer = np.maximum(outcomes["end_ns"] - issue - took.astype(np.int64), 0)
    by_wait, by_machine = _inherited(ops["thread"], behind, waited, idle, longer)
    return Lateness(
        due=due[made],
        slower_calls=(behind - by_wait - by_machine)[made],
        dependencies=(waited + by_wait)[made],
        machine=(idle + by_machine)[made],
        idle=idle[made],
        slept=((due > before) & (ready <= due))[made],
        waited=(ready > free)[made],
    )


def _inherited(thread: Int, behind: Int, waited: Int, idle: Int, longer: Int) -> tuple[Int, Int]:
    """Return the parts of ``behind`` that are due to waits and to the machine, ns.

    Each argument has one element per operation, in order of time within each thread. A run of
    late calls begins where nothing is behind.
    """
    order = np.argsort(thread, kind="stable")
    late, first = behind[order], np.ones(len(order), np.bool_)
    first[1:] = thread[order[1:]] != thread[order[:-1]]
    begin = np.maximum.accumulate(np.where((late == 0) | first, np.arange(len(order)), 0))

    def so_far(values: Int) -> npt.NDArray[np.float64]:
        """Sum from the begin of the run of late calls to the call before, ns."""
        sums = np.concatenate([[0], np.cumsum(values[order])])[:-1]
        found: npt.NDArray[np.float64] = (sums - sums[begin]).astype(np.float64)
        return found

    waits, machine = so_far(waited), so_far(idle)
    whole = np.maximum(waits + machine + so_far(longer), 1)
    parts = []
    for part in (waits, machine):
        values = np.zeros(len(order), np.int64)
        values[order] = (late * (part / whole)).astype(np.int64)
        parts.append(values)
    return parts[0], parts[1]


def summary(late: Lateness) -> dict[str, Any]:
    """Return the lateness as JSON knows it: ns, and shares of all lateness together."""
    total = late.total
    whole = int(total.sum())
    named = {name: getattr(late, name) for name in ("slower_calls", "dependencies", "machine")}
    parts = {
        name: {"ns": int(part.sum()), "share": float(part.sum() / whole) if whole else 0.0}
        | quantiles(part)
        for name, part in named.items()
    }
    moments = {
        "after_sleep": late.slept,
        "after_waiting": late.waited,
        "between_calls": ~late.slept & ~late.waited,
    }
    return {
        "calls": len(total),
        **quantiles(total),
        "over_1ms": int((total > MS).sum()),
        "over_1ms_by_machine": int((late.machine > MS).sum()),
        "parts": parts,
        "idle_when": {
            name: {"calls": int(chosen.sum())} | quantiles(late.idle[chosen])
            for name, chosen in moments.items()
        },
        "drift_ppm": drift_ppm(late.due, total),
        "longest_stall": _longest(late),
    }


def quantiles(values: Int) -> dict[str, int | None]:
    """Return p50, p90, p99 and the maximum, ns; None of nothing."""
    if not len(values):
        return {"p50_ns": None, "p90_ns": None, "p99_ns": None, "max_ns": None}
    found = np.percentile(values, [50, 90, 99, 100], method="higher").astype(np.int64)
    return dict(zip(("p50_ns", "p90_ns", "p99_ns", "max_ns"), found.tolist(), strict=True))


def drift_ppm(due: Int, late: Int) -> float | None:
    """Return the slope of lateness over due time, in ns per ms of the run; None if too short.

    The median of all slopes between the medians of up to 128 groups of equally many calls, in
    order of due time (Theil and Sen): steady drift shows as it is, single stalls do not.
    """
    order = np.argsort(due, kind="stable")
    groups = np.array_split(order, min(GROUPS, len(order))) if len(order) else []
    x = np.array([np.median(due[group]) for group in groups])
    y = np.array([np.median(late[group]) for group in groups])
    one, other = np.triu_indices(len(x), 1)
    apart = x[other] > x[one]
    if not apart.any():
        return None
    slopes = (y[other] - y[one])[apart] / (x[other] - x[one])[apart]
    return float(np.median(slopes) * 1e6)


def _longest(late: Lateness) -> dict[str, Any] | None:
    """Return for how long the machine held one call up at most, and when."""
    if not len(late.idle):
        return None
    at = int(late.idle.argmax())
    return {"ns": int(late.idle[at]), "due_ns": int(late.due[at])}
