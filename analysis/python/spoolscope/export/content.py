"""Content for exporters: the selected calls, each with its intervals off the CPU.

All is read in order and in parts. No call is left out: the lengths of the exported calls add up to
``Content.latency_ns``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import duckdb

from spoolscope.analysis.explain import bound_resources
from spoolscope.analysis.selection import Selection, select
from spoolscope.analysis.split import Split, check_split
from spoolscope.analysis.stage import Work
from spoolscope.analysis.stages import begin
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

BATCH = 50_000
"""Rows in memory at a time."""
LAST_NS = (1 << 63) - 1


@dataclass(slots=True)
class Part:
    """An interval of a call off the CPU.

    Attributes:
        cause: One of the closed list.
        from_ns: Its begin, since the epoch; ``to_ns`` its end.
        wait_id: Number of the wait for a commit (``commit_waits``); None for another wait.
        placed: True if its time is known. Else its length is right, and it is in a free place.
    """

    cause: str
    from_ns: int
    to_ns: int
    wait_id: int | None = None
    placed: bool = True


@dataclass(slots=True)
class Call:
    """One call; its parts are in order, do not overlap, and leave its time on the CPU between them.

    Attributes:
        pid: Its process; ``tid`` and ``comm`` its thread.
        from_ns: Entry, since the epoch; ``to_ns`` return.
        name: Name of the call.
        path: Path of its object, "" if it has none.
        requests: Block requests that it sent itself (``Content.requests``).
    """

    pid: int
    tid: int
    comm: str
    from_ns: int
    to_ns: int
    name: str
    errno: int
    ret: int
    path: str
    requests: Sequence[int]
    parts: list[Part] = field(default_factory=list)


@dataclass(frozen=True)
class Content:
    """A trace that is being exported, or a part of it.

    Attributes:
        trace: The trace.
        con: Connection with ``call_totals``, ``named_waits`` and the tables that they need.
        work: Maker of more tables of the analysis.
        selection: The calls that are exported.
        split: Errors of the sums of parts of calls.
        n_calls: Number of exported calls; ``latency_ns`` is their length in sum.
        start_ns: Begin of the recording, since the epoch.
    """

    trace: Trace
    con: duckdb.DuckDBPyConnection
    work: Work
    selection: Selection
    split: Split
    n_calls: int
    latency_ns: int
    start_ns: int

    @property
    def span_ns(self) -> tuple[int, int]:
        """Begin and end of the shown part of the recording, since the epoch."""
        return self.selection.span_ns(self.trace.meta)

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, a batch of them in memory; only one query at a time.

        Raises:
            SpoolscopeError: it needs more memory than is allowed.
        """
        try:
            for batch in self.con.sql(sql).to_arrow_reader(BATCH):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        except duckdb.OutOfMemoryException:
            raise SpoolscopeError(
                "the export needs more memory than is allowed", remedy="export a --slice"
            ) from None

    def calls(self) -> Iterator[Call]:
        """Yield the calls in the order of their begin, then by thread."""
        self.find_commits()
        for statement in (_OFF_CPU, _SENT):
            self.con.execute(statement)
        for from_ns, to_ns in pairwise(self._windows()):
            yield from self._calls(from_ns, to_ns)

    def _windows(self) -> Iterator[int]:
        """Yield times that divide the calls, by begin, into parts of about one row group."""
        for part in self.trace.parts("syscalls", ["ts_ns"]):
            yield int(part["ts_ns"][0].as_py())
        yield LAST_NS

    def _calls(self, since_ns: int, until_ns: int) -> Iterator[Call]:
        call: Call | None = None
        found: list[Part] = []
        states = (0, 0)
        for row in self.rows(_CALLS.format(since=since_ns, until=until_ns)):
            at_ns, pid, tid, _, is_part, from_ns, dur_ns, name, wait_id, placed, *rest = row
            if is_part:
                found.append(Part(name, from_ns, from_ns + dur_ns, wait_id, placed))
                continue
            if call is not None:
                yield _tiled(call, found, states)
            comm, errno, ret, path, runq_ns, preempted_ns, requests = rest
            call = Call(
                pid, tid, comm, at_ns, at_ns + dur_ns, name, errno, ret, path or "", requests or ()
            )
            found, states = [], (runq_ns, preempted_ns)
        if call is not None:
            yield _tiled(call, found, states)

    def find_commits(self) -> None:
        """Create ``commit_spans``, ``commit_waits``, and ``requests``: block requests, numbered."""
        self.work.make("commit_spans", "commit_waits")
        self.con.execute(_REQUESTS)


_REQUESTS = """
CREATE OR REPLACE TEMP TABLE requests AS
SELECT row_number() OVER (ORDER BY ts_ns) AS request_id, *, ts_ns + queue_ns + device_ns AS end_ns
FROM block_ios
"""

_SENT = """
CREATE OR REPLACE TEMP TABLE sent AS
SELECT pid, tid, seq, list(request_id ORDER BY request_id) AS requests FROM requests
WHERE seq IS NOT NULL GROUP BY ALL
"""

