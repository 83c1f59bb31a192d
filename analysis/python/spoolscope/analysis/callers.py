"""Time in calls by their callers: processes, programs, units; and by mailbox."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import duckdb

from spoolscope.analysis.causes import BETWEEN_PROGRAMS, CAUSES, MACHINE
from spoolscope.analysis.families import Families, Key
from spoolscope.analysis.spool_names import distinct_names
from spoolscope.traces.pathclass import mailbox_sql

LISTED = 200
"""Number of rows; those beyond are summed up in one."""

OTHERS = "(others)"
NO_UNIT, NO_MAILBOX, TOP = "(none known)", "(no spool file)", "(top of the spool)"

# Calls that are not in waited were on the CPU for all of their length.
_TIMES = f"""
CREATE OR REPLACE TEMP TABLE {{table}} AS
WITH lengths AS (
    SELECT {{of}}, count(*) AS n, sum(dur_ns) AS dur_ns,
        coalesce(sum(stolen_ns), 0) AS stolen_ns
    FROM shown_calls GROUP BY ALL
), off AS (
    SELECT {{of}}, sum(dur_ns - oncpu_ns) AS off_ns, sum(runq_ns) AS runq_ns,
        sum(preempted_ns) AS preempted_ns
    FROM waited WHERE shown GROUP BY ALL
), machine AS (
    SELECT l.*, l.dur_ns - coalesce(o.off_ns, 0) AS oncpu_ns, coalesce(o.runq_ns, 0) AS runq_ns,
        coalesce(o.preempted_ns, 0) AS preempted_ns
    FROM lengths l LEFT JOIN off o ON {{same}}
)
SELECT {{of}}, cause, CAST(sum(n) AS BIGINT) AS n, CAST(sum(ns) AS BIGINT) AS ns FROM (
    SELECT {{of}}, unnest({list(MACHINE)}) AS cause, unnest([n, 0, 0, 0]) AS n,
        unnest([{", ".join(MACHINE.values())}]) AS ns
    FROM machine
    UNION ALL
    SELECT {{of}}, cause, 0, dur_ns FROM named_waits WHERE shown
) GROUP BY ALL HAVING sum(ns) > 0 OR sum(n) > 0
"""

_BY_MAILBOX = f"""
WITH boxes AS (
    SELECT path_id, coalesce(spool, 0) AS spool, {mailbox_sql("path")} AS box FROM paths
    WHERE kind = 'spool' AND path_id IN (SELECT path_id FROM path_causes)
)
SELECT b.spool, coalesce(b.box, '{NO_MAILBOX}'), cause, CAST(sum(n) AS BIGINT),
    CAST(sum(ns) AS BIGINT)
