"""What commits were doing, instant by instant, and what those who waited for them waited for.

``commit_parts`` divides the length of every commit, exactly, by what it was doing: from the
phases that the journal tells, from what its thread waited for, and from the requests that this
thread had sent to the disk. Laid over the waits of calls it divides these, too.
"""

import duckdb

from spoolscope.analysis.overlay import layers, one_at_a_time, overlaps
from spoolscope.analysis.services import DEVICE, DISK_FLUSH, FLUSH, QUEUE, same_disk

WAITING_CAUSES = ("journal_commit", "txn_lock", "shadow")
"""Causes of a wait that is a wait for a commit."""

PARTS = (
    "previous_commit",
    "handles",
    "batching",
    "ordered_data",
    "queue",
    "log_write",
    "cache_flush",
    "no_cpu",
    "running",
    "other",
    "no_commit",
)
"""What a commit was doing. ``previous_commit``: an older one had to end first; ``handles``: calls
that were changing metadata had to end (jbd2's locking); ``batching``: it slept to let others join
(btrfs: a jiffy, as long as others come); ``ordered_data``: file data was written;
``queue``, ``log_write``: a request of the log was not yet, or was, at the disk; ``cache_flush``:
the disk emptied its cache; ``no_cpu``: its thread was ready, perhaps to begin, but had no CPU;
``running``: it had one; ``other``: it waited for something else; ``no_commit``: none was running,
its thread had not been woken or was done."""

BATCH = 100_000
"""Commits that are cut into pieces at a time."""

# A btrfs fsync that wrote no tree joined the log commit of another one.
_SPANS = """
CREATE OR REPLACE TEMP TABLE commit_spans AS
WITH numbered AS (
    SELECT row_number() OVER (ORDER BY ts_ns) AS commit_id, *, ts_ns AS from_ns,
        ts_ns + dur_ns AS to_ns,
        CASE WHEN kind LIKE 'jbd2%' THEN 'ext4' WHEN kind LIKE 'xfs%' THEN 'xfs'
            WHEN kind LIKE 'btrfs%' THEN 'btrfs' ELSE 'any' END AS filesystem
    FROM commits
)
SELECT *, kind != 'btrfs_log_commit' OR logging_ns IS NOT NULL
    OR NOT (SELECT bool_or(kind = 'btrfs_log_commit' AND logging_ns IS NOT NULL) FROM commits)
    AS leads
FROM numbered
"""

# Asked for a commit, the thread of the journal had to get a CPU before it could begin.
_STARTS = """
CREATE OR REPLACE TEMP TABLE commit_starts AS
WITH spans AS (
    SELECT commit_id, tid, from_ns AS begun_ns,
        coalesce(lag(to_ns) OVER (PARTITION BY tid ORDER BY from_ns), 0) AS free_ns
    FROM commit_spans WHERE kind = 'jbd2_commit'
)
SELECT c.commit_id, greatest(s.ts_ns, c.free_ns) AS from_ns, s.ts_ns + s.dur_ns AS to_ns
FROM (SELECT * FROM segments WHERE state != 'blocked' AND seq IS NULL) s
ASOF JOIN spans c ON c.tid = s.tid AND c.begun_ns >= s.ts_ns + s.dur_ns
WHERE s.ts_ns + s.dur_ns > c.free_ns
"""

# Log writes and log commits may overlap: a wait is charged to one of them at a time. Of btrfs'
# only while it works: one that waits for another is as much a victim as its own waiters.
_LEADING = f"""
CREATE OR REPLACE TEMP TABLE leading_commits AS
WITH leaders AS (
    SELECT commit_id, filesystem, dev, from_ns, to_ns
    FROM commit_spans WHERE leads AND kind != 'btrfs_log_commit'
    UNION ALL SELECT s.commit_id, s.filesystem, s.dev, b.from_ns, b.to_ns
    FROM commit_spans s JOIN commit_starts b USING (commit_id)
    UNION ALL SELECT s.commit_id, s.filesystem, s.dev, p.from_ns, p.to_ns
    FROM commit_spans s JOIN commit_parts p USING (commit_id)
    WHERE leads AND kind = 'btrfs_log_commit' AND part NOT IN ('previous_commit', 'ordered_data')
)
{one_at_a_time("leaders", "filesystem, dev", "commit_id")}
"""

