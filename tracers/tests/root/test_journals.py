"""Journals and logs: compared with the kernel's own counters and with injected delays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from clocks import alike, compares_times
from journals import device_of, ftrace_counts
from recordings import ask, record_writers

from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]


def mount_image(image: Path, mount: Path, *mkfs: str, options: str = "loop,noatime") -> None:
    with image.open("wb") as file:
        file.truncate(512 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", *mkfs, image], check=True)
    mount.mkdir()
    subprocess.run(["mount", "-o", options, image, mount], check=True)


def test_checkpoints_of_jbd2_are_those_of_ftrace(require, tmp_path):
    require("bpf")
    require("ext4")
    mount = tmp_path / "m"
    # A thread that writes inode tables in the background would ask for commits of its own.
    mount_image(tmp_path / "m.img", mount, "-J", "size=4", "-E", "lazy_itable_init=0")
    _, dev = device_of(mount)
    events = {
        "jbd2/jbd2_update_log_tail": f"dev == {dev}",
        "jbd2/jbd2_checkpoint_stats": f"dev == {dev} && (written > 0 || chp_time > 0)",
        "jbd2/jbd2_handle_stats": f"dev == {dev} && interval >= 2",
    }
    try:
        with ftrace_counts(events) as counted:
            # More than the journal holds: checkpoints are necessary during the recording.
            trace = record_writers(mount, tmp_path, 90, 4, 4096)
    finally:
        subprocess.run(["umount", mount], check=True)
    rows = dict(ask(trace, "SELECT event, count(*) FROM journal_events GROUP BY 1"))
    assert rows["log_tail"] == counted["jbd2/jbd2_update_log_tail"] > 0
    assert rows["checkpoint_written"] == counted["jbd2/jbd2_checkpoint_stats"] > 0
    # Handles that a commit waited for are recorded however short they were.
    [(long,)] = ask(
        trace,
        "SELECT count(*) FROM journal_events"
        " WHERE event = 'handle' AND (amount = 0 OR dur_ns > 7e6)",
    )
    assert long == counted["jbd2/jbd2_handle_stats"]


def test_only_the_journal_thread_of_the_spool_is_watched(spool, tmp_path):
    mount = spool("ext4")
    other = tmp_path / "other"
    mount_image(tmp_path / "other.img", other)
    try:
        name, _ = device_of(mount)
        assert Path(f"/proc/fs/jbd2/{device_of(other)[0]}-8").is_dir()
        trace = record_writers(mount, tmp_path, 5, 1, 4096)
    finally:
        subprocess.run(["umount", "-l", other], check=True)
    threads = ask(trace, "SELECT comm FROM threads WHERE comm LIKE 'jbd2/%'")
    assert threads == [(f"jbd2/{name}-8",)]
    assert ask(trace, "SELECT count(*) > 0 FROM segments WHERE seq IS NULL") == [(True,)]


def test_a_journal_on_a_device_of_its_own_is_found(require, tmp_path):
    require("ext4")
    image, journal, mount = tmp_path / "j.img", tmp_path / "journal.img", tmp_path / "m"
    with journal.open("wb") as file:
        file.truncate(64 << 20)
    found = subprocess.run(
        ["losetup", "--find", "--show", journal], capture_output=True, text=True, check=True
    )
    device = found.stdout.strip()
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "journal_dev", device], check=True)
        mount_image(image, mount, "-J", f"device={device}")
        try:
            trace = record_writers(mount, tmp_path, 5, 1, 4096)
        finally:
            subprocess.run(["umount", mount], check=True)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    (n, threads) = ask(trace, "SELECT count(*), count(DISTINCT tid) FROM commits")[0]
    assert (n >= 5, threads) == (True, 1)
    [(dev, comm)] = ask(trace, "SELECT DISTINCT dev, comm FROM commits")
    assert (dev, comm) == (trace.meta["spools"][0]["dev"], f"jbd2/{Path(device).name}")


# argv: mount, cgroup; it prints when the unlink began and ended, then the length of the slowest
# fsync, when it began and the thread of the unlink. It has precedence over other programs.
HOLDER = """
import os, sys, time
mount, cgroup = sys.argv[1:]
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
os.stat(f"{mount}/big")
if not (kid := os.fork()):
    with open(f"{cgroup}/cgroup.procs", "w") as procs:
        procs.write(str(os.getpid()))
    begin = time.monotonic_ns()
    os.unlink(f"{mount}/big")
    print(begin, time.monotonic_ns(), flush=True)
    os._exit(0)
