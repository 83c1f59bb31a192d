"""Many short processes of one script are summed up, and named with their parent."""

import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from spoolscope.analysis.explain import explain
from spoolscope.analysis.selection import Selection
from spoolscope.lab.place import format_image, mounted
from spoolscope.lab.private import memory_directory
from spoolscope.lab.slowdisk import SlowDisk

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.times]
MS = 1_000_000
N = 200

DELIVER = """
    box = f"{mount}/box0"
    for name in ("tmp", "new"):
        os.makedirs(f"{box}/{name}", exist_ok=True)
    while time.time() < end:
        fd = os.open(f"{box}/tmp/{n}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, b"x" * 6000)
        os.fsync(fd)
        os.close(fd)
        os.rename(f"{box}/tmp/{n}", f"{box}/new/{n}")
        time.sleep(0.05 + n * 7 % 11 / 100)  # not in step with what else syncs
        n += 1
"""
READ = """
    while time.time() < end:
        fd = os.open(f"{mount}/box0/{n % 300}", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.read(fd, 1 << 14)
        os.close(fd)
        time.sleep(n * 7 % 11 / 500)  # not in step with the others
        n += 1
"""


@pytest.fixture(autouse=True)
def needs(require):
    require("bpf")
    require("ext4")
    if not Path("/dev/fuse").exists():
        require("fuse", reason="this kernel has no FUSE (/dev/fuse)")


@pytest.fixture
def place():
    with memory_directory() as directory:
        yield directory


@pytest.fixture
def disk(place):
    """Yield a disk with slow writes, reads and flushes, and an ext4 on it."""
    format_image(place / "image", "ext4", 256 << 20)
    with SlowDisk(place / "image", place) as slow:
        yield slow


def busy(comm, loop, mount, seconds):
    """Start a process of this name that works for that long."""
    program = f"import os, sys, time\nopen('/proc/self/comm', 'w').write({comm!r})\n"
    program += f"mount, end, n = {str(mount)!r}, time.time() + {seconds}, 0\n"
    program += textwrap.dedent(loop)
    return subprocess.Popen([sys.executable, "-S", "-c", program], cwd="/")


def script(place, name, body):
    file = place / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


def recorded(mount, output, load):
    """Record all that uses a mount while ``load`` runs, as an operator would."""
    command = [sys.executable, "-m", "spoolscope.cli.main", "record", "--spool", str(mount)]
    command += ["-o", str(output), "--keep-names", "--snapshot", "none", "-d", "1h"]
    recorder = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd="/")
    said = next((line for line in recorder.stderr if "recording" in line), "")
    assert said, "it did not begin"
    time.sleep(0.2)
    load()
    recorder.send_signal(2)
    recorder.communicate(timeout=60)
    return output


def commits_of(mount):
    """Return the kernel's number of commits of a mount's journal."""
    device = subprocess.run(
        ["findmnt", "-no", "SOURCE", str(mount)], capture_output=True, text=True, check=True
    ).stdout.strip()
    [info] = Path("/proc/fs/jbd2").glob(f"{Path(device).name}-*/info")
    return int(info.read_text().split()[0])