_JOURNAL_WAITS = f"""
CREATE OR REPLACE TEMP TABLE journal_waits AS
SELECT row_number() OVER (ORDER BY ts_ns, tid) AS wait_id, ts_ns AS from_ns,
    ts_ns + dur_ns AS to_ns, dur_ns, call_ns, pid, tid, seq, comm, syscall, dev, cause, filesystem
FROM named_waits WHERE cause IN {WAITING_CAUSES} AND dur_ns > 0
"""

_COMMIT_WAITS = f"""
CREATE OR REPLACE TEMP TABLE commit_waits AS
SELECT *, commit_id = first_value(commit_id) OVER (PARTITION BY wait_id ORDER BY to_ns DESC)
    AS is_last
FROM ({
    overlaps(
        "journal_waits",
        "leading_commits",
        "l.filesystem = r.filesystem AND (l.filesystem = 'btrfs' OR l.dev IS NULL "
        "OR r.dev IS NULL OR l.dev = r.dev)",
        "l.wait_id, l.cause, l.pid, l.tid, l.seq, r.commit_id",
    )
})
"""

# Cutting needs memory, so commits are cut some at a time: those of the table batch, which lie
# between the variables since and until.
_BATCH = """
CREATE OR REPLACE TEMP TABLE batch AS
SELECT commit_id, kind, tid, dev, from_ns, to_ns, dur_ns, locking_ns, flushing_ns, logging_ns
FROM commit_spans WHERE commit_id BETWEEN {first} AND {last};
SET VARIABLE since = (SELECT min(from_ns) FROM batch);
SET VARIABLE until = (SELECT max(to_ns) FROM batch)
"""

_PHASES = """
CREATE OR REPLACE TEMP TABLE commit_phases AS
WITH begun AS (
    SELECT commit_id, from_ns, to_ns, greatest(0, dur_ns - coalesce(locking_ns, 0)
        - coalesce(flushing_ns, 0) - coalesce(logging_ns, 0)) AS before_ns,
        coalesce(locking_ns, 0) AS locking_ns, coalesce(flushing_ns, 0) AS flushing_ns
    FROM batch WHERE kind = 'jbd2_commit' AND logging_ns IS NOT NULL
)
SELECT commit_id, unnest([1, 2]) AS phase, unnest([from_ns + before_ns,
        from_ns + before_ns + locking_ns]) AS from_ns,
    unnest([from_ns + before_ns + locking_ns,
        from_ns + before_ns + locking_ns + flushing_ns]) AS to_ns
FROM begun
"""

# What the thread of a commit was not running for: 1 no CPU, and what it slept for.
_ABSENCES = f"""
CREATE OR REPLACE TEMP TABLE commit_absences AS
WITH batching AS (
    SELECT i.stack_id FROM stacks i JOIN stacks o ON o.stack_id = i.stack_id
        AND o.depth = i.depth + 1
    WHERE i.symbol LIKE 'schedule_timeout%' AND o.symbol = 'btrfs_sync_log'
), absent AS (
    SELECT s.tid, s.ts_ns AS from_ns, s.ts_ns + s.dur_ns AS to_ns,
        CASE WHEN s.state != 'blocked' THEN 1 WHEN k.cause = 'ordered_data' THEN 2
            WHEN s.stack_id IN (SELECT stack_id FROM batching) THEN 6
            WHEN k.cause = 'flush' THEN 3
            WHEN k.cause IN ('journal_commit', 'writeback', 'block_device') THEN 4
            ELSE 5 END AS why
    FROM segments s LEFT JOIN stack_causes k USING (stack_id)
    WHERE s.tid IN (SELECT tid FROM batch WHERE kind != 'xfs_log_write')
        AND s.ts_ns < getvariable('until') AND s.ts_ns + s.dur_ns > getvariable('since')
), spans AS (
    SELECT commit_id, tid, from_ns, to_ns FROM batch WHERE kind != 'xfs_log_write'
)
SELECT * FROM ({overlaps("spans", "absent", "l.tid = r.tid", "l.commit_id, r.why")})
"""

