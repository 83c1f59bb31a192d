"""Speed of ``explain`` and ``report``: python analysis/benchmarks/explain_speed.py.

Runs both, each in a process of its own from its start to its answer, best of three, once if the
trace is long. Prints seconds by the clock, CPU seconds (user and system, all threads), calls per
CPU second, peak memory, and the ratio to the CPU time of a plain scan: DuckDB reading the columns
that explain reads, and nothing else.

The trace is synthetic (vectorised, real schema), a shipped sample so many times (--copies, see
multiply.py), or one that is given.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from multiply import multiply

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

SAMPLE = Path(__file__).parents[2] / "traces/samples/postfix-dovecot"
N_CALLS = 2_000_000
ROUNDS = 3
LONG = 5_000_000
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
    """Read the columns, and nothing else; max alone would be answered from statistics."""
    with Trace.open(path).connect() as con:
        for table, columns in READ.items():
            types = {name: kind for name, kind, *_ in con.execute(f"DESCRIBE {table}").fetchall()}
            sums = {"VARCHAR": "max", "BOOLEAN": "bool_or"}
            seen = ", ".join(f"{sums.get(types[name], 'bit_xor')}({name})" for name in columns)
            con.execute(f"SELECT {seen} FROM {table}").fetchall()


SPOOLSCOPE = str(Path(sys.executable).with_name("spoolscope"))
WORKS = {
    "scan": (sys.executable, __file__, "{trace}", "--only", "scan"),
    "explain": (SPOOLSCOPE, "explain", "{trace}", "--json", "--quiet"),
    "report": (SPOOLSCOPE, "report", "{trace}", "-o", "{out}", "--force", "--quiet"),
}
"""Commands, of which the first is this program."""


@dataclass(frozen=True)
class Cost:
    """Cost of a process: seconds by the clock and of CPUs, and peak memory."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def cost(work: str, trace: Path, out: Path, rounds: int) -> Cost:
    """Return the round with the least CPU time."""
    command = [word.format(trace=trace, out=out) for word in WORKS[work]]
    return min((_run(command) for _ in range(rounds)), key=lambda one: one.cpu_s)


def _run(command: list[str]) -> Cost:
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)  # explain: not 0 if a sum is wrong
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {child.returncode}")
    wall_s = time.perf_counter() - began
    return Cost(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> None:
    """Time both and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path, nargs="?")
    parser.add_argument("--copies", type=int, help="Take the sample (or TRACE) so many times.")
    parser.add_argument("--only", choices=tuple(WORKS), help="Do this alone.")
    options = parser.parse_args()
    if options.only == "scan":
        scan(options.trace)
        return
    with tempfile.TemporaryDirectory(prefix="spoolscope-bench-", dir="/var/tmp") as scratch:
        trace, out = options.trace or SAMPLE, Path(scratch) / "report.html"
        if options.copies:
            source, trace = trace, Path(scratch) / "trace"
            multiply(source, options.copies, trace, own_names=False)
        elif options.trace is None:
            trace = Path(scratch) / "trace"
            trace.mkdir()
            write_trace(trace, N_CALLS)
        n = int(Trace.open(trace).meta["counts"]["syscalls"])
        rounds = 1 if n > LONG else ROUNDS
        plain = cost("scan", trace, out, rounds)
        for work in [options.only] if options.only else WORKS:
            one = plain if work == "scan" else cost(work, trace, out, rounds)
            print(
                f"{work}: {n:,} calls in {one.wall_s:.1f} s, {one.cpu_s:.2f} CPU seconds, "
                f"{n / one.cpu_s / 1e6:.2f} M calls per CPU second, "
                f"{one.cpu_s / plain.cpu_s:.1f} times a plain scan, peak {one.peak_mb:,.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
