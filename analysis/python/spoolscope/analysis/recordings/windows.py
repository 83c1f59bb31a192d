"""A recording cut into windows of time, with sums for each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import duckdb
import numpy as np

from spoolscope.analysis.causes import BETWEEN_PROGRAMS, CAUSES, MACHINE
from spoolscope.analysis.explain import bound_resources
from spoolscope.analysis.families import Families
from spoolscope.analysis.latency import IN_FLIGHT, SYSCALL_CLASSES, class_of
from spoolscope.analysis.metrics import BLOCK_NS, MAX_BLOCKS
from spoolscope.analysis.services import LOOP_MAJOR
from spoolscope.analysis.stages import begin
from spoolscope.traces.calls import of_effect
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.pathclass import class_sql, mailbox_sql
from spoolscope.traces.trace import Trace

HIDDEN_PROGRAM, ANY_PROGRAM = "(hidden)", "(any)"
COST_CAUSES = tuple(cause for cause in CAUSES if cause not in BETWEEN_PROGRAMS)
MAILDIR, QUEUE = "renamed or linked from tmp into new", "moved from incoming to active of the queue"
"""Events that count as a delivery: into a Maildir; in a mail queue, if there are none of these."""

Stratum = tuple[str, str, str]
"""Program, call and class of the path: calls of one stratum do the same kind of work."""

_KEPT = f"""
ts_ns >= {{since_ns}} AND flags_seen & {IN_FLIGHT} = 0
AND NOT list_contains({list(SYSCALL_CLASSES["lock"])}, syscall)
"""

_KINDS = f"""
CREATE OR REPLACE TEMP TABLE path_kinds AS SELECT path_id, {class_sql("path")} AS class FROM paths
"""

# Calls that are not in waited were on the CPU for all of their length.
_STRATA = f"""
WITH calls AS (
    SELECT {{ts_ns}} AS w, pid, comm, syscall, path_id,
        count(*) AS n, sum(dur_ns) AS dur_ns, coalesce(sum(stolen_ns), 0) AS stolen_ns
    FROM shown_calls GROUP BY ALL
), off AS (
    SELECT {{ts_ns}} AS w, pid, comm, syscall, path_id,
        unnest({list(MACHINE)}) AS cause,
        unnest([oncpu_ns - dur_ns, 0, runq_ns, preempted_ns]) AS ns
    FROM waited WHERE shown
), parts AS (
    SELECT w, pid, comm, syscall, path_id, unnest(['cpu', 'steal']) AS cause,
        unnest([n, 0]) AS n, unnest([dur_ns - stolen_ns, stolen_ns]) AS ns FROM calls
    UNION ALL
    SELECT w, pid, comm, syscall, path_id, cause, 0, ns FROM off WHERE ns != 0
    UNION ALL
    SELECT {{call_ns}}, pid, comm, syscall, path_id, cause, 0, dur_ns
    FROM named_waits WHERE shown
)
SELECT w, p.program, syscall, coalesce(k.class, 'no path') AS class, cause,
    CAST(sum(n) AS BIGINT) AS n, CAST(sum(ns) AS BIGINT) AS ns
FROM parts JOIN programs p USING (pid, comm) LEFT JOIN path_kinds k USING (path_id) GROUP BY ALL
"""

_NAMED = f"""
SELECT {{ts_ns}} AS w, q.path AS path, s.syscall IN {of_effect("links")}
    AS link, a.path AS was
