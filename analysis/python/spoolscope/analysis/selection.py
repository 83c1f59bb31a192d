"""The part of a trace that is shown: calls of some processes, on some mailboxes, of some time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from spoolscope.analysis.services import Window
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.slices import Slice
from spoolscope.traces.trace import Trace

LISTED = 8

_MEANT = """
CREATE OR REPLACE TEMP TABLE {table} AS
SELECT path_id FROM paths JOIN (SELECT unnest(?) AS place) ON kind = 'spool'
    AND coalesce(spool, 0) = coalesce(place.spool, spool, 0)
    AND (path = place.path OR starts_with(path, place.path || '/')
        OR place.path = '' AND place.spool IS NOT NULL)
"""


@dataclass(frozen=True)
class Selection:
    """The part of a trace that is shown.

    Attributes:
        only: Process ids, names of processes (may have ``*``) and mailboxes, that is directories
            below the spool or with its mount: a call is shown if one of them matches it; empty
            means all.
        but: The same; a call is not shown if one of them matches it.
        part: Time in which shown calls began; None is the whole recording.
    """

    only: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    part: Slice | None = None

    @property
    def is_whole(self) -> bool:
        """True if all calls are shown."""
        return self == WHOLE

    @property
    def is_of_some(self) -> bool:
        """True if calls are left out by what made them or what they are on, not by time alone."""
        return bool(self.only or self.but)

    def lasted_ns(self, duration_ns: int) -> int:
        """Return the length of the shown part of a recording, ns."""
        if self.part is None:
            return duration_ns
        to_ns = duration_ns if self.part.to_ns is None else min(self.part.to_ns, duration_ns)
        return to_ns - self.part.from_ns

    def span_ns(self, meta: Mapping[str, Any]) -> tuple[int, int]:
        """Return begin and end of the shown part of a recording with this meta.json, since 1970."""
        from_ns = int(meta["start_ns"]) + (self.part.from_ns if self.part else 0)
        return from_ns, from_ns + self.lasted_ns(int(meta["duration_ns"]))

    @property
    def label(self) -> str:
        """The part that is shown, in words; "all calls" if nothing is left out."""
        words = [f"of {', '.join(self.only)}"] if self.only else []
        words += [f"but those of {', '.join(self.but)}"] if self.but else []
        words += [f"begun {self.part.label}"] if self.part else []
        return f"{'calls' if self.only else 'all calls'} {' '.join(words)}".strip()


WHOLE = Selection()


@dataclass(frozen=True)
class Shown:
    """Conditions for the shown part of the tables.

    Attributes:
        condition: SQL condition on a row of ``syscalls``.
        span: Begin and end of the shown part of the recording, ns since the epoch; None is all of
            it. Commits and requests are counted if they overlap it (``stages.begin``).
    """

    condition: str = "true"
    span: Window = None


def select(con: duckdb.DuckDBPyConnection, trace: Trace, selection: Selection) -> Shown:
    """Return the conditions for the shown part of the tables.

    The views ``commits``, ``block_ios`` and ``block_stages`` are narrowed to the time of the part
    and of all shown calls, as a call that began in the part may have waited beyond it.

    Raises:
        SpoolscopeError: a word matches no call, or the part holds none.
    """
    if selection.is_whole:
        return Shown()
    if not trace.meta["counts"].get("syscalls"):
        return _without_calls(con, trace, selection)
    conditions = []
    if selection.part is not None:
        conditions.append(_begun(trace, selection.part))
    if selection.only:
        conditions.append(f"({_meant(con, trace, selection.only, 'only')})")
    if selection.but:
        conditions.append(f"NOT ({_meant(con, trace, selection.but, 'but')})")
    condition = " AND ".join(conditions)
    first, last = con.execute(
        f"SELECT min(ts_ns), max(ts_ns + dur_ns) FROM syscalls WHERE {condition}"
    ).fetchone() or (None, None)
    if first is None:
        raise SpoolscopeError(
            f"the trace has no such calls: {selection.label}",
            remedy="show more of it",
            exit_code=USAGE,
        )
    if selection.part is None:
        return Shown(condition)
    from_ns, to_ns = selection.span_ns(trace.meta)
    _narrow(con, trace, min(first, from_ns), max(last, to_ns))
    return Shown(condition, (from_ns, to_ns))


def _without_calls(con: duckdb.DuckDBPyConnection, trace: Trace, selection: Selection) -> Shown:
    """Narrow a trace of disks to the part's own time, as no call bounds it."""
    part = selection.part
    if part is None or selection.is_of_some:
        raise SpoolscopeError(
            f"the trace has no calls, so none is chosen: {selection.label}",
            remedy="choose a --slice alone",
            exit_code=USAGE,
        )
    part.check_within(int(trace.meta["duration_ns"]))
    span = selection.span_ns(trace.meta)
    _narrow(con, trace, *span)
    return Shown(span=span)


