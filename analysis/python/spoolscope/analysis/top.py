"""Current use of the spool: one short trace, by process, mailbox, file, cause and commit."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from spoolscope.analysis.causes import MACHINE
from spoolscope.analysis.latency import IN_FLIGHT
from spoolscope.analysis.stages import begin
from spoolscope.traces.calls import CALLS
from spoolscope.traces.pathclass import mailbox_sql
from spoolscope.traces.trace import Trace

# fork, exit or chdir are recorded for replays, even if they do not touch a spool.
_USE = f"syscall NOT IN {tuple(c.name for c in CALLS.values() if c.klass == 'task')}"

LISTED = 1000
"""Largest number of mailboxes, files and commits listed of an interval: those with most time."""

NO_FILE, TOP = "(no spool file)", "(top of the spool)"

_PROCESSES = f"""
SELECT pid, arg_max(comm, ts_ns), count(*) FILTER (flags_seen & {IN_FLIGHT} = 0),
    CAST(sum(dur_ns) AS BIGINT), max(dur_ns), CAST(sum(blocked_ns) AS BIGINT),
    {", ".join(f"CAST(sum({ns}) AS BIGINT)" for ns in MACHINE.values())}
FROM syscalls WHERE {_USE} GROUP BY pid
"""

_WAITS = f"""
SELECT pid, cause, CAST(sum(dur_ns) AS BIGINT) FROM named_waits WHERE {_USE} GROUP BY ALL
"""

# Sums by an expression of the file's path.
_PLACES = f"""
WITH named AS (SELECT path_id, {{name}} AS name FROM paths WHERE kind = 'spool'),
calls AS (
    SELECT coalesce(n.name, '{NO_FILE}') AS name, count(*) FILTER (flags_seen & {IN_FLIGHT} = 0),
        CAST(sum(dur_ns) AS BIGINT) AS ns, max(dur_ns), CAST(sum(blocked_ns) AS BIGINT),
        {", ".join(f"CAST(sum({ns}) AS BIGINT)" for ns in MACHINE.values())}
    FROM syscalls LEFT JOIN named n USING (path_id) WHERE {_USE} GROUP BY ALL
)
SELECT * FROM calls ORDER BY ns DESC, name LIMIT {LISTED}
"""

_WAITS_AT = f"""
SELECT coalesce(name, '{NO_FILE}'), cause, CAST(sum(dur_ns) AS BIGINT) FROM named_waits
LEFT JOIN (SELECT path_id, {{name}} AS name FROM paths WHERE kind = 'spool') USING (path_id)
WHERE {_USE} GROUP BY ALL
"""

_ALL_COMMITS = f"""
SELECT ts_ns, dur_ns, kind, trigger, trigger_comm, trigger_pid, blocks FROM commits
ORDER BY dur_ns DESC, ts_ns LIMIT {LISTED}
"""

_COMMITS = """
SELECT trigger_pid, any_value(trigger_comm), count(*) FROM commits
WHERE trigger_pid IS NOT NULL GROUP BY trigger_pid
"""


@dataclass
class ProcessUse:
    """One process in one interval.

    Attributes:
        pid: Its id.
        comm: Its last name.
        calls: Calls that returned.
        time_ns: Time in calls that returned, or were still under way at the end of the recording.
        max_ns: The longest of these calls.
        blocked_ns: Time asleep.
        causes: ``time_ns`` by cause, the largest first; sums to it.
        commits: Journal commits that it triggered; one under way when an interval ends is in none.
    """

    pid: int
    comm: str
    calls: int = 0
    time_ns: int = 0
    max_ns: int = 0
    blocked_ns: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    commits: int = 0


@dataclass
class PlaceUse:
    """One mailbox, or one file, in one interval; as in ``ProcessUse``."""

    name: str
    calls: int
    time_ns: int
    max_ns: int
    blocked_ns: int
    causes: dict[str, int]


@dataclass(frozen=True)
class CommitMade:
    """One journal commit.

    Attributes:
        ts_ns: Its begin, since the epoch; dur_ns its length.
        kind: As in the table ``commits``, as is trigger, what asked for it.
        comm: Name of the thread that asked for it, if known; pid its process.
        blocks: Blocks that it wrote, if that is known.
    """

    ts_ns: int
    dur_ns: int
    kind: str
    trigger: str
    comm: str | None
    pid: int | None
    blocks: int | None


@dataclass(frozen=True)
class Interval:
    """The use of the spool in one interval; processes with the most time in calls first.

    Attributes:
        start_ns: Its begin, since the epoch.
        duration_ns: Its length.
        commits: All journal commits, with any trigger.
        lost: Calls that were lost.
        processes: Processes that made calls or triggered commits.
        mailboxes: Used mailboxes, the most time in calls first; at most LISTED. Likewise ``files``
            and ``longest_commits``.
    """

    start_ns: int
    duration_ns: int
    commits: int
    lost: int
    processes: list[ProcessUse]
    mailboxes: list[PlaceUse] = field(default_factory=list)
    files: list[PlaceUse] = field(default_factory=list)
    longest_commits: list[CommitMade] = field(default_factory=list)

    @property
    def causes(self) -> dict[str, int]:
        """Time in calls by cause, ns, the largest first."""
        sums: Counter[str] = Counter()
        for process in self.processes:
            sums.update(process.causes)
        return dict(sums.most_common())

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``top --json`` prints for an interval."""
        return asdict(self)


