"""Journal commits: what waits on them waited for, and who caused them.

A commit is done by a kernel thread, or by the one caller who happened to come first, on behalf
of everybody. The blame table charges it back: to the process, call and kind of file whose
call started the commit, with the time that others spent waiting for it.
"""

from dataclasses import dataclass

import duckdb

from spoolscope.analysis.pathclass import class_sql

PHASES = ("previous_commit", "locking", "flushing", "logging", "finishing", "no_commit")
"""What a commit was doing while a call waited for it. ``previous_commit``: an older commit had
to end first; ``finishing``: after the log was written (commit record, cache flush);
``no_commit``: no commit was recorded as running (its thread had not started, or was done)."""

# Log writes and log-tree commits may overlap: a wait is charged to one of them at a time.
_DISJOINT = """
CREATE OR REPLACE TEMP TABLE commit_spans AS
WITH numbered AS (
    SELECT row_number() OVER (ORDER BY ts_ns) AS commit_id, *,
        CASE WHEN kind LIKE 'jbd2%' THEN 'ext4' WHEN kind LIKE 'xfs%' THEN 'xfs'
            WHEN kind LIKE 'btrfs%' THEN 'btrfs' ELSE 'any' END AS filesystem
    FROM commits
)
SELECT *, greatest(ts_ns, coalesce(max(ts_ns + dur_ns) OVER (
        PARTITION BY filesystem, dev ORDER BY ts_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), ts_ns)) AS from_ns,
    ts_ns + dur_ns AS to_ns
FROM numbered
"""

# Intervals meet in bins of 67 ms (2^26 ns): a join on the bin and then on time is linear, where
# one on time alone compares everything with everything. The bin where both are on counts.
_PIECES = """
CREATE OR REPLACE TEMP TABLE commit_waits AS
WITH kept AS (
    SELECT row_number() OVER () AS wait_id, *, ts_ns + dur_ns AS end_ns
    FROM named_waits WHERE cause IN ('journal_commit', 'txn_lock', 'shadow')
), held AS (
    SELECT *, unnest(range(ts_ns >> 26, (end_ns >> 26) + 1)) AS bin FROM kept
), spans AS (
    SELECT *, unnest(range(from_ns >> 26, (to_ns >> 26) + 1)) AS bin
    FROM commit_spans WHERE from_ns < to_ns
)
SELECT h.wait_id, h.cause, h.ts_ns, h.dur_ns, h.tid, h.seq, h.syscall, c.commit_id,
    greatest(h.ts_ns, c.from_ns) AS from_ns, least(h.end_ns, c.to_ns) AS to_ns,
    row_number() OVER (PARTITION BY h.wait_id ORDER BY c.to_ns DESC) AS age
FROM held h
JOIN spans c ON c.bin = h.bin AND c.filesystem = h.filesystem
    AND c.bin = greatest(h.ts_ns, c.from_ns) >> 26
    AND c.from_ns < h.end_ns AND c.to_ns > h.ts_ns
    AND (c.filesystem = 'btrfs' OR c.dev IS NULL OR h.dev IS NULL OR c.dev = h.dev)
"""

# What the commit thread did meanwhile: its own absences from the CPU; the rest it was running.
_THREAD = """
WITH piece AS (
    SELECT c.tid, p.from_ns, p.to_ns, unnest(range(p.from_ns >> 26, (p.to_ns >> 26) + 1)) AS bin
    FROM commit_waits p JOIN commit_spans c USING (commit_id)
    WHERE p.cause = 'journal_commit' AND c.kind = 'jbd2_commit'
), absent AS (
    SELECT s.tid, s.ts_ns, s.ts_ns + s.dur_ns AS end_ns,
        CASE WHEN s.state != 'blocked' THEN 'no CPU' WHEN k.cause = 'flush' THEN 'cache flush'
            WHEN k.cause = 'ordered_data' THEN 'ordered data'
            WHEN k.cause = 'journal_commit' THEN 'log blocks' ELSE 'other waits' END AS what
    FROM segments s LEFT JOIN stack_causes k USING (stack_id)
    WHERE s.seq IS NULL AND s.tid IN (SELECT tid FROM commits)
), binned AS (
    SELECT *, unnest(range(ts_ns >> 26, (end_ns >> 26) + 1)) AS bin FROM absent
)
SELECT b.what,
    CAST(sum(least(p.to_ns, b.end_ns) - greatest(p.from_ns, b.ts_ns)) AS BIGINT) AS ns
FROM piece p
JOIN binned b ON b.tid = p.tid AND b.bin = p.bin
    AND b.bin = greatest(p.from_ns, b.ts_ns) >> 26 AND b.ts_ns < p.to_ns AND b.end_ns > p.from_ns
GROUP BY b.what ORDER BY ns DESC
"""

