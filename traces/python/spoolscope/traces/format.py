"""Print FORMAT.md: ``python -m spoolscope.traces.format > traces/FORMAT.md``."""

from spoolscope.traces.columns import Column, Table
from spoolscope.traces.parquet import ROW_GROUP
from spoolscope.traces.schema import SCHEMA, TABLES

META_FIELDS = (
    ("schema", "Name and version of this format."),
    ("version", "Version of the spoolscope that wrote it."),
    ("kernel, arch, cpus", "Machine: release, architecture, number of CPUs."),
    ("start_ns, duration_ns", "Start since the epoch and length, in nanoseconds."),
    (
        "clock_drift_ns",
        "How far the wall clock was set against the clock of the trace meanwhile; null after a "
        "crash.",
    ),
    (
        "spools",
        "Filesystems recorded: mount, fstype, options, source, dev, size_bytes, features (of ext2, "
        "ext3 and ext4, e.g. dir_index; null if unknown), part (only the directory mount of the "
        "filesystem was recorded), unmounted_ns: when it was found unmounted meanwhile, since the "
        "epoch, else null; names in mount, options and source are hidden as in the tables.",
    ),
    ("tier", "T0: calls; T1: and the split of their time; T2: and journals and block requests."),
    (
        "programs",
        "Kernel programs: attached; missing, with the reason of each; unloaded: those of the "
        "missing whose filesystem was not in the kernel; instead: what does the work of a missing "
        "one, where it is attached.",
    ),
    ("complete", "True if nothing was lost and the recording ended in order."),
    ("segment", "Which part of a rotated recording this is, from 1."),
    ("ended", "Why the recorder ended: asked, command ended, disk full; null if it did not say."),
    (
        "frozen",
        "A flight recorder's trace: why and when it was frozen, by which rule, length of the "
        "window; what did it, else null: a call by tid and ts_ns; in_flight, a call that had not "
        "returned and is in no table: since ts_ns, its path_id (of the directory in which it "
        "looked a name up, if in_directory), frames: functions of the kernel in which it slept, "
        "innermost first; lock, held since ts_ns, waiters: how many waited for it; commits: n "
        "from ts_ns on within dur_ns.",
    ),
    ("lost", "Number of calls lost; the table losses says where."),
    ("shed", "Number of reads and writes left out to keep to --max-overhead."),
    ("overhead_ppm", "Median and p95 share of all CPUs that recording took, in 1e-6."),
    ("sample_hz", "How often every CPU was looked at for the table samples; 0: never."),
    ("paths_unresolved", "Calls on the spool whose path is not known."),
    ("compat_calls", "Calls of 32-bit programs, which are not decoded: they are in no table."),
    (
        "calls_apart",
        "Calls of threads that do not share the working directory or the descriptors of their "
        "process (unshare): they are attributed as if they did, and their names may be wrong.",
    ),
    (
        "calls_through_descriptors",
        "Calls by names below /proc/self/fd/N, where descriptor N is of a directory of a spool: "
        "they are in no table.",
    ),
    ("aio_calls", "Calls of io_submit whose first request is on a spool: they are in no table."),
    (
        "calls_unjudged, unjudged",
        "Calls by absolute names of processes with another root or mounts that have a spool, "
        "at which the recorder had not looked yet, or more of whose names of the spools than "
        "the kernel keeps: whether they were about a spool is not known. How many; "
        "and for each root directory comm, pid and cgroup of the first one, hidden as in tables, "
        "calls, and why: not looked at, many names.",
    ),
    (
        "edge",
        "Of a spool that is a directory of its filesystem (part in spools): calls that succeeded "
        "with one name on it and one outside (renamed_in, renamed_out, linked_in, linked_out), and "
        "linked_elsewhere: files of the snapshot with names outside, by which they can be changed "
        "unseen. Else null.",
    ),
    (
        "snapshot_ns",
        "The moment that tree, open_files and cwd_id show; calls before it took effect.",
    ),
    (
        "snapshot",
        "What tree shows, by kind: full (all), touched (the directories that calls use), none, or "
        "partial: the recording ended, or the spool was gone, before all was seen. Of full and "
        "partial read_bytes: what was read from disks for it, and so was not in memory before, but "
        "was when the recording began; null unknown. Of touched "
        "how many directories were listed, and how many were not there, or not yet "
        "listed at the end.",
    ),
    ("calls_in_flight", "Calls that had not returned when the recording ended."),
    (
        "under_way",
        "Of these the longest, which are in no table: begin, length so far, pid, tid, comm, call, "
        "path_id of the file, or in_directory of the directory in which a name is looked up, and "
        "the functions of the stack on which it sleeps; none if it runs.",
    ),
    ("requests_unfinished", "Block requests whose completion was not seen: in flight, or missed."),
    (
        "requests_not_completed",
        "Block requests whose completion the kernel did not report, as another took their place.",
    ),
    ("pseudonymised, key_id", "True if names were replaced by keyed hashes; which key it was."),
    (
        "program_names",
        "Names of programs, threads, units and control groups: kept; private hidden: those that "
        "name a component of the spool's paths, a mailbox, a local user or the host; or all "
        "hidden. A hidden one begins with '+'.",
    ),
    (
        "unbooked",
        "Why the names could not be written into the operator's book beside the key, which "
        "--names reads; null if they were, or none is kept.",
    ),
    (
        "filter",
        "What was asked for: command, pids, units, cgroups, exes, comms.",
    ),
    (
        "io_limits",
        "Limits of control groups on block I/O: cgroup, dev, and of read_bps, write_bps, read_iops "
        "and write_iops those that there are; cgroup is hidden as in the tables.",
    ),
    (
        "block_trace",
        "How block_stages came about: disks, by (blktrace, ftrace), lost; or null.",
    ),
    (
        "user_stacks",
        "Which code made calls: stacks, calls of which it is known, unknown: calls of processes "
        "that had ended before it was read; null without record --user-stacks.",
    ),
    (
        "imported",
        "Of a trace that was not recorded but made of what another program wrote: from; lines; "
        "not_understood; unfinished calls; unplaced: calls that may have been on the spool; "
        "without_parent: threads made during the recording by unknown ones; "
        "names_cut; without_duration: dur_ns is 0; set_back: how often the clock was; "
        "other_calls that name the spool, or may read and write there, by name; whole: "
        "nothing is missing. Inodes are then numbers that tell objects apart, and all of dur_ns "
        "is blocked_ns, as nothing divides it. Of a block trace (blktrace, blkparse, ftrace): "
        "from; files; events; lost; foreign_bytes or lines, other_lines and not_understood; times: "
        "relative if the change of the file counts as its end; there are no calls then. Else null.",
    ),
    ("counts", "Rows of every table; a table of another length is damaged."),
    (
        "digests",
        "BLAKE2b of 16 bytes, in hex, of the file of every table; one that has another is damaged. "
        "Missing, as digest, in older traces.",
    ),
    (
        "digest",
        "The same of meta.json itself: of its JSON without this field, with sorted keys, without "
        "spaces and with all but ASCII escaped.",
    ),
)

