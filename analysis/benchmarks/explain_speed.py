"""Calls per second of ``explain``: python analysis/benchmarks/explain_speed.py.

Writes a synthetic trace (vectorised, real schema) and times ``explain`` from Parquet to answer,
best of three. Prints calls/s, by the clock and by CPU time, peak memory, and the ratio to the CPU
time of a plain scan: DuckDB summing up the same columns, which is the least possible work. With a
trace directory as argument, times that one (for long ones see multiply.py), only once if it is
long.
"""

import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from spoolscope.analysis.explain import explain
from spoolscope.traces.digests import write_meta
from spoolscope.traces.parquet import write_table
from spoolscope.traces.schema import SCHEMA, TABLES
from spoolscope.traces.trace import Trace

READ = {
    "syscalls": (
        "ts_ns", "dur_ns", "oncpu_ns", "blocked_ns", "runq_ns", "preempted_ns", "stolen_ns", "pid",
        "tid", "seq", "comm", "syscall", "dev", "path_id", "errno", "flags", "flags_seen",
    ),
    "segments": (
        "ts_ns", "dur_ns", "pid", "tid", "seq", "state", "stack_id", "dir_id", "name_id", "waker",
        "waker_pid", "waker_tid", "waker_comm", "waker_seq", "held_ns", "held_after_ns", "held_pid",
        "held_comm",
    ),
    "block_ios": (
        "ts_ns", "queue_ns", "device_ns", "dev", "parent_dev", "pid", "tid", "comm", "seq", "op",
        "preflush", "fua",
    ),
    "commits": tuple(column.name for column in TABLES["commits"].columns),
}  # fmt: skip
"""The columns that explain reads, of the tables that grow with the calls."""

N_CALLS = 2_000_000
ROUNDS = 3
LONG = 20_000_000
WAITS_PER_CALL = 0.15  # the mail mix blocks in 5 to 15 % of its calls
N_COMMITS = 20_000
N_THREADS = 200
START = 1_700_000_000_000_000_000
NAMES = ["fsync", "fdatasync", "openat", "close", "rename", "link", "unlink", "newfstatat",
         "pread64", "write", "getdents64", "fcntl"]  # fmt: skip
SHARES = [0.02, 0.02, 0.18, 0.15, 0.02, 0.01, 0.04, 0.26, 0.12, 0.08, 0.02, 0.08]
STACKS = [
    ["__schedule", "schedule", "jbd2_log_wait_commit", "ext4_sync_file"],
    ["__schedule", "schedule", "io_schedule", "folio_wait_bit", "folio_wait_writeback"],
    ["__schedule", "schedule", "submit_bio_wait", "blkdev_issue_flush", "ext4_sync_file"],
    ["__schedule", "rwsem_down_write_slowpath", "down_write", "filename_create", "do_linkat"],
    ["__schedule", "schedule", "pipe_wait_readable", "pipe_read"],
]


