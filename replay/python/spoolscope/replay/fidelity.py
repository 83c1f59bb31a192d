"""The fidelity certificate of a run: which properties of the recording were kept.

The verdict of a certificate is

* ``faithful``: every goal that applies was met;
* ``unfaithful``: one was not; ``reasons`` states which, by how much, and what held calls up;
* ``untimed``: all goals of results were met, but the pace ``afap`` has no times to keep.

Makespan and calls in flight are compared with the recording only where the filesystem type, the
number of users and the speed of time are the recorded ones: elsewhere a difference is a result, not
an error.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.replay import concurrency, lateness, on_disk
from spoolscope.replay.ops import FORK, Ops
from spoolscope.replay.outcomes import (
    BAD_FD,
    DIVERGED,
    OF_FILESYSTEM,
    PENDING,
    REASONS,
    SAME,
    SKIPPED,
    Late,
    Plan,
)
from spoolscope.replay.pace import Pace
from spoolscope.replay.plan import PlanSummary
from spoolscope.traces.flat import NO_CALL_ROW
from spoolscope.traces.goals import (
    DRIFT,
    GOALS,
    IN_FLIGHT,
    LATE_BY_MACHINE,
    MAKESPAN,
    NOT_EXECUTED,
    OTHER_RESULT,
    TREE_DIFFERS,
    share,
    time,
)
from spoolscope.traces.results_certificate import (
    Calls,
    Certificate,
    InFlight,
    Judged,
    Lateness,
    Makespan,
)

# With this share of the CPUs' time idle, a task that waited for a CPU need not have waited.
OFTEN_IDLE = 0.5
VERDICT_COUNTS = {
    "same": SAME,
    "diverged": DIVERGED,
    "of_filesystem": OF_FILESYSTEM,
    "skipped": SKIPPED,
    "never_reached": PENDING,
}


@dataclass(frozen=True)
class Fidelity:
    """Fidelity of a run; counts are of recorded calls, without process life.

    Attributes:
        syscalls: Calls in the trace.
        executed: Calls made for real.
        divergent: Calls with another result that the filesystem does not explain.
        of_filesystem: Calls with another result that the filesystem explains, directly or as the
            consequence of such a one.
        skipped: Calls not made: deliberately, or never reached.
        lateness_p50_ns, lateness_p99_ns: Issue minus schedule; None without a schedule.
        certificate: See ``certify``.
    """

    syscalls: int
    executed: int
    divergent: int
    of_filesystem: int
    skipped: int
    lateness_p50_ns: int | None
    lateness_p99_ns: int | None
    certificate: Certificate


@dataclass(frozen=True)
class Conditions:
    """Conditions by which a run is judged, besides its outcomes.

    Attributes:
        pace: Pace of the run.
        summary: The engine's summary of it.
        mismatched: Number of names of the final tree that differ.
        same_filesystem: It ran on the recorded type of filesystem.
        users: Number of users, as a multiple of the recorded ones.
    """

    pace: Pace
    summary: dict[str, Any]
    mismatched: int
    same_filesystem: bool
    users: int = 1


def fidelity(
    plan: Plan,
    outcomes: npt.NDArray[np.void],
    planned: PlanSummary,
    conditions: Conditions,
    late_calls: Late | None = None,
) -> Fidelity:
    """Count verdicts, measure times and judge a run; ``late_calls`` gets each lateness."""
    counts = count(plan, outcomes, planned)
    made = _all_made(plan, outcomes)
    late = None
    if conditions.pace.has_schedule and counts.executed:
        found = lateness.lateness(plan.ops, outcomes, made, conditions.pace, plan.place)
        late = lateness.summary(found, plan.place)
        if late_calls is not None:
            late_calls.keep(found, made)
    times = _times(plan, outcomes, made, counts.executed)
    flight = concurrency.summary(*times, plan.place)
    certificate = certify(counts, late, _makespan(times, conditions.pace), flight, conditions)
    return Fidelity(
        syscalls=planned.syscalls,
        executed=counts.executed,
        divergent=counts.diverged,
        of_filesystem=counts.of_filesystem,
        skipped=to_make(counts) - counts.executed,
        lateness_p50_ns=late.p50_ns if late else None,
        lateness_p99_ns=late.p99_ns if late else None,
        certificate=certificate,
    )


def _made(ops: Ops, outcomes: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Return which operations are recorded calls that were made for real."""
    verdict = outcomes["verdict"]
    tried = ((verdict == DIVERGED) | (verdict == OF_FILESYSTEM)) & (outcomes["reason"] != BAD_FD)
    made: npt.NDArray[np.bool_] = (ops["call"] != NO_CALL_ROW) & ((verdict == SAME) | tried)
    return made


