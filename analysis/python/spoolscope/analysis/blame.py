"""Commit time charged back to its causes: processes, mailboxes and calls.

A kernel thread, or the caller that came first, does a commit on behalf of all. The commit is
charged to the call that triggered it. A commit that no recorded call triggered (but a timer, or a
task that is not recorded) is charged to no process, and listed by what is known of it.
"""

from dataclasses import dataclass
from typing import Any

import duckdb

from spoolscope.traces.pathclass import NO_PATH, class_sql, mailbox_sql

# The call that was under way when the commit interval had passed did not ask for the commit.
_TRIGGERS = """
CREATE OR REPLACE TEMP TABLE commit_triggers AS
WITH triggers AS (
    SELECT commit_id, trigger, trigger_comm, ts_ns, to_ns,
        CASE WHEN trigger != 'timer' THEN trigger_pid END AS trigger_pid,
        CASE WHEN trigger != 'timer' THEN trigger_tid END AS trigger_tid,
        CASE WHEN trigger != 'timer' THEN trigger_seq END AS trigger_seq
    FROM commit_spans
), calls AS (
    SELECT t.commit_id, s.comm, s.syscall, s.path_id,
        row_number() OVER (PARTITION BY t.commit_id ORDER BY s.ts_ns DESC) AS n
    FROM triggers t JOIN waited s ON {same_call}
), named AS (
    SELECT path_id, path, {path_class} AS path_class, {mailbox} AS mailbox
    FROM paths WHERE path_id IN (SELECT path_id FROM calls)
)
SELECT t.commit_id, t.trigger = 'call' AND coalesce(c.comm, t.trigger_comm) IS NOT NULL AS charged,
    CASE WHEN t.trigger = 'call' THEN coalesce(c.comm, t.trigger_comm, '(unknown)')
        WHEN t.trigger_comm IS NOT NULL AND t.trigger IN ('other', 'writeback')
        THEN '(' || t.trigger || ': ' || t.trigger_comm || ')'
        ELSE '(' || t.trigger || ')' END AS comm,
    t.trigger_pid AS pid, t.trigger_tid AS tid, t.trigger_seq AS seq,
    coalesce(c.syscall, '-') AS syscall, c.path_id, n.path,
    coalesce(n.path_class, CASE WHEN c.syscall IS NULL THEN '-' ELSE '{no_path}' END)
        AS path_class,
    coalesce(n.mailbox, '-') AS mailbox
FROM triggers t LEFT JOIN calls c ON c.commit_id = t.commit_id AND c.n = 1
LEFT JOIN named n USING (path_id)
"""

# Thread ids and call numbers may be reused; the trigger is in its call shortly before the commit.
_SAME_CALL = (
    "s.tid = t.trigger_tid AND s.seq = t.trigger_seq AND s.pid = t.trigger_pid "
    "AND s.ts_ns <= t.to_ns AND s.ts_ns + s.dur_ns >= t.ts_ns - 1000000000"
)

# All charges, in so few rows that they can be summed up again in several ways.
_CHARGES = """
CREATE OR REPLACE TEMP TABLE charges AS
WITH waited AS (
    SELECT t.commit_id,
        sum(w.to_ns - w.from_ns) FILTER (w.tid = t.tid) AS own_ns,
        sum(w.to_ns - w.from_ns) FILTER (w.tid IS DISTINCT FROM t.tid) AS others_ns,
        count(DISTINCT w.wait_id) FILTER (w.tid IS DISTINCT FROM t.tid) AS n_others
    FROM commit_triggers t JOIN commit_waits w USING (commit_id) GROUP BY t.commit_id
)
SELECT t.charged, t.comm, t.pid, t.syscall, t.path_class, t.mailbox,
    count(*) FILTER (in_slice(s.from_ns, s.to_ns)) AS n,
    CAST(coalesce(sum(s.dur_ns) FILTER (in_slice(s.from_ns, s.to_ns)), 0) AS BIGINT) AS commit_ns,
    CAST(coalesce(sum(w.own_ns), 0) AS BIGINT) AS own_ns,
    CAST(coalesce(sum(w.others_ns), 0) AS BIGINT) AS others_ns,
    CAST(coalesce(sum(w.n_others), 0) AS BIGINT) AS n_others
FROM commit_triggers t JOIN commit_spans s USING (commit_id) LEFT JOIN waited w USING (commit_id)
WHERE in_slice(s.from_ns, s.to_ns) OR w.commit_id IS NOT NULL GROUP BY ALL
"""

