"""How much memory each step of a replay needs, for plans of a million calls and more.

The plan of a trace is repeated as often as needed, each copy after the one before it, and in a
directory of its own unless --same-names. Threads that lasted from the beginning to the end go on;
each copy has the others for itself, and ends them. Every step runs in a memory
cgroup that allows --limit MiB, page cache included, without swap. Prints the peak of what the
kernel cannot reclaim (anonymous and shared anonymous memory of all processes of the step), and
whether the step ended. Needs root.

The first step reads the trace itself: give it a long one, made by analysis/benchmarks/multiply.py,
to see that planning does not grow either.
"""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import engine_speed
import numpy as np
import numpy.typing as npt

from spoolscope.replay.ops import EXIT, FORK, pseudo
from spoolscope.replay.outcomes import read_plan
from spoolscope.replay.scaled import users
from spoolscope.traces.flat import DTYPES, NO_CALL_ROW, NONE
from spoolscope.traces.native import find_binary

SECTIONS = {"threads": "plan_thread", "ops": "plan_op", "entries": "plan_entry", "fds": "plan_fd",
            "xattrs": "plan_xattr"}  # fmt: skip
PATHS = {"threads": ("cwd",), "ops": ("path", "path2"), "entries": ("path", "target"),
         "fds": ("path",), "xattrs": ("path", "name")}  # fmt: skip