# All intervals of calls off the CPU; a wait for a commit has its number.
_OFF_CPU = """
CREATE OR REPLACE TEMP TABLE off_cpu AS
SELECT w.call_ns, w.pid, w.tid, w.seq, w.ts_ns, w.dur_ns, w.cause AS name, j.wait_id, w.placed
FROM named_waits w LEFT JOIN journal_waits j ON j.tid = w.tid AND j.seq = w.seq
    AND j.pid = w.pid AND j.from_ns = w.ts_ns AND j.dur_ns = w.dur_ns AND w.placed
WHERE w.shown AND w.dur_ns > 0
UNION ALL
SELECT c.ts_ns, c.pid, c.tid, c.seq, s.ts_ns, s.dur_ns,
    CASE s.state WHEN 'runq' THEN 'runq' ELSE 'preempt' END, NULL, true
FROM (SELECT * FROM segments WHERE seq IS NOT NULL AND dur_ns > 0
    AND state IN ('runq', 'preempted')) s
JOIN waited c ON c.tid = s.tid AND c.seq = s.seq AND c.pid = s.pid
    AND s.ts_ns BETWEEN c.ts_ns AND c.ts_ns + c.dur_ns
WHERE c.shown
"""

# A call, then its intervals in order.
_CALLS = """
SELECT call_ns, pid, tid, seq, true AS is_part, ts_ns, dur_ns, name, wait_id, placed,
    NULL AS comm, NULL AS errno, NULL AS ret, NULL AS path, NULL AS runq_ns, NULL AS preempted_ns,
    NULL AS requests
FROM off_cpu WHERE call_ns >= {since} AND call_ns < {until}
UNION ALL
SELECT c.ts_ns, c.pid, c.tid, c.seq, false, c.ts_ns, c.dur_ns, c.syscall, NULL, true,
    c.comm, c.errno, c.ret, p.path, c.runq_ns, c.preempted_ns, o.requests
FROM (SELECT * FROM shown_calls WHERE ts_ns >= {since} AND ts_ns < {until}) c
LEFT JOIN paths p USING (path_id)
LEFT JOIN sent o ON o.tid = c.tid AND o.seq = c.seq AND o.pid = c.pid
ORDER BY call_ns, pid, tid, seq, is_part, ts_ns
"""


def prepare(con: duckdb.DuckDBPyConnection, trace: Trace, selection: Selection) -> Content:
    """Return the content of a trace to export.

    Args:
        con: A connection of ``Trace.connect``, which ends after the export.
        trace: The trace.
        selection: The calls to export.

    Raises:
        SpoolscopeError: no call is selected.
    """
    bound_resources(con, int(trace.meta["counts"]["syscalls"]))
    shown = select(con, trace, selection)
    work = begin(con, trace.meta, shown=shown.condition, span=shown.span)
    work.make("call_totals", "named_waits")
    n, ns = con.execute(
        "SELECT coalesce(sum(n), 0)::BIGINT, coalesce(sum(dur_ns), 0)::BIGINT FROM call_totals"
    ).fetchall()[0]
    return Content(
        trace, con, work, selection, check_split(con), n, ns, int(trace.meta["start_ns"])
    )


def _tiled(call: Call, found: list[Part], states: tuple[int, int]) -> Call:
    """Lay intervals of a call side by side; one that overlaps or has no place gets a free place."""
    missing = dict(zip(("runq", "preempt"), states, strict=True))
    at_ns = call.from_ns
    placed: list[Part] = []
    homeless: dict[str, int] = {}
    for part in found:
        ns = part.to_ns - part.from_ns
        if part.cause in missing:
            ns = min(ns, missing[part.cause])
            missing[part.cause] -= ns
        from_ns = max(part.from_ns, at_ns)
        to_ns = min(part.from_ns + ns, call.to_ns) if part.placed else from_ns
        if to_ns > from_ns:
            placed.append(Part(part.cause, from_ns, to_ns, part.wait_id))
            at_ns = to_ns
        if (rest := ns - max(0, to_ns - from_ns)) > 0:
            homeless[part.cause] = homeless.get(part.cause, 0) + rest
    for cause, ns in missing.items():
        if ns > 0:
            homeless[cause] = homeless.get(cause, 0) + ns
    call.parts = _filled(call, placed, homeless) if homeless else placed
    return call


def _filled(call: Call, placed: list[Part], homeless: dict[str, int]) -> list[Part]:
    """Put intervals of unknown place into the gaps, from the begin on."""
    left = list(homeless.items())
    tiles: list[Part] = []
    at_ns = call.from_ns
    for part in [*placed, Part("", call.to_ns, call.to_ns)]:
        while left and at_ns < part.from_ns:
            cause, ns = left.pop(0)
            to_ns = min(part.from_ns, at_ns + ns)
            tiles.append(Part(cause, at_ns, to_ns, placed=False))
            if rest := ns - (to_ns - at_ns):
                left.insert(0, (cause, rest))
            at_ns = to_ns
        if part.cause:
            tiles.append(part)
        at_ns = part.to_ns
    return tiles
