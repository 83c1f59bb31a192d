"""Stages that make tables for the rules of insights: sums, settings, and facts from Python."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields
from typing import Any, get_args

import duckdb

from spoolscope.analysis import insight_tables
from spoolscope.analysis.answerers import Answerer
from spoolscope.analysis.askers import Asker
from spoolscope.analysis.causes import BETWEEN_PROGRAMS, CAUSES, MACHINE, one_of
from spoolscope.analysis.commit_parts import PARTS
from spoolscope.analysis.cpu_holders import CpuHolder
from spoolscope.analysis.disk_holders import DiskHolder
from spoolscope.analysis.evidence import Evidence, HeldBack, Requests
from spoolscope.analysis.latency import SYSCALL_CLASSES
from spoolscope.analysis.lookups import LookupCost
from spoolscope.analysis.stage import Made, Stage, Work, on
from spoolscope.traces.calls import of_effect, of_family, of_kind
from spoolscope.traces.pathclass import class_sql, parent_sql

_SQL_TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}

_CAUSE_TIMES = f"""
CREATE OR REPLACE TEMP TABLE cause_times AS
SELECT cause, CAST(sum(ns) AS BIGINT) AS ns FROM (
    SELECT cause, dur_ns AS ns FROM named_waits WHERE shown
    UNION ALL
    SELECT unnest({list(MACHINE)}) AS cause, unnest([{", ".join(MACHINE.values())}]) AS ns
    FROM call_totals
) GROUP BY cause HAVING sum(ns) > 0
"""
_TOTALS = f"""
CREATE OR REPLACE TEMP TABLE totals AS
SELECT CAST(coalesce(sum(n), 0) AS BIGINT) AS n_calls,
    CAST(coalesce(sum(dur_ns), 0) AS BIGINT) AS latency_ns,
    CAST(coalesce(sum(dur_ns), 0) - (SELECT coalesce(sum(ns), 0) FROM cause_times
        WHERE {one_of("cause", BETWEEN_PROGRAMS)}) AS BIGINT) AS filesystem_ns,
    CAST({{lasted_ns}} AS BIGINT) AS lasted_ns
FROM call_totals
"""

_COMMIT_COSTS = f"""
CREATE OR REPLACE TEMP VIEW commit_costs AS
SELECT p.wait_id, ({list(PARTS)})[p.part + 1] AS part, p.ns, w.from_ns, w.to_ns, w.pid, w.cause,
    w.filesystem, c.commit_id, c.kind, c.trigger, c.tid AS committer, c.holder_pid, c.holder_comm
FROM wait_parts p JOIN journal_waits w USING (wait_id)
LEFT JOIN commit_spans c ON c.commit_id = p.commit_id
"""

# Postfix processes hold accept locks while they wait for a connection: these keep none from work.
_LOCK_WAITS = f"""
CREATE OR REPLACE TEMP TABLE lock_waits AS
WITH waits AS (
    SELECT path_id, count(*) AS n, count(DISTINCT pid) AS n_victims,
        CAST(sum(dur_ns) AS BIGINT) AS ns
    FROM named_waits WHERE shown AND placed AND cause = 'file_lock' GROUP BY path_id
)
SELECT path_id, path, n, n_victims, ns FROM waits JOIN paths USING (path_id)
WHERE {class_sql("path")} != 'postfix socket or pid'
"""
_LOCKED_FILES = """
CREATE OR REPLACE TEMP TABLE locked_files AS
WITH waits AS (
    SELECT path_id, pid, tid, ts_ns, ts_ns + dur_ns AS to_ns FROM named_waits
    WHERE shown AND placed AND cause = 'file_lock'
        AND path_id IN (SELECT path_id FROM lock_waits)
), turns AS (
    SELECT w.path_id, t.pid, coalesce(t.tid, t.pid) AS tid, t.comm,
        greatest(w.ts_ns, t.from_ns) AS from_ns, least(w.to_ns, t.to_ns) AS to_ns
    FROM waits w JOIN lock_turns t ON t.victim = w.tid AND t.mechanism = 'file_lock'
        AND t.from_ns < w.to_ns AND w.ts_ns < t.to_ns
), holders AS (
    SELECT path_id, pid, sum(to_ns - from_ns) AS ns FROM turns GROUP BY ALL
), worst AS (
    SELECT path_id, arg_max(pid, ns) AS pid, max(ns) AS ns FROM holders GROUP BY path_id
), did AS (
    SELECT t.path_id, c.syscall,
        sum(least(t.to_ns, c.ts_ns + c.dur_ns) - greatest(t.from_ns, c.ts_ns)) AS ns
    FROM turns t JOIN worst h USING (path_id, pid) JOIN waited c ON c.tid = t.tid
        AND c.ts_ns < t.to_ns AND t.from_ns < c.ts_ns + c.dur_ns
    GROUP BY ALL
), mostly AS (
    SELECT path_id, arg_max(syscall, ns) AS syscall, CAST(max(ns) AS BIGINT) AS ns FROM did
    GROUP BY path_id
)
SELECT w.path_id, w.path, w.n, w.n_victims, w.ns, h.pid AS holder_pid,
    (SELECT any_value(comm) FROM threads WHERE tid = h.pid) AS holder_comm,
    CAST(h.ns AS BIGINT) AS held_ns, m.syscall AS holder_call,
    coalesce(m.ns, 0) AS holder_call_ns
