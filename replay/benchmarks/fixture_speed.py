"""How fast a fixture is built on a fresh ext4 image, beside tar unpacking the same tree.

The tree is that of a mail spool: Maildirs of 500 messages of some kilobytes. The archive is in
memory, and unpacked by the owner that is to be; each figure is the median of rounds that alternate.
"""

import argparse
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from spoolscope.replay import images
from spoolscope.replay.candidates import parse
from spoolscope.replay.engine import Engine
from spoolscope.replay.plan import build
from spoolscope.replay.targets import image_bytes, prepared
from spoolscope.traces.digests import write_meta
from spoolscope.traces.parquet import write_table
from spoolscope.traces.schema import SCHEMA, TABLES
from spoolscope.traces.trace import Trace

GOAL = 50_000
IN_A_BOX = 500
Cost = tuple[float, float]
START = 1_700_000_000_000_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("/dev/shm"), help="for the images")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spoolscope-bench-", dir=options.work) as scratch:
        place = Path(scratch)
        plan = place / "plan"
        summary = build(Trace.open(make_trace(place / "trace", options.files)), plan)
        size = image_bytes(summary.tree_bytes, options.files)
        print(f"{options.files:,} files, {summary.tree_bytes / 1e6:,.0f} MB")
        costs: dict[str, list[Cost]] = {"fixture": [], "tar": []}
        for _ in range(options.rounds):
            with prepared(parse("ext4"), place, size) as target:
                # The whole program: reading the plan and walking its calls, too.
                costs["fixture"].append(cost(lambda m=target.mount: Engine(plan).fixture(m)))
                if not (place / "tree.tar").exists():
                    images.run("tar", "-C", target.mount, "-cf", place / "tree.tar", ".")
            with prepared(parse("ext4"), place, size) as target:
                words = ["tar", "-C", target.mount, "-xpf", place / "tree.tar"]
                costs["tar"].append(cost(lambda words=words: images.run(*words)))
    rates = {}
    for name, found in costs.items():
        wall, cpu = (options.files / statistics.median(part) for part in zip(*found, strict=True))
        rates[name] = wall
        print(f"{name:<10}{wall:12,.0f} files/s {cpu:12,.0f} by CPU second")
    load = os.getloadavg()[0]
    print(
        f"fixture by tar: {rates['fixture'] / rates['tar']:.2f}; {os.cpu_count()} CPUs, load {load}"
    )
    slow = rates["fixture"] < GOAL
    print(f"goal: {GOAL:,} files/s: {'missed' if slow else 'reached'}")
    return int(slow)


def cost(work: Callable[[], object]) -> Cost:
    """Return wall-clock and CPU seconds of the programs that some work runs."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    work()
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def make_trace(directory: Path, files: int) -> Path:
    """Write a trace of one call on a spool with so many messages."""
    generator = random.Random(1)
    names: list[str] = []
    rows: list[tuple[int, int]] = []  # mode, size
    for number in range(files):
        box = number // IN_A_BOX
        if number % IN_A_BOX == 0:
            names += [f"user{box}", f"user{box}/cur"]
            rows += [(0o040700, 0)] * 2
        names.append(f"user{box}/cur/{1_700_000_000 + number}.M{number}P1.host,S=4000:2,S")
        rows.append((0o100600, int(generator.lognormvariate(8, 1))))
    directory.mkdir()
    n = len(names)
    tree = {"path_id": list(range(n)), "ino": list(range(2, n + 2)), "nlink": [1] * n,
            "mode": [mode for mode, _ in rows], "size": [size for _, size in rows],
            "uid": [os.getuid()] * n, "gid": [os.getgid()] * n}  # fmt: skip
    paths = {"path_id": list(range(n)), "path": names, "kind": ["spool"] * n, "spool": [0] * n}
    call = {"ts_ns": [START], "dur_ns": [1000], "pid": [1], "tid": [1], "syscall": ["sync"]}
    threads = {"pid": [1], "tid": [1], "kind": ["task"]}
    given = {"tree": tree, "paths": paths, "syscalls": call, "threads": threads}
    counts = {name: _table(directory, name, given.get(name, {})) for name in TABLES}
    meta = {"schema": SCHEMA, "version": "0", "start_ns": START, "duration_ns": 1000,
            "spools": [{"mount": "/srv/mail", "fstype": "ext4", "dev": 1}],
            "complete": True, "lost": 0, "pseudonymised": False, "counts": counts}  # fmt: skip
    write_meta(directory, meta)
    return directory


def _table(directory: Path, name: str, given: dict[str, list]) -> int:
    length = len(next(iter(given.values()), []))
    columns = {}
    for column in TABLES[name].columns:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        blank = None if column.nullable else "" if pa.types.is_string(kind) else 0
        blank = False if blank == 0 and pa.types.is_boolean(kind) else blank
        columns[column.name] = pa.array(given.get(column.name, [blank] * length), kind)
    return write_table(directory, name, columns)


if __name__ == "__main__":
    sys.exit(main())