def test_commits_of_a_scripts_short_processes_are_summed_up(place, disk, tmp_path):
    # Longer than the start of a dd: most of the time the deliverer meets commits of dd.
    disk.delay("write", MS // 5)
    disk.delay("flush", 8 * MS)
    night = script(
        place, "nightly.sh",
        f'for i in $(seq {N}); do dd if=/dev/zero of="$1/f$i" bs=4k count=1 conv=fsync; done',
    )  # fmt: skip
    with mounted(disk.path, place / "mnt", "ext4") as mount:
        (mount / "backup").mkdir()
        counted = []

        def load():
            counted.append(commits_of(mount))
            deliverer = busy("lmtp", DELIVER, mount, 4)
            subprocess.run([night, mount / "backup"], cwd="/", check=True, capture_output=True)
            deliverer.wait()
            counted.append(commits_of(mount))

        trace = recorded(mount, tmp_path / "trace", load)
        written = len(list((mount / "backup").iterdir()))
    found = explain(trace)
    dd = next(a for a in found.askers.programs if a.name == "dd")
    print(dd, counted, [finding.text for finding in found.insights])
    assert found.split.sum_error_ns == 0
    assert written == N
    assert counted[1] - counted[0] == pytest.approx(found.commits.n, abs=2)
    assert "started by nightly.sh, process" in dd.who
    [of_dd] = [row for row in found.callers.by_program if row.name == "dd"]
    assert of_dd.processes == N
    [forced] = [f for f in found.insights if f.kind == "forced_commits"]
    assert forced.culprit == dd.who
    assert "fsync on backup/f" in forced.mechanism
    assert forced.share_of == "the time in calls of others"
    # With only the deliverer shown: the same culprit, though none of the culprit's calls is shown.
    [only] = [
        f for f in explain(trace, selection=Selection(only=("lmtp",))).insights
        if f.kind == "forced_commits"
    ]  # fmt: skip
    assert only.culprit.startswith("dd (")


def test_a_script_whose_short_processes_do_not_sync_is_not_named(place, disk, tmp_path):
    disk.delay("write", MS // 5)
    disk.delay("flush", 4 * MS)
    night = script(
        place, "nightly.sh",
        f'for i in $(seq {N}); do dd if=/dev/zero of="$1/f$i" bs=4k count=1; done',
    )  # fmt: skip
    with mounted(disk.path, place / "mnt", "ext4") as mount:
        (mount / "backup").mkdir()

        def load():
            deliverer = busy("lmtp", DELIVER, mount, 3)
            subprocess.run([night, mount / "backup"], cwd="/", check=True, capture_output=True)
            deliverer.wait()

        found = explain(recorded(mount, tmp_path / "trace", load))
    print([finding.text for finding in found.insights])
    # The deliverer does sync: on a busy machine dd waits for its commits, too.
    named = [f.culprit for f in found.insights if f.kind in ("forced_commits", "busy_disk")]
    assert [culprit for culprit in named if not culprit.startswith("lmtp (")] == []


def extents(files):
    """Return the byte ranges of files on the disk, ends exclusive."""
    said = subprocess.run(
        ["filefrag", "-v", "-b4096", *files], capture_output=True, text=True, check=True
    ).stdout
    places = re.findall(r"^ +\d+: +\d+\.\. +\d+: +(\d+)\.\. +(\d+):", said, re.M)
    return [(int(first) * 4096, (int(last) + 1) * 4096) for first, last in places]


def fill(directory, n, size):
    directory.mkdir()
    files = [directory / str(i) for i in range(n)]
    for file in files:
        file.write_bytes(b"x" * size)
    return files


@pytest.mark.parametrize("cached", [False, True], ids=["from the disk", "from memory"])
def test_who_takes_the_disk_by_many_short_processes_is_named(place, disk, tmp_path, cached):
    with mounted(disk.path, place / "mnt", "ext4") as mount:
        archive = fill(mount / "archive", N, 65536)
        fill(mount / "box0", 300, 16384)
        subprocess.run(["sync", "-f", mount], check=True)
        lies = extents(archive)
    with mounted(disk.path, place / "mnt", "ext4") as mount:
        if cached:
            subprocess.run(["cat", *mount.glob("archive/*")], stdout=subprocess.DEVNULL, check=True)
        disk.delay("read", 8 * MS)

        def load():
            reader = busy("imap", READ, mount, 5)
            search = ["find", mount / "archive", "-type", "f", "-exec", "cat", "{}", ";"]
            subprocess.run(search, cwd="/", check=True, stdout=subprocess.DEVNULL)
            reader.wait()

        found = explain(recorded(mount, tmp_path / "trace", load))
    reads = disk.delayed()
    total = sum(r.end_ns - r.begin_ns for r in reads if r.kind == "read")
    theirs = sum(
        r.end_ns - r.begin_ns for r in reads
        if r.kind == "read" and any(a <= r.offset < b for a, b in lies)
    )  # fmt: skip
    busy_disk = [f for f in found.insights if f.kind == "busy_disk" and "imap" not in f.culprit]
    holders = found.evidence.disk_holders
    print(holders, theirs / max(total, 1), [f.text for f in busy_disk])
    assert found.split.sum_error_ns == 0
    if cached:
        assert theirs < 0.1 * total
        assert not busy_disk
        return
    [finding] = busy_disk
    assert re.match(rf"cat \({N} processes started by find, process \d+\)", finding.culprit)
    [held] = [one for one in holders if one.name == "cat"]
    assert held.ns / held.busy_ns == pytest.approx(theirs / total, abs=0.1)
