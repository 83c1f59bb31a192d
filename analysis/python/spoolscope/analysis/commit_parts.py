"""Activity of commits, instant by instant, and of the commits that calls waited for.

``commit_parts`` divides the length of every commit, exactly, by what it was doing: from the
recorded phases of the journal, from the waits of its thread, and from the requests that this thread
had sent to the disk. Laid over the waits of calls it divides these, too.
"""

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np

from spoolscope.analysis.causes import CAUSES, JOURNAL_WAITS
from spoolscope.analysis.overlay import arrays, insert, layers, one_at_a_time, overlaps
from spoolscope.analysis.services import DEVICE, DISK_FLUSH, FLUSH, same_disk
from spoolscope.traces.filesystems import FILESYSTEMS

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
"""Activities of a commit. ``previous_commit``: an older one had to end first; ``handles``: calls
that were changing metadata had to end (jbd2's locking, and similar in f2fs and nilfs2);
``batching``: it slept to let others join (btrfs: a jiffy, as long as others come);
``ordered_data``: file data was written; ``queue``, ``log_write``: a request of the log was not yet,
or was, at the disk; ``cache_flush``: the disk emptied its cache; ``no_cpu``: its thread was ready,
perhaps to begin, but had no CPU; ``running``: it had one; ``other``: it waited for something else;
``no_commit``: none was running, its thread had not been woken or was done."""

PART = {part: code for code, part in enumerate(PARTS)}
"""Codes of parts in tables, to save memory, as each commit has several rows."""


def part_label(part: str) -> str:
    """Return a part in words."""
    return part.replace("_", " ").replace("cpu", "CPU")


BATCH = 50_000
"""Number of commits that are cut into pieces at a time."""

# Claims on a commit at an instant, by layer: it runs; its phase; why its thread was not running;
# the state of its requests.
N_LAYERS = 7
COMMIT, PHASE, ABSENCE, FLUSHING, WRITING, QUEUED, EMPTYING = range(N_LAYERS)

LOCKING, ORDERED = 1, 2
NO_CPU, DATA_SLEEP, FLUSH_SLEEP, LOG_SLEEP, OTHER_SLEEP, BATCHING, HANDLE_SLEEP = range(1, 8)

# The kind of a commit has the prefix of its filesystem's tracepoints.
_FILESYSTEM = " ".join(
    f"WHEN starts_with(kind, '{begin}') THEN '{kind.type}'"
    for kind in FILESYSTEMS.values()
    if kind.type in kind.rules
    for begin in kind.symbols
)
# A btrfs fsync that wrote no tree joined the log commit of another one, and made none itself.
# The first call that ends a change after the commit interval starts the commit (jbd2_journal_stop):
# the interval is the reason, not what that call did. On a mount with sync its own wish may be.
_SPANS = f"""
CREATE OR REPLACE TEMP TABLE commit_spans AS
WITH numbered AS (
    SELECT row_number() OVER (ORDER BY ts_ns) AS commit_id, *, ts_ns AS from_ns,
        ts_ns + dur_ns AS to_ns,
        CASE {_FILESYSTEM} ELSE 'any' END AS filesystem
    FROM commits
    WHERE kind != 'btrfs_log_commit' OR logging_ns IS NOT NULL
        OR NOT (SELECT bool_or(kind = 'btrfs_log_commit' AND logging_ns IS NOT NULL) FROM commits)
), stopped AS (
    SELECT stack_id FROM stacks WHERE starts_with(symbol, 'jbd2_journal_stop')
)
SELECT * REPLACE (CASE WHEN trigger = 'call' AND {{expires}}
        AND trigger_stack_id IN (SELECT stack_id FROM stopped) THEN 'timer' ELSE trigger END
        AS trigger)
FROM numbered
"""

# After the request for a commit, the journal's thread had to get a CPU before it could begin.
_STARTS = f"""
CREATE OR REPLACE TEMP TABLE commit_starts AS
WITH spans AS (
    SELECT commit_id, tid, from_ns AS begun_ns,
        coalesce(lag(to_ns) OVER (PARTITION BY tid ORDER BY from_ns), 0) AS free_ns
    FROM commit_spans WHERE kind = 'jbd2_commit'
)
SELECT c.commit_id, greatest(a.from_ns, c.free_ns) AS from_ns, a.to_ns
FROM (SELECT * FROM absences WHERE why = {NO_CPU} AND seq IS NULL) a
ASOF JOIN spans c ON c.tid = a.tid AND c.begun_ns >= a.to_ns
WHERE a.to_ns > c.free_ns
"""

