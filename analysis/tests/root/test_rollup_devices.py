"""Sums of several spools: a call counts for the spool to which its name leads."""

import os
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from spoolscope.cli.freeze_rules import all_cause_rules
from spoolscope.tracers.request import Request
from spoolscope.tracers.rolling import record_rollups
from spoolscope.traces.rollups.files import Rollups

pytestmark = [pytest.mark.root, pytest.mark.steady]

# It makes calls by name below a place: with absolute names, relative ones, names below a
# descriptor, or in a root directory of its own; half of the names lead to nothing.
LOAD = """
import os, sys
place, way = sys.argv[1:]
at = None
if way == "chroot":
    os.chroot(place)
    os.chdir("/")
elif way == "relative":
    os.chdir(place)
elif way == "descriptor":
    at = os.open(place, os.O_RDONLY)
base = {"absolute": place + "/", "chroot": "/"}.get(way, "")
for i in range(20):
    name = f"{base}{way}{i}"
    os.mkdir(name, dir_fd=at)
    os.rename(name, name + "-new", src_dir_fd=at, dst_dir_fd=at)
    for wrong in (name, name + "-not"):
        try:
            os.stat(wrong, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            pass
    os.rmdir(name + "-new", dir_fd=at)
"""
WAYS = ("absolute", "relative", "descriptor", "chroot")
NAMES = "('mkdir', 'mkdirat', 'rename', 'renameat', 'rmdir', 'unlinkat', 'newfstatat')"


def device(place: Path) -> int:
    dev = place.stat().st_dev
    return os.major(dev) << 20 | os.minor(dev)


@pytest.mark.parametrize("parts", [False, True], ids=["filesystems", "directories of one"])
def test_calls_by_name_count_for_their_spool(parts, spool, tmp_path):
    if parts:
        top = spool("ext4")
        spools = [top / "a", top / "b"]
        for place in spools:
            place.mkdir()
    else:
        spools = [spool("ext4"), spool("xfs")]
    runs = " && ".join(
        f'{sys.executable} -S -c "$0" {place} {way}' for place in spools for way in WAYS
    )
    record_rollups(
        Request(
            spools=spools,
            output=tmp_path / "r",
            command=["sh", "-c", runs, LOAD],
            cause_rules=all_cause_rules(),
        )
    )
    calls = Rollups(tmp_path / "r").read("calls")
    found = duckdb.from_arrow(calls).query(
        "calls",
        f"SELECT dev, failed, CAST(sum(n) AS INTEGER) FROM calls WHERE cause = 'call' "
        f"AND syscall IN {NAMES} AND comm LIKE 'python%' GROUP BY ALL",
    )
    expected = Counter()
    for place in spools:
        expected[device(place), 0] += len(WAYS) * 20 * 3
        expected[device(place), 1] += len(WAYS) * 20 * 2
    counted = {(dev, int(failed)): n for dev, failed, n in found.fetchall()}
    assert counted == dict(expected)
