"""Make a long trace from a short real one: python analysis/benchmarks/multiply.py TRACE N OUT.

Copy k of N has its times shifted by k times the length of the recording and its thread ids by k
times the highest, so that calls, segments, commits and requests match as before and copies do not
mix. Stacks are those of the original, paths too unless --own-names: then each copy has its own
directory and files.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spoolscope.traces.digests import write_meta
from spoolscope.traces.parquet import ROW_GROUP, write_parts, write_table
from spoolscope.traces.schema import TABLES
from spoolscope.traces.trace import Trace

TIMES = ("ts_ns", "start_ns", "end_ns")
# Each copy has its own threads, kernel threads too.
SHIFTED = ("pid", "tid", "parent_pid", "parent_tid", "waker_pid", "waker_tid", "trigger_pid",
           "trigger_tid", "holder_pid", "holder_tid", "owner_pid", "owner_tid")  # fmt: skip
PATHS = ("path_id", "path2_id", "cwd_id", "target_id", "dir_id", "name_id")
FILES = ("ino",)
ONCE = {"stacks", "paths", "tree", "open_files", "held_locks", "mappings", "losses"}
NAMES = {"paths", "tree"}


@dataclass(frozen=True)
class Step:
    """Shift from one copy to the next: ns, thread ids, path ids and inode numbers."""

    ns: int
    tids: int
    paths: int
    inodes: int


def shifted(table: pa.Table, k: int, step: Step) -> pa.Table:
    """Return copy k of a table."""
    steps = ((TIMES, step.ns), (SHIFTED, step.tids), (PATHS, step.paths), (FILES, step.inodes))
    for names, by in steps:
        for name in set(names) & set(table.column_names) if by else ():
            at = table.column_names.index(name)
            kind = table.schema.field(name).type
            moved = pc.add(table[name], pa.scalar(k * by, kind))
            table = table.set_column(at, name, moved)
    if step.paths and "path" in table.column_names:
        joined = pc.binary_join_element_wise(f"copy{k}", table["path"], "/")
        below = pc.utf8_rtrim(joined, "/")  # the spool itself has an empty path
        inside = pc.equal(table["kind"].cast(pa.string()), "spool")
        at = table.column_names.index("path")
        table = table.set_column(at, "path", pc.if_else(inside, below, table["path"]))
    return table


def copies(table: pa.Table, n: int, step: Step) -> Iterator[dict[str, Any]]:
    """Yield n copies one after the other, in parts of whole row groups."""
    waiting: list[pa.Table] = []
    for k in range(n):
        waiting.append(shifted(table, k, step))
        rows = sum(part.num_rows for part in waiting)
        if rows >= 8 * ROW_GROUP or k == n - 1:
            whole = pa.concat_tables(waiting).unify_dictionaries()
            cut = rows if k == n - 1 else rows - rows % ROW_GROUP
            yield columns_of(whole.slice(0, cut))
            waiting = [whole.slice(cut)]


def columns_of(table: pa.Table) -> dict[str, Any]:
    return {name: table[name].combine_chunks() for name in table.column_names}


def multiply(source: Path, n: int, out: Path, *, own_names: bool) -> None:
    """Write n copies of a trace as one trace."""
    trace = Trace.open(source)
    out.mkdir(parents=True)
    length = int(trace.meta["duration_ns"]) + 10**9
    n_tids = int(pc.max(trace.table("threads", ["tid"])["tid"]).as_py()) + 1
    n_paths = int(trace.meta["counts"]["paths"])
    step = Step(length, n_tids, n_paths, 1 << 40) if own_names else Step(length, n_tids, 0, 0)
    counts = {}
    for name in TABLES:
        table = trace.table(name)
        if not table.num_rows:
            counts[name] = 0
        elif name in (ONCE - NAMES if own_names else ONCE):
            counts[name] = write_table(out, name, columns_of(table))
        else:
            counts[name] = write_parts(out, name, copies(table, n, step))
    meta = trace.meta | {"duration_ns": n * length, "counts": counts}
    write_meta(out, meta)
    print(f"{counts['syscalls']:,} calls in {out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("n", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--own-names", action="store_true")
    options = parser.parse_args()
    multiply(options.trace, options.n, options.out, own_names=options.own_names)


if __name__ == "__main__":
    main()