FROM shown_calls s JOIN paths a USING (path_id) JOIN paths q ON q.path_id = s.path2_id
WHERE s.ret = 0 AND s.syscall IN {of_effect("renames", "links")}
"""
_DELIVERIES = {
    MAILDIR: ("(^|/)tmp/[^/]+$", "(^|/)new/[^/]+$"),
    QUEUE: ("(^|/)incoming/([^/]/)*[^/]+$", "(^|/)active/([^/]/)*[^/]+$"),
}

_BOXES = f"""
WITH boxes AS (SELECT path_id, {mailbox_sql("path")} AS box FROM paths WHERE kind = 'spool')
SELECT {{ts_ns}} AS w, box, count(*), CAST(sum(dur_ns) AS BIGINT)
FROM shown_calls JOIN boxes USING (path_id) WHERE box != '' GROUP BY ALL
"""

_BESIDE = {
    ("commits", "commit_ns"): "SELECT ts_ns, dur_ns AS ns FROM commits",
    ("flushes", "flush_ns"): "SELECT ts_ns, device_ns AS ns FROM requests WHERE op = 'flush'",
    ("requests", "device_ns"): "SELECT ts_ns, device_ns AS ns FROM requests",
    ("writes", "written_bytes"): "SELECT ts_ns, bytes AS ns FROM requests WHERE op = 'write'",
    ("reads", "read_bytes"): "SELECT ts_ns, bytes AS ns FROM requests WHERE op = 'read'",
}


@dataclass(frozen=True)
class Cut:
    """Places of windows: ``n`` of one length from ``since_ns`` on; the last has all later time."""

    since_ns: int
    end_ns: int
    window_ns: int
    n: int

    @classmethod
    def of(cls, trace: Trace) -> "Cut":
        """Cut the time of a recording since its snapshot: 1 s at least, 100 windows at most."""
        start_ns = int(trace.meta["start_ns"])
        end_ns = start_ns + int(trace.meta["duration_ns"])
        since_ns = max(int(trace.meta.get("snapshot_ns") or 0), start_ns)
        window_ns = max(BLOCK_NS, -(-(end_ns - since_ns) // MAX_BLOCKS))
        return cls(since_ns, end_ns, window_ns, max(1, -(-(end_ns - since_ns) // window_ns)))

    @property
    def seconds(self) -> np.ndarray:
        """Length of each window, s."""
        lengths = np.full(self.n, self.window_ns / 1e9)
        last_ns = self.end_ns - self.since_ns - (self.n - 1) * self.window_ns
        lengths[-1] = max(1, last_ns) / 1e9
        return lengths

    def sql(self, column: str) -> str:
        """Return the expression for the window of a time, ns since the epoch."""
        return f"least(({column} - {self.since_ns}) // {self.window_ns}, {self.n - 1})"

    def places(self, ts_ns: np.ndarray) -> np.ndarray:
        """Return the windows of times."""
        found: np.ndarray = np.minimum((ts_ns - self.since_ns) // self.window_ns, self.n - 1)
        return found


@dataclass(frozen=True)
class Strata:
    """Sums of calls by stratum, one row for each stratum.

    Attributes:
        names: The strata.
        n: Calls, one column for each window.
        ns: Time by window and cause, in the order of ``COST_CAUSES``.
    """

    names: list[Stratum]
    n: np.ndarray
    ns: np.ndarray

    def of(self, names: Sequence[Stratum]) -> "Strata":
        """Return the strata of these names, in this order."""
        places = {name: place for place, name in enumerate(self.names)}
        rows = [places[name] for name in names]
        return Strata(list(names), self.n[rows], self.ns[rows])

    def of_any_program(self) -> "Strata":
        """Return the strata by call and class alone."""
        merged = [(ANY_PROGRAM, call, kind) for _, call, kind in self.names]
        places = {name: place for place, name in enumerate(dict.fromkeys(merged))}
        rows = [places[name] for name in merged]
        n = np.zeros((len(places), self.n.shape[1]))
        ns = np.zeros((len(places), *self.ns.shape[1:]))
        np.add.at(n, rows, self.n)
        np.add.at(ns, rows, self.ns)
        return Strata(list(places), n, ns)


@dataclass(frozen=True)
class Windows:
    """One recording in windows of time.

    Attributes:
        trace: The recording.
        name: Name of its directory.
        cut: Places of the windows.
        sums: Sums for each window, by the counted thing: calls, time_ns, commits, ...
        strata: Its calls.
        deliveries: Number in each window, by the event that counts as one.
        boxes: Two columns by mailbox: calls and their time, ns, in each window.
    """

    trace: Trace
    name: str
    cut: Cut
    sums: Mapping[str, np.ndarray]
    strata: Strata
    deliveries: Mapping[str, np.ndarray]
    boxes: Mapping[str, np.ndarray] = field(repr=False)

    @property
    def n(self) -> int:
        """Number of windows."""
        return self.cut.n

    @property
    def window_ns(self) -> int:
        """Length of a window; the last one may be shorter."""
        return self.cut.window_ns

    @property
    def seconds(self) -> np.ndarray:
        """Length of each window, s; the last may be shorter."""
        return self.cut.seconds

    @cached_property
    def _lengths(self) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
        """The names of calls; then index of the name, window and length of each call."""
        columns = self.trace.table("syscalls", ["syscall", "ts_ns", "dur_ns", "flags_seen"])
        names = columns["syscall"].combine_chunks()
        known = [str(name) for name in names.dictionary.to_pylist()]
        starts, took, seen = (columns[c].to_numpy() for c in ("ts_ns", "dur_ns", "flags_seen"))
        places = names.indices.to_numpy()
        kept = (starts >= self.cut.since_ns) & (seen & IN_FLIGHT == 0)
        kept &= ~np.isin(places, _places(known, SYSCALL_CLASSES["lock"]))
        return known, places[kept], self.cut.places(starts[kept]), took[kept]

    def lengths(self, calls: Sequence[str] = ()) -> tuple[np.ndarray, np.ndarray]:
        """Return window and length, ns, of the calls of these names, or of all calls."""
        known, places, windows, took = self._lengths
        chosen = np.isin(places, _places(known, calls)) if calls else np.ones(len(took), bool)
        return windows[chosen], took[chosen]


def _places(known: Sequence[str], wanted: Sequence[str]) -> list[int]:
    return [place for place, name in enumerate(known) if name in wanted]


def read_windows(trace: Trace, *, keys_match: bool) -> Windows:
    """Cut a recording into windows: at least 1 s long, at most 100.

    Calls before its snapshot, calls that did not return and file locking are left out; so are the
    waits of programs for programs.

    Args:
        trace: The recording.
        keys_match: Hidden names of programs have the key of the other recording; else all programs
            with such names count as one.

    Raises:
        SpoolscopeError: it holds no such call, or is damaged.
    """
    if not trace.meta["counts"]["syscalls"]:
        raise nothing_to_compare(trace)
    cut = Cut.of(trace)
    with trace.connect() as con:
        bound_resources(con, int(trace.meta["counts"]["syscalls"]))
        begin(con, shown=_KEPT.format(since_ns=cut.since_ns)).make("shown_calls", "named_waits")
        _name_programs(con, keys_match=keys_match)
        con.execute(_KINDS)
        places = {"ts_ns": cut.sql("ts_ns"), "call_ns": cut.sql("call_ns")}
        found = con.execute(_STRATA.format(**places)).fetchnumpy()
        if not len(found["w"]):
            raise nothing_to_compare(trace)
        strata = _strata(found, cut.n)
        sums = _sums(con, cut)
        deliveries = _deliveries(con, cut)
        boxes = _boxes(con, cut)
    sums |= {"calls": strata.n.sum(axis=0), "time_ns": strata.ns.sum(axis=(0, 2))}
    sums["syncs"] = _of_family(strata, "sync")
    name = trace.path.name or str(trace.path)
    return Windows(trace, name, cut, sums, strata, deliveries, boxes)


def nothing_to_compare(trace: Trace) -> SpoolscopeError:
    """Return the error of a recording without calls."""
    return SpoolscopeError(
        f"trace {trace.path} holds no call to compare", remedy="record under load"
    )


def _name_programs(con: duckdb.DuckDBPyConnection, *, keys_match: bool) -> None:
    """Create ``programs``: the name of each thread's process; a hidden name begins with "+"."""
    families = Families(con)
    rows = []
    for pid, comm in con.execute("SELECT DISTINCT pid, comm FROM syscalls").fetchall():
        program = families.of((pid, comm)).program
        hidden = program.startswith("+") and not keys_match
        rows.append((pid, comm, HIDDEN_PROGRAM if hidden else program))
    con.execute("CREATE TEMP TABLE programs (pid INTEGER, comm VARCHAR, program VARCHAR)")
    con.executemany("INSERT INTO programs VALUES (?, ?, ?)", rows)