FROM lock_waits w LEFT JOIN worst h USING (path_id) LEFT JOIN mostly m USING (path_id)
"""

# Dot locks: files created with O_EXCL, or by a link, as locks.
_LINKS = f"s.syscall IN {of_effect('links')}"
_LOCK_FILE = f"CASE WHEN {_LINKS} THEN s.path2_id ELSE s.path_id END"
_LOCKS = f"({_LINKS} OR s.syscall IN {of_kind('open')} AND s.flags & 192 = 192)"
_LOCK_FILES = f"""
CREATE OR REPLACE TEMP TABLE lock_files AS
WITH found AS (
    SELECT DISTINCT {_LOCK_FILE} AS path_id FROM shown_calls s WHERE s.errno = 17 AND {_LOCKS}
)
SELECT path_id, path FROM paths JOIN found USING (path_id) WHERE {class_sql("path")} = 'dotlock'
"""
_DOTLOCKS = f"""
CREATE OR REPLACE TEMP TABLE dotlock_waits AS
WITH tries AS (
    SELECT s.ts_ns, s.dur_ns, s.pid, s.tid, s.comm, s.errno, l.path_id, l.path,
        lead(s.ts_ns) OVER (PARTITION BY s.pid, l.path_id ORDER BY s.ts_ns) AS next_ns
    FROM shown_calls s JOIN lock_files l ON l.path_id = {_LOCK_FILE}
    WHERE s.errno IN (0, 17) AND {_LOCKS}
), failed AS (SELECT * FROM tries WHERE errno = 17),
made AS (SELECT * FROM tries WHERE errno = 0),
met AS (
    SELECT f.path_id, f.path, f.pid, f.ts_ns, least(30000000000, coalesce(f.next_ns - f.ts_ns,
        f.dur_ns)) AS ns, m.pid AS holder_pid, m.comm AS holder_comm, m.ts_ns AS held_since_ns
    FROM failed f ASOF LEFT JOIN made m ON m.path_id = f.path_id AND f.ts_ns >= m.ts_ns
), did AS (
    SELECT m.path_id, m.holder_pid, c.syscall, sum(c.dur_ns) AS ns
    FROM (SELECT path_id, holder_pid, held_since_ns, max(ts_ns) AS to_ns FROM met GROUP BY ALL) m
    JOIN waited c ON c.pid = m.holder_pid AND c.ts_ns >= m.held_since_ns AND c.ts_ns < m.to_ns
    GROUP BY ALL
), holders AS (
    SELECT path_id, holder_pid, any_value(holder_comm) AS comm, sum(ns) AS ns FROM met
    WHERE holder_pid IS NOT NULL GROUP BY ALL
)
SELECT path_id, any_value(path) AS path, count(*) AS n, count(DISTINCT pid) AS n_victims,
    CAST(sum(ns) AS BIGINT) AS ns,
    (SELECT arg_max(holder_pid, h.ns) FROM holders h WHERE h.path_id = met.path_id) AS holder_pid,
    (SELECT arg_max(comm, h.ns) FROM holders h WHERE h.path_id = met.path_id) AS holder_comm,
    (SELECT arg_max(syscall, d.ns) FROM did d WHERE d.path_id = met.path_id) AS holder_call
FROM met GROUP BY path_id
"""

_CALLS = {
    name: f"({', '.join(repr(call) for call in calls)})" for name, calls in SYSCALL_CLASSES.items()
}

_CHANGES = of_family("sync", "rename", "link", "unlink") + of_kind("mkdir")
# A sync of a directory right after a sync of a new file in it, with no change of names between.
# Paths, and which files are new, are looked up only for calls just before a sync of a directory.
_DIRECTORY_SYNCS = f"""
CREATE OR REPLACE TEMP TABLE directory_syncs AS
WITH marked AS MATERIALIZED (
    SELECT tid, seq, comm, pid, dur_ns, path_id, syscall IN {_CALLS["sync"]} AS syncs,
        coalesce(syncs AND obj_mode & 61440 = 16384, false) AS is_directory
    FROM shown_calls WHERE errno = 0 AND syscall IN {_CHANGES}
), before AS (
    SELECT *, lag(syncs AND NOT is_directory) OVER w AS after_file, lag(path_id) OVER w AS last_id
    FROM marked WHERE tid IN (SELECT tid FROM marked WHERE is_directory)
    WINDOW w AS (PARTITION BY tid ORDER BY seq)
), found AS MATERIALIZED (SELECT * FROM before WHERE is_directory),
new AS (
    SELECT path_id FROM shown_calls WHERE syscall IN {of_kind("open")} AND errno = 0
        AND flags & 64 = 64 AND path_id IN (SELECT last_id FROM found WHERE after_file)
        AND path_id NOT IN (SELECT path_id FROM tree)
)
SELECT f.comm, f.pid, p.path, f.dur_ns,
    coalesce(after_file AND last_id IN (SELECT path_id FROM new)
        AND {parent_sql("l.path")} = p.path, false) AS needless
