"""The slowest calls taken apart in time: own parts, culprits, commits and requests.

A waterfall has lanes of spans. The first lane is the call itself and covers its length exactly;
the others show, at the same time, the process that it waited for, what that process itself slept
for, to the end of the chain, the activity of the commit, and the requests to the disk.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb

from spoolscope.analysis.causes import CAUSES, MACHINE
from spoolscope.analysis.claims import HOW
from spoolscope.analysis.commit_parts import PARTS, part_label
from spoolscope.analysis.latency import NO_LOCKS
from spoolscope.analysis.overlay import overlaps
from spoolscope.analysis.spans import Span, apart, fewer, packed
from spoolscope.analysis.wording import duration

LIMIT = 20
MOST_SPANS, LEAST_SPANS = 160, 15
"""Most spans of a waterfall, and least limit of a lane: of more, the longest are kept, and those
between two of them are merged."""
MOST_LANES = 6
"""Most lanes of requests: further simultaneous requests are left out."""

_SLOW = """
CREATE OR REPLACE TEMP TABLE slow_calls AS
SELECT row_number() OVER (ORDER BY dur_ns DESC, ts_ns) AS id, *, ts_ns AS from_ns,
    ts_ns + dur_ns AS to_ns
FROM (SELECT tid, seq, ts_ns, dur_ns, comm, pid, syscall, path_id, errno, {machine}
    FROM shown_calls WHERE {shown} ORDER BY dur_ns DESC, ts_ns LIMIT {limit})
"""

_CALLS = """
SELECT s.id, s.ts_ns, s.comm, s.pid, s.syscall, p.path, s.errno, s.dur_ns, {machine}
FROM slow_calls s LEFT JOIN paths p USING (path_id) ORDER BY s.id
"""

# Waits of a call; of a wait that is not placed the length is known, but not the begin.
_OWN = """
SELECT s.id, w.cause, w.ts_ns, w.ts_ns + w.dur_ns, w.placed, w.waker_comm, w.waker_pid
FROM slow_calls s JOIN named_waits w ON w.tid = s.tid AND w.seq = s.seq AND w.call_ns = s.ts_ns
UNION ALL
SELECT s.id, CASE g.state WHEN 'runq' THEN 'runq' ELSE 'preempt' END, g.ts_ns, g.ts_ns + g.dur_ns,
    true, NULL, NULL
FROM slow_calls s JOIN segments g ON g.tid = s.tid AND g.seq = s.seq AND g.pid = s.pid
    AND g.ts_ns BETWEEN s.ts_ns AND s.to_ns
WHERE g.state != 'blocked'
ORDER BY 1, 3
"""

_EDGES = """
CREATE OR REPLACE TEMP TABLE slow_edges AS
WITH RECURSIVE chain AS (
    SELECT s.id, e.* FROM slow_calls s JOIN edges e ON e.victim_tid = s.tid
        AND e.victim_seq = s.seq AND e.hop = 1 AND e.from_ns >= s.from_ns AND e.to_ns <= s.to_ns
    UNION ALL
    SELECT c.id, e.* FROM edges e JOIN chain c ON e.parent_id = c.edge_id
)
SELECT * FROM chain
"""

_NO_EDGES = """
CREATE OR REPLACE TEMP TABLE slow_edges AS
SELECT 0 AS id, 0 AS hop, 0 AS from_ns, 0 AS to_ns, '' AS victim_comm, 0 AS victim_pid,
    '' AS victim_syscall, '' AS cause, '' AS mechanism, '' AS culprit_comm, 0 AS culprit_pid,
    '' AS culprit_syscall, 0 AS culprit_tid, '' AS evidence
WHERE false
"""

_CHAIN = """
SELECT id, hop, from_ns, to_ns, victim_comm, victim_pid, victim_syscall, cause, mechanism,
    culprit_comm, culprit_pid, culprit_syscall, evidence
FROM slow_edges ORDER BY id, hop, from_ns
"""

_COMMITS = """
CREATE OR REPLACE TEMP TABLE slow_commits AS
SELECT DISTINCT s.id, c.commit_id, c.tid, c.kind, c.txn_id, c.trigger, t.comm, t.pid, t.syscall,
    greatest(c.from_ns, s.from_ns) AS from_ns, least(c.to_ns, s.to_ns) AS to_ns
FROM slow_calls s JOIN commit_waits w ON w.tid = s.tid AND w.seq = s.seq
    AND w.from_ns >= s.from_ns AND w.to_ns <= s.to_ns
JOIN commit_spans c USING (commit_id) LEFT JOIN commit_triggers t USING (commit_id)
WHERE c.from_ns < s.to_ns AND c.to_ns > s.from_ns
"""

_COMMIT_PARTS = """
SELECT c.id, c.commit_id, c.kind, c.comm, c.pid, c.syscall, p.part,
    greatest(p.from_ns, c.from_ns) AS at_ns, least(p.to_ns, c.to_ns)
