"""Threads copy files, by position and by offsets given by pointer, and share descriptor numbers."""

import errno
import sys
from pathlib import Path

import duckdb
import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record

pytestmark = [pytest.mark.root, pytest.mark.steady]
FILESYSTEMS = ("ext4", "xfs", "btrfs")
COPIES = 3 * 40


def test_copies_begin_and_end_where_they_did(spool, tmp_path, require):
    for name in FILESYSTEMS:
        require(name)
    mount = spool("ext4")
    command = [sys.executable, str(Path(__file__).with_name("copies.py")), str(mount)]
    done = record(Request([mount], tmp_path / "trace", command=command))
    assert done.command_status == 0  # results, positions and contents were as expected
    given = duckdb.sql(
        f"""SELECT count("offset"), count(arg) FROM '{done.trace}/syscalls.parquet'
        WHERE syscall IN ('sendfile', 'copy_file_range', 'splice') AND ret > 0"""
    ).fetchall()
    # Input offsets: two of sendfile, one of each other call; output: one each of the others.
    assert given[0][0] >= 4 * COPIES
    assert given[0][1] == 2 * COPIES
    for row in replay(done.trace, list(FILESYSTEMS), tmp_path / "out", pace="afap"):
        told = (Path(row["run"]) / "divergences.json").read_text()
        assert row["executed"] == row["syscalls"] > 5_000, told
        assert row["divergent"] == 0, told
        assert row["final_state"]["mismatched"] == 0, row["final_state"]


CLONES = """
cd "$1"
cp /etc/services mail
cp mail clone
cp -p clone again
tail -c 3000 again > part
cat mail >> clone
wc -c mail clone again part
rm mail
cp again mail
"""


@pytest.mark.parametrize("fstype", FILESYSTEMS)
def test_what_cp_clones_has_the_contents_of_its_source(spool, tmp_path, require, fstype):
    for name in FILESYSTEMS:
        require(name)
    mount = spool(fstype)
    command = ["sh", "-euc", CLONES, "sh", str(mount)]
    done = record(Request([mount], tmp_path / "trace", command=command))
    assert done.command_status == 0
    size = Path("/etc/services").stat().st_size
    assert [(mount / name).stat().st_size for name in ("mail", "again")] == [size, size]
    cloned = duckdb.sql(
        f"""SELECT errno, count(*) FROM '{done.trace}/syscalls.parquet'
        WHERE syscall = 'ioctl' AND fd2 IS NOT NULL GROUP BY errno"""
    ).fetchall()
    shares = fstype != "ext4"
    # A file outside the filesystem cannot be cloned.
    assert dict(cloned) == {0: 3, errno.EXDEV: 1} if shares else {errno.EOPNOTSUPP: 3}
    rows = replay(done.trace, list(FILESYSTEMS), tmp_path / "out", pace="afap")
    for row in rows:
        told = (Path(row["run"]) / "divergences.json").read_text()
        assert row["divergent"] == 0, told
        assert row["final_state"]["mismatched"] == 0, row["final_state"]
        of_filesystem = 3 if shares != (row["candidate"] != "ext4") else 0
        assert row["of_filesystem"] == of_filesystem, told