_REFINED = """
WITH piece AS (
    SELECT p.age, p.from_ns AS a, p.to_ns AS b, c.ts_ns AS p0,
        c.ts_ns + coalesce(c.locking_ns, 0) AS p1,
        c.ts_ns + coalesce(c.locking_ns, 0) + coalesce(c.flushing_ns, 0) AS p2,
        c.ts_ns + coalesce(c.locking_ns, 0) + coalesce(c.flushing_ns, 0)
            + coalesce(c.logging_ns, 0) AS p3
    FROM commit_waits p JOIN commit_spans c USING (commit_id)
    WHERE p.cause = 'journal_commit' AND c.kind = 'jbd2_commit'
)
SELECT CAST(coalesce(sum(b - a) FILTER (age > 1), 0) AS BIGINT),
    CAST(coalesce(sum(greatest(0, least(b, p1) - greatest(a, p0))) FILTER (age = 1), 0) AS BIGINT),
    CAST(coalesce(sum(greatest(0, least(b, p2) - greatest(a, p1))) FILTER (age = 1), 0) AS BIGINT),
    CAST(coalesce(sum(greatest(0, least(b, p3) - greatest(a, p2))) FILTER (age = 1), 0) AS BIGINT),
    CAST(coalesce(sum(greatest(0, b - greatest(a, p3))) FILTER (age = 1), 0) AS BIGINT)
FROM piece
"""

_BLAME = """
WITH triggered AS (
    SELECT c.commit_id, c.dur_ns, c.trigger_tid,
        CASE WHEN c.trigger = 'call' THEN coalesce(s.comm, c.trigger_comm, 'unknown')
            ELSE '(' || c.trigger || ')' END AS comm,
        coalesce(s.syscall, '-') AS syscall,
        CASE WHEN s.tid IS NULL THEN '-' ELSE {path_class} END AS path_class
    FROM commit_spans c
    LEFT JOIN syscalls s ON s.tid = c.trigger_tid AND s.seq = c.trigger_seq
        AND s.pid = c.trigger_pid AND s.ts_ns <= c.ts_ns + c.dur_ns
        AND s.ts_ns + s.dur_ns >= c.ts_ns - 1000000000
    LEFT JOIN paths p ON p.path_id = s.path_id
    QUALIFY row_number() OVER (PARTITION BY c.commit_id ORDER BY s.ts_ns DESC) = 1
), charged AS (
    SELECT t.commit_id,
        sum(w.to_ns - w.from_ns) FILTER (w.tid = t.trigger_tid) AS own_ns,
        sum(w.to_ns - w.from_ns) FILTER (w.tid IS DISTINCT FROM t.trigger_tid) AS others_ns,
        count(*) FILTER (w.tid IS DISTINCT FROM t.trigger_tid) AS n_others
    FROM triggered t JOIN commit_waits w USING (commit_id) GROUP BY t.commit_id
)
SELECT comm, syscall, path_class, count(*), CAST(sum(dur_ns) AS BIGINT),
    CAST(coalesce(sum(own_ns), 0) AS BIGINT), CAST(coalesce(sum(others_ns), 0) AS BIGINT),
    CAST(coalesce(sum(n_others), 0) AS BIGINT)
FROM triggered LEFT JOIN charged USING (commit_id)
GROUP BY ALL ORDER BY 7 DESC, 6 DESC, 4 DESC
"""

