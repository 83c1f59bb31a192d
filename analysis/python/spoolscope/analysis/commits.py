"""Journal commits: their lengths and causes, and what they did while calls waited for them."""

import re
from collections import defaultdict
from dataclasses import dataclass, field, fields

import duckdb

from spoolscope.analysis.blame import Blame, BlameTable, sum_charges
from spoolscope.analysis.commit_parts import PARTS, parts_of_waits
from spoolscope.analysis.stacks import Frames, read_stacks, telling
from spoolscope.analysis.stage import Work

LONGEST = 20
_WAKING = re.compile(r"wake|waking")

_SUMMARY = """
SELECT kind, count(*), count(*) FILTER (trigger != 'unknown'
        AND (trigger != 'call' OR trigger_comm IS NOT NULL)),
    CAST(sum(dur_ns) AS BIGINT), CAST(quantile_cont(dur_ns, 0.5) AS BIGINT), max(dur_ns),
    CAST(sum(locking_ns) AS BIGINT), CAST(sum(flushing_ns) AS BIGINT),
    CAST(sum(logging_ns) AS BIGINT), avg(blocks)
FROM commit_spans WHERE in_slice(from_ns, to_ns) GROUP BY kind ORDER BY 2 DESC
"""

_PARTS = """
SELECT kind, part, CAST(sum(p.to_ns - p.from_ns) AS BIGINT)
FROM commit_parts p JOIN commit_spans c USING (commit_id)
WHERE in_slice(c.from_ns, c.to_ns) GROUP BY ALL ORDER BY kind, part
"""

# In the order of the fields of Commit. Bytes are those of requests that the thread of the commit
# made meanwhile. The longest that a shown call waited for may lie beyond the slice.
_LONGEST = f"""
WITH longest AS (
    SELECT * FROM commit_spans WHERE in_slice(from_ns, to_ns)
        OR commit_id IN (SELECT commit_id FROM commit_waits)
    ORDER BY dur_ns DESC, ts_ns LIMIT {LONGEST}
), parts AS (
    SELECT commit_id, map(list(part ORDER BY part), list(ns ORDER BY part)) AS parts FROM (
        SELECT commit_id, part, CAST(sum(p.to_ns - p.from_ns) AS BIGINT) AS ns
        FROM commit_parts p WHERE commit_id IN (SELECT commit_id FROM longest) GROUP BY ALL
    ) GROUP BY commit_id
), written AS (
    SELECT c.commit_id, CAST(sum(bytes) FILTER (meta) AS BIGINT) AS meta_bytes,
        CAST(sum(bytes) FILTER (NOT meta) AS BIGINT) AS data_bytes
    FROM longest c JOIN block_ios b ON b.tid = c.tid AND b.ts_ns >= c.from_ns
        AND b.ts_ns < c.to_ns AND b.op = 'write'
    GROUP BY c.commit_id
), waited AS (
    SELECT commit_id, count(DISTINCT tid) AS waiters, CAST(sum(to_ns - from_ns) AS BIGINT) AS ns
    FROM commit_waits WHERE commit_id IN (SELECT commit_id FROM longest) GROUP BY commit_id
)
SELECT greatest(c.ts_ns - ?, 0), c.kind, c.dur_ns, t.comm, t.pid, t.syscall,
    t.path, t.path_class, c.trigger_stack_id, c.locking_ns, c.flushing_ns, c.logging_ns, p.parts,
    coalesce(w.meta_bytes, 0), coalesce(w.data_bytes, 0), c.handles, c.holder_comm, c.holder_pid,
    coalesce(v.waiters, 0), coalesce(v.ns, 0)
FROM longest c LEFT JOIN parts p USING (commit_id) LEFT JOIN written w USING (commit_id)
LEFT JOIN waited v USING (commit_id) LEFT JOIN commit_triggers t USING (commit_id)
ORDER BY c.dur_ns DESC, c.ts_ns
"""


