"""Lateness of each call, and its causes.

A call is *due* at its recorded time (open loop) or some pause after its thread's previous call
(closed loop). Until it is issued three things can hold it up, one after the other:

* its thread is still busy with the call before;
* a call of another thread, which comes before it in the recorded order, has not ended;
* nothing is in the way any more, but the task does not run: a timer fires late, it is woken late,
  it gets no CPU, or the replayer itself takes the time.

The first has its cause in the series of late calls just before it in the same thread: it is divided
in proportion to how much longer than recorded they took, how long they waited for other threads,
and how long the machine did not run them. The lateness with which a thread begins is divided as
that of its fork. So the lateness of every call is the sum of three parts, in integer nanoseconds:

* ``slower_calls``: calls of its thread took longer than recorded;
* ``dependencies``: calls of other threads had to end first;
* ``machine``: the machine, or the replayer, did not run the task in time.

The last is the replay's own error. The others are effects of the target on the load, as far as
calls are not slower because the machine is busy.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spoolscope.replay import on_disk
from spoolscope.replay.ops import FORK, Ops
from spoolscope.replay.pace import Pace
from spoolscope.traces import results_certificate as certificate
from spoolscope.traces.flat import NONE

Int = npt.NDArray[np.int64]
MS = 1_000_000
# The drift is computed from the medians of this many groups: one stall is no drift.
GROUPS = 128
# Longest chain of forks that is followed within the operations processed together.
GENERATIONS = 16
# The drift is computed from this many calls, evenly spread; it need not be more exact.
SAMPLE = 1 << 20


@dataclass(frozen=True)
class Lateness:
    """Lateness of the calls asked for, ns; each array has one element per call, from a file.

    Attributes:
        due: When the call was due, since the start.
        slower_calls, dependencies, machine: Parts of issue - due; they add up to it exactly.
        idle: Time in which nothing but the machine held it up: its own part of ``machine``.
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

    def total(self, part: slice) -> Int:
        """Return issue minus due."""
        whole: Int = self.slower_calls[part] + self.dependencies[part] + self.machine[part]
        return whole


class _Threads:
    """State that the operations seen so far leave to the next one of their thread, ns.

    Attributes:
        ended, recorded: End of the thread's last operation: in the replay, and as recorded. At
            first the issue of the thread's fork, or the start.
        waits, idle, longer: Sums since the begin of the present series of late calls.
    """

    def __init__(self, n: int) -> None:
        self.ended, self.recorded = np.zeros((2, n), np.int64)
        self.waits, self.idle, self.longer = self.sums = np.zeros((3, n), np.int64)


def lateness(
    ops: Ops,
    outcomes: npt.NDArray[np.void],
    made: npt.NDArray[np.bool_],
    pace: Pace,
    place: Path | None = None,
) -> Lateness:
    """Split the lateness of calls into its parts.

    Args:
        ops: All operations of the plan.
        outcomes: Their results.
        made: Mask of the operations that are asked for: those executed.
        pace: Pace of the run; it must have a schedule.
        place: Directory for arrays of their length.
    """
    slices = list(on_disk.parts(len(ops)))
    n = sum(int(made[part].sum()) for part in slices)
    kinds = {"slept": np.bool_, "waited": np.bool_}
    names = [field.name for field in fields(Lateness)]
    late = Lateness(*(on_disk.array(n, kinds.get(name, np.int64), place) for name in names))
    threads = _Threads(max((int(ops["thread"][part].max()) + 1 for part in slices), default=0))
    filled = 0
    for part in slices:
        found, chosen = _apart(ops[part], outcomes[part], pace, threads), made[part]
        past = filled + int(chosen.sum())
        for name in names:
            getattr(late, name)[filled:past] = getattr(found, name)[chosen]
        filled = past
    return late


