"""A trace for Perfetto: tracks of threads, commits and disks, joined by flows, and counters."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spoolscope.analysis.causes import CAUSES
from spoolscope.export.content import Call, Content
from spoolscope.export.lanes import Lanes
from spoolscope.export.perfetto_writer import NOTHING, Args, Writer
from spoolscope.traces.text import shown
from spoolscope.traces.trace import Trace

# Flows from a wait to its commit, from a call to its request, from a commit to its request.
TO_COMMIT, TO_REQUEST, OF_COMMIT = range(1, 4)
UNPLACED: Args = {"place": "not known"}

_COMMITS = """
WITH waiters AS (
    SELECT commit_id, list(DISTINCT wait_id) AS waits FROM commit_waits WHERE is_last GROUP BY ALL
), sent AS (
    SELECT c.commit_id, list(r.request_id) AS requests
    FROM commit_spans c JOIN requests r ON r.tid = c.tid AND r.ts_ns BETWEEN c.from_ns AND c.to_ns
    GROUP BY ALL
)
SELECT c.from_ns, c.to_ns, c.dev, c.kind, c.filesystem, w.waits, s.requests, c.txn_id,
    c.locking_ns, c.flushing_ns, c.logging_ns, c.trigger, c.trigger_comm, c.trigger_pid, c.blocks
FROM commit_spans c LEFT JOIN waiters w USING (commit_id) LEFT JOIN sent s USING (commit_id)
ORDER BY c.from_ns, c.commit_id
"""
_COMMIT_ARGS = ("txn_id", "locking_ns", "flushing_ns", "logging_ns", "trigger", "trigger_comm",
                "trigger_pid", "blocks")  # fmt: skip

# A request sent by a thread during its commit is joined to the commit.
_REQUESTS = """
WITH by_commit AS (
    SELECT r.request_id FROM commit_spans c JOIN requests r
        ON r.tid = c.tid AND r.ts_ns BETWEEN c.from_ns AND c.to_ns GROUP BY ALL
)
SELECT r.ts_ns, r.ts_ns + r.queue_ns, r.end_ns, r.dev, r.op, r.request_id, r.seq IS NOT NULL,
    b.request_id IS NOT NULL, r.bytes, r.sector, r.comm, r.pid, r.sync, r.meta, r.fua, r.preflush,
    r.error
FROM requests r LEFT JOIN by_commit b USING (request_id) ORDER BY r.ts_ns, r.request_id
"""
_REQUEST_ARGS = ("bytes", "sector", "comm", "pid", "sync", "meta", "fua", "preflush", "error")

# Stages by blktrace; a request that did not complete ends with its last recorded stage.
_STAGES = """
SELECT ts_ns, ts_ns + coalesce(d_ns, c_ns, i_ns, g_ns, 0),
    ts_ns + coalesce(c_ns, d_ns, i_ns, g_ns, 0), dev, op, rwbs, bytes, sector, comm, bios, merged,
    requeued, error, c_ns IS NOT NULL