FROM slow_commits c JOIN commit_parts p ON p.commit_id = c.commit_id
    AND p.from_ns < c.to_ns AND p.to_ns > c.from_ns
ORDER BY c.id, c.commit_id, at_ns
"""

# Requests of the call, of the threads of its commits, and of its culprits.
_REQUESTS = """
WITH threads_of AS (
    SELECT id, tid, from_ns, to_ns FROM slow_calls
    UNION SELECT id, tid, from_ns, to_ns FROM slow_commits
    UNION SELECT id, culprit_tid, from_ns, to_ns FROM slow_edges WHERE culprit_tid IS NOT NULL
), made AS (
    SELECT ts_ns AS from_ns, ts_ns + queue_ns + device_ns AS to_ns, ts_ns + queue_ns AS issue_ns,
        dev, sector, op, bytes, sync, meta, fua, preflush, comm, tid
    FROM block_ios WHERE tid IN (SELECT tid FROM threads_of)
), met AS ({met})
SELECT DISTINCT m.id, m.at_ns, m.issue_ns, m.done_ns, m.op, m.bytes, m.meta, m.fua, m.preflush,
    m.comm, m.dev, m.sector
FROM met m ORDER BY m.id, m.at_ns, m.done_ns
"""


@dataclass(frozen=True)
class Lane:
    """Spans that do not overlap.

    Attributes:
        kind: own, holder, meanwhile, commit or request.
        spans: In order of time.
        left_out: Number of spans that were left out.
    """

    kind: str
    spans: list[Span]
    left_out: int = 0


@dataclass(frozen=True)
class Waterfall:
    """A slow call: its begin (ns since that of the recording), its split, and its lanes."""

    at_ns: int
    comm: str
    pid: int
    syscall: str
    path: str | None
    errno: int
    dur_ns: int
    causes: dict[str, int]
    lanes: list[Lane] = field(default_factory=list)


Rows = Mapping[int, list[tuple[Any, ...]]]


def waterfalls(
    con: duckdb.DuckDBPyConnection, meta: Mapping[str, Any], limit: int = LIMIT
) -> list[Waterfall]:
    """Take apart the slowest calls except file locking (needs the tables of ``study_commits``).

    Without the table ``edges`` of ``find_culprits`` the lanes of culprits are left out.
    """
    machine = ", ".join(f"{ns} AS {cause}_part" for cause, ns in MACHINE.items())
    con.execute(_SLOW.format(shown=NO_LOCKS, limit=limit, machine=machine))
    known = con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'edges'").fetchall()
    con.execute(_EDGES if known else _NO_EDGES)
    con.execute(_COMMITS)
    own, chain, commits = (_by_call(con, query) for query in (_OWN, _CHAIN, _COMMIT_PARTS))
    met = overlaps(
        "threads_of",
        "made",
        "l.tid = r.tid",
        "l.id, r.from_ns AS at_ns, r.issue_ns, r.to_ns AS done_ns, r.op, r.bytes, r.meta, r.fua, "
        "r.preflush, r.comm, r.dev, r.sector",
    )
    requests = _by_call(con, _REQUESTS.format(met=met))
    start = int(meta.get("start_ns", 0))
    calls = _CALLS.format(machine=", ".join(f"{cause}_part" for cause in MACHINE))
    found = []
    for id_, ts, comm, pid, syscall, path, errno, dur, *parts in con.execute(calls).fetchall():
        split: dict[str, int] = defaultdict(int, zip(MACHINE, parts, strict=True))
        for cause, from_ns, to_ns, *_ in own.get(id_, []):
            split[cause] += 0 if cause in MACHINE else to_ns - from_ns
        at = _Clock(ts, dur)
        lanes = [
            Lane("own", _own(at, split, own.get(id_, []))),
            *_chain(at, chain.get(id_, [])),
            *_commits(at, commits.get(id_, [])),
            *_requests(at, requests.get(id_, [])),
        ]
        causes = {cause: split[cause] for cause in CAUSES if split.get(cause)}
        found.append(
            Waterfall(
                max(ts - start, 0), comm, pid, syscall, path, errno, dur, causes, _fewer(lanes)
            )
        )
    return found


def _fewer(lanes: list[Lane]) -> list[Lane]:
    """Merge spans until all lanes together have about ``MOST_SPANS`` at most."""
    most = max(LEAST_SPANS, MOST_SPANS // len(lanes)) | 1
    return [replace(lane, spans=fewer(lane.spans, most)) for lane in lanes]


def _by_call(con: duckdb.DuckDBPyConnection, query: str) -> Rows:
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for id_, *rest in con.execute(query).fetchall():
        found[id_].append(tuple(rest))
    return found


@dataclass(frozen=True)
class _Clock:
    """Conversion of times to ns since a call began, clipped to the call."""

    start: int
    dur: int

    def __call__(self, ns: int) -> int:
        return min(max(ns - self.start, 0), self.dur)


def _own(at: _Clock, split: Mapping[str, int], rows: Iterable[tuple[Any, ...]]) -> list[Span]:
    """Return the spans of the call without gaps: its waits, and between them its running time."""
    rest = {"cpu": split.get("cpu", 0) + split.get("steal", 0)}
    unplaced = sum(to_ns - from_ns for _, from_ns, to_ns, placed, *_ in rows if not placed)
    if unplaced:
        rest["unexplained"] = unplaced
    spans: list[Span] = []
    now = 0
    for cause, from_ns, to_ns, placed, waker, waker_pid in rows:
        begin, end = max(at(from_ns), now), at(to_ns)
        if not placed or end <= begin:
            continue
        if begin > now:
            spans.append(_running(now, begin, rest))
        woken = f", woken by {waker} {waker_pid}" if waker else ""
        spans.append(Span(begin, end, {cause: end - begin}, CAUSES[cause].label + woken))
        now = end
    if now < at.dur:
        spans.append(_running(now, at.dur, rest))
    return spans


def _running(from_ns: int, to_ns: int, rest: Mapping[str, int]) -> Span:
    """Return a gap between waits: on the CPU, unless waits without a place are left to fill it."""
    largest = max(rest, key=lambda cause: rest[cause])
    words = "on the CPU" if len(rest) == 1 else "on the CPU, or blocked for a reason not recorded"
    return Span(from_ns, to_ns, {largest: to_ns - from_ns}, words)


def _chain(at: _Clock, rows: Iterable[tuple[Any, ...]]) -> list[Lane]:
    """Return a lane of the call's culprits, and one for each further hop."""
    hops: dict[int, list[Span]] = defaultdict(list)
    for hop, from_ns, to_ns, *victim, cause, how, by, by_pid, by_call, seen in rows:
        begin, end = at(from_ns), at(to_ns)
        if end <= begin:
            continue
        culprit = "" if by is None else f"{HOW[how]} {_who(by, by_pid, by_call)}"
        culprit += " (inferred)" if culprit and seen == "inferred" else ""
        words = culprit if hop == 1 else f"{_who(*victim)} {_waited(cause, culprit)}"
        hops[hop].append(Span(begin, end, {cause: end - begin}, words))
    return [
        Lane("holder" if hop == 1 else "meanwhile", apart(spans))
        for hop, spans in sorted(hops.items())
    ]


