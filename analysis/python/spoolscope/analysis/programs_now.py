"""Current use of the spool by program, from the sums of an interval."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spoolscope.analysis.causes import MACHINE
from spoolscope.traces.calls import CALLS
from spoolscope.traces.rollups.schema import CALL

# fork, exit or chdir are summed even if they do not touch a spool.
_TASK_CALLS = frozenset(call.name for call in CALLS.values() if call.klass == "task")


@dataclass
class ProgramUse:
    """One program, in one systemd unit, in one interval.

    Attributes:
        comm: Name of its threads.
        unit: Its systemd unit, else its control group.
        calls: Calls that returned.
        failed: Those of them that failed.
        time_ns: Their time.
        blocked_ns: Time asleep.
        causes: ``time_ns`` by cause, the largest first; sums to it.
        commits: Journal commits that its calls asked for.
        commit_ns: Time of these.
    """

    comm: str
    unit: str
    calls: int = 0
    failed: int = 0
    time_ns: int = 0
    blocked_ns: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    commit_ns: int = 0


@dataclass
class SummedInterval:
    """The use of the spool in one interval.

    Attributes:
        start_ns: Its begin, since the epoch.
        duration_ns: Its length.
        lost: Calls that are in no sum, as a table of the kernel was full.
        recorder_ns: CPU time of the recorder, that in the kernel included.
        commits: Journal commits.
        commit_ns: Time of these.
        programs: The programs, most time first.
    """

    start_ns: int
    duration_ns: int
    lost: int
    recorder_ns: int
    commits: int
    commit_ns: int
    programs: list[ProgramUse]

    def to_json(self) -> dict[str, Any]:
        """Return it for --json."""
        return asdict(self)


def use_of(
    calls: Mapping[str, Any], commits: Mapping[str, Any], facts: Mapping[str, Any]
) -> SummedInterval:
    """Return the use of the spool.

    Args:
        calls: Columns of the table of calls of roll-ups.
        commits: Those of the table of commits.
        facts: start_ns, covered_ns, lost, recorder_ns.
    """
    found: dict[tuple[str, str], ProgramUse] = {}
    causes: dict[tuple[str, str], Counter[str]] = {}
    names = ("comm", "unit", "syscall", "cause", "failed", "n", "sum_ns")
    for comm, unit, syscall, cause, failed, n, ns in zip(
        *(calls[name].tolist() for name in names), strict=True
    ):
        if syscall in _TASK_CALLS:
            continue
        use = found.setdefault((comm, unit), ProgramUse(comm, unit))
        if cause == CALL:
            use.calls += n
            use.failed += n * failed
            use.time_ns += ns
            continue
        causes.setdefault((comm, unit), Counter())[cause] += ns
        if cause not in MACHINE:
            use.blocked_ns += ns
    rows = list(zip(*(commits[c].tolist() for c in ("comm", "unit", "n", "sum_ns")), strict=True))
    for comm, unit, n, ns in rows:
        if asked := found.get((comm, unit)):
            asked.commits += n
            asked.commit_ns += ns
    for key, use in found.items():
        use.causes = dict(causes.get(key, Counter()).most_common())
    return SummedInterval(
        start_ns=int(facts["start_ns"]),
        duration_ns=int(facts["covered_ns"]),
        lost=int(facts["lost"]),
        recorder_ns=int(facts["recorder_ns"]),
        commits=sum(row[2] for row in rows),
        commit_ns=sum(row[3] for row in rows),
        programs=sorted(found.values(), key=lambda use: (-use.time_ns, use.comm, use.unit)),
    )
