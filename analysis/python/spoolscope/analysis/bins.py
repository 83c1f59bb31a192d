"""The recording in bins of time: calls by length, time by process and cause, slowest calls, marks.

A call counts in the bin in which it began, with all of its time: the bins from one time to another
add up to the sums of ``explain --slice`` for the calls begun then.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from spoolscope.analysis.causes import BETWEEN_PROGRAMS, CAUSES, MACHINE, charged
from spoolscope.analysis.latency import NO_LOCKS
from spoolscope.analysis.overlay import one_at_a_time
from spoolscope.analysis.process_parts import make_process_parts, part_names
from spoolscope.analysis.services import DISK_FLUSH

MAX_BINS = 200
SHORTEST_NS = 1_000_000
LEVELS_A_DECADE = 4
PROCESSES = 16
"""Number of parts (see ``process_parts``) with sums of their own; the others are one."""
SLOWEST = 10
"""Number of slowest calls kept of each bin."""
OTHERS = "(others)"

MARKS = {"commit": "commit", "flush": "cache flush", "frozen": "frozen"}
"""Events marked on the time axis: a commit is under way; a disk empties its cache; calls wait for a
frozen filesystem."""

# All numbers about calls, in one pass over them; processes and levels are sums of these rows.
_CALLS = f"""
CREATE OR REPLACE TEMP TABLE bin_calls AS
SELECT {{place}} AS bin, part, syscall,
    CAST(floor({LEVELS_A_DECADE} * log10(greatest(dur_ns, 1))) AS INTEGER) AS level,
    CAST(count(*) AS BIGINT) AS n,
    {", ".join(f"CAST(sum({ns}) AS BIGINT) AS {cause}_ns" for cause, ns in MACHINE.items())}
FROM shown_calls JOIN process_parts USING (pid) GROUP BY ALL
"""

_TIMES = f"""
CREATE OR REPLACE TEMP TABLE bin_times AS
SELECT bin, part, syscall, cause, CAST(sum(ns) AS BIGINT) AS ns FROM (
    SELECT bin, part, syscall, unnest({list(MACHINE)}) AS cause,
        unnest([{", ".join(f"{cause}_ns" for cause in MACHINE)}]) AS ns
    FROM bin_calls
    UNION ALL SELECT {{place}}, part, syscall, cause, dur_ns
    FROM named_waits JOIN process_parts USING (pid) WHERE shown
) GROUP BY ALL HAVING sum(ns) > 0
"""

_LEVELS = f"""
SELECT bin, level, CAST(sum(n) AS BIGINT) FROM bin_calls WHERE {NO_LOCKS}
GROUP BY ALL
"""

_SLOWEST = f"""
CREATE OR REPLACE TEMP TABLE bin_slowest AS
WITH kept AS (
    SELECT {{place}} AS bin, unnest(arg_max(struct_pack(tid := tid, seq := seq, ts_ns := ts_ns,
        comm := comm, pid := pid, syscall := syscall, path_id := path_id, dur_ns := dur_ns),
        dur_ns, {SLOWEST})) AS call
    FROM shown_calls WHERE {NO_LOCKS} GROUP BY 1
)
SELECT bin, call.* FROM kept
"""

# The largest part of each slow call. Calls that are not in ``waited`` were always on the CPU.
_MOSTLY = f"""
WITH parts AS (
    SELECT s.tid, s.seq, s.ts_ns, w.cause, sum(w.dur_ns) AS ns FROM bin_slowest s
    JOIN named_waits w ON w.tid = s.tid AND w.seq = s.seq AND w.call_ns = s.ts_ns GROUP BY ALL
    UNION ALL SELECT s.tid, s.seq, s.ts_ns, unnest({list(MACHINE)}),
        unnest([{", ".join(MACHINE.values())}])
    FROM bin_slowest s JOIN waited c ON c.tid = s.tid AND c.seq = s.seq AND c.ts_ns = s.ts_ns
), mostly AS (
    SELECT tid, seq, ts_ns, arg_max(cause, ns) AS cause, CAST(max(ns) AS BIGINT) AS ns FROM parts
    GROUP BY ALL
)
SELECT s.bin, s.ts_ns, s.comm, s.pid, s.syscall, p.path, s.dur_ns, coalesce(m.cause, 'cpu'),
    coalesce(m.ns, s.dur_ns)
