"""Locks and mappings from before the recording, compared with the program and with /proc."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spoolscope.tracers.request import Limit
from spoolscope.tracers.session import Request, record
from spoolscope.traces.recording import Recording
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
PROGRAM = Path(__file__).with_name("held.py")
LOCK = re.compile(r"\d+: +(-> +)?(\w+) +\w+ +(\w+) (-?\d+) (\S+):(\d+) (\d+) (\w+)")
MAPPING = re.compile(r"(\w+)-(\w+) (....) (\w+) (\S+) (\d+) ")
KINDS = {"POSIX": "posix", "OFDLCK": "ofd", "FLOCK": "flock", "LEASE": "lease"}
Rows = list[list]
Hold = Callable[[Path], tuple[Rows, Rows]]


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Return ``hold(directory)``: it starts a program that holds files there, and returns these."""
    running: list[subprocess.Popen[str]] = []

    def begin(directory: Path) -> tuple[Rows, Rows]:
        command = [sys.executable, PROGRAM, directory]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        running.append(subprocess.Popen(command, text=True, **pipes))
        assert running[-1].stdout is not None
        locks, mappings = json.loads(running[-1].stdout.readline())
        [waiter] = [lock[0] for lock in locks if lock[3]]
        waits = re.compile(rf"-> +POSIX +\w+ +\w+ {waiter} ")
        deadline = time.monotonic() + 60
        while not waits.search(Path("/proc/locks").read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return locks, mappings

    yield begin
    for process in running:
        process.communicate()


def device(mount: Path) -> int:
    text = subprocess.check_output(["findmnt", "-nro", "MAJ:MIN", mount], text=True)
    major, minor = text.split(":")
    return int(major) << 20 | int(minor)


def as_hexadecimal(dev: int) -> str:
    return f"{dev >> 20:02x}:{dev & 0xFFFFF:02x}"


def listed_locks(dev: int) -> Rows:
    """Return rows of /proc/locks: pid, kind, exclusive, waiting, inode, start, length."""
    found = []
    for line in Path("/proc/locks").read_text().splitlines():
        match = LOCK.match(line)
        if match and match[5] == as_hexadecimal(dev):
            arrow, kind, mode, pid, _, ino, start, end = match.groups()
            length = None if end == "EOF" else int(end) - int(start) + 1
            owner = int(pid) if int(pid) > 0 else None
            row = [owner, KINDS[kind], mode == "WRITE", bool(arrow), int(ino), int(start), length]
            found.append(row)
    return in_order(found)


def listed_mappings(pid: int, dev: int) -> Rows:
    """Return rows of /proc/PID/maps: inode, address, length, offset, protection, shared."""
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        match = MAPPING.match(line)
        if match and match[5] == as_hexadecimal(dev):
            begin, end, offset = (int(match[i], 16) for i in (1, 2, 4))
            prot = sum(1 << i for i, letter in enumerate(match[3][:3]) if letter != "-")
            shared = match[3][3] == "s"
            found.append([int(match[6]), begin, end - begin, offset, prot, shared])
    return in_order(found)


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=repr)


def ask(trace: Trace, sql: str) -> Rows:
    return in_order([list(row) for row in trace.connect().execute(sql).fetchall()])


LOCKS = """SELECT pid, held_locks.kind, exclusive, waiting, path, ino, "start", length
           FROM held_locks LEFT JOIN paths USING (path_id)"""
MAPPINGS = """SELECT pid, path, ino, address, length, "offset", prot, shared
              FROM mappings LEFT JOIN paths USING (path_id)"""


@pytest.mark.parametrize("fstype", ["ext4", "btrfs"])
def test_what_was_held_before_is_in_the_trace(fstype, spool, hold, tmp_path):
    mount = spool(fstype)
    if fstype == "btrfs":  # stat(2) gives a subvolume a device of its own
        subprocess.run(["btrfs", "-q", "subvolume", "create", mount / "box"], check=True)
    else:
        (mount / "box").mkdir()
    locks, mappings = hold(mount / "box")
    dev, pid = device(mount), mappings[0][0]
    request = Request(spools=[mount], output=tmp_path / "t", duration_s=0.5, keep_names=True)
    trace = Trace.open(record(request).trace)
    assert ask(trace, LOCKS) == in_order(locks)
    assert ask(trace, MAPPINGS) == in_order(mappings)
    assert [row[:4] + row[5:] for row in ask(trace, LOCKS)] == in_order(listed_locks(dev))
    assert in_order([row[2:] for row in ask(trace, MAPPINGS)]) == listed_mappings(pid, dev)
    for table in ("held_locks", "mappings"):
        [(devs, first, last)] = ask(
            trace, f"SELECT list(DISTINCT dev), min(ts_ns), max(ts_ns) FROM {table}"
        )
        assert devs == [dev]
        assert trace.meta["start_ns"] < first <= last <= trace.meta["snapshot_ns"]


def test_every_trace_of_a_divided_recording_has_them(spool, hold, tmp_path):
    mount, output = spool("ext4"), tmp_path / "rec"
    (mount / "box").mkdir()
    locks, mappings = hold(mount / "box")
    record(
        Request(
            spools=[mount],
            output=output,
            duration_s=4,  # a slow machine takes a second for a part
            keep_names=True,
            rotate=Limit(age_s=0.5),
        )
    )
    traces = [Trace.open(trace) for trace in Recording.open(output).traces()]
    assert len(traces) >= 3
    for trace in traces:
        assert ask(trace, LOCKS) == in_order(locks)
        assert ask(trace, MAPPINGS) == in_order(mappings)