def study_interval(directory: Path) -> Interval:
    """Sum up a trace by process.

    Raises:
        SpoolscopeError: it is no trace.
    """
    trace = Trace.open(directory)
    con = trace.connect()
    begin(con).make("named_waits")
    found: dict[int, ProcessUse] = {}
    for pid, comm, calls, *times in con.execute(_PROCESSES).fetchall():
        time_ns, max_ns, blocked_ns, *machine = times
        causes = {cause: ns for cause, ns in zip(MACHINE, machine, strict=True) if ns}
        found[pid] = ProcessUse(pid, comm, calls, time_ns, max_ns, blocked_ns, causes)
    for pid, cause, ns in con.execute(_WAITS).fetchall():
        if ns:
            found[pid].causes[cause] = ns
    for pid, comm, commits in con.execute(_COMMITS).fetchall():
        found.setdefault(pid, ProcessUse(pid, comm)).commits = commits
    for process in found.values():
        process.causes = dict(sorted(process.causes.items(), key=lambda item: -item[1]))
    [(commits,)] = con.execute("SELECT count(*) FROM commits").fetchall()
    return Interval(
        start_ns=int(trace.meta["start_ns"]),
        duration_ns=int(trace.meta["duration_ns"]),
        commits=commits,
        lost=int(trace.meta["lost"]),
        processes=sorted(found.values(), key=lambda p: (-p.time_ns, -p.commits, p.pid)),
        mailboxes=_places(con, f"coalesce(nullif({mailbox_sql('path')}, ''), '{TOP}')"),
        files=_places(con, "path"),
        longest_commits=[CommitMade(*row) for row in con.execute(_ALL_COMMITS).fetchall()],
    )


def _places(con: duckdb.DuckDBPyConnection, name: str) -> list[PlaceUse]:
    """Sum up calls by ``name``, an SQL expression of a path."""
    found: dict[str, PlaceUse] = {}
    for place, calls, *times in con.execute(_PLACES.format(name=name)).fetchall():
        time_ns, max_ns, blocked_ns, *machine = times
        causes = {cause: ns for cause, ns in zip(MACHINE, machine, strict=True) if ns}
        found[place] = PlaceUse(place, calls, time_ns, max_ns, blocked_ns, causes)
    for place, cause, ns in con.execute(_WAITS_AT.format(name=name)).fetchall():
        if ns and place in found:
            found[place].causes[cause] = ns
    for use in found.values():
        use.causes = dict(sorted(use.causes.items(), key=lambda item: -item[1]))
    return list(found.values())