FROM found f LEFT JOIN paths p USING (path_id) LEFT JOIN paths l ON l.path_id = f.last_id
"""

_SYNCED_FILES = f"""
CREATE OR REPLACE TEMP TABLE synced_files AS
WITH syncs AS (
    SELECT pid, path_id, any_value(comm) AS comm, count(*) AS n, sum(dur_ns) AS ns FROM waited
    WHERE shown AND syscall IN {_CALLS["sync"]} AND path_id IS NOT NULL GROUP BY ALL
), writes AS (
    SELECT pid, path_id, count(*) AS n_writes, CAST(sum(ret) AS BIGINT) AS bytes FROM shown_calls
    WHERE syscall IN {_CALLS["write"]} AND ret > 0 AND path_id IN (SELECT path_id FROM syncs)
    GROUP BY ALL
)
SELECT s.pid, s.comm, p.path, s.n, CAST(s.ns AS BIGINT) AS ns, coalesce(w.n_writes, 0) AS n_writes,
    coalesce(w.bytes, 0) AS bytes
FROM syncs s JOIN paths p USING (path_id) LEFT JOIN writes w USING (pid, path_id)
"""

# Files of a directory that a process listed, and then looked at or opened one after the other.
_READING_ORDERS = f"""
CREATE OR REPLACE TEMP TABLE reading_orders AS
WITH cold AS (
    SELECT pid, path_id, sum(dur_ns) AS ns FROM named_waits
    WHERE shown AND cause IN ('inode_io', 'block_device') AND path_id IS NOT NULL GROUP BY ALL
), lists AS (
    SELECT DISTINCT s.pid, p.path AS dir, coalesce(p.spool, 0) AS spool
    FROM shown_calls s JOIN paths p USING (path_id)
    WHERE s.syscall IN {_CALLS["list"]} AND s.pid IN (SELECT pid FROM cold)
), touched AS (
    SELECT s.pid, s.comm, s.path_id, {parent_sql("path")} AS dir, coalesce(p.spool, 0) AS spool,
        s.ino, s.ts_ns
    FROM shown_calls s JOIN paths p USING (path_id)
    WHERE s.pid IN (SELECT pid FROM lists) AND s.errno = 0 AND s.ino IS NOT NULL
        AND (s.syscall IN {_CALLS["open"]} OR s.syscall IN {_CALLS["stat"]}
            OR s.syscall IN {_CALLS["unlink"]})
), steps AS (
    SELECT t.*, lag(ino) OVER (PARTITION BY t.pid, t.spool, t.dir ORDER BY ts_ns) AS last_ino
    FROM touched t JOIN lists USING (pid, dir, spool)
)
SELECT s.pid, any_value(s.comm) AS comm, s.dir,
    count(*) FILTER (ino != last_ino) AS n, count(*) FILTER (ino < last_ino) AS n_back,
    CAST((SELECT coalesce(sum(c.ns), 0) FROM cold c JOIN paths p USING (path_id)
        WHERE c.pid = s.pid AND coalesce(p.spool, 0) = s.spool
            AND {parent_sql("p.path")} = s.dir) AS BIGINT) AS ns
FROM steps s GROUP BY s.pid, s.spool, s.dir
"""

# Seconds in which a disk was busy without a pause.
_BUSY_SECONDS = """
CREATE OR REPLACE TEMP TABLE busy_seconds AS
WITH done AS (
    SELECT dev, (ts_ns + queue_ns + device_ns) // 1000000000 AS second,
        queue_ns + device_ns AS took_ns, bytes
    FROM block_ios WHERE op != 'flush' AND (parent_dev IS NULL OR parent_dev >> 20 != 7)
        AND in_slice(ts_ns, ts_ns + queue_ns + device_ns)
)
SELECT dev, second, count(*) AS n, CAST(sum(bytes) AS BIGINT) AS bytes,
    CAST(median(took_ns) AS BIGINT) AS median_ns, min(took_ns) AS min_ns