def _strata(found: Mapping[str, np.ndarray], n_windows: int) -> Strata:
    words = [np.asarray(found[name]).astype(str) for name in ("program", "syscall", "class")]
    keys = list(zip(*(column.tolist() for column in words), strict=True))
    places = {name: place for place, name in enumerate(dict.fromkeys(keys))}
    row = np.array([places[key] for key in keys])
    causes = {cause: place for place, cause in enumerate(COST_CAUSES)}
    cause = np.array([causes.get(c, -1) for c in np.asarray(found["cause"]).astype(str)])
    window = np.asarray(found["w"]).astype(np.int64)
    n = np.zeros((len(places), n_windows))
    ns = np.zeros((len(places), n_windows, len(causes)))
    np.add.at(n, (row, window), np.asarray(found["n"], np.float64))
    kept = cause >= 0
    values = np.asarray(found["ns"], np.float64)[kept]
    np.add.at(ns, (row[kept], window[kept], cause[kept]), values)
    return Strata(list(places), n, ns)


def _of_family(strata: Strata, family: str) -> np.ndarray:
    rows = [place for place, (_, call, _) in enumerate(strata.names) if class_of(call) == family]
    counted: np.ndarray = strata.n[rows].sum(axis=0)
    return counted


def _sums(con: duckdb.DuckDBPyConnection, cut: Cut) -> dict[str, np.ndarray]:
    """Count commits and requests, without requests that a loop device made of other requests."""
    con.execute(
        "CREATE OR REPLACE TEMP VIEW requests AS SELECT * FROM block_ios "
        f"WHERE parent_dev IS NULL OR parent_dev >> 20 != {LOOP_MAJOR}"
    )
    found = {}
    for (counted, summed), query in _BESIDE.items():
        rows = con.execute(
            f"SELECT {cut.sql('ts_ns')} AS w, count(*), sum(ns) "
            f"FROM ({query}) WHERE ts_ns >= {cut.since_ns} GROUP BY w"
        ).fetchall()
        for name, column in ((counted, 1), (summed, 2)):
            found[name] = np.zeros(cut.n)
            for row in rows:
                found[name][row[0]] = float(row[column] or 0)
    return found


def _deliveries(con: duckdb.DuckDBPyConnection, cut: Cut) -> dict[str, np.ndarray]:
    con.execute("CREATE OR REPLACE TEMP TABLE named AS " + _NAMED.format(ts_ns=cut.sql("ts_ns")))
    found = {}
    for what, (was, is_now) in _DELIVERIES.items():
        rows = con.execute(
            "SELECT w, count(*) FROM named WHERE regexp_matches(was, ?) "
            "AND regexp_matches(path, ?) GROUP BY w",
            [was, is_now],
        ).fetchall()
        found[what] = np.zeros(cut.n)
        for window, counted in rows:
            found[what][window] = counted
    return found


def _boxes(con: duckdb.DuckDBPyConnection, cut: Cut) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    query = _BOXES.format(ts_ns=cut.sql("ts_ns"))
    for window, box, calls, ns in con.execute(query).fetchall():
        found.setdefault(str(box), np.zeros((cut.n, 2)))[window] = calls, ns
    return found
