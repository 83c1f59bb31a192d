"""Reason for the freeze of a flight recorder, in words: a call, a lock, commits, or a user."""

import errno
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import duckdb

from spoolscope.analysis.causes import CAUSES, MACHINE
from spoolscope.analysis.stack_rules import classify
from spoolscope.analysis.wording import duration, percent
from spoolscope.traces.trace import Trace

LISTED = 3

_WHY = {
    "signal": "by 'spoolscope freeze' or a signal",
    "end": "because the recording ended",
    "the recorder died": "because the recorder died",
}
_LOCKS = {"posix": "fcntl lock", "ofd": "fcntl lock of an open file", "flock": "flock"}

_CALL = """
SELECT s.comm, s.pid, s.tid, s.seq, s.syscall, p.path, s.ts_ns, s.dur_ns, s.errno
FROM syscalls s LEFT JOIN paths p USING (path_id)
WHERE s.tid = {tid} AND s.ts_ns = {ts_ns}
"""

_CAUSES = f"""
SELECT cause, CAST(sum(ns) AS BIGINT) AS ns FROM (
    SELECT cause, dur_ns AS ns FROM named_waits WHERE tid = {{tid}} AND call_ns = {{ts_ns}}
    UNION ALL SELECT unnest({list(MACHINE)}), unnest([{", ".join(MACHINE.values())}])
    FROM syscalls WHERE tid = {{tid}} AND ts_ns = {{ts_ns}}
) GROUP BY cause HAVING sum(ns) > 0 ORDER BY ns DESC, cause
"""

_COMMITTER = """
SELECT trigger_comm, trigger_pid, count(*) FROM commits
WHERE trigger_pid IS NOT NULL AND ts_ns + dur_ns BETWEEN {ts_ns} AND {ts_ns} + {dur_ns}
GROUP BY ALL ORDER BY count(*) DESC, trigger_pid LIMIT 1
"""


@dataclass(frozen=True)
class FrozenBy:
    """The reason for a freeze.

    Attributes:
        kind: call (it returned), in_flight (a call that had not), lock or commits.
        rule: The rule of --freeze-on that was broken; None in older traces.
        words: Words that follow "frozen": process, call, file, time, duration.
        ts_ns: Begin of the call, wait or commits, since the epoch; dur_ns their length so far.
        comm: Name of the process that made the call, holds the lock, or asked for most of the
            commits; pid as in ``syscalls``.
        syscall: The call.
        path: Its file, that of the lock, or the directory in which a name was looked up.
        tid: Thread of a call that returned, seq its number; error its errno or 0.
        causes: {cause: ns}, the largest first; sums to ``dur_ns`` of a call that returned. For one
            that did not return, only its last wait. Empty if not asked for.
        n: Number of commits, or of waiters for the lock.
    """

    kind: str
    rule: str | None
    words: str
    ts_ns: int
    dur_ns: int
    comm: str | None = None
    pid: int | None = None
    syscall: str | None = None
    path: str | None = None
    tid: int | None = None
    seq: int | None = None
    error: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    n: int | None = None

    @property
    def split(self) -> str:
        """The largest parts of its time, or its current wait; empty if unknown."""
        largest = list(self.causes.items())[:LISTED]
        if self.kind == "in_flight":
            return ", ".join(f"it waits for {CAUSES[cause].objects}" for cause, _ in largest)
        return ", ".join(
            f"{CAUSES[cause].label} {duration(ns)} ({percent(ns / self.dur_ns, 0)} of it)"
            for cause, ns in largest
        )

    @property
    def sentence(self) -> str:
        """All facts in a sentence."""
        of_what = f": {self.split}" if self.split else ""
        rule = f" The rule was: {self.rule}." if self.rule else ""
        return f"Frozen {self.words}{of_what}.{rule}"


def frozen_by(con: duckdb.DuckDBPyConnection, meta: dict[str, Any]) -> FrozenBy | None:
    """Return the reason why the recorder of a trace was frozen; None if unknown.

    Causes of a call that returned are named if there is a table ``named_waits``.
    """
    frozen = meta.get("frozen") or {}
    rule = frozen.get("rule")
    if frozen.get("call"):
        return _by_call(con, frozen["call"], rule)
    if frozen.get("in_flight"):
        return _by_flight(con, frozen["in_flight"], rule)
    if frozen.get("lock"):
        return _by_lock(con, frozen["lock"], rule)
    if frozen.get("commits"):
        return _by_commits(con, frozen["commits"], rule)
    return None