FROM done GROUP BY ALL HAVING sum(took_ns) >= 1500000000
"""


def _lay_out(con: duckdb.DuckDBPyConnection, table: str, kind: type, rows: Iterable[Any]) -> None:
    """Create a table of Python rows, with a column for each field."""
    columns = {f.name: _sql_type(f.type) for f in fields(kind)}
    made_of = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
    con.execute(f"CREATE OR REPLACE TEMP TABLE {table} ({made_of})")
    _fill(con, table, [astuple(row) for row in rows])


def _fill(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows in one statement."""
    if rows:
        marks = ", ".join(f"({', '.join('?' * len(row))})" for row in rows)
        con.execute(f"INSERT INTO {table} VALUES {marks}", [value for row in rows for value in row])


def _sql_type(type_: Any) -> str:
    """Return the SQL type of a field, which may be optional."""
    return next(_SQL_TYPES[one] for one in (type_, *get_args(type_)) if one in _SQL_TYPES)


def _evidence(work: Work) -> None:
    found: Evidence = work.facts.get("evidence", Evidence())
    con = work.con
    for table, kind, rows in (
        ("forcing", Asker, [found.asker] if found.asker else []),
        ("disk_holder", DiskHolder, found.disk_holders),
        ("cpu_holder", CpuHolder, [found.cpu_holder] if found.cpu_holder else []),
        ("held_back", HeldBack, [found.held_back] if found.held_back else []),
        ("served", Requests, found.requests),
        ("answerer", Answerer, found.answerers),
        ("lookup_cost", LookupCost, work.facts.get("lookups", ())),
    ):
        _lay_out(con, table, kind, rows)
    con.execute(f"CREATE OR REPLACE TEMP TABLE measured AS SELECT {found.measurement_ns} AS ns")


def _settings(work: Work) -> None:
    """Create ``spool_facts``, a row for each spool, and ``cause_facts``, one for each cause."""
    con = work.con
    con.execute("CREATE OR REPLACE TEMP TABLE spool_facts (fstype VARCHAR, options VARCHAR)")
    spools = work.meta.get("spools") or []
    rows = [[str(spool.get(key, "")) for key in ("fstype", "options")] for spool in spools]
    _fill(con, "spool_facts", rows)
    con.execute(
        "CREATE OR REPLACE TEMP TABLE cause_facts (cause VARCHAR, label VARCHAR, at_disk BOOLEAN, "
        "ends_with_request BOOLEAN, of_commit BOOLEAN)"
    )
    facts = [
        [name, cause.label, cause.at_disk, cause.ends_with_request, cause.of_commit]
        for name, cause in CAUSES.items()
    ]
    _fill(con, "cause_facts", facts)


def _totals(work: Work) -> None:
    lasted_ns = int(work.facts.get("lasted_ns", work.meta.get("duration_ns", 0)))
    work.con.execute(_TOTALS.format(lasted_ns=lasted_ns))


def _sql(made: Made, needs: str, query: str) -> Stage:
    return Stage(made.name, tuple(needs.split()), (made,), on(lambda con: con.execute(query)))


def _inner(table: str, needs: str, query: str) -> Stage:
    made = on(lambda con: con.execute(query))
    return Stage(table, tuple(needs.split()), (), made, inner=(table,))


INSIGHT_STAGES: tuple[Stage, ...] = (
    _sql(insight_tables.CAUSE_TIMES, "call_totals named_waits", _CAUSE_TIMES),
    Stage("totals", ("call_totals", "cause_times"), (insight_tables.TOTALS,), _totals),
    Stage("settings", (), insight_tables.SETTINGS, _settings),
    Stage("evidence", (), insight_tables.EVIDENCE, _evidence),
    _sql(insight_tables.COMMIT_COSTS, "wait_parts journal_waits commit_spans", _COMMIT_COSTS),
    _inner("lock_waits", "named_waits paths", _LOCK_WAITS),
    _sql(
        insight_tables.LOCKED_FILES,
        "lock_waits named_waits lock_turns waited threads",
        _LOCKED_FILES,
    ),
    _inner("lock_files", "paths shown_calls", _LOCK_FILES),
    _sql(insight_tables.DOTLOCK_WAITS, "lock_files shown_calls waited", _DOTLOCKS),
    _sql(insight_tables.DIRECTORY_SYNCS, "shown_calls paths tree", _DIRECTORY_SYNCS),
    _sql(insight_tables.SYNCED_FILES, "waited shown_calls paths", _SYNCED_FILES),
    _sql(insight_tables.READING_ORDERS, "named_waits shown_calls paths", _READING_ORDERS),
    _sql(insight_tables.BUSY_SECONDS, "block_ios", _BUSY_SECONDS),
)  # fmt: skip
"""Stages whose tables are for rules; facts that ``explain`` computes come by ``Work.facts``."""