_CHARGED = """
SELECT CAST(sum(n) AS BIGINT), CAST(sum(commit_ns) AS BIGINT), CAST(sum(own_ns) AS BIGINT),
    CAST(sum(others_ns) AS BIGINT), CAST(sum(n_others) AS BIGINT), {who}
FROM charges GROUP BY ALL ORDER BY {order}
"""
# The columns are n, commit_ns, own_ns, others_ns, n_others, then one or four that name the group.
_THE_PID = "CASE WHEN min(pid) = max(pid) THEN min(pid) END"
_BY_COST = "2 DESC, 1 DESC, 6"
_BY_OTHERS = "4 DESC, 3 DESC, 1 DESC, 6"


@dataclass(frozen=True)
class Charge:
    """Commits, and the waits for them, in sum.

    Attributes:
        n: Number of commits in the part of the recording that is shown; shown calls may have
            waited for others.
        commit_ns: Sum of these commits' lengths.
        own_ns: Time the triggering threads themselves waited for these commits.
        others_ns: Time all other threads waited for them, in n_others waits.
    """

    n: int
    commit_ns: int
    own_ns: int
    others_ns: int
    n_others: int


@dataclass(frozen=True)
class Blame(Charge):
    """Commits charged to what triggered them.

    Attributes:
        comm: Process name, or another trigger in brackets: "(timer)", "(checkpoint)".
        pid: Process, None in tables that sum up processes of one name.
        syscall: The triggering call, "-" if it is unknown or the table sums over calls.
        path_class: The kind of file it was made on, likewise.
    """

    comm: str
    pid: int | None
    syscall: str
    path_class: str


@dataclass(frozen=True)
class MailboxBlame(Charge):
    """Commits charged to the mailbox or queue whose files were synced; "-" for other files."""

    mailbox: str


@dataclass(frozen=True)
class BlameTable:
    """The time of all commits by what it is charged to; ``charged_ns + uncharged_ns`` is all of it.

    Attributes:
        commit_ns: Sum of the lengths of all commits.
        charged_ns: The same of commits that a recorded call triggered; ``uncharged_ns`` of the
            others.
        by_call: By process name, call and kind of file, others' longest wait first.
        by_program: By process name, most commit time first; pid if it was one process.
        by_process: By process, most commit time first.
        by_mailbox: By mailbox or queue, most commit time first; "-" for other files.

    The commit times of each of the four lists sum to ``commit_ns``.
    """

    commit_ns: int
    charged_ns: int
    uncharged_ns: int
    by_call: list[Blame]
    by_program: list[Blame]
    by_process: list[Blame]
    by_mailbox: list[MailboxBlame]


def name_triggers(con: duckdb.DuckDBPyConnection) -> None:
    """Create ``commit_triggers``: for each commit the call, if any, that triggered it."""
    con.execute(
        _TRIGGERS.format(
            same_call=_SAME_CALL,
            path_class=class_sql("path"),
            mailbox=mailbox_sql("path"),
            no_path=NO_PATH,
        )
    )


def charge_commits(con: duckdb.DuckDBPyConnection) -> None:
    """Create ``charges`` (needs ``commit_triggers``, ``commit_waits`` and ``commit_spans``)."""
    con.execute(_CHARGES)


def sum_charges(con: duckdb.DuckDBPyConnection) -> BlameTable:
    """Sum up the time of commits by what caused it (needs ``charges``)."""
    ((commit_ns, charged_ns, uncharged_ns),) = con.execute(
        "SELECT CAST(coalesce(sum(commit_ns), 0) AS BIGINT), "
        "CAST(coalesce(sum(commit_ns) FILTER (charged), 0) AS BIGINT), "
        "CAST(coalesce(sum(commit_ns) FILTER (NOT charged), 0) AS BIGINT) FROM charges"
    ).fetchall()
    return BlameTable(
        commit_ns,
        charged_ns,
        uncharged_ns,
        by_call=[
            Blame(*row)
            for row in _charged(con, "comm, NULL, syscall, path_class", f"{_BY_OTHERS}, 8, 9")
        ],
        by_program=[
            Blame(*row) for row in _charged(con, f"comm, {_THE_PID}, '-', '-'", f"{_BY_COST}, 7")
        ],
        by_process=[Blame(*row) for row in _charged(con, "comm, pid, '-', '-'", f"{_BY_COST}, 7")],
        by_mailbox=[MailboxBlame(*row) for row in _charged(con, "mailbox", _BY_COST)],
    )


def _charged(con: duckdb.DuckDBPyConnection, who: str, order: str) -> list[tuple[Any, ...]]:
    return con.execute(_CHARGED.format(who=who, order=order)).fetchall()
