"""Write a long trace out of a short real one: python analysis/benchmarks/multiply.py TRACE N OUT.

Copy k of N has its times shifted by k times the length of the recording and its thread ids by
k times their range, so that calls, segments, commits and requests go together as they did and
no two copies meet. Paths and stacks are those of the original.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spoolscope.traces.parquet import ROW_GROUP, write_parts, write_table
from spoolscope.traces.schema import TABLES
from spoolscope.traces.trace import Trace

TIMES = ("ts_ns", "start_ns", "end_ns")
# Every thread is one of its copy, kernel threads too.
SHIFTED = ("pid", "tid", "parent_pid", "parent_tid", "waker_pid", "waker_tid", "trigger_pid",
           "trigger_tid", "holder_pid", "holder_tid", "owner_pid", "owner_tid")  # fmt: skip
ONCE = {"stacks", "paths", "tree", "open_files", "held_locks", "mappings", "losses"}


def shifted(table: pa.Table, ns: int, tids: int) -> pa.Table:
    """Return a copy of a table that happened ``ns`` later to threads numbered ``tids`` higher."""
    for names, by in ((TIMES, ns), (SHIFTED, tids)):
        for name in set(names) & set(table.column_names):
            at = table.column_names.index(name)
            kind = table.schema.field(name).type
            moved = pc.add(table[name], pa.scalar(by, kind))
            table = table.set_column(at, name, moved)
    return table


def copies(table: pa.Table, n: int, length_ns: int, n_tids: int) -> Iterator[dict[str, Any]]:
    """Yield n copies one after the other, in parts of whole row groups."""
    waiting: list[pa.Table] = []
    for k in range(n):
        waiting.append(shifted(table, k * length_ns, k * n_tids))
        rows = sum(part.num_rows for part in waiting)
        if rows >= 8 * ROW_GROUP or k == n - 1:
            whole = pa.concat_tables(waiting).unify_dictionaries()
            cut = rows if k == n - 1 else rows - rows % ROW_GROUP
            yield columns_of(whole.slice(0, cut))
            waiting = [whole.slice(cut)]


def columns_of(table: pa.Table) -> dict[str, Any]:
    return {name: table[name].combine_chunks() for name in table.column_names}


def multiply(source: Path, n: int, out: Path) -> None:
    """Write n copies of a trace as one trace."""
    trace = Trace.open(source)
    out.mkdir(parents=True)
    length = int(trace.meta["duration_ns"]) + 10**9
    tids = np.asarray(trace.table("syscalls", ["tid"])["tid"])
    n_tids = int(tids.max() - tids.min()) + 1
    counts = {}
    for name in TABLES:
        table = trace.table(name)
        if not table.num_rows:
            counts[name] = 0
        elif name in ONCE:
            counts[name] = write_table(out, name, columns_of(table))
        else:
            counts[name] = write_parts(out, name, copies(table, n, length, n_tids))
    meta = trace.meta | {"duration_ns": n * length, "counts": counts}
    (out / "meta.json").write_text(json.dumps(meta))
    print(f"{counts['syscalls']:,} calls in {out}")


if __name__ == "__main__":
    multiply(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