CGROUPS = Path("/sys/fs/cgroup")
V1_KINDS = ("total_rss", "total_shmem")
POLL_S = 0.02
JUDGE = """
import sys
from pathlib import Path
from types import SimpleNamespace
from spoolscope.replay.differences import Types
from spoolscope.replay.divergences import judge, ties_of
from spoolscope.replay.engine import Engine
from spoolscope.replay.fidelity import Conditions, fidelity
from spoolscope.replay.outcomes import read_outcomes, read_plan, write_parquet
from spoolscope.replay.pace import parse_pace
plan, outcomes = read_plan(Path(sys.argv[1])), read_outcomes(Path(sys.argv[2]))
planned = SimpleNamespace(
    syscalls=len(outcomes), before_start=0, in_flight=0, strangers=0, elsewhere=0, left_out={}
)
ties = ties_of(Engine(Path(sys.argv[1])), outcomes, Path(sys.argv[2]))
judge(plan, outcomes, Types(frozenset(["ext4"]), "ext4"), ties)
fidelity(plan, outcomes, planned, Conditions(parse_pace("original"), {}, 0, True))
write_parquet(plan, outcomes, Path(sys.argv[3]))
"""
BUILD = """
import sys
from pathlib import Path
from spoolscope.replay.plan import build
from spoolscope.traces.trace import Trace
build(Trace.open(sys.argv[1]), Path(sys.argv[2]))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, help="trace directory")
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--limit", type=int, default=256, help="MiB that a step may have")
    parser.add_argument("--same-names", action="store_true", help="copies share their directory")
    parser.add_argument("--work", type=Path, default=Path("/var/tmp"), help="for plan and target")
    options = parser.parse_args()
    trace = options.trace or engine_speed.shipped_trace()
    if trace is None:
        print("no trace: give --trace, or make the sample first")
        return 0
    with tempfile.TemporaryDirectory(prefix="spoolscope-bench-", dir=options.work) as scratch:
        limit = options.limit << 20
        measure(trace, options.calls, Path(scratch), limit, own_names=not options.same_names)
    return 0


def measure(trace: Path, calls: int, place: Path, limit: int, *, own_names: bool) -> None:
    """Print the peak memory of each step, in bytes at most ``limit``."""

    def step(name: str, *words: object) -> None:
        print(f"{name:<26}{limited(limit, *words)}", flush=True)

    step("plan of the trace itself", sys.executable, "-c", BUILD, trace, place / "one")
    n_ops = repeat(place / "one", calls, place / "plan", own_names=own_names)
    evict(place / "plan")
    binary, target = find_binary("spoolscope-replay"), place / "target"
    target.mkdir()
    print(f"{n_ops:,} operations, plan of {(place / 'plan').stat().st_size / 2**20:,.0f} MiB")
    step("check and order", binary, "order", place / "plan")
    step("explain", binary, "explain", place / "plan")
    for name, words in derivations(place / "plan", place / "users").items():
        shutil.copy(place / "plan", place / "derived")
        evict(place / "derived")
        step(f"derive: {name}", binary, "derive", place / "derived", *words)
        (place / "derived").unlink()
    step("fixture", binary, "fixture", place / "plan", "--target", target)
    step("run (no calls made)", binary, "run", place / "plan", "--target", target, "--prepared",
         "--pace", "afap", "--noop", "--outcomes", place / "outcomes")  # fmt: skip
    step("judge", sys.executable, "-c", JUDGE, place / "plan", place / "outcomes", place / "out")
    shutil.rmtree(target)


def derivations(plan: Path, listed: Path) -> dict[str, list[object]]:
    """Return arguments of ``derive`` by what they ask for; the users are listed in a file."""
    read = read_plan(plan)
    end_ns = int(read.ops["end_ns"][-1])
    listed.write_bytes(b"\0".join(users(read)))
    return {
        "a slice": ["--from-ns", end_ns // 10, "--to-ns", end_ns * 9 // 10],
        "some processes": ["--only", "imap", "--only", "lmtp"],
        "twice the users": ["--users", listed, "--begin", 1, "--window-ns", end_ns // 10],
    }


@dataclass(frozen=True)
class Used:
    """Need of a program: its status, peak unreclaimable bytes, and seconds on CPUs and clock."""

    status: int
    peak_bytes: int
    cpu_s: float
    wall_s: float

    def __str__(self) -> str:
        """Return it as a row of the table."""
        said = "" if self.status == 0 else f" FAILED ({self.status})"
        times = f"{self.cpu_s:>9.2f} CPU-s{self.wall_s:>8.1f} s"
        return f"{self.peak_bytes / 2**20:>8,.0f} MiB{times}{said}"


def limited(limit: int, *words: object) -> Used:
    """Run a program in a memory cgroup of its own that allows ``limit`` bytes."""
    v2 = (CGROUPS / "cgroup.controllers").exists()
    group = (CGROUPS if v2 else CGROUPS / "memory") / f"spoolscope-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(str(limit))
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            (group / "cgroup.procs").write_text(str(os.getpid()))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.execv(str(words[0]), [str(word) for word in words])
        peak, ended = 0, 0
        while not ended:
            time.sleep(POLL_S)
            peak = max(peak, unreclaimable(group, ("anon", "shmem") if v2 else V1_KINDS))
            ended, status, used = os.wait4(child, os.WNOHANG)
        wall_s = time.monotonic() - began
        return Used(status, peak, used.ru_utime + used.ru_stime, wall_s)
    finally:
        _end(group)


def _end(group: Path) -> None:
    """Kill what a program left in its cgroup, and remove that."""
    while pids := (group / "cgroup.procs").read_text().split():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(POLL_S)
    group.rmdir()


def unreclaimable(group: Path, kinds: tuple[str, ...]) -> int:
    """Return the bytes of these kinds that the processes of a cgroup have."""
    rows = (line.split() for line in (group / "memory.stat").read_text().splitlines())
    return sum(int(value) for name, value in rows if name in kinds)


def evict(file: Path) -> None:
    """Drop a file from the page cache, so that its next reader is charged for it."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def repeat(one: Path, calls: int, out: Path, *, own_names: bool = True) -> int:
    """Write a plan that is another one over and over; return the number of operations.

    ``own_names``: each copy has a directory of its own; else all work on the same names, and what
    the first leaves there explains few results of the others.
    """
    raw = np.fromfile(one, np.uint8)
    header = raw[: DTYPES["plan_header"].itemsize].view(DTYPES["plan_header"])[0].copy()
    parts = {name: _section(raw, header, f"{name}_at", DTYPES[kind], int(header[f"n_{name}"]))
             for name, kind in SECTIONS.items()}  # fmt: skip
    n_strings = int(header["n_strings"])
    index = _section(raw, header, "string_index_at", np.dtype(np.uint64), n_strings + 1)
    at = int(header["string_bytes_at"])
    strings = [raw[at + int(a) : at + int(b)].tobytes() for a, b in pairwise(index)]
    n = -(-calls // int((parts["ops"]["call"] != NO_CALL_ROW).sum()))
    threads = Threads(parts["threads"], parts["ops"])
    length = int(max(header["duration_ns"], parts["ops"]["end_ns"].max())) + 2
    # Threads that came later and were still there at the end of the trace end with their copy.
    ends = pseudo(EXIT, np.flatnonzero(threads.linger), np.int64(length - 1))
    parts["ops"] = np.concatenate([parts["ops"], ends])
    flat = strings
    if own_names:
        flat = [string for number in range(n) for string in _prefixed(number, strings)]
    sizes = np.cumsum([0, *map(len, flat)]).astype(np.uint64)
    header["n_strings"], header["string_bytes"] = len(flat), int(sizes[-1])
    header["duration_ns"] = n * length
    at = header.dtype.itemsize
    with out.open("wb") as file:
        file.seek(at)
        for name, rows in parts.items():
            header[f"{name}_at"] = began = file.tell()
            if name == "entries" and own_names:
                file.write(_directories(n, n_strings + 1).tobytes())
            apart = n_strings + 1 if own_names else 0
            once = name in ("entries", "xattrs") and not own_names
            for number in range(1 if once else n):
                file.write(_moved(name, rows, number, apart, length, threads).tobytes())
            header[f"n_{name}"] = (file.tell() - began) // rows.dtype.itemsize
            file.write(bytes(-file.tell() % 8))
        for key, data in (
            ("string_index_at", sizes.tobytes()),
            ("string_bytes_at", b"".join(flat)),
        ):
            header[key] = file.tell()
            file.write(data + bytes(-len(data) % 8))
        file.seek(0)
        file.write(header.tobytes())
    return int(header["n_ops"])


def _section(raw: npt.NDArray[np.uint8], header: Any, at: str, dtype: Any, n: int) -> Any:
    return raw[int(header[at]) : int(header[at]) + n * dtype.itemsize].view(dtype)


def _prefixed(number: int, strings: list[bytes]) -> list[bytes]:
    """Return the strings of a copy, below its directory, which is the last of them."""
    below = b"copy%d" % number
    return [*(below + b"/" + text if text else below for text in strings), below]


def _directories(n: int, n_strings: int) -> Any:
    rows = np.zeros(n, DTYPES["plan_entry"])
    rows["path"], rows["target"] = (np.arange(n) + 1) * n_strings - 1, NONE
    rows["mode"] = 0o040755
    return rows


class Threads:
    """Threads of the copies: those that lasted are common to all, the others are in each."""

    def __init__(self, threads: Any, ops: Any) -> None:
        """Find the threads that lasted: neither forked nor ended in the plan."""
        ended = np.zeros(len(threads), bool)
        ended[ops["thread"][ops["op"] == EXIT]] = True
        self.lasted = (threads["parent"] == NONE) & (threads["start_ns"] == 0) & ~ended
        self.linger = ~self.lasted & ~ended
        self._rank = np.cumsum(~self.lasted) - 1

    def of(self, indices: Any, number: int) -> Any:
        """Return the indices that threads of the plan have in a copy."""
        if number == 0:
            return indices
        others = int((~self.lasted).sum())
        moved = len(self.lasted) + (number - 1) * others + self._rank[indices]
        return np.where(self.lasted[indices], indices, moved)


def _moved(name: str, rows: Any, number: int, n_strings: int, length: int, threads: Threads) -> Any:
    if number and name in ("threads", "fds"):
        own = ~(threads.lasted if name == "threads" else threads.lasted[rows["thread"]])
        rows = rows[own]
    moved = rows.copy()
    for column in PATHS[name]:
        known = moved[column] != NONE
        moved[column][known] += number * n_strings
    if name == "threads":
        known = moved["parent"] != NONE
        moved["parent"][known] = threads.of(moved["parent"][known], number)
        moved["start_ns"] += number * length
    if name == "ops":
        moved["start_ns"] += number * length
        moved["end_ns"] += number * length
        forks = (moved["op"] == FORK) & (moved["arg"] != NONE)
        moved["arg"][forks] = threads.of(moved["arg"][forks], number)
        calls = moved["call"] != NO_CALL_ROW
        moved["call"][calls] += number * len(rows)
    if name in ("ops", "fds"):
        moved["thread"] = threads.of(moved["thread"], number)
    if name in ("ops", "entries"):
        known = (moved["ino"] > 0) & (n_strings > 0)
        moved["ino"][known] += number << 40
    return moved


if __name__ == "__main__":
    sys.exit(main())
