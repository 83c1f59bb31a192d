"""What the analysis makes of a trace, as tables that a query can name, with units and meanings."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import duckdb

from spoolscope.analysis.causes import MACHINE
from spoolscope.analysis.stages import begin
from spoolscope.traces.columns import (
    BOOL,
    COMM,
    I32,
    I64,
    NAME,
    PID,
    STR,
    SYMBOL,
    TID,
    Column,
    Table,
)

CALL_SEQ = Column("seq", I64, "", "seq of its call (syscalls.seq).")
CAUSE = Column("cause", STR, "", "What the time went into, one of the closed list of causes.")


@dataclass(frozen=True)
class Derived:
    """One table that is made of those of the trace when a query names it.

    Attributes:
        table: Its columns, with units and meanings.
        make: The step of the analysis that leaves what ``select`` reads.
        select: The SELECT that is this table.
    """

    table: Table
    make: Callable[[duckdb.DuckDBPyConnection], object]
    select: str


_CALL_WAITS = Table(
    "call_waits",
    "one interval in which a call was blocked, with its cause; those of a call add up to its"
    " blocked_ns",
    (
        Column("ts_ns", I64, "ns", "Start, since the epoch."),
        Column("dur_ns", I64, "ns", "Length."),
        Column("call_ns", I64, "ns", "Start of its call (syscalls.ts_ns)."),
        PID,
        TID,
        CALL_SEQ,
        NAME,
        Column("syscall", SYMBOL, "", "Name of its call."),
        Column("dev", I64, "", "Device of the call's object.", nullable=True),
        Column("path_id", I64, "", "Path of the call's object (paths.path_id).", nullable=True),
        Column("stack_id", I64, "", "Kernel stack on which it slept (stacks).", nullable=True),
        CAUSE,
        Column("filesystem", STR, "", "Filesystem that the stack names, or any."),
        Column("waker_pid", I32, "", "Process that woke it.", nullable=True),
        Column("waker_tid", I32, "", "Thread that woke it.", nullable=True),
        Column("waker_comm", SYMBOL, "", "Name of that thread.", nullable=True, private=COMM),
        Column("placed", BOOL, "", "When it was is known; else it stands at its call's start."),
    ),
)

_CALL_CAUSES = Table(
    "call_causes",
    "one cause of one call's time; those of a call add up to its dur_ns",
    (
        Column("ts_ns", I64, "ns", "Start of the call, since the epoch."),
        PID,
        TID,
        CALL_SEQ,
        NAME,
        Column("syscall", SYMBOL, "", "Name of the call."),
        CAUSE,
        Column("ns", I64, "ns", "Time that went into it."),
    ),
)

_MACHINE_ROWS = " UNION ALL ".join(
    f"SELECT ts_ns, pid, tid, seq, comm, syscall, '{cause}' AS cause, {ns} AS ns FROM syscalls"
    for cause, ns in MACHINE.items()
)


def _waits(con: duckdb.DuckDBPyConnection) -> None:
    begin(con).make("named_waits")


DERIVED = {
    derived.table.name: derived
    for derived in (
        Derived(
            _CALL_WAITS,
            _waits,
            f"SELECT {', '.join(column.name for column in _CALL_WAITS.columns)} FROM named_waits",
        ),
        Derived(
            _CALL_CAUSES,
            _waits,
            "SELECT call_ns AS ts_ns, pid, tid, seq, comm, syscall, cause, "
            "CAST(sum(dur_ns) AS BIGINT) AS ns FROM named_waits GROUP BY ALL "
            f"UNION ALL SELECT * FROM ({_MACHINE_ROWS}) WHERE ns != 0",
        ),
    )
}


def make(con: duckdb.DuckDBPyConnection, words: Iterable[str]) -> None:
    """Make the derived tables among these words, letter case aside, and what they need."""
    wanted = [DERIVED[name] for name in DERIVED if name in {word.lower() for word in words}]
    for step in dict.fromkeys(derived.make for derived in wanted):
        step(con)
    for derived in wanted:
        con.execute(f"CREATE TEMP VIEW {derived.table.name} AS {derived.select}")
