"""Memory does not grow with the trace: each step of a long replay in a memory cgroup of its own."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import memory
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from spoolscope.traces.digests import write_meta
from spoolscope.traces.parquet import write_table

pytestmark = [pytest.mark.root, pytest.mark.steady]
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "memory.py"
CALLS = 1_000_000
STEPS = {
    "check and order": 8,
    "explain": 8,
    "derive: a slice": 8,
    "derive: some processes": 8,
    "derive: twice the users": 8,
    "fixture": 8,
    "run (no calls made)": 32,
}
"""Limit of MiB that the kernel cannot reclaim; with all in memory it was 54, 55 and 66."""

SAMPLE = Path(__file__).parents[3] / "traces" / "samples" / "postfix-dovecot"
FILE = 8703
"""Path id of a file in the snapshot of the sample."""


def test_what_a_replay_needs_in_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--calls", str(CALLS), "--limit", "1024", "--work", tmp_path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "FAILED" not in done.stdout
    found = dict(re.findall(r"^(.+?) +([\d,]+) MiB +[\d.]+ CPU-s", done.stdout, re.MULTILINE))
    for step, most_mib in STEPS.items():
        assert int(found[step].replace(",", "")) <= most_mib, done.stdout


def test_what_a_plan_needs_in_memory_does_not_grow_with_the_names(tmp_path: Path) -> None:
    names = 500_000, 2_000_000
    few, many = (_planning_mib(_with_names(n, tmp_path / str(n))) for n in names)
    # The allocators' peak differs by some 25 MiB between runs, and below 500,000 names their
    # buffers are not all in use. When names were kept in memory, one took 455 bytes.
    assert (many - few) * 2**20 < 40 * (names[1] - names[0]), (few, many)


def _with_names(n: int, out: Path) -> Path:
    """Copy the sample, with so many more files in its snapshot."""
    shutil.copytree(SAMPLE, out)
    meta = json.loads((out / "meta.json").read_text())
    numbers = range(meta["counts"]["paths"], meta["counts"]["paths"] + n)
    more = {
        "path_id": pa.array(numbers),
        "path": pa.array([f"more/{i % 999}/1795344095.M{i}P4711.mx,S={i}:2," for i in numbers]),
        "ino": pa.array(numbers),
    }
    for name in ("paths", "tree"):
        table = pq.read_table(out / f"{name}.parquet")
        added = table.filter(pc.equal(table["path_id"], FILE)).take(pa.array([0] * n))
        for at, column in enumerate(table.column_names):
            added = added.set_column(at, table.field(at), more.get(column, added[column]))
        both = pa.concat_tables([table, added]).unify_dictionaries()
        columns = {column: both[column].combine_chunks() for column in both.column_names}
        meta["counts"][name] = write_table(out, name, columns)
    write_meta(out, meta)
    return out


def _planning_mib(trace: Path) -> float:
    """Return the peak memory of planning that the kernel cannot reclaim, MiB."""
    used = memory.limited(4 << 30, sys.executable, "-c", memory.BUILD, trace, trace / "plan")
    assert used.status == 0
    return used.peak_bytes / 2**20