def _by_call(
    con: duckdb.DuckDBPyConnection, call: dict[str, Any], rule: str | None
) -> FrozenBy | None:
    place = {"tid": int(call["tid"]), "ts_ns": int(call["ts_ns"])}
    row = con.execute(_CALL.format(**place)).fetchone()
    if row is None:
        return None
    known = con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'named_waits'").fetchall()
    causes = con.execute(_CAUSES.format(**place)).fetchall() if known else []
    comm, pid, tid, seq, syscall, path, ts_ns, dur_ns, error = row
    failed = f" and failed with {errno.errorcode.get(error, error)}" if error else ""
    words = (
        f"by {syscall}{_on(path)} of {comm} (process {pid}), which took {duration(dur_ns)}"
        f"{failed} and ended at {_clock(ts_ns + dur_ns)}"
    )
    return FrozenBy(
        "call", rule, words, ts_ns, dur_ns, comm, pid, syscall, path, tid, seq, error, dict(causes)
    )


def _by_flight(con: duckdb.DuckDBPyConnection, call: dict[str, Any], rule: str | None) -> FrozenBy:
    path, dur_ns = _path(con, call), int(call["dur_ns"])
    place = f" in {path}" if path and call["in_directory"] else _on(path)
    words = (
        f"by {call['syscall']}{place} of {call['comm']} (process {call['pid']}), which had not"
        f" returned for {duration(dur_ns)} at {_clock(call['ts_ns'] + dur_ns)}"
    )
    named = classify(call["frames"])
    return FrozenBy(
        "in_flight",
        rule,
        words,
        call["ts_ns"],
        dur_ns,
        call["comm"],
        call["pid"],
        call["syscall"],
        path,
        call["tid"],
        causes={named.cause: dur_ns} if named else {},
    )


def _by_lock(con: duckdb.DuckDBPyConnection, lock: dict[str, Any], rule: str | None) -> FrozenBy:
    path, dur_ns, n = _path(con, lock), int(lock["dur_ns"]), int(lock["waiters"])
    known = f"{lock['comm']} (process {lock['pid']})" if lock["pid"] else "somebody"
    kind = f"{'an exclusive' if lock['exclusive'] else 'a shared'} {_LOCKS[lock['kind']]}"
    others = f", while {n} {'process' if n == 1 else 'processes'} waited for it" if n else ""
    words = (
        f"by {known}, which had held {kind}{_on(path)} for {duration(dur_ns)} at"
        f" {_clock(lock['ts_ns'] + dur_ns)}{others}"
    )
    return FrozenBy(
        "lock", rule, words, lock["ts_ns"], dur_ns, lock["comm"], lock["pid"], path=path, n=n
    )


def _by_commits(
    con: duckdb.DuckDBPyConnection, commits: dict[str, Any], rule: str | None
) -> FrozenBy:
    ts_ns, dur_ns, n = (int(commits[what]) for what in ("ts_ns", "dur_ns", "n"))
    most = con.execute(_COMMITTER.format(ts_ns=ts_ns, dur_ns=dur_ns)).fetchone()
    comm, pid, asked = most or (None, None, 0)
    by = f", {min(asked, n)} of them asked for by {comm} (process {pid})" if asked else ""
    words = f"by {n} journal commits within {duration(dur_ns)} at {_clock(ts_ns + dur_ns)}{by}"
    return FrozenBy("commits", rule, words, ts_ns, dur_ns, comm, pid, n=n)


def frozen_words(trace: Trace) -> str | None:
    """Return why a flight recorder was frozen; None for a trace of another recording."""
    frozen = trace.meta.get("frozen")
    if not frozen:
        return None
    with trace.connect() as con:
        found = frozen_by(con, trace.meta)
    if found is not None:
        return f"frozen {found.words}" + (f", by the rule {found.rule}" if found.rule else "")
    return f"frozen {_WHY.get(frozen['why'], frozen['why'])}"


def _path(con: duckdb.DuckDBPyConnection, found: dict[str, Any]) -> str | None:
    row = con.execute("SELECT path FROM paths WHERE path_id = ?", [found["path_id"]]).fetchone()
    return row[0] if row is not None else None


def _on(path: str | None) -> str:
    return f" on {path}" if path else ""


def _clock(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%H:%M:%S} UTC"