# Log writes and log commits may overlap: a wait is charged to one of them at a time; to one of
# btrfs only while it works, as a log commit that waits for another is itself a victim.
_LEADING = f"""
CREATE OR REPLACE TEMP TABLE leading_commits AS
WITH leaders AS (
    SELECT commit_id, filesystem, dev, from_ns, to_ns
    FROM commit_spans WHERE kind != 'btrfs_log_commit'
    UNION ALL SELECT s.commit_id, s.filesystem, s.dev, b.from_ns, b.to_ns
    FROM commit_spans s JOIN commit_starts b USING (commit_id)
    UNION ALL SELECT s.commit_id, s.filesystem, s.dev, p.from_ns, p.to_ns
    FROM commit_spans s JOIN commit_parts p USING (commit_id)
    WHERE kind = 'btrfs_log_commit'
        AND part NOT IN ({PART["previous_commit"]}, {PART["ordered_data"]})
)
{one_at_a_time("leaders", "filesystem, dev", "commit_id")}
"""

_JOURNAL_WAITS = f"""
CREATE OR REPLACE TEMP TABLE journal_waits AS
SELECT row_number() OVER (ORDER BY ts_ns, tid) AS wait_id, ts_ns AS from_ns,
    ts_ns + dur_ns AS to_ns, dur_ns, pid, tid, seq, dev, cause, filesystem
FROM named_waits WHERE shown AND cause IN {JOURNAL_WAITS} AND dur_ns > 0
"""

_COMMIT_WAITS = f"""
CREATE OR REPLACE TEMP TABLE commit_waits AS
WITH met AS MATERIALIZED ({
    overlaps(
        "journal_waits",
        "leading_commits",
        "l.filesystem = r.filesystem AND (l.filesystem = 'btrfs' OR l.dev IS NULL "
        "OR r.dev IS NULL OR l.dev = r.dev)",
        "l.wait_id, l.cause, l.pid, l.tid, l.seq, r.commit_id",
    )
}), last AS (
    SELECT wait_id, arg_max(commit_id, to_ns) AS last_id FROM met GROUP BY wait_id
)
SELECT met.*, commit_id = last_id AS is_last FROM met JOIN last USING (wait_id)
"""

_SLEEPS = {
    "ordered_data": DATA_SLEEP,
    "cache_flush": FLUSH_SLEEP,
    "log_write": LOG_SLEEP,
    "handles": HANDLE_SLEEP,
}
_SLEEPING = " ".join(
    f"WHEN k.cause = '{name}' THEN {_SLEEPS[cause.in_commit]}"
    for name, cause in CAUSES.items()
    if cause.in_commit in _SLEEPS
)

# Why the threads of commits were not running: no CPU, or the cause of their sleep.
_ABSENCES = f"""
CREATE OR REPLACE TEMP TABLE absences AS
WITH batching AS (
    SELECT i.stack_id FROM stacks i JOIN stacks o ON o.stack_id = i.stack_id
        AND o.depth = i.depth + 1
    WHERE i.symbol LIKE 'schedule_timeout%' AND o.symbol = 'btrfs_sync_log'
)
SELECT s.tid, s.seq, s.ts_ns AS from_ns, s.ts_ns + s.dur_ns AS to_ns,
    CASE WHEN s.state != 'blocked' THEN {NO_CPU}
        WHEN s.stack_id IN (SELECT stack_id FROM batching) THEN {BATCHING} {_SLEEPING}
        ELSE {OTHER_SLEEP} END AS why
FROM segments s LEFT JOIN stack_causes k USING (stack_id)
WHERE s.tid IN (SELECT tid FROM commits WHERE kind != 'xfs_log_write')
"""

# Cutting needs memory, so it is done in batches: the table batch, whose commits all lie between the
# variables since and until.
_BATCH = """
CREATE OR REPLACE TEMP TABLE batch AS
SELECT commit_id, kind, tid, dev, from_ns, to_ns, dur_ns, locking_ns, flushing_ns, logging_ns
FROM commit_spans WHERE commit_id BETWEEN {first} AND {last};
SET VARIABLE since = (SELECT min(from_ns) FROM batch);
SET VARIABLE until = (SELECT max(to_ns) FROM batch)
"""
_MEANWHILE = "from_ns < getvariable('until') AND to_ns > getvariable('since')"