_SUMMARY = """
SELECT kind, count(*), count(*) FILTER (trigger != 'unknown'
        AND (trigger != 'call' OR trigger_comm IS NOT NULL)),
    CAST(sum(dur_ns) AS BIGINT), CAST(quantile_cont(dur_ns, 0.5) AS BIGINT), max(dur_ns),
    CAST(sum(locking_ns) AS BIGINT), CAST(sum(flushing_ns) AS BIGINT),
    CAST(sum(logging_ns) AS BIGINT), avg(blocks)
FROM commits GROUP BY kind ORDER BY 2 DESC
"""


@dataclass(frozen=True)
class CommitKind:
    """The commits of one kind: how many, how long, and by whom.

    Attributes:
        kind: jbd2_commit, xfs_log_write, btrfs_log_commit or btrfs_commit.
        n: Number of commits.
        trigger_named: How many have a known trigger (a call, a timer, a checkpoint).
        total_ns: Sum of their lengths; p50_ns and max_ns the median and the longest.
        locking_ns: Sum over the phase, None if the kind has no phases; likewise the next two.
        blocks_mean: Mean of blocks (jbd2) or bytes (xfs) written, None if unknown.
    """

    kind: str
    n: int
    trigger_named: int
    total_ns: int
    p50_ns: int
    max_ns: int
    locking_ns: int | None
    flushing_ns: int | None
    logging_ns: int | None
    blocks_mean: float | None


@dataclass(frozen=True)
class Blame:
    """Commits charged to what triggered them.

    Attributes:
        comm: Process name, or "(timer)", "(checkpoint)", "(unknown)".
        syscall: The triggering call.
        path_class: The kind of file it was made on.
        n: Number of commits.
        commit_ns: Sum of the commits' lengths.
        own_ns: Time the triggering threads themselves waited for these commits.
        others_ns: Time all other threads waited for them, in n_others waits.
    """

    comm: str
    syscall: str
    path_class: str
    n: int
    commit_ns: int
    own_ns: int
    others_ns: int
    n_others: int


@dataclass(frozen=True)
class CommitReport:
    """All about the commits of a trace.

    Attributes:
        n: Number of commits; trigger_named of them have a known trigger.
        kinds: By kind.
        phases: What jbd2 commits were doing while calls waited for them; sums to these waits.
        thread: What the commit thread was doing in the phases from previous_commit to finishing.
        blame: By trigger, the one for which others waited longest first.
    """

    n: int
    trigger_named: int
    kinds: list[CommitKind]
    phases: dict[str, int]
    thread: dict[str, int]
    blame: list[Blame]


def study_commits(con: duckdb.DuckDBPyConnection) -> CommitReport:
    """Summarise the commits and charge them to their triggers (needs the table ``named_waits``)."""
    con.execute(_DISJOINT)
    con.execute(_PIECES)
    kinds = [CommitKind(*row) for row in con.execute(_SUMMARY).fetchall()]
    blame = con.execute(_BLAME.format(path_class=class_sql("p.path"))).fetchall()
    phases = _phases(con)
    return CommitReport(
        n=sum(kind.n for kind in kinds),
        trigger_named=sum(kind.trigger_named for kind in kinds),
        kinds=kinds,
        phases=phases,
        thread=_thread(con, phases),
        blame=[Blame(*row) for row in blame],
    )


def _phases(con: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Refine the waits on jbd2 commits; empty for filesystems whose commits have no phases."""
    has_phases = con.execute("SELECT count(*) FROM commits WHERE kind = 'jbd2_commit'").fetchone()
    if has_phases is None or not has_phases[0]:
        return {}
    row = con.execute(_REFINED).fetchone() or (0,) * 5
    (waited,) = con.execute(
        "SELECT CAST(coalesce(sum(dur_ns), 0) AS BIGINT) FROM named_waits "
        "WHERE cause = 'journal_commit' AND filesystem = 'ext4'"
    ).fetchone() or (0,)
    return dict(zip(PHASES, (*row, max(0, waited - sum(row))), strict=True))


def _thread(con: duckdb.DuckDBPyConnection, phases: dict[str, int]) -> dict[str, int]:
    """Split the time of the phases by what the commit thread was doing."""
    waited = sum(ns for phase, ns in phases.items() if phase != "no_commit")
    if not waited:
        return {}
    found = dict(con.execute(_THREAD).fetchall())
    if not found:
        return {}
    return found | {"running": max(0, waited - sum(found.values()))}