FROM bin_slowest s LEFT JOIN mostly m USING (tid, seq, ts_ns) LEFT JOIN paths p USING (path_id)
ORDER BY s.bin, s.dur_ns DESC, s.ts_ns
"""

_MARKS = f"""
CREATE OR REPLACE TEMP TABLE marks AS
SELECT 'commit' AS mark, from_ns, to_ns FROM commit_spans
UNION ALL SELECT 'flush', from_ns, to_ns FROM services WHERE part = '{DISK_FLUSH}'
UNION ALL SELECT 'frozen', ts_ns, ts_ns + dur_ns FROM named_waits
WHERE shown AND placed AND cause = 'frozen'
"""

# How much of a bin a mark covers: overlaps count once; an event counts in every bin it reaches.
_COVERED = f"""
WITH once AS ({one_at_a_time("marks", "mark", "mark")}), cut AS (
    SELECT mark, from_ns, to_ns, unnest(range({{first}}, {{last}} + 1)) AS bin FROM once
)
SELECT mark, bin, CAST(sum(greatest(0, least(to_ns, {{start}} + (bin + 1) * {{bin_ns}})
    - greatest(from_ns, {{start}} + bin * {{bin_ns}}))) AS BIGINT)
FROM cut GROUP BY ALL
"""


@dataclass(frozen=True)
class Moment:
    """A slow call: when it began (ns since the recording did), and its largest part."""

    at_ns: int
    comm: str
    pid: int
    syscall: str
    path: str | None
    dur_ns: int
    cause: str
    cause_ns: int


@dataclass(frozen=True)
class Mark:
    """The events of one of ``MARKS`` in each bin.

    Attributes:
        begun: Number of events that began in the bin.
        covered_ns: Part of the bin that the events cover, each instant counted once.
        longest_ns: Length of the longest event that began in the bin.
    """

    begun: list[int]
    covered_ns: list[int]
    longest_ns: list[int]


@dataclass(frozen=True)
class ProcessBins:
    """Calls begun in each bin, and their time by cause, of a process or of several together."""

    calls: list[int]
    causes: dict[str, list[int]]


@dataclass(frozen=True)
class Bins:
    """The recording in bins of equal length.

    Attributes:
        bin_ns: Length of a bin; the first begins when the recording does.
        n: Number of bins.
        levels: Lengths of calls, lowest first: level k is from 10^(k/4) to 10^((k+1)/4) ns.
        counts: Calls by level and bin, without those for locks between programs.
        processes: By name (see ``process_parts``), the most time (without waits for other programs)
            first, ``OTHERS`` last.
        slowest: The slowest calls of each bin, without lock calls, too.
        marks: By name in ``MARKS``; a mark without events is left out.
    """

    bin_ns: int
    n: int
    levels: list[int] = field(default_factory=list)
    counts: list[list[int]] = field(default_factory=list)
    processes: dict[str, ProcessBins] = field(default_factory=dict)
    slowest: list[list[Moment]] = field(default_factory=list)
    marks: dict[str, Mark] = field(default_factory=dict)

    def causes(self, first: int = 0, last: int | None = None) -> dict[str, int]:
        """Return {cause: ns} of the calls begun in the bins ``first`` to ``last``, both counted."""
        upto = self.n if last is None else last + 1
        sums: dict[str, int] = defaultdict(int)
        for process in self.processes.values():
            for cause, values in process.causes.items():
                sums[cause] += sum(values[first:upto])
        return {cause: sums[cause] for cause in CAUSES if sums.get(cause)}

    @property
    def worst(self) -> int:
        """The bin whose calls took longest, waits for other programs left out."""
        totals = [sum(charged(self.causes(bin_, bin_)).values()) for bin_ in range(self.n)]
        return totals.index(max(totals)) if totals else 0


def in_bins(con: duckdb.DuckDBPyConnection, meta: Mapping[str, Any], most: int = MAX_BINS) -> Bins:
    """Return the recording in bins (needs the tables of ``study_commits``).

    Creates ``process_parts``, ``bin_lengths``, ``bin_calls``, ``bin_times``, ``bin_slowest`` and
    ``marks``.

    Args:
        con: A connection with an explained trace.
        meta: meta.json of the trace.
        most: The most bins.
    """
    start = int(meta.get("start_ns", 0))
    (last,) = con.execute("SELECT max(ts_ns) FROM shown_calls").fetchone() or (None,)
    lasted = max(0 if last is None else int(last) - start, 0)
    bin_ns = _length(max(lasted + 1, int(meta.get("duration_ns", 0))), most)
    n = lasted // bin_ns + 1

    def place(at: str) -> str:
        return f"CAST(least({n - 1}, greatest(0, ({at} - {start}) // {bin_ns})) AS INTEGER)"

    make_process_parts(con)
    con.execute(
        "CREATE OR REPLACE TEMP TABLE bin_lengths AS "
        f"SELECT {start}::BIGINT AS start_ns, {bin_ns}::BIGINT AS bin_ns, {n}::BIGINT AS n"
    )
    con.execute(_CALLS.format(place=place("ts_ns")))
    con.execute(_TIMES.format(place=place("call_ns")))
    con.execute(_SLOWEST.format(place=place("ts_ns")))
    con.execute(_MARKS)
    if last is None:
        return Bins(bin_ns, 0)
    levels, counts = _levels(con, n)
    return Bins(
        bin_ns=bin_ns,
        n=n,
        levels=levels,
        counts=counts,
        processes=_processes(con, n),
        slowest=_slowest(con, n, start),
        marks=_marks(con, n, place, start, bin_ns),
    )


def _length(span_ns: int, most: int) -> int:
    """Return the shortest bin (1, 2 or 5 times a power of ten) that gives at most ``most`` bins."""
    bin_ns = SHORTEST_NS
    for factor in _FACTORS * 20:
        if span_ns <= bin_ns * most:
            break
        bin_ns = bin_ns * factor // 2
    return bin_ns


# From 1 to 2, from 2 to 5, from 5 to 10, each in halves.
_FACTORS = (4, 5, 4)


def _levels(con: duckdb.DuckDBPyConnection, n: int) -> tuple[list[int], list[list[int]]]:
    rows = con.execute(_LEVELS).fetchall()
    if not rows:
        return [], []
    found = [level for _, level, _ in rows]
    levels = list(range(min(found), max(found) + 1))
    counts = [[0] * n for _ in levels]
    for bin_, level, calls in rows:
        counts[level - levels[0]][bin_] = calls
    return levels, counts


def _processes(con: duckdb.DuckDBPyConnection, n: int) -> dict[str, ProcessBins]:
    totals: dict[int, int] = defaultdict(int)
    times = con.execute(
        "SELECT bin, part, cause, CAST(sum(ns) AS BIGINT) FROM bin_times GROUP BY ALL"
    ).fetchall()
    calls = con.execute(
        "SELECT bin, part, CAST(sum(n) AS BIGINT) FROM bin_calls GROUP BY ALL"
    ).fetchall()
    for _, part, _ in calls:
        totals[part] += 0
    for _, part, cause, ns in times:
        totals[part] += 0 if cause in BETWEEN_PROGRAMS else ns
    names = part_names(con)
    ordered = sorted(totals, key=lambda part: (-totals[part], names[part]))
    own = ordered[:PROCESSES] if len(ordered) > PROCESSES + 1 else ordered
    named = {part: names[part] if part in own else OTHERS for part in ordered}
    found = {name: ProcessBins([0] * n, defaultdict(lambda: [0] * n)) for name in named.values()}
    for bin_, part, number in calls:
        found[named[part]].calls[bin_] += number
    for bin_, part, cause, ns in times:
        found[named[part]].causes[cause][bin_] += ns
    return {
        name: ProcessBins(one.calls, {c: one.causes[c] for c in CAUSES if c in one.causes})
        for name, one in found.items()
    }


def _slowest(con: duckdb.DuckDBPyConnection, n: int, start: int) -> list[list[Moment]]:
    found: list[list[Moment]] = [[] for _ in range(n)]
    for bin_, ts_ns, *rest in con.execute(_MOSTLY).fetchall():
        found[bin_].append(Moment(max(ts_ns - start, 0), *rest))
    return found


def _marks(
    con: duckdb.DuckDBPyConnection, n: int, place: Any, start: int, bin_ns: int
) -> dict[str, Mark]:
    begun = con.execute(
        f"SELECT mark, {place('from_ns')} AS bin, count(*), max(to_ns - from_ns) FROM marks "
        "GROUP BY ALL"
    ).fetchall()
    kinds = {mark for mark, *_ in begun}
    marks = {m: Mark([0] * n, [0] * n, [0] * n) for m in MARKS if m in kinds}
    for mark, bin_, number, longest in begun:
        marks[mark].begun[bin_], marks[mark].longest_ns[bin_] = number, longest
    covered = _COVERED.format(
        first=place("from_ns"), last=place("to_ns - 1"), start=start, bin_ns=bin_ns
    )
    for mark, bin_, ns in con.execute(covered).fetchall():
        marks[mark].covered_ns[bin_] = ns
    return marks


def between(moments: Sequence[Sequence[Moment]], first: int, last: int) -> list[Moment]:
    """Return the slowest calls begun in the bins ``first`` to ``last``, both included."""
    found = [moment for bin_ in moments[first : last + 1] for moment in bin_]
    return sorted(found, key=lambda moment: (-moment.dur_ns, moment.at_ns))[:SLOWEST]