def _apart(ops: Ops, outcomes: npt.NDArray[np.void], pace: Pace, threads: _Threads) -> Lateness:
    """Split the lateness of operations that follow those which ``threads`` has seen."""
    issue, ready, end = outcomes["issue_ns"], outcomes["ready_ns"], outcomes["end_ns"]
    order = np.argsort(ops["thread"], kind="stable")
    before, recorded = _previous(ops, issue, end, order, threads)
    if pace.factor is None:
        due = before + np.maximum(ops["start_ns"] - recorded, 0)
    else:
        due = (ops["start_ns"] / pace.factor).astype(np.int64)
    due = np.minimum(due, issue)
    free = np.minimum(np.maximum(due, before), issue)
    held = np.clip(ready, free, issue)
    behind, waited, idle = free - due, held - free, issue - held
    took = (ops["end_ns"] - ops["start_ns"]) / (pace.factor or 1.0)
    longer = np.maximum(end - issue - took.astype(np.int64), 0)
    spans = behind, waited, idle, longer
    by_wait, by_machine = _divided(ops, spans, order, threads)
    return Lateness(
        due=due,
        slower_calls=behind - by_wait - by_machine,
        dependencies=waited + by_wait,
        machine=idle + by_machine,
        idle=idle,
        slept=(due > before) & (ready <= due),
        waited=ready > free,
    )


def _firsts(thread: Int) -> npt.NDArray[np.bool_]:
    """Return which elements, sorted by thread, are the first of their thread."""
    first = np.ones(len(thread), np.bool_)
    first[1:] = thread[1:] != thread[:-1]
    return first


def _previous(ops: Ops, issue: Int, end: Int, order: Int, threads: _Threads) -> tuple[Int, Int]:
    """Return the end of the operation before each in its thread, ns: (replayed, recorded).

    ``order`` sorts by thread.
    """
    forks, children = _forks(ops, threads)
    threads.ended[children], threads.recorded[children] = issue[forks], ops["start_ns"][forks]
    thread, ended, recorded = ops["thread"][order], end[order], ops["end_ns"][order]
    first = _firsts(thread)
    here, there = np.zeros((2, len(ops)), np.int64)
    here[order] = np.where(first, threads.ended[thread], np.roll(ended, 1))
    there[order] = np.where(first, threads.recorded[thread], np.roll(recorded, 1))
    last = np.roll(first, -1)
    threads.ended[thread[last]], threads.recorded[thread[last]] = ended[last], recorded[last]
    return here, there


def _forks(ops: Ops, threads: _Threads) -> tuple[Int, Int]:
    """Return the operations that fork a thread with operations of its own, and these threads."""
    forks = np.flatnonzero((ops["op"] == FORK) & (ops["arg"] != NONE))
    forks = forks[ops["arg"][forks] < len(threads.ended)]
    return forks, ops["arg"][forks].astype(np.int64)


def _divided(
    ops: Ops, spans: tuple[Int, Int, Int, Int], order: Int, threads: _Threads
) -> tuple[Int, Int]:
    """Return the same as ``_inherited``, where each thread begins with the lateness of its fork.

    A fork may itself be late because of an earlier one: each generation takes one more round.
    """
    behind, waited, idle, _ = spans
    forks, children = _forks(ops, threads)
    before = threads.sums.copy()
    for _ in range(GENERATIONS):
        threads.sums[:] = before
        by_wait, by_machine = _inherited(ops["thread"], spans, order, threads)
        waits, machine = (waited + by_wait)[forks], (idle + by_machine)[forks]
        left = np.stack([waits, machine, (behind - by_wait - by_machine)[forks]])
        if (before[:, children] == left).all():
            break
        before[:, children] = left
    return by_wait, by_machine