FROM path_causes LEFT JOIN boxes b USING (path_id) GROUP BY ALL
"""


@dataclass
class CallerTime:
    """Time of the calls of one process, program, unit, or on one mailbox.

    Attributes:
        name: Name of the process, program, unit or mailbox; of a mailbox with the mount if several
            spools have one.
        pid: Process; None in the other tables, and for a program of several.
        processes: Number of processes that made these calls; 0 by mailbox.
        n: Number of calls.
        total_ns: Time of these calls; ``causes`` ({cause: ns}) sums to it.
    """

    name: str
    pid: int | None = None
    processes: int = 0
    n: int = 0
    total_ns: int = 0
    causes: dict[str, int] = field(default_factory=dict)

    @property
    def filesystem_ns(self) -> int:
        """Time without the waits of programs for programs."""
        return self.total_ns - sum(self.causes.get(cause, 0) for cause in BETWEEN_PROGRAMS)

    def add(self, cause: str, n: int, ns: int) -> None:
        """Add calls and time of a cause."""
        self.n += n
        if ns:
            self.total_ns += ns
            self.causes[cause] = self.causes.get(cause, 0) + ns


@dataclass(frozen=True)
class Callers:
    """The time of all calls that are shown, four times: each list sums to all of it."""

    by_process: list[CallerTime] = field(default_factory=list)
    by_program: list[CallerTime] = field(default_factory=list)
    by_unit: list[CallerTime] = field(default_factory=list)
    by_mailbox: list[CallerTime] = field(default_factory=list)
    of_process: dict[Key, int] = field(default_factory=dict, repr=False)
    """Time without the waits of programs for programs, by process."""

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """Return the four lists as ``explain --json`` prints them."""
        return {
            name: [asdict(row) for row in getattr(self, name)]
            for name in ("by_process", "by_program", "by_unit", "by_mailbox")
        }


def time_callers(con: duckdb.DuckDBPyConnection) -> None:
    """Create ``process_causes`` and ``path_causes`` (needs ``waited`` and ``named_waits``)."""
    con.execute(
        _TIMES.format(
            table="process_causes", of="pid, comm", same="l.pid = o.pid AND l.comm = o.comm"
        )
    )
    con.execute(
        _TIMES.format(
            table="path_causes", of="path_id", same="l.path_id IS NOT DISTINCT FROM o.path_id"
        )
    )


def study_callers(
    con: duckdb.DuckDBPyConnection, families: Families, spools: Sequence[Mapping[str, Any]] = ()
) -> Callers:
    """Sum up time by caller.

    Args:
        con: Needs ``process_causes`` and ``path_causes``.
        families: Groups of each process.
        spools: Those of meta.json.
    """
    rows = con.execute("SELECT pid, comm, cause, n, ns FROM process_causes").fetchall()
    known = {(pid, comm): families.of((pid, comm)) for pid, comm, *_ in rows}
    of_process: dict[Key, int] = defaultdict(int)
    for pid, comm, cause, _, ns in rows:
        of_process[pid, comm] += 0 if cause in BETWEEN_PROGRAMS else ns
    members: dict[str, set[int]] = defaultdict(set)
    for process in known.values():
        members[process.program].add(process.pid)
        members[f"/{process.unit or NO_UNIT}"].add(process.pid)

    def summed(name: Callable[[Key], tuple[str, int | None, int]]) -> list[CallerTime]:
        return _sums((*name((pid, comm)), cause, n, ns) for pid, comm, cause, n, ns in rows)

    def program(key: Key) -> tuple[str, int | None, int]:
        name = known[key].program
        alone = len(members[name]) == 1
        return name, known[key].pid if alone else None, len(members[name])

    def unit(key: Key) -> tuple[str, int | None, int]:
        name = known[key].unit or NO_UNIT
        return name, None, len(members[f"/{name}"])

    boxes = con.execute(_BY_MAILBOX).fetchall()
    names = distinct_names(((spool, box) for spool, box, *_ in boxes), spools)
    return Callers(
        by_process=summed(lambda key: (known[key].program, known[key].pid, 1)),
        by_program=summed(program),
        by_unit=summed(unit),
        by_mailbox=_sums(
            (names[spool, box] or TOP, None, 0, cause, n, ns) for spool, box, cause, n, ns in boxes
        ),
        of_process=dict(of_process),
    )


def _sums(rows: Iterable[tuple[str, int | None, int, str, int, int]]) -> list[CallerTime]:
    """Return the sums, the largest first; rows beyond ``LISTED`` are one row at the end."""
    found: dict[tuple[str, int | None], CallerTime] = {}
    for name, pid, processes, cause, n, ns in rows:
        if (row := found.get((name, pid))) is None:
            row = found[name, pid] = CallerTime(name, pid, processes)
        row.add(cause, n, ns)
    ordered = sorted(
        found.values(), key=lambda r: (-r.filesystem_ns, -r.total_ns, r.name, r.pid or 0)
    )
    kept, rest = ordered[:LISTED], ordered[LISTED:]
    if rest:
        kept.append(CallerTime(OTHERS, None, sum(row.processes for row in rest)))
    for row in rest:
        for cause, ns in row.causes.items():
            kept[-1].add(cause, 0, ns)
        kept[-1].n += row.n
    order = list(CAUSES)
    for row in kept:
        row.causes = dict(sorted(row.causes.items(), key=lambda item: order.index(item[0])))
    return kept