time.sleep(0.1)
slowest = 0, 0
while not os.waitpid(kid, os.WNOHANG)[0]:
    fd = os.open(f"{mount}/small", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"x")
    begin = time.monotonic_ns()
    os.fsync(fd)
    slowest = max(slowest, (time.monotonic_ns() - begin, begin))
    os.close(fd)
    time.sleep(0.02)
print(*slowest, kid)
"""


def give_precedence(comm: str) -> None:
    """Let a kernel thread run before all other programs."""
    [pid] = subprocess.check_output(["pgrep", "-x", comm], text=True).split()
    os.sched_setscheduler(int(pid), os.SCHED_FIFO, os.sched_param(1))


@compares_times
def test_the_handle_that_a_commit_waits_for_is_named(io_limit, require, tmp_path, capfd):
    """A thread that may read only twice a second must read a bitmap to free blocks."""
    require("bpf")
    require("ext4")
    mount, image = tmp_path / "m", tmp_path / "h.img"
    options = "loop,noatime,no_prefetch_block_bitmaps"
    mount_image(image, mount, "-O", "^flex_bg", "-g", "8192", options=options)
    try:
        (mount / "big").write_bytes(bytes(100 << 20))
        subprocess.run(["umount", mount], check=True)  # drops the bitmaps from memory
        subprocess.run(["mount", "-o", options, image, mount], check=True)
        give_precedence(f"jbd2/{device_of(mount)[0]}-8")
        cgroup = io_limit(mount, "read_iops", 2)
        command = [sys.executable, "-S", "-c", HOLDER, str(mount), str(cgroup)]
        request = Request(spools=[mount], output=tmp_path / "t", command=command, keep_names=True)
        trace = Trace.open(record(request).trace)
    finally:
        subprocess.run(["umount", mount], check=True)
    began, ended, slowest, asked, holder = map(int, capfd.readouterr().out.split())
    assert slowest > 100e6, "nothing was delayed"
    [(locking, waited, handles, tid, call)] = ask(
        trace,
        """SELECT locking_ns, holder_ns, handles, holder_tid, syscall FROM commits c
           LEFT JOIN syscalls s ON s.tid = c.holder_tid AND s.seq = c.holder_seq
           ORDER BY locking_ns DESC LIMIT 1""",
    )
    assert (tid, call, handles) == (holder, "unlink", 1)
    assert waited == pytest.approx(locking, rel=0.05)
    [(length,)] = ask(
        trace,
        "SELECT max(dur_ns) FROM journal_events"
        f" WHERE event = 'handle' AND amount = 1 AND tid = {holder}",
    )
    # After that the commit writes its log, which takes long on a busy disk.
    alike("locking", ended - asked, locking, rel=0.1)
    alike("unlink", ended - began, length, rel=0.05)


def test_the_log_of_xfs_is_counted_as_by_its_own_statistics(spool, tmp_path):
    mount = spool("xfs")
    name, dev = device_of(mount)
    file = Path(f"/sys/fs/xfs/{name}/stats/stats")

    def log_line() -> list[int]:
        [line] = [w for w in file.read_text().splitlines() if w.startswith("log ")]
        return list(map(int, line.split()[1:]))  # writes, blocks, noiclogs, force, sleep

    before = log_line()
    with ftrace_counts({"xfs/xlog_iclog_wait_on": f"dev == {dev}"}) as counted:
        trace = record_writers(mount, tmp_path, 60, 3, 4096)
    writes, _, _, forces, _ = (b - a for a, b in zip(before, log_line(), strict=True))
    [(forced, callers)] = ask(
        trace,
        "SELECT count(*), list(DISTINCT symbol ORDER BY symbol) FROM journal_events"
        " LEFT JOIN stacks USING (stack_id) WHERE event = 'log_force'",
    )
    [(written,)] = ask(trace, "SELECT count(*) FROM commits WHERE kind = 'xfs_log_write'")
    [(waited, ended)] = ask(trace, "SELECT count(*), count(dur_ns) FROM waits WHERE kind = 'iclog'")
    # The recording begins a little after `before` and ends a little before the second reading.
    assert forced == pytest.approx(forces, abs=2)
    assert written == pytest.approx(writes, abs=2)
    assert waited == pytest.approx(counted["xfs/xlog_iclog_wait_on"], abs=2)
    assert ended >= 0.99 * waited > 0
    assert "xfs_file_fsync" in callers


def test_ordered_extents_of_btrfs_are_the_files_written(spool, tmp_path):
    mount = spool("btrfs")
    trace = record_writers(mount, tmp_path, 20, 2, 8192)
    [(n, size, unfinished, inodes)] = ask(
        trace,
        "SELECT count(*), min(amount), count(*) - count(dur_ns), count(DISTINCT id)"
        " FROM journal_events WHERE event = 'ordered_extent'",
    )
    assert (n, size, unfinished, inodes) == (40, 8192, 0, 40)
    # Each write ended before its fsync returned.
    [(late,)] = ask(
        trace,
        """SELECT count(*) FROM journal_events e JOIN syscalls s ON s.ino = e.id
           WHERE event = 'ordered_extent' AND syscall = 'fsync'
           AND e.ts_ns + e.dur_ns > s.ts_ns + s.dur_ns""",
    )
    assert late == 0


# Changes that the timer commits after a second, then one that syncfs commits.
COMMITS = """
import ctypes, os, sys, time
mount = sys.argv[1]
for name in "ac":
    open(f"{mount}/{name}", "w").close()
    time.sleep(2.5)