def _inherited(
    thread: Int, spans: tuple[Int, Int, Int, Int], order: Int, threads: _Threads
) -> tuple[Int, Int]:
    """Return the parts of ``behind`` that are due to waits and to the machine, ns.

    Each array has one element per operation, in order of time within each thread; ``order`` sorts
    by thread. A series of late calls begins where ``behind`` is 0.

    Args:
        thread: Thread of each operation.
        spans: How long it was behind, waited and idle, and how much longer it took.
        order: Operations by thread.
        threads: State that earlier operations left.
    """
    behind, *causes = (span[order] for span in spans)
    thread = thread[order]
    first = _firsts(thread)
    last = np.roll(first, -1)
    begin = np.maximum.accumulate(np.where((behind == 0) | first, np.arange(len(order)), 0))
    carried = behind[begin] > 0

    def so_far(values: Int, carry: Int) -> npt.NDArray[np.float64]:
        """Sum from the begin of the series of late calls to the call before, ns."""
        sums = np.cumsum(values) - values
        found = sums - sums[begin] + np.where(carried, carry[thread], 0)
        carry[thread[last]] = (found + values)[last]
        return found.astype(np.float64)

    carries = threads.waits, threads.idle, threads.longer
    waits, machine, longer = (so_far(*both) for both in zip(causes, carries, strict=True))
    whole = np.maximum(waits + machine + longer, 1)
    parts = []
    for part in (waits, machine):
        values = np.zeros(len(order), np.int64)
        values[order] = (behind * (part / whole)).astype(np.int64)
        parts.append(values)
    return parts[0], parts[1]


def summary(late: Lateness, place: Path | None = None) -> certificate.Lateness:
    """Return the lateness as a certificate has it: ns, and shares of all lateness together.

    ``place`` is a directory for an array of its length.
    """
    n = len(late.due)
    slices, scratch = list(on_disk.parts(n)), on_disk.array(n, np.int64, place)
    whole = sum(int(late.total(part).sum()) for part in slices)

    def one(name: str) -> certificate.LatePart:
        values = getattr(late, name)
        ns = sum(int(values[part].sum()) for part in slices)
        found = quantiles((values[part] for part in slices), scratch)
        return certificate.LatePart(ns=ns, share=ns / whole if whole else 0.0, **found)

    def chosen(how: str) -> Iterator[Int]:
        for part in slices:
            slept, waited = late.slept[part], late.waited[part]
            moments = {"after_sleep": slept, "after_waiting": waited}
            yield late.idle[part][moments.get(how, ~slept & ~waited)]

    moments = ("after_sleep", "after_waiting", "between_calls")
    every = max(-(-n // SAMPLE), 1)
    sample = slice(0, n, every)
    return certificate.Lateness(
        calls=n,
        **quantiles((late.total(part) for part in slices), scratch),
        over_1ms=sum(int((late.total(part) > MS).sum()) for part in slices),
        over_1ms_by_machine=sum(int((late.machine[part] > MS).sum()) for part in slices),
        parts={name: one(name) for name in ("slower_calls", "dependencies", "machine")},
        idle_when={
            how: certificate.IdleWhen(
                calls=sum(map(len, chosen(how))), **quantiles(chosen(how), scratch)
            )
            for how in moments
        },
        drift_ppm=drift_ppm(late.due[sample], late.total(sample)),
        longest_stall=_longest(late),
    )


def quantiles(parts: Iterator[Int], scratch: Int) -> dict[str, int | None]:
    """Return p50, p90, p99 and the maximum, ns; None without values.

    Args:
        parts: The values.
        scratch: An array with room for all of them; changed.
    """
    n = 0
    for part in parts:
        scratch[n : n + len(part)] = part
        n += len(part)
    if n == 0:
        return {"p50_ns": None, "p90_ns": None, "p99_ns": None, "max_ns": None}
    ranks = np.ceil(np.array([50, 90, 99, 100]) / 100 * (n - 1)).astype(np.int64)
    scratch[:n].partition(ranks)
    names = ("p50_ns", "p90_ns", "p99_ns", "max_ns")
    return dict(zip(names, scratch[ranks].tolist(), strict=True))


def drift_ppm(due: Int, late: Int) -> float | None:
    """Return the slope of lateness over due time, in ns per ms of the run; None if too short.

    It is the median of all slopes between the medians of up to 128 groups of equally many calls, in
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


def _longest(late: Lateness) -> certificate.Stall | None:
    """Return the longest time for which the machine held up one call, and when it was due."""
    if not len(late.idle):
        return None
    at = int(late.idle.argmax())
    return certificate.Stall(ns=int(late.idle[at]), due_ns=int(late.due[at]))