def write_trace(path: Path, n: int) -> None:
    """Write a trace of n calls with consistent segments."""
    rng = np.random.default_rng(1)
    tid = rng.integers(1000, 1000 + N_THREADS, n)
    ts = START + np.cumsum(rng.exponential(20_000, n)).astype(np.int64)
    order = np.argsort(tid, kind="stable")
    seq = np.empty(n, np.int64)
    starts = np.searchsorted(tid[order], np.arange(1000, 1000 + N_THREADS))
    seq[order] = np.arange(n) - starts[tid[order] - 1000]
    oncpu = rng.lognormal(8, 1, n).astype(np.int64) + 1
    waiting = np.flatnonzero(rng.random(n) < WAITS_PER_CALL)
    wait = rng.lognormal(14, 1.5, len(waiting)).astype(np.int64) + 1
    blocked = np.zeros(n, np.int64)
    blocked[waiting] = wait
    zero = np.zeros(n, np.int64)
    calls = {
        "ts_ns": ts, "dur_ns": oncpu + blocked, "seq": seq, "pid": tid, "tid": tid, "cpu": zero,
        "comm": _pick(["lmtp", "imap", "cleanup", "qmgr"], tid % 4),
        "syscall": _pick(NAMES, rng.choice(len(NAMES), n, p=SHARES)),
        "path_id": rng.integers(0, 1000, n), "path_base": zero, "path2_base": zero, "ret": zero,
        "errno": zero, "oncpu_ns": oncpu, "blocked_ns": blocked, "runq_ns": zero,
        "preempted_ns": zero, "flags_seen": zero,
    }  # fmt: skip
    segments = {
        "ts_ns": ts[waiting], "dur_ns": wait, "pid": tid[waiting], "tid": tid[waiting],
        "seq": seq[waiting], "state": _pick(["blocked"], zero[waiting]),
        "stack_id": rng.integers(1, len(STACKS) + 1, len(waiting)),
    }  # fmt: skip
    began = ts[:: n // N_COMMITS]
    zeros = np.zeros(len(began), np.int64)
    commits = {
        "ts_ns": began, "dur_ns": np.diff(began, append=began[-1] + 1) // 2, "txn_id": zeros,
        "kind": _pick(["jbd2_commit"], zeros), "tid": zeros + 7, "comm": _pick(["jbd2"], zeros),
        "locking_ns": zeros, "flushing_ns": zeros, "logging_ns": zeros + 1000,
        "trigger": _pick(["timer"], zeros),
    }  # fmt: skip
    frames = [(i + 1, d, f) for i, stack in enumerate(STACKS) for d, f in enumerate(stack)]
    stacks = dict(zip(("stack_id", "depth", "symbol"), zip(*frames, strict=True), strict=True))
    stacks["address"] = [0] * len(frames)
    paths = {
        "path_id": np.arange(1000), "path": [f"u{i}/tmp/{i}.M1P2.host" for i in range(1000)],
        "kind": _pick(["spool"], np.zeros(1000, np.int64)), "spool": np.zeros(1000, np.int64),
    }  # fmt: skip
    counts = dict.fromkeys(TABLES, 0)
    for name, columns in (
        ("syscalls", calls),
        ("segments", segments),
        ("stacks", stacks),
        ("paths", paths),
        ("commits", commits),
    ):
        counts[name] = write_table(path, name, columns)
    meta = {"schema": SCHEMA, "complete": True, "lost": 0, "tier": "T2", "counts": counts}
    write_meta(path, meta)


def _pick(words: list[str], index: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), words)


def scan(path: Path) -> None:
    """Read the columns, and nothing else."""
    with Trace.open(path).connect() as con:
        for table, columns in READ.items():
            seen = ", ".join(f"max({name})" for name in columns)
            con.execute(f"SELECT {seen} FROM {table}").fetchall()


def cpu_s(work: Callable[[Path], object], path: Path) -> float:
    """Return the least CPU seconds of some work in a few rounds."""
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work(path)
        took.append(time.process_time() - began)
    return min(took)


def main() -> None:
    """Time explain and print one line."""
    with tempfile.TemporaryDirectory(prefix="spoolscope-bench-", dir="/var/tmp") as scratch:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch)
        if len(sys.argv) == 1:
            # In another process, so that the peak of memory is that of explain.
            writer = multiprocessing.Process(target=write_trace, args=(path, N_CALLS))
            writer.start()
            writer.join()
        best = cpu = float("inf")
        rounds = 0
        while True:
            began, spent = time.perf_counter(), time.process_time()
            found = explain(path)
            best = min(best, time.perf_counter() - began)
            cpu = min(cpu, time.process_time() - spent)
            rounds += 1
            if rounds == ROUNDS or found.n_calls > LONG:
                break
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        plain = cpu_s(scan, path)
    print(
        f"explain: {found.n_calls:,} calls in {best:.2f} s, "
        f"{found.n_calls / best / 1e6:.2f} M calls/s, "
        f"{found.n_calls / cpu / 1e6:.2f} M per CPU second, {cpu / plain:.1f} times a plain scan, "
        f"sum error {found.split.sum_error_ns} ns, peak {memory:,.0f} MB"
    )


if __name__ == "__main__":
    main()