INTRO = f"""\
# The trace format, `{SCHEMA}`

Generated by `python -m spoolscope.traces.format`; a test compares. Do not edit.

A trace is a directory: `meta.json` and one Parquet file per table, `<table>.parquet`. An empty
table may have no file. Mail content is never in it.

Rules for every table:

* integers are signed and times are int64 nanoseconds: no logical timestamp types, which Spark
  refuses; `ts_ns` counts from the epoch and steps with the monotonic clock of the recording;
* a null means "not known" or "no such argument"; 0 is a measured zero;
* zstd level 6, row groups of {ROW_GROUP:,} rows, DELTA on `ts_ns`, page index, a bloom filter on
  `path_id` where pyarrow writes one, and the metadata of meta.json in the footer;
* columns marked *symbol* are dictionary-encoded strings;
* versions: new nullable columns and new tables may be added within a version of the schema;
  anything else changes its number, and a reader refuses a number that it does not know.

For every call, exactly: `dur_ns = oncpu_ns + blocked_ns + runq_ns + preempted_ns`.

The native capture that a trace is converted from, and the plan that a replay runs, are described
member by member in `include/`; the calls in `calls.txt`.
"""

HISTORY = """\
## History

| schema | changes |
|---|---|
| spoolscope/1 | first version |
"""


def text() -> str:
    """Return the whole of FORMAT.md."""
    parts = [INTRO, _meta(), *(table_text(t) for t in TABLES.values()), HISTORY]
    return "\n".join(parts)


def _meta() -> str:
    rows = [f"| {', '.join(f'`{n}`' for n in k.split(', '))} | {v} |" for k, v in META_FIELDS]
    return "\n".join(["## meta.json", "", "| field | meaning |", "|---|---|", *rows, ""])


def table_text(table: Table) -> str:
    """Return the section of FORMAT.md on a table: every column with its type, unit and meaning."""
    order = f" Rows are sorted by `{table.sorted_by}`." if table.sorted_by else ""
    head = [f"## {table.name}", "", f"One row is {table.row}.{order}", ""]
    head += ["| column | type | unit | meaning |", "|---|---|---|---|"]
    return "\n".join([*head, *map(_row, table.columns), ""])


def _row(column: Column) -> str:
    kind = "symbol" if str(column.type).startswith("dictionary") else str(column.type)
    null = "?" if column.nullable else ""
    meaning = column.meaning.replace("|", "\\|")
    return f"| `{column.name}` | {kind}{null} | {column.unit} | {meaning} |"


if __name__ == "__main__":
    print(text(), end="")
