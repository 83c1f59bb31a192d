"""The tables of roll-ups: every column with its unit and meaning."""

from spoolscope.traces.columns import COMM, GROUP, I16, I32, I64, PATH, STR, Column, Table

CHANGES = {
    1: "first version",
}
"""Changes by version. A version adds columns that may be null, or tables, and removes nothing."""

VERSION = max(CHANGES)
"""Version of these tables. A reader takes all versions up to this one."""

CALL = "call"
"""The cause of the rows that hold the whole duration of calls."""

_MINUTE = Column("minute_s", I64, "s", "Start of the minute, since the epoch.")
_DEV = Column("dev", I64, "", "Device of the spool's filesystem, major << 20 | minor.")
_COMM = Column("comm", STR, "", "Name of the calling thread.", private=COMM)
_UNIT = Column(
    "unit", STR, "", "Its systemd unit, else its cgroup; empty if unknown.", private=GROUP
)

CALLS = Table(
    "calls",
    "calls of one minute that are alike, by the part of their time",
    (
        _MINUTE,
        _DEV,
        _COMM,
        _UNIT,
        Column("syscall", STR, "", "Name of the call, without prefix."),
        Column(
            "cause",
            STR,
            "",
            "'call': the whole call; else the cause of a part of its time. "
            "The sums of the causes are that of 'call'.",
        ),
        Column(
            "size_class",
            I16,
            "",
            "Binary logarithm of the bytes asked for, rounded down; -1: none.",
        ),
        Column("failed", I16, "", "1: the calls failed; 0: they did not."),
        Column("bucket", I16, "", "Log-linear bucket (32 to a doubling) of the time of one call."),
        Column("n", I64, "", "Calls: for a cause those that met it."),
        Column("sum_ns", I64, "ns", "Their time, or the part of it that the cause took, exactly."),
    ),
    sorted_by="minute_s",
)

COMMITS = Table(
    "commits",
    "journal commits of one minute that one program's calls asked for",
    (
        _MINUTE,
        _DEV,
        _COMM,
        _UNIT,
        Column("n", I64, "", "Commits; those of no call (a timer) have an empty comm."),
        Column("sum_ns", I64, "ns", "Time that they took."),
        Column("max_ns", I64, "ns", "Time of the longest."),
    ),
    sorted_by="minute_s",
)

DIRECTORIES = Table(
    "directories",
    "look-ups in one directory in one minute; the costliest directories only",
    (
        _MINUTE,
        _DEV,
        Column("directory", STR, "", "Path of the directory.", private=PATH),
        Column("n", I64, "", "Calls that met a wait in it."),
        Column("sum_ns", I64, "ns", "Time that they waited for its blocks or its lock."),
    ),
    sorted_by="minute_s",
)

MINUTES = Table(
    "minutes",
    "one minute of one spool: what was seen, what is missing, and under which conditions",
    (
        _MINUTE,
        _DEV,
        Column("seq", I64, "", "Counter of this recorder's minutes from 0; a hole: they are lost."),
        Column("boot_id", STR, "", "Identity of the boot, a new one after each start."),
        Column("recorder_id", STR, "", "Identity of this run of the recorder."),
        Column("covered_ns", I64, "ns", "Part of the minute for which the recorder was on."),
        Column("clock_step_ns", I64, "ns", "Change of the wall clock against the monotonic one."),
        Column("calls", I64, "", "Calls that were summed."),
        Column("lost", I64, "", "Calls that are in no row, as a table of the kernel was full."),
        Column("recorder_ns", I64, "ns", "CPU time of the recorder, that in the kernel included."),
        Column("cpus", I32, "", "CPUs of the machine."),
        Column("fs", STR, "", "Type of the filesystem."),
        Column("options", STR, "", "Its mount options, as in /proc/self/mountinfo."),
        Column("device", STR, "", "Model of its disk; empty if unknown."),
        Column("kernel", STR, "", "Release of the kernel."),
        Column("tool", STR, "", "Version of spoolscope."),
    ),
    sorted_by="minute_s",
)

ROLLUPS = {table.name: table for table in (CALLS, COMMITS, DIRECTORIES, MINUTES)}

MEASURES = {"n": "sum", "sum_ns": "sum", "max_ns": "max"}
"""How the columns that are not keys are merged where all keys are equal."""
