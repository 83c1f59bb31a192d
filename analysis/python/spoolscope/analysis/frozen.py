"""The call that froze a flight recorder, and why the recorder was frozen, in words."""

import errno
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import duckdb

from spoolscope.analysis.causes import CAUSES, MACHINE
from spoolscope.analysis.wording import duration, percent
from spoolscope.traces.trace import Trace

LISTED = 3

_WHY = {
    "signal": "by 'spoolscope freeze' or a signal",
    "end": "because the recording ended",
    "the recorder died": "because the recorder died",
}

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


@dataclass(frozen=True)
class FrozenBy:
    """The call that froze a recorder.

    Attributes:
        comm: Name of its thread; pid, tid and seq as in ``syscalls``.
        syscall: The call, on ``path`` if that is known.
        ts_ns: When it began, since the epoch; dur_ns its length, error its errno or 0.
        causes: {cause: ns}, the largest first; sums to ``dur_ns``. Empty if not asked for.
    """

    comm: str
    pid: int
    tid: int
    seq: int
    syscall: str
    path: str | None
    ts_ns: int
    dur_ns: int
    error: int
    causes: dict[str, int]

    @property
    def words(self) -> str:
        """The call in words: its process, name, file, time, duration and causes."""
        when = datetime.fromtimestamp((self.ts_ns + self.dur_ns) // 10**9, UTC)
        on = f" on {self.path}" if self.path else ""
        failed = f" and failed with {errno.errorcode.get(self.error, self.error)}"
        said = f"by {self.syscall}{on} of {self.comm} (process {self.pid}), which took "
        said += f"{duration(self.dur_ns)}{failed if self.error else ''} and ended at "
        return f"{said}{when:%H:%M:%S} UTC"

    @property
    def split(self) -> str:
        """The largest parts of its time."""
        return ", ".join(
            f"{CAUSES[cause].label} {duration(ns)} ({percent(ns / self.dur_ns, 0)} of it)"
            for cause, ns in list(self.causes.items())[:LISTED]
        )


def frozen_by(con: duckdb.DuckDBPyConnection, meta: dict[str, Any]) -> FrozenBy | None:
    """Return the call that froze the recorder of a trace; None if no call did.

    Its causes are named if there is a table ``named_waits``.
    """
    call = (meta.get("frozen") or {}).get("call")
    if not call:
        return None
    place = {"tid": int(call["tid"]), "ts_ns": int(call["ts_ns"])}
    row = con.execute(_CALL.format(**place)).fetchone()
    if row is None:
        return None
    known = con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'named_waits'").fetchall()
    causes = con.execute(_CAUSES.format(**place)).fetchall() if known else []
    comm, pid, tid, seq, syscall, path, ts_ns, dur_ns, error = row
    return FrozenBy(comm, pid, tid, seq, syscall, path, ts_ns, dur_ns, error, causes=dict(causes))


def frozen_words(trace: Trace) -> str | None:
    """Say why a flight recorder was frozen; None for a trace of another recording."""
    frozen = trace.meta.get("frozen")
    if not frozen:
        return None
    with trace.connect() as con:
        call = frozen_by(con, trace.meta)
    if call is not None:
        return f"frozen {call.words}"
    return f"frozen {_WHY.get(frozen['why'], frozen['why'])}"