@dataclass(frozen=True)
class CommitKind:
    """The commits of one kind: their number and lengths, and how many have a known trigger.

    Attributes:
        kind: jbd2_commit, xfs_log_write, ...: as in the table ``commits``.
        n: Number of commits.
        trigger_named: Number of commits with a known trigger (a call, a timer, a checkpoint).
        total_ns: Sum of their lengths; p50_ns and max_ns the median and the longest.
        locking_ns: Sum over the phase, None if the kind has no phases; likewise the next two.
        blocks_mean: Mean of blocks (jbd2) or bytes (xfs) written, None if unknown.
        parts: Time by activity, {part of ``PARTS``: ns}; sums to ``total_ns``.
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
    parts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Commit:
    """One commit taken apart.

    Attributes:
        at_ns: Its begin, since that of the recording; its length is ``dur_ns``.
        comm: Process that triggered it, or "(timer)" and the like; pid, syscall, path and
            path_class of the triggering call, None or "-" if there was none.
        stack: Kernel stack of the trigger, innermost first, empty if unknown.
        locking_ns: Length of the phase in real time, None if the kind has none; likewise the
            next two.
        parts: Time by activity, {part: ns}; sums to ``dur_ns``.
        meta_bytes: Bytes of metadata and log that its thread wrote meanwhile; data_bytes of data.
        handles: Open handles it had to wait for, None if unknown; the last one was held by
            holder_comm, holder_pid.
        waiters: Threads that waited for it, ``waited_ns`` in sum.
    """

    at_ns: int
    kind: str
    dur_ns: int
    comm: str
    pid: int | None
    syscall: str
    path: str | None
    path_class: str
    stack: Frames
    locking_ns: int | None
    flushing_ns: int | None
    logging_ns: int | None
    parts: dict[str, int]
    meta_bytes: int
    data_bytes: int
    handles: int | None
    holder_comm: str | None
    holder_pid: int | None
    waiters: int
    waited_ns: int


@dataclass(frozen=True)
class CommitReport:
    """All about the commits in the part of a trace that is shown.

    Attributes:
        n: Number of commits that overlap it; trigger_named of them have a known trigger.
        kinds: Sums by kind.
        waits: Activity of commits while calls waited for them, {filesystem: {part: ns}}; sums to
            these waits (``causes.JOURNAL_WAITS``).
        longest: The longest commits, each taken apart; also those beyond the part that is shown, if
            shown calls waited for them.
        charges: Their time, charged to processes, mailboxes and calls.
    """

    n: int
    trigger_named: int
    kinds: list[CommitKind]
    waits: dict[str, dict[str, int]]
    longest: list[Commit]
    charges: BlameTable

    @property
    def blame(self) -> list[Blame]:
        """Commits by triggering call; the call that made others wait longest is first."""
        return self.charges.by_call


def study_commits(work: Work) -> CommitReport:
    """Take the commits apart and charge them."""
    work.make("commit_parts", "wait_parts", "charges")
    con = work.con
    parts: dict[str, dict[str, int]] = defaultdict(dict)
    for kind, part, ns in con.execute(_PARTS).fetchall():
        parts[kind][PARTS[part]] = ns
    kinds = [CommitKind(*(*row, parts[row[0]])) for row in con.execute(_SUMMARY).fetchall()]
    return CommitReport(
        n=sum(kind.n for kind in kinds),
        trigger_named=sum(kind.trigger_named for kind in kinds),
        kinds=kinds,
        waits=parts_of_waits(con),
        longest=_longest(con, int(work.meta.get("start_ns", 0))),
        charges=sum_charges(con),
    )


def _longest(con: duckdb.DuckDBPyConnection, start_ns: int) -> list[Commit]:
    rows = con.execute(_LONGEST, [start_ns]).fetchall()
    stacks = read_stacks(con) if rows else {}
    found = []
    for row in rows:
        values = dict(zip((f.name for f in fields(Commit)), row, strict=True))
        parts = values["parts"] or {}
        values["parts"] = {part: parts[code] for code, part in enumerate(PARTS) if code in parts}
        values["stack"] = _asking(stacks.get(values["stack"], ()))
        found.append(Commit(**values))
    return found


def _asking(frames: Frames) -> Frames:
    """Return the asker's stack without the frames of the wakeup at which it was recorded."""
    said = telling(frames)
    first = next((n for n, frame in enumerate(said) if not _WAKING.search(frame)), len(said))
    return said[first:]