open(f"{mount}/b", "w").close()
ctypes.CDLL(None).syncfs(os.open(mount, os.O_RDONLY))
"""


def generation(mount: Path) -> int:
    """Return the number of the last transaction in the superblock on the disk."""
    source = subprocess.run(
        ["findmnt", "-no", "SOURCE", mount], capture_output=True, text=True, check=True
    ).stdout.strip()
    shown = subprocess.run(
        ["btrfs", "inspect-internal", "dump-super", source],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    [line] = [words for words in map(str.split, shown.splitlines()) if words[:1] == ["generation"]]
    return int(line[1])


def test_commits_of_btrfs_are_the_generations_of_its_superblock(spool, tmp_path):
    mount = spool("btrfs")
    subprocess.run(["mount", "-o", "remount,commit=1", mount], check=True)
    subprocess.run(["sync", "-f", mount], check=True)
    before = generation(mount)
    command = [sys.executable, "-S", "-c", COMMITS, str(mount)]
    request = Request(spools=[mount], output=tmp_path / "t", command=command, keep_names=True)
    trace = Trace.open(record(request).trace)
    commits = ask(
        trace,
        """SELECT c.trigger, c.dur_ns, flushing_ns + logging_ns, c.ts_ns - s.ts_ns, s.dur_ns
           FROM commits c LEFT JOIN syscalls s ON s.tid = trigger_tid AND s.seq = trigger_seq
           WHERE kind = 'btrfs_commit' ORDER BY c.ts_ns""",
    )
    assert len(commits) == generation(mount) - before
    *before_last, last = [row[0] for row in commits]
    # A sync of the whole machine, by another program, may be ahead of the timer once.
    assert "timer" in before_last
    assert last == "call"
    for _, length, phases, into, called in commits:
        assert length == phases > 0
        if called is not None:
            assert into >= 0
            assert into + length <= called