# The thread that writes an xfs log does other work, too: its sleeps say nothing on the log write.
_CLAIMS = f"""
WITH begun AS (
    SELECT commit_id, coalesce(locking_ns, 0) AS locking_ns, coalesce(flushing_ns, 0)
        AS flushing_ns, from_ns + greatest(0, dur_ns - coalesce(locking_ns, 0)
        - coalesce(flushing_ns, 0) - logging_ns) AS begun_ns
    FROM batch WHERE kind = 'jbd2_commit' AND logging_ns IS NOT NULL
), of_threads AS (
    SELECT tid, {ABSENCE} AS layer, why AS claim, from_ns, to_ns FROM absences WHERE {_MEANWHILE}
    UNION ALL SELECT tid, CASE part WHEN '{FLUSH}' THEN {FLUSHING} WHEN '{DEVICE}' THEN {WRITING}
        ELSE {QUEUED} END, 1, from_ns, to_ns
    FROM services WHERE tid IN (SELECT tid FROM batch) AND part != '{DISK_FLUSH}' AND {_MEANWHILE}
), emptied AS (
    SELECT disk, from_ns, to_ns FROM services WHERE part = '{DISK_FLUSH}' AND {_MEANWHILE}
)
SELECT commit_id AS id, {COMMIT} AS layer, 1 AS claim, from_ns, to_ns FROM batch
UNION ALL SELECT commit_id, {PHASE}, {LOCKING}, begun_ns, begun_ns + locking_ns FROM begun
UNION ALL SELECT commit_id, {PHASE}, {ORDERED}, begun_ns + locking_ns,
    begun_ns + locking_ns + flushing_ns FROM begun
UNION ALL SELECT * FROM ({
    overlaps(
        "batch",
        "of_threads",
        f"l.tid = r.tid AND (l.kind != 'xfs_log_write' OR r.layer != {ABSENCE})",
        "l.commit_id, r.layer, r.claim",
    )
})
UNION ALL SELECT * FROM ({
    overlaps("batch", "emptied", same_disk("l.dev", "r.disk"), f"l.commit_id, {EMPTYING}, 1")
})
"""

# Only the requests are known of log writes, and of a commit whose thread was not watched.
_KINDS = """
SELECT kind = 'xfs_log_write' OR tid NOT IN (SELECT tid FROM watched_threads) AS by_requests,
    kind = 'btrfs_log_commit' AS btrfs_log
FROM batch ORDER BY commit_id
"""

# Only the last commit that overlaps a wait is divided: those before had to end first. What all
# parts of a wait have in common is joined before it is divided, as the parts are millions.
_WAIT_PARTS = f"""
CREATE OR REPLACE TEMP VIEW wait_parts AS
WITH doing AS (
    SELECT commit_id, part, from_ns, to_ns FROM commit_parts
    UNION ALL SELECT commit_id, {PART["no_cpu"]}, from_ns, to_ns FROM commit_starts
), during AS MATERIALIZED (
    SELECT c.wait_id, c.commit_id, c.from_ns, c.to_ns, c.is_last, j.filesystem
    FROM commit_waits c JOIN journal_waits j USING (wait_id)
), met AS (
    SELECT wait_id, max(commit_id) FILTER (is_last) AS commit_id, sum(to_ns - from_ns) AS ns
    FROM during GROUP BY wait_id
)
SELECT w.wait_id, w.commit_id, w.filesystem, d.part,
    least(w.to_ns, d.to_ns) - greatest(w.from_ns, d.from_ns) AS ns
FROM during w JOIN doing d ON d.commit_id = w.commit_id AND d.from_ns < w.to_ns
    AND w.from_ns < d.to_ns
WHERE w.is_last
UNION ALL SELECT wait_id, m.commit_id, w.filesystem, {PART["previous_commit"]}, to_ns - from_ns
FROM during w JOIN met m USING (wait_id) WHERE NOT is_last
UNION ALL SELECT w.wait_id, m.commit_id, w.filesystem, {PART["no_commit"]},
    w.dur_ns - coalesce(m.ns, 0)
FROM journal_waits w LEFT JOIN met m USING (wait_id) WHERE w.dur_ns > coalesce(m.ns, 0)
"""

# The view above joins much, and a long recording has millions of its rows: sums are made of these.
_COMMIT_SUMS = f"""
CREATE OR REPLACE TEMP TABLE commit_sums AS
WITH sums AS (
    SELECT commit_id, filesystem, part AS code, CAST(sum(ns) AS BIGINT) AS ns FROM wait_parts
    GROUP BY ALL
)
SELECT s.commit_id, s.filesystem, s.code, ({list(PARTS)})[s.code + 1] AS part, s.ns, c.trigger
FROM sums s LEFT JOIN commit_spans c USING (commit_id)
"""