_REQUESTS = f"""
CREATE OR REPLACE TEMP TABLE commit_requests AS
WITH own AS (
    SELECT tid, part, from_ns, to_ns FROM services
    WHERE tid IN (SELECT tid FROM batch) AND part != '{DISK_FLUSH}'
        AND from_ns < getvariable('until') AND to_ns > getvariable('since')
), met AS (
    SELECT * FROM ({overlaps("batch", "own", "l.tid = r.tid", "l.commit_id, r.part")})
)
{one_at_a_time("met", "commit_id, part", "commit_id")}
"""

_FLUSHES = f"""
CREATE OR REPLACE TEMP TABLE commit_flushes AS
WITH emptied AS (
    SELECT disk, from_ns, to_ns FROM services WHERE part = '{DISK_FLUSH}'
        AND from_ns < getvariable('until') AND to_ns > getvariable('since')
), met AS (
    SELECT * FROM ({overlaps("batch", "emptied", same_disk("l.dev", "r.disk"), "l.commit_id")})
)
{one_at_a_time("met", "commit_id", "commit_id")}
"""

_PARTS_TABLE = """
CREATE OR REPLACE TEMP TABLE commit_parts (
    commit_id BIGINT, from_ns BIGINT, to_ns BIGINT, part VARCHAR);
CREATE OR REPLACE TEMP TABLE watched_threads AS
SELECT DISTINCT tid FROM segments WHERE tid IN (SELECT tid FROM commits)
"""

_PARTS = f"""
INSERT INTO commit_parts
WITH claims AS (
    SELECT commit_id AS id, 0 AS layer, 1 AS claim, from_ns, to_ns FROM batch
    UNION ALL SELECT commit_id, 1, phase, from_ns, to_ns FROM commit_phases WHERE from_ns < to_ns
    UNION ALL SELECT commit_id, 2, why, from_ns, to_ns FROM commit_absences
    UNION ALL SELECT commit_id, CASE part WHEN '{FLUSH}' THEN 3 WHEN '{DEVICE}' THEN 4 ELSE 5 END,
        1, from_ns, to_ns FROM commit_requests
    UNION ALL SELECT commit_id, 6, 1, from_ns, to_ns FROM commit_flushes
), cut AS (
    SELECT * FROM ({layers("claims", (1, 2, 3, 1, 1, 1, 1))})
), doing AS (
    SELECT p.id AS commit_id, p.from_ns, p.to_ns,
        CASE WHEN c3 IS NOT NULL THEN 'cache_flush' WHEN c4 IS NOT NULL THEN 'log_write'
            WHEN c6 IS NOT NULL THEN 'cache_flush' WHEN c5 IS NOT NULL THEN '{QUEUE}'
            END AS request,
        s.kind, w.tid IS NOT NULL AS watched, p.c1 AS phase, p.c2 AS why
    FROM cut p JOIN batch s ON s.commit_id = p.id
    LEFT JOIN watched_threads w ON w.tid = s.tid
)
SELECT commit_id, from_ns, to_ns,
    CASE WHEN kind = 'xfs_log_write' OR NOT watched THEN coalesce(request, 'other')
        WHEN why IS NULL THEN 'running' WHEN why = 1 THEN 'no_cpu'
        WHEN why = 6 THEN 'batching' WHEN phase = 1 THEN 'handles'
        WHEN phase = 2 OR why = 2 THEN 'ordered_data'
        WHEN request IS NOT NULL THEN request WHEN why = 3 THEN 'cache_flush'
        WHEN why = 4 AND kind = 'btrfs_log_commit' THEN 'previous_commit'
        WHEN why = 4 THEN 'log_write' ELSE 'other' END AS part
FROM doing
"""