def _begun(trace: Trace, part: Slice) -> str:
    part.check_within(int(trace.meta["duration_ns"]))
    start_ns = int(trace.meta["start_ns"])
    # A call that was under way when the recording began counts as begun at its first instant.
    since = f"ts_ns >= {start_ns + part.from_ns}" if part.from_ns else "true"
    return since if part.to_ns is None else f"{since} AND ts_ns < {start_ns + part.to_ns}"


def _meant(con: duckdb.DuckDBPyConnection, trace: Trace, words: Sequence[str], table: str) -> str:
    """Return the condition that a call matches one of the words."""
    return " OR ".join(_means(con, trace, word, f"{table}_{n}") for n, word in enumerate(words))


def _places(trace: Trace, word: str) -> list[dict[str, Any]]:
    """Return the directories that a word may stand for: below any spool, or that of its mount."""
    found: list[dict[str, Any]] = [{"spool": None, "path": word.strip("/")}]
    for number, spool in enumerate(trace.meta.get("spools") or []):
        mount = str(spool.get("mount", "")).rstrip("/")
        if mount and f"{word}/".startswith(f"{mount}/"):
            found.append({"spool": number, "path": word[len(mount) :].strip("/")})
    return found


def _means(con: duckdb.DuckDBPyConnection, trace: Trace, word: str, table: str) -> str:
    """Return the condition for one word; fill the table with the paths that it matches.

    Raises:
        SpoolscopeError: it matches no call.
    """
    con.execute(_MEANT.format(table=table), [_places(trace, word)])
    quoted = word.replace("'", "''")
    if word.isascii() and word.isdecimal():
        found = f"pid = {word}"
    else:
        # Threads have names of their own; tables name all threads of a process as its leader.
        leaders = "SELECT pid FROM threads WHERE tid = pid AND kind = 'task' GROUP BY pid "
        named = f"HAVING count(DISTINCT comm) = 1 AND any_value(comm) GLOB '{quoted}'"
        found = f"comm GLOB '{quoted}' OR pid IN ({leaders}{named})"
    if con.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall():
        found += f" OR coalesce(path_id IN (SELECT path_id FROM {table}), false)"
        found += f" OR coalesce(path2_id IN (SELECT path_id FROM {table}), false)"
    if not con.execute(f"SELECT 1 FROM syscalls WHERE {found} LIMIT 1").fetchall():
        raise _nothing(con, word)
    return f"({found})"


def _nothing(con: duckdb.DuckDBPyConnection, word: str) -> SpoolscopeError:
    known = con.execute(
        f"SELECT comm FROM syscalls GROUP BY comm ORDER BY count(*) DESC, comm LIMIT {LISTED}"
    ).fetchall()
    return SpoolscopeError(
        f"no call is of a process or on a mailbox '{word}'",
        remedy="give a pid, a directory below the spool, or a process: "
        + ", ".join(str(comm) for (comm,) in known),
        exit_code=USAGE,
    )


def _narrow(con: duckdb.DuckDBPyConnection, trace: Trace, from_ns: int, to_ns: int) -> None:
    """Keep only commits and requests that overlap this time; one under way has no end."""
    lengths = {
        "commits": "dur_ns",
        "block_ios": "queue_ns + device_ns",
        "block_stages": "coalesce(c_ns, 1)",
    }
    for table, length in lengths.items():
        if trace.meta["counts"].get(table):
            con.execute(f"ALTER VIEW {table} RENAME TO all_{table}")
            con.execute(
                f"CREATE TEMP VIEW {table} AS SELECT * FROM all_{table} "
                f"WHERE ts_ns < {to_ns} AND ts_ns + {length} > {from_ns}"
            )