def number_commits(con: duckdb.DuckDBPyConnection, meta: Mapping[str, Any]) -> None:
    """Create ``commit_spans``: the commits, numbered by ``commit_id``.

    A row of ``commits`` that only joined the log commit of another call is none.

    Args:
        con: The connection.
        meta: meta.json of the trace.
    """
    options = {
        option
        for spool in meta.get("spools") or []
        for option in str(spool.get("options", "")).split(",")
    }
    con.execute(_SPANS.format(expires=options.isdisjoint({"sync", "dirsync"})))


def take_apart(con: duckdb.DuckDBPyConnection) -> None:
    """Create ``commit_parts``: all commits divided (needs ``commit_spans`` and ``services``)."""
    con.execute(_ABSENCES)
    con.execute("CREATE OR REPLACE TEMP TABLE watched_threads AS SELECT DISTINCT tid FROM absences")
    con.execute(
        "CREATE OR REPLACE TEMP TABLE commit_parts "
        "(commit_id BIGINT, from_ns BIGINT, to_ns BIGINT, part TINYINT)"
    )
    ((n,),) = con.execute("SELECT count(*) FROM commit_spans").fetchall()
    for first in range(1, n + 1, BATCH):
        _cut(con, first, first + BATCH - 1)


def lay_over_waits(con: duckdb.DuckDBPyConnection) -> None:
    """Create ``journal_waits``, ``commit_waits`` and ``wait_parts`` (needs ``commit_parts``)."""
    for statement in (_STARTS, _LEADING, _JOURNAL_WAITS, _COMMIT_WAITS, _WAIT_PARTS, _COMMIT_SUMS):
        con.execute(statement)


def _cut(con: duckdb.DuckDBPyConnection, first: int, last: int) -> None:
    """Add the commits with these ids to ``commit_parts``.

    Neighbours of one part are one row, but for btrfs, where ``_LEADING`` chooses among pieces.
    """
    con.execute(_BATCH.format(first=first, last=last))
    pieces = layers(arrays(con, _CLAIMS), N_LAYERS)
    kinds = arrays(con, _KINDS)
    by_requests, btrfs_log = (kinds[k][pieces.id - first] for k in ("by_requests", "btrfs_log"))
    part = _part(pieces.held, by_requests, btrfs_log)
    begins = btrfs_log | (np.diff(pieces.id, prepend=0) != 0) | (np.diff(part, prepend=-1) != 0)
    rows = np.flatnonzero(begins)
    found = {
        "commit_id": pieces.id[rows],
        "from_ns": pieces.from_ns[rows],
        "to_ns": pieces.to_ns[np.append(rows, len(part))[1:] - 1],
        "part": part[rows],
    }
    insert(con, "INSERT INTO commit_parts SELECT * FROM rows", found)


def _part(held: list[np.ndarray], by_requests: np.ndarray, btrfs_log: np.ndarray) -> np.ndarray:
    """Return the activities of commits (codes of ``PART``) where these claims held."""
    why, phase = held[ABSENCE], held[PHASE]
    requests = {
        "cache_flush": (held[FLUSHING] > 0) | ((held[EMPTYING] > 0) & (held[WRITING] == 0)),
        "log_write": held[WRITING] > 0,
        "queue": held[QUEUED] > 0,
    }
    cases = [
        *((by_requests & here, part) for part, here in requests.items()),
        (by_requests, "other"),
        (why == 0, "running"),
        (why == NO_CPU, "no_cpu"),
        (why == BATCHING, "batching"),
        ((phase == LOCKING) | (why == HANDLE_SLEEP) & ~btrfs_log, "handles"),
        ((phase == ORDERED) | (why == DATA_SLEEP), "ordered_data"),
        *((here, part) for part, here in requests.items()),
        (why == FLUSH_SLEEP, "cache_flush"),
        ((why == LOG_SLEEP) & btrfs_log, "previous_commit"),
        (why == LOG_SLEEP, "log_write"),
    ]
    codes = [np.int8(PART[part]) for _, part in cases]
    return np.select([here for here, _ in cases], codes, np.int8(PART["other"]))


def parts_of_waits(con: duckdb.DuckDBPyConnection) -> dict[str, dict[str, int]]:
    """Return {filesystem: {part: ns}} of the waits for commits."""
    found: dict[str, dict[str, int]] = {}
    for of, part, ns in con.execute(
        "SELECT filesystem, code, CAST(sum(ns) AS BIGINT) FROM commit_sums GROUP BY ALL "
        "ORDER BY filesystem, code"
    ).fetchall():
        found.setdefault(of, {})[PARTS[part]] = ns
    return found