def _waited(cause: str, culprit: str) -> str:
    if cause in MACHINE:
        return f"waited {culprit}" if culprit else "waited for a CPU"
    said = f"waited for {CAUSES[cause].label}"
    return f"{said}, {culprit}" if culprit else said


def _who(comm: str | None, pid: int | None, call: str | None) -> str:
    said = f"{comm or '?'} {'' if pid is None else pid}".strip()
    return said if call in (None, "-") else f"{said} ({call})"


def _commits(at: _Clock, rows: Iterable[tuple[Any, ...]]) -> list[Lane]:
    by_commit: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for commit, *rest in rows:
        by_commit[commit].append(tuple(rest))
    spans: list[Span] = []
    for parts in by_commit.values():
        for kind, comm, pid, call, part, from_ns, to_ns in parts:
            doing = PARTS[part]
            begin, end = at(from_ns), at(to_ns)
            words = f"{part_label(doing)}: {kind} for {_who(comm, pid, call)}"
            spans.append(Span(begin, end, {doing: end - begin}, words))
    lanes = packed(spans, 3)
    left_out = len(spans) - sum(len(lane) for lane in lanes)
    return [Lane("commit", lane, 0 if n else left_out) for n, lane in enumerate(lanes)]


def _requests(at: _Clock, rows: Iterable[tuple[Any, ...]]) -> list[Lane]:
    spans = []
    for from_ns, issue_ns, done_ns, op, bytes_, meta, fua, preflush, comm, *_ in rows:
        begin, issue, end = at(from_ns), at(issue_ns), at(done_ns)
        if end <= begin:
            continue
        queued = "flush" if preflush else "block_queue"
        served = "flush" if op == "flush" else "block_device"
        causes = {k: ns for k, ns in ((queued, issue - begin), (served, end - issue)) if ns}
        said = [f"{op} of {bytes_ // 1024} KiB" if bytes_ else op]
        traits = {"metadata": meta, "FUA": fua, "preflush": preflush}
        said += [trait for trait, has in traits.items() if has]
        said += [f"made {duration(at.start - from_ns)} before"] if from_ns < at.start else []
        spans.append(Span(begin, end, causes, f"{', '.join(said)}, by {comm}"))
    lanes = packed(spans, MOST_LANES)
    left_out = len(spans) - sum(len(lane) for lane in lanes)
    return [Lane("request", lane, 0 if n else left_out) for n, lane in enumerate(lanes)]
