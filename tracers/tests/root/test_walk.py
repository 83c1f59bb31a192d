"""The tree at the start, compared with Python's own calls, and the pace of the walk."""

import os
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest

from spoolscope.tracers.convert import convert
from spoolscope.traces.capture import Capture, read_capture
from spoolscope.traces.native import find_binary
from spoolscope.traces.text import decoded
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

PIECE = 1 << 20
# ext4 does not read in the background, so that the disk counts the reads of the recorder only.
QUIET = "loop,noinit_itable,no_prefetch_block_bitmaps"
ATTRIBUTES = ("ino", "mode", "uid", "gid", "nlink", "size", "mtime_ns", "blocks")


def captured(mount: Path, tmp_path: Path, *options: str) -> Capture:
    capture = tmp_path / "capture.seg"
    recorder = [find_binary("spoolscope-record"), "run", "--spool", mount, "--output", capture]
    subprocess.run([*recorder, *options, "--", "true"], check=True, stdout=subprocess.DEVNULL)
    return read_capture(capture)


def populate(mount: Path) -> None:
    """Make files with holes, links, odd names, attributes of any length; some of another user."""
    box = mount / "box" / "cur"
    box.mkdir(parents=True)
    for i in range(50):
        (box / f"{i}:2,S").write_bytes(b"x" * (i * 1000))
    os.link(box / "1:2,S", mount / "linked")
    (mount / "symbolic").symlink_to("t" * 300)
    os.mkfifo(mount / "fifo")
    (mount / os.fsdecode(b"\xff\n%41")).touch()
    for name, pieces, size in (
        ("hollow", (), 8),
        ("holes", (1, 3, 6), 8),
        ("ends-in-data", (0, 7), 8),
        ("full", range(4), 4),
    ):
        with (mount / name).open("wb") as file:
            file.truncate(size * PIECE)
            for piece in pieces:
                file.seek(piece * PIECE)
                file.write(b"x" * PIECE)
    for name in ("holes", "box/cur/7:2,S"):
        os.chown(mount / name, 1234, 1234)
        (mount / name).chmod(0)
    os.setxattr(box, b"user.box", b"v" * 100)
    os.setxattr(mount / "holes", b"user.empty", b"")
    try:
        for i in range(100):  # more than 4096 bytes of names, if they are allowed
            os.setxattr(mount / "full", b"user.%03d" % i + b"n" * 200, b"v" * i)
    except OSError:
        pass
    subprocess.run(["sync", "-f", mount], check=True)


def extents(path: Path) -> int | None:
    """Count stretches of data of a file with holes; None if it has no hole."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_blocks * 512 >= status.st_size:
        return None
    with path.open("rb") as file:
        n = at = 0
        while True:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                return n
            n, at = n + 1, os.lseek(file.fileno(), at, os.SEEK_HOLE)


def seen(mount: Path) -> dict[bytes, tuple]:
    """Return the tree by os.walk, os.lstat, os.readlink and SEEK_DATA."""
    paths, found = [mount], {}
    for at, directories, files in os.walk(mount):
        paths += [Path(at, name) for name in directories + files]
    for path in paths:
        s = path.lstat()
        target = os.fsencode(path.readlink()) if path.is_symlink() else None
        values = (s.st_ino, s.st_mode, s.st_uid, s.st_gid, s.st_nlink, s.st_size, s.st_mtime_ns)
        name = os.fsencode(path)[len(os.fsencode(mount)) + 1 :]
        found[name] = (*values, s.st_blocks, target, extents(path))
    return found


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_the_tree_is_what_python_sees(fstype, spool, tmp_path):
    mount = spool(fstype)
    populate(mount)
    capture = captured(mount, tmp_path)
    expected = seen(mount)
    output = tmp_path / "trace"
    output.mkdir()
    convert([tmp_path / "capture.seg"], output, None)
    columns = ", ".join(f"t.{name}" for name in ATTRIBUTES)
    rows = (
        Trace.open(output)
        .connect()
        .execute(
            f"SELECT p.path, {columns}, g.path, t.extents FROM tree t JOIN paths p USING (path_id)"
            " LEFT JOIN paths g ON g.path_id = t.target_id"
        )
    )
    tree = {}
    for path, *values, target, n in rows.fetchall():
        shown = None if target is None else decoded(target)
        tree[decoded(path)] = (*values, shown, n)
    assert tree == expected
    assert tree[b"holes"][-1] == 3
    assert tree[b"hollow"][-1] == 0
    theirs = {}
    for path, (ino, mode, *_) in expected.items():
        at = mount / os.fsdecode(path)
        if not stat.S_ISLNK(mode):
            for name in os.listxattr(at):
                theirs[ino, os.fsencode(name)] = len(os.getxattr(at, name))
    inodes = capture.records["tree"]["ino"]
    ours = {
        (int(inodes[int(row["tree"]) - 1]), capture.strings[row["name"]]): int(row["length"])
        for row in capture.records["xattr"]
    }
    assert ours == theirs
    assert len(theirs) > (100 if fstype != "ext4" else 2)


@pytest.mark.times
@pytest.mark.parametrize("rate", [400, 4000])
def test_the_rate_of_the_walk_holds_at_any_time(rate, spool, tmp_path):
    """No interval of a second, or a fifth of one, has more names than the rate allows."""
    mount = spool("ext4")
    for i in range(rate * 2):
        (mount / f"{i:05}").touch()
    rows = captured(mount, tmp_path, "--snapshot-rate", str(rate)).records["tree"]
    times = np.sort(rows["ts_ns"][rows["ino"] > 0].astype(np.int64))
    assert len(times) == rate * 2 + 2  # the mount itself, lost+found
    # The walk does not catch up after stalls: most twentieths of a second have their share.
    batch = rate // 20
    assert np.median(times[batch:] - times[:-batch]) / 1e9 == pytest.approx(1 / 20, rel=0.2)
    for window_ns in (1_000_000_000, 500_000_000):
        ends = np.searchsorted(times, times + window_ns)
        most = int((ends - np.arange(len(times))).max())
        assert most <= 1.2 * rate * window_ns / 1e9


def test_the_snapshot_says_what_it_brought_into_memory(spool, tmp_path, require):
    """It is as much as the disk read, by its count; names that were cached before do not count."""
    require("ext4")
    mount = spool("ext4")
    for number in range(2000):
        (mount / f"{number % 7:03}-{number}").touch()
    subprocess.run(["umount", mount], check=True)
    subprocess.run(["mount", "-o", QUIET, tmp_path / "ext4.img", mount], check=True)
    device = mount.stat().st_dev
    counts = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")

    def snapshot(name: str) -> tuple[int, int]:
        place, before = tmp_path / name, int(counts.read_text().split()[2])
        place.mkdir()
        told = captured(mount, place).meta["snapshot_read_bytes"]
        return told, 512 * (int(counts.read_text().split()[2]) - before)

    told, read = snapshot("cold")
    assert read > 1500 * 256
    assert 0.9 * read <= told <= read  # the filesystem itself and other programs read, too
    assert snapshot("warm") == (0, 0)
