"""Written records are read, without holes, whatever happens to the recorder or its file."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from spoolscope.tracers.lives import continue_numbering
from spoolscope.tracers.losses import loss_columns
from spoolscope.tracers.session import Request, record
from spoolscope.traces.capture import Capture, read_capture
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.join import join
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

CUTS, FLIPS = 1000, 300
TOO_MANY = 250_000
UNTIL_FULL_S = 90  # at most, on a busy machine
RECORD = [sys.executable, "-m", "spoolscope.cli.main", "record", "-q"]

# Three processes of two threads; each thread logs how many calls it has made, outside the spool.
WORK = """
import os, sys, threading, time
spool, log, end = sys.argv[1], sys.argv[2], time.monotonic() + float(sys.argv[3])
pause_s = float(sys.argv[4])
def loop(name):
    out = os.open(f"{log}/{threading.get_native_id()}", os.O_WRONLY | os.O_CREAT, 0o600)
    n = 0
    while time.monotonic() < end:
        os.close(os.open(f"{spool}/{name}", os.O_WRONLY | os.O_CREAT, 0o600))
        os.rename(f"{spool}/{name}", f"{spool}/{name}x")
        n += 3
        os.pwrite(out, b"%20d %20d" % (n, time.time_ns()), 0)
        time.sleep(pause_s)