FROM block_stages ORDER BY ts_ns, dev, sector
"""
_STAGE_ARGS = ("rwbs", "bytes", "sector", "comm", "bios", "merged", "requeued", "error", "complete")

_COUNTERS = {
    "calls that are blocked": """
        WITH steps AS (
            SELECT ts_ns AS at_ns, 1 AS step FROM named_waits WHERE shown AND placed AND dur_ns > 0
            UNION ALL SELECT ts_ns + dur_ns, -1 FROM named_waits
            WHERE shown AND placed AND dur_ns > 0
        )""",
    "block requests under way": """
        WITH steps AS (
            SELECT ts_ns AS at_ns, 1 AS step FROM requests WHERE end_ns > ts_ns
            UNION ALL SELECT end_ns, -1 FROM requests WHERE end_ns > ts_ns
        )""",
}
_RUNNING = """
SELECT at_ns, CAST(sum(sum(step)) OVER (ORDER BY at_ns) AS BIGINT) AS n FROM steps
GROUP BY at_ns ORDER BY at_ns
"""


class Perfetto:
    """A trace for ui.perfetto.dev and the trace processor."""

    sentence = (
        "A timeline: threads, calls and their causes, commits, disks, and what waits on what."
    )
    opens = "open {output} at https://ui.perfetto.dev (it stays in the browser)"
    call_by_call = True

    def write(self, content: Content, output: Path) -> None:
        """Write threads, then commits, requests and counters; times are of the wall clock."""
        with output.open("xb") as file:
            writer = Writer(file, content.start_ns)
            threads = _Threads(writer, _process_names(content.trace))
            for call in content.calls():
                _call(writer, threads.track(call), call)
            _commits(writer, content)
            _requests(writer, content)
            _counters(writer, content)


class _Threads:
    """Tracks of threads; if calls overlap by a coarse clock, a thread has more than one."""

    def __init__(self, writer: Writer, process_names: dict[int, str]) -> None:
        self._writer = writer
        self._names = process_names
        self._processes: dict[int, int] = {}
        self._threads: dict[tuple[int, int], tuple[Lanes, list[int]]] = {}

    def track(self, call: Call) -> int:
        """Return the track of a call."""
        at = call.pid, call.tid
        if at not in self._threads:
            self._threads[at] = Lanes(), [self._thread(call)]
        lanes, tracks = self._threads[at]
        lane = lanes.of(call.from_ns, call.to_ns)
        if lane == len(tracks):
            tracks.append(self._writer.track(f"{shown(call.comm)}, overlapping", tracks[0]))
        return tracks[lane]

    def _thread(self, call: Call) -> int:
        name = shown(call.comm)
        if call.pid not in self._processes:
            process_name = shown(self._names.get(call.pid, "")) or name
            self._processes[call.pid] = self._writer.process(call.pid, process_name)
        return self._writer.thread(self._processes[call.pid], call.pid, call.tid, name)


def _call(writer: Writer, track: int, call: Call) -> None:
    args: Args = {"ret": call.ret, "errno": call.errno or None, "path": shown(call.path) or None}
    flows = [flow(TO_REQUEST, request) for request in call.requests]
    writer.open(track, call.from_ns, shown(call.name), args, flows)
    for part in call.parts:
        waits = [flow(TO_COMMIT, part.wait_id)] if part.wait_id is not None else []
        writer.open(
            track,
            part.from_ns,
            CAUSES[part.cause].label,
            NOTHING if part.placed else UNPLACED,
            waits,
        )
        writer.close(track, part.to_ns)
    writer.close(track, call.to_ns)


def _commits(writer: Writer, content: Content) -> None:
    mounts = {spool.get("dev"): spool["mount"] for spool in content.trace.meta.get("spools", [])}
    tracks = _Tracks(writer)
    for from_ns, to_ns, dev, kind, filesystem, waits, requests, *rest in content.rows(_COMMITS):
        at = shown(mounts.get(dev, _device(dev)))
        track = tracks.of(f"commits of {filesystem} {at}", from_ns, to_ns)
        flows = [flow(TO_COMMIT, wait) for wait in waits or ()]
        flows += [flow(OF_COMMIT, request) for request in requests or ()]
        writer.open(track, from_ns, kind, _args(_COMMIT_ARGS, rest), flows)
        writer.close(track, to_ns)


def _requests(writer: Writer, content: Content) -> None:
    tracks = _Tracks(writer)
    for ts_ns, issue_ns, end_ns, dev, op, number, *rest in content.rows(_REQUESTS):
        of_call, of_commit, *values = rest
        track = tracks.of(f"disk {_device(dev)}", ts_ns, end_ns)
        flows = [flow(TO_REQUEST, number)] if of_call else []
        flows += [flow(OF_COMMIT, number)] if of_commit else []
        writer.open(track, ts_ns, op, _args(_REQUEST_ARGS, values), flows)
        _served(writer, track, ts_ns, issue_ns, end_ns)
    for ts_ns, issue_ns, end_ns, dev, op, *values in content.rows(_STAGES):
        track = tracks.of(f"disk {_device(dev)}, by blktrace", ts_ns, end_ns)
        writer.open(track, ts_ns, op, _args(_STAGE_ARGS, values))
        _served(writer, track, ts_ns, issue_ns, end_ns)


def _served(writer: Writer, track: int, from_ns: int, issue_ns: int, to_ns: int) -> None:
    """Write the two parts of a request, and its end."""
    for name, begin_ns, end_ns in (("queue", from_ns, issue_ns), ("device", issue_ns, to_ns)):
        writer.open(track, begin_ns, name)
        writer.close(track, end_ns)
    writer.close(track, to_ns)


def _counters(writer: Writer, content: Content) -> None:
    for name, steps in _COUNTERS.items():
        track = writer.counter(name)
        for at_ns, n in content.rows(steps + _RUNNING):
            writer.count(track, at_ns, n)


class _Tracks:
    """Tracks by name, as many for each as its overlaps need."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._lanes: dict[str, Lanes] = defaultdict(Lanes)
        self._tracks: dict[tuple[str, int], int] = {}

    def of(self, name: str, from_ns: int, to_ns: int) -> int:
        """Return the track of an interval."""
        at = name, self._lanes[name].of(from_ns, to_ns)
        if at not in self._tracks:
            self._tracks[at] = self._writer.track(name)
        return self._tracks[at]


def flow(kind: int, number: int) -> int:
    """Return the number that the slices of a flow share."""
    return kind << 56 | number


def _args(names: Sequence[str], values: Sequence[Any]) -> Args:
    return {
        name: shown(value) if isinstance(value, str) else value
        for name, value in zip(names, values, strict=True)
    }


def _process_names(trace: Trace) -> dict[int, str]:
    """Return the name of each process: that of its first thread."""
    threads = trace.table("threads", ["pid", "tid", "comm"]).to_pylist()
    return {row["pid"]: row["comm"] for row in threads if row["pid"] == row["tid"]}


def _device(dev: int | None) -> str:
    return "?" if dev is None else f"{dev >> 20}:{dev & 0xFFFFF}"