def _all_made(plan: Plan, outcomes: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    made: npt.NDArray[np.bool_] = on_disk.array(len(outcomes), np.bool_, plan.place)
    for part in on_disk.parts(len(outcomes)):
        made[part] = _made(plan.ops[part], outcomes[part])
    return made


def count(plan: Plan, outcomes: npt.NDArray[np.void], planned: PlanSummary) -> Calls:
    """Count recorded calls by their outcome.

    ``same``, ``diverged``, ``of_filesystem`` (see ``divergences.judge``), ``skipped`` and
    ``never_reached`` are calls of the plan, as are ``skipped_for`` by reason. Not in the plan are
    ``never_returned``, ``of_unknown_threads``, ``left_out_on_purpose`` and ``elsewhere``: calls on
    other filesystems that were mounted below the spool. ``reconstructed`` operations belong to no
    recorded call: they restore the state at the start. ``recorded`` does not include calls
    ``before_start``.
    """
    n = Counter[str]()
    reasons = np.zeros(len(REASONS), np.int64)
    for part in on_disk.parts(len(outcomes)):
        ops, results = plan.ops[part], outcomes[part]
        calls, verdict = ops["call"] != NO_CALL_ROW, results["verdict"]
        n["executed"] += int(_made(ops, results).sum())
        for name, what in VERDICT_COUNTS.items():
            n[name] += int((calls & (verdict == what)).sum())
        n["reconstructed"] += int((~calls & (ops["op"] < FORK)).sum())
        skipped = results["reason"][calls & (verdict == SKIPPED)]
        reasons += np.bincount(skipped, minlength=len(REASONS))
    return Calls(
        recorded=planned.syscalls,
        before_start=planned.before_start,
        executed=n["executed"],
        same=n["same"],
        diverged=n["diverged"],
        of_filesystem=n["of_filesystem"],
        skipped=n["skipped"],
        skipped_for={REASONS[at]: int(found) for at, found in enumerate(reasons) if found},
        never_reached=n["never_reached"],
        never_returned=planned.in_flight,
        of_unknown_threads=planned.strangers,
        elsewhere=planned.elsewhere,
        left_out_on_purpose=sum(planned.left_out.values()),
        reconstructed=n["reconstructed"],
    )


Times = tuple[tuple[lateness.Int, lateness.Int], tuple[lateness.Int, lateness.Int]]


def _times(
    plan: Plan, outcomes: npt.NDArray[np.void], made: npt.NDArray[np.bool_], n: int
) -> Times:
    """Return (start, end) of the n calls made: as recorded, and in the replay."""
    found = [on_disk.array(n, np.int64, plan.place) for _ in range(4)]
    filled = 0
    for part in on_disk.parts(len(outcomes)):
        ops, results = plan.ops[part][made[part]], outcomes[part][made[part]]
        sources = ops["start_ns"], ops["end_ns"], results["issue_ns"], results["end_ns"]
        for times, source in zip(found, sources, strict=True):
            times[filled : filled + len(ops)] = source
        filled += len(ops)
    return (found[0], found[1]), (found[2], found[3])


def certify(
    counts: Calls,
    late: Lateness | None,
    span: Makespan,
    flight: InFlight,
    given: Conditions,
) -> Certificate:
    """Return the certificate of a run.

    Args:
        counts: See ``count``.
        late: See ``lateness.summary``; None without a schedule.
        span: See ``_makespan``.
        flight: See ``concurrency.summary``.
        given: Other conditions by which the run is judged.
    """
    goals = _goals(counts, late, span, flight, given)
    reasons = [_reason(goal, counts, late, given) for goal in goals if goal.met is False]
    reasons += _accidents(given.summary)
    word = "unfaithful" if reasons else "faithful" if given.pace.has_schedule else "untimed"
    return Certificate(
        verdict=word,
        reasons=reasons,
        pace=given.pace.text,
        loop=given.pace.loop,
        realtime=given.pace.realtime,
        same_filesystem=given.same_filesystem,
        calls=counts,
        goals=goals,
        lateness=late,
        makespan=span,
        in_flight=flight,
        cpu_idle=given.summary.get("cpu_idle"),
        cpu_steal=given.summary.get("cpu_steal"),
    )


def to_make(counts: Calls) -> int:
    """Return how many calls were to be made: all but those left out on purpose."""
    missing = counts.never_returned + counts.of_unknown_threads
    return missing + sum(int(getattr(counts, name)) for name in VERDICT_COUNTS)


def _makespan(times: Times, pace: Pace) -> Makespan:
    """Return the time from the first issue to the last end, ns, and its relative error."""
    recorded, replayed = (int(end.max() - start.min()) if len(start) else 0 for start, end in times)
    wanted = recorded / (pace.factor or 1.0) if pace.has_schedule else None
    error = (replayed - wanted) / wanted if wanted else None
    return Makespan(recorded_ns=recorded, replayed_ns=replayed, error=error)


def _goals(
    counts: Calls, late: Lateness | None, span: Makespan, flight: InFlight, given: Conditions
) -> list[Judged]:
    wanted = to_make(counts)
    comparable = given.same_filesystem and given.pace.is_original and given.users == 1
    values: dict[str, float | None] = {
        OTHER_RESULT.name: counts.diverged / max(wanted, 1),
        NOT_EXECUTED.name: 1 - counts.executed / max(wanted, 1),
        TREE_DIFFERS.name: given.mismatched,
        LATE_BY_MACHINE.name: late.parts["machine"].p99_ns if late else None,
        DRIFT.name: late.drift_ppm if late else None,
        MAKESPAN.name: span.error,
        IN_FLIGHT.name: flight.emd_by_mean,
    }
    judged = []
    for name, goal in GOALS.items():
        value = values[name]
        applies = value is not None and (comparable or not goal.against_recording)
        met = goal.is_met(value) if value is not None and applies else None
        judged.append(Judged(name=name, value=value, limit=goal.limit, met=met))
    return judged


def _reason(one: Judged, counts: Calls, late: Lateness | None, given: Conditions) -> str:
    """Return a sentence that states which goal was missed, and why."""
    details = {
        NOT_EXECUTED.name: _skipped(counts),
        LATE_BY_MACHINE.name: f"{_stall(late)}{_cpus(given)}",
        DRIFT.name: _mostly(late),
    }
    return GOALS[one.name].sentence(one.value or 0.0, details.get(one.name, ""))


def _accidents(summary: dict[str, Any]) -> list[str]:
    found = []
    if n := summary.get("tasks_crashed"):
        found.append(f"{n} tasks died")
    if n := summary.get("orders_given_up"):
        found.append(f"{n} waits for the recorded order were given up")
    return found


def _skipped(counts: Calls) -> str:
    """Return the reasons for which calls were skipped, in words."""
    named = counts.skipped_for.items()
    said = ", ".join(f"{n:,} {reason.replace('_', ' ')}" for reason, n in named)
    return f" ({said})" if said else ""


def _mostly(late: Lateness | None) -> str:
    """Return the largest part of the lateness, in words."""
    if late is None:
        return ""
    name, part = max(late.parts.items(), key=lambda item: item[1].ns)
    why = {
        "slower_calls": "calls took longer than recorded",
        "dependencies": "calls of other threads had to end first",
        "machine": "the machine did not run the tasks in time",
    }
    return f"; {share(part.share)} of all lateness is because {why[name]}"


def _stall(late: Lateness | None) -> str:
    stall = late.longest_stall if late else None
    if not stall:
        return ""
    return f"; its longest stall was {time(stall.ns)}, {time(stall.due_ns)} after the start"


def _cpus(given: Conditions) -> str:
    """Return in words how idle the CPUs were, and what helps if they were idle."""
    idle, steal = given.summary.get("cpu_idle"), given.summary.get("cpu_steal")
    if idle is None:
        return ""
    taken = f", {share(steal)} taken by other machines" if steal else ""
    helps = idle >= OFTEN_IDLE and not given.pace.realtime
    remedy = "; --realtime lets tasks take a CPU at once" if helps else ""
    return f"; the CPUs were {share(idle)} idle{taken}{remedy}"