# Only the last commit that a wait met is divided: those before had to end first.
_WAIT_PARTS = """
CREATE OR REPLACE TEMP TABLE wait_parts AS
WITH own AS (
    SELECT wait_id, commit_id, from_ns, to_ns FROM commit_waits WHERE is_last
), doing AS (
    SELECT commit_id, part, from_ns, to_ns FROM commit_parts
    UNION ALL SELECT commit_id, 'no_cpu', from_ns, to_ns FROM commit_starts
), divided AS (
    SELECT o.wait_id, d.part,
        least(o.to_ns, d.to_ns) - greatest(o.from_ns, d.from_ns) AS ns
    FROM own o JOIN doing d ON d.commit_id = o.commit_id AND d.from_ns < o.to_ns
        AND o.from_ns < d.to_ns
    UNION ALL SELECT wait_id, 'previous_commit', to_ns - from_ns FROM commit_waits
    WHERE NOT is_last
), found AS (
    SELECT wait_id, part, CAST(sum(ns) AS BIGINT) AS ns FROM divided GROUP BY ALL
)
SELECT w.wait_id, f.part, f.ns FROM journal_waits w JOIN found f USING (wait_id)
UNION ALL SELECT w.wait_id, 'no_commit', w.dur_ns - coalesce(f.ns, 0) FROM journal_waits w
    LEFT JOIN (SELECT wait_id, sum(ns) AS ns FROM found GROUP BY wait_id) f USING (wait_id)
    WHERE w.dur_ns > coalesce(f.ns, 0)
"""


def take_apart(con: duckdb.DuckDBPyConnection) -> None:
    """Divide commits, and the waits for them (needs ``named_waits`` and ``services``).

    Creates ``commit_spans`` (the commits, numbered by ``commit_id``), ``commit_parts`` (one row
    for each interval of a commit, whose parts add up to its length), ``journal_waits`` (the waits
    for commits, by ``wait_id``), ``commit_waits`` (each instant of such a wait during which a
    commit ran, once) and ``wait_parts`` (ns of each wait by part, which add up to its length).
    """
    con.execute(_SPANS)
    con.execute(_PARTS_TABLE)
    ((n,),) = con.execute("SELECT count(*) FROM commit_spans").fetchall()
    for first in range(1, n + 1, BATCH):
        con.execute(_BATCH.format(first=first, last=first + BATCH - 1))
        for statement in (_PHASES, _ABSENCES, _REQUESTS, _FLUSHES, _PARTS):
            con.execute(statement)
    for statement in (_STARTS, _LEADING, _JOURNAL_WAITS, _COMMIT_WAITS, _WAIT_PARTS):
        con.execute(statement)


def parts_of_commits(con: duckdb.DuckDBPyConnection) -> dict[str, dict[str, int]]:
    """Return {kind: {part: ns}} of the commits themselves."""
    return _by_part(
        con,
        "SELECT kind, part, CAST(sum(p.to_ns - p.from_ns) AS BIGINT) "
        "FROM commit_parts p JOIN commit_spans USING (commit_id) GROUP BY ALL",
    )


def parts_of_waits(con: duckdb.DuckDBPyConnection) -> dict[str, dict[str, int]]:
    """Return {filesystem: {part: ns}} of the waits for commits."""
    return _by_part(
        con,
        "SELECT filesystem, part, CAST(sum(ns) AS BIGINT) "
        "FROM wait_parts JOIN journal_waits USING (wait_id) GROUP BY ALL",
    )


def _by_part(con: duckdb.DuckDBPyConnection, query: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for of, part, ns in con.execute(query).fetchall():
        found.setdefault(of, {})[part] = ns
    return {
        of: {part: parts[part] for part in PARTS if part in parts}
        for of, parts in sorted(found.items())
    }