for name in "abc":
    if not os.fork():
        threads = [threading.Thread(target=loop, args=(f"{name}{i}",)) for i in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        os._exit(0)
for _ in range(3):
    os.wait()
"""


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Callable[..., list[str]]]:
    """Return ``work(mount, seconds, pause_s)``, which returns the command."""
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "log").mkdir()

    def command(mount: Path, seconds: float, pause_s: float = 0.0) -> list[str]:
        words = (tmp_path / "work.py", mount, tmp_path / "log", seconds, pause_s)
        return [sys.executable, *map(str, words)]

    yield command
    # A recording that ends early leaves its command running.
    subprocess.run(["pkill", "-KILL", "-f", str(tmp_path / "work.py")], check=False)


def logged(tmp_path: Path) -> dict[int, int]:
    """Return the logged number of calls by thread; a thread that has just begun has none yet."""
    said = {int(file.name): file.read_text().split() for file in (tmp_path / "log").iterdir()}
    return {tid: int(words[0]) if words else 0 for tid, words in said.items()}


@pytest.fixture
def real_capture(spool, tmp_path, work) -> Path:
    """Return a capture of the program, made by the recorder."""
    capture = tmp_path / "whole.seg"
    mount = spool("ext4")
    recorder = [find_binary("spoolscope-record"), "run", "--spool", mount, "--output", capture]
    command = [*recorder, "--snapshot", "none", "--", *work(mount, 2.5, 0.01)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return capture


def is_beginning(part: Capture, whole: Capture) -> bool:
    """Return whether the records of each kind are a prefix of those of the whole capture."""
    for kind, rows in part.records.items():
        if rows.tobytes() != whole.records[kind][: len(rows)].tobytes():
            return False
    calls = part.records["syscall"]
    for tid in np.unique(calls["tid"]):
        mine = np.sort(calls["seq"][calls["tid"] == tid])
        if mine.tolist() != list(range(len(mine))):
            return False
    return True


def test_a_capture_cut_or_damaged_holds_the_first_calls_of_each_thread(real_capture, tmp_path):
    data, whole = real_capture.read_bytes(), read_capture(real_capture)
    have = calls_of(whole)
    # A thread's own exit is a call, too, if the thread made it before its process ended.
    assert {have[tid] - n for tid, n in logged(tmp_path).items()} <= {0, 1}
    calls = whole.whole_calls()(np.arange(sum(have.values())))
    assert len(np.unique(calls["cpu"])) > 1, "no thread changed its CPU"
    file = tmp_path / "cut.seg"
    seen = set()
    for cut in random.Random(2026).sample(range(64, len(data)), CUTS):
        file.write_bytes(data[:cut])
        part = read_capture(file)
        assert is_beginning(part, whole), cut
        seen.add(len(part.records["syscall"]))
    assert len(seen) >= 3  # the cuts fell between several chunks
    _every_flip_is_noticed(data, whole, tmp_path / "flipped.seg")


def calls_of(capture: Capture) -> dict[int, int]:
    tids, counts = np.unique(capture.records["syscall"]["tid"], return_counts=True)
    return dict(zip(tids.tolist(), counts.tolist(), strict=True))


def _every_flip_is_noticed(data: bytes, whole: Capture, file: Path) -> None:
    chance = random.Random(2026)
    at_header = list(range(64))
    for at in at_header + chance.sample(range(64, len(data)), FLIPS):
        flipped = bytearray(data)
        flipped[at] ^= chance.randrange(1, 256)
        file.write_bytes(flipped)
        try:
            part = read_capture(file)
        except SpoolscopeError:
            assert at in at_header
            continue
        assert at not in at_header
        assert part.bytes_unread > 0
        assert is_beginning(part, whole), at


def test_a_killed_recorder_leaves_all_but_the_last_second(spool, tmp_path, work, when_ready):
    mount = spool("ext4")
    killed: list[int] = []

    def kill() -> None:
        time.sleep(3)
        pattern = f"spoolscope-record run .*{tmp_path}"
        os.kill(int(subprocess.check_output(["pgrep", "-o", "-f", pattern])), signal.SIGKILL)
        killed.append(time.time_ns())

    when_ready(tmp_path / "trace", kill)
    summary = record(
        Request(
            spools=[mount],
            output=tmp_path / "trace",
            command=work(mount, 5, 0.001),
            keep_names=True,
        )
    )
    assert "ended with status -9" in str(summary.failure)
    trace = Trace.open(tmp_path / "trace")
    assert (trace.meta["closed"], trace.meta["complete"], trace.meta["lost"]) == (False, False, 0)
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "log").iterdir())) < 6 and time.monotonic() < deadline:
        time.sleep(0.1)
    rows = trace.connect().execute(
        "SELECT tid, count(*), max(seq) + 1, max(ts_ns) FROM syscalls GROUP BY 1"
    )
    found = {tid: (n, after, last) for tid, n, after, last in rows.fetchall()}
    assert logged(tmp_path).keys() <= found.keys()
    for tid, n_made in logged(tmp_path).items():
        n, after, last = found[tid]
        assert n == after <= n_made + 1
        assert last > killed[0] - 2_000_000_000


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_a_full_disk_ends_the_recording_in_order(fstype, spool, tmp_path, work, small_disk):
    mount, small = spool("ext4"), small_disk(fstype)
    command = [*RECORD, "--spool", mount, "-o", small / "trace", "--", *work(mount, UNTIL_FULL_S)]
    with (tmp_path / "stderr").open("w") as stderr:  # a pipe would stay open with the command
        assert subprocess.run(command, stderr=stderr, check=False).returncode == 1
    assert "make room" in (tmp_path / "stderr").read_text().splitlines()[-1]
    [left] = small.glob(".trace.*/capture.seg")
    capture = read_capture(left)
    assert capture.closed
    assert capture.bytes_unread == 0
    assert capture.meta["ended"] == "disk full"
    each_call_is_there_or_located(capture, tmp_path)


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_a_full_disk_has_room_for_the_last_words(fstype, spool, tmp_path, work, small_disk):
    """All lost calls are located, however many records are still to be written."""
    mount, small = spool("ext4"), small_disk(fstype)
    words = ["run", "--spool", mount, "--snapshot", "none", "--output", small / "c.seg"]
    command = [find_binary("spoolscope-record"), *words, "--", *work(mount, UNTIL_FULL_S)]
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    made_after(tmp_path, 1, recorder)
    recorder.send_signal(signal.SIGSTOP)
    made_after(tmp_path, TOO_MANY, recorder)
    recorder.send_signal(signal.SIGCONT)
    assert recorder.wait(60) == 0
    capture = read_capture(small / "c.seg")
    assert capture.closed
    assert capture.bytes_unread == 0
    assert capture.meta["ended"] == "disk full"
    assert each_call_is_there_or_located(capture, tmp_path) > 0


def made_after(tmp_path: Path, n_calls: int, recorder: subprocess.Popen[bytes]) -> None:
    """Wait until the program has logged that many calls."""
    deadline = time.monotonic() + 60
    while sum(logged(tmp_path).values()) < n_calls:
        assert recorder.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def each_call_is_there_or_located(capture: Capture, tmp_path: Path) -> int:
    """Compare with the log of each thread; return how many calls were lost."""
    lost = loss_columns(capture, continue_numbering(capture))
    rows = [dict(zip(lost, row, strict=True)) for row in zip(*lost.values(), strict=True)]
    calls = [row for row in rows if row["kind"] == "syscall"]
    made = {tid: set() for tid in logged(tmp_path)}
    for tid, seq in capture.records["syscall"][["tid", "seq"]].tolist():
        made.setdefault(tid, set()).add(seq)
    for row in calls:
        assert row["n"] == row["last_seq"] - row["first_seq"] + 1
        assert row["before_ns"] <= time.time_ns()
        # If a thread lost its first calls, after_ns is unknown.
        assert row["after_ns"] is np.ma.masked or row["after_ns"] <= row["before_ns"]
        lost_here = set(range(row["first_seq"], row["last_seq"] + 1))
        assert not made[row["tid"]] & lost_here
        made[row["tid"]] |= lost_here
    # Each call up to the end is recorded or located. All threads went on after that.
    for tid, n_made in logged(tmp_path).items():
        assert made[tid] == set(range(len(made[tid])))
        assert 0 < len(made[tid]) <= n_made + 1
    # The located calls are those that the BPF programs and the recorder counted as lost.
    n_lost = sum(row["n"] for row in calls)
    assert n_lost == capture.meta["lost_records"].get("1", 0)
    return n_lost


def test_a_disk_that_fills_while_rotating_leaves_whole_segments(spool, tmp_path, work, small_disk):
    """No segment is begun that could not be ended; each call is recorded, or located as lost."""
    # A border takes time, in which the old segment may grow by a MiB and more.
    mount, small = spool("ext4"), small_disk("ext4", 6)
    words = ["run", "--spool", mount, "--snapshot", "none", "--output", small / "c.seg"]
    command = [find_binary("spoolscope-record"), *words, "--rotate-bytes", "200000", "--"]
    subprocess.run([*command, *work(mount, UNTIL_FULL_S)], check=True, stdout=subprocess.DEVNULL)
    parts = [read_capture(file) for file in sorted(small.glob("c-*.seg"))]
    assert len(parts) >= 3
    assert all(part.closed and part.bytes_unread == 0 for part in parts)
    assert [part.meta.get("ended") for part in parts] == [*[None] * (len(parts) - 1), "disk full"]
    whole = join(parts)
    made: dict[int, set[int]] = {tid: set() for tid in logged(tmp_path)}
    for tid, seq in whole.records["syscall"][["tid", "seq"]].tolist():
        assert seq not in made.setdefault(tid, set())
        made[tid].add(seq)
    lost = loss_columns(whole, continue_numbering(whole))
    members = (lost[name] for name in ("kind", "tid", "first_seq", "last_seq"))
    for kind, tid, first, last in zip(*members, strict=True):
        if kind == "syscall":
            made[tid] |= set(range(first, last + 1))
    for tid, n_made in logged(tmp_path).items():
        assert made[tid] == set(range(len(made[tid])))
        assert 0 < len(made[tid]) <= n_made + 1


@pytest.fixture
def small_disk(tmp_path, require):
    """Return ``small_disk(fstype, free_mib)``: it returns a mount with that much free space."""
    mounted: list[Path] = []

    def make(fstype: str, free_mib: int = 3) -> Path:
        require(fstype)
        mount, image = tmp_path / "small", tmp_path / "small.img"
        mount.mkdir()
        size_mib = {"ext4": 32, "xfs": 300, "btrfs": 300}[fstype]
        with image.open("wb") as file:
            file.truncate(size_mib << 20)
        options = {"ext4": ["-F"], "xfs": ["-f"], "btrfs": ["-f"]}[fstype]
        subprocess.run(
            [f"mkfs.{fstype}", "-q", *options, image], check=True, stderr=subprocess.DEVNULL
        )
        subprocess.run(["mount", "-o", "loop", image, mount], check=True)
        mounted.append(mount)
        free = os.statvfs(mount)
        filler = max(0, free.f_bavail * free.f_frsize - (free_mib << 20))
        with (mount / "filler").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, filler))
        return mount

    yield make
    for mount in mounted:
        subprocess.run(["umount", "-l", mount], check=True)
