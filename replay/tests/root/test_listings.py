"""Listings that take another number of calls than in the recording."""

import sys

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

# A signal ends a getdents after the names that it has by then. The program reads a directory until
# that has happened some times.
PROGRAM = """
import ctypes, os, signal, sys, time
libc, place, room = ctypes.CDLL(None), os.open(sys.argv[1], os.O_RDONLY), bytearray(32768)
getdents64 = {"x86_64": 217, "aarch64": 61}[os.uname().machine]
buffer = (ctypes.c_char * len(room)).from_buffer(room)
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 20e-6, 20e-6)
divided, end = 0, time.monotonic() + 30
while divided < 3 and time.monotonic() < end:
    os.lseek(place, 0, os.SEEK_SET)
    calls = 0
    while libc.syscall(getdents64, place, buffer, len(room)) > 0:
        calls += 1
    divided += calls > 1
signal.setitimer(signal.ITIMER_REAL, 0)
"""

CALLS = """
SELECT ret, lag(ret, 1, 0) OVER (ORDER BY seq) FROM syscalls WHERE syscall = 'getdents64'
"""


@pytest.mark.parametrize("snapshot", ["full", "touched"])
def test_a_listing_that_a_signal_divided_is_the_same(snapshot, spool, tmp_path):
    mount = spool("ext4")
    box = mount / "box"
    box.mkdir()
    for name in range(100):
        (box / str(name)).touch()
    command = [sys.executable, "-c", PROGRAM, str(box)]
    done = record(
        Request([mount], tmp_path / "t", command=command, keep_names=True, snapshot=snapshot)
    )
    assert done.command_status == 0
    calls = Trace.open(done.trace).connect().execute(CALLS).fetchall()
    assert any(ret > 0 and before > 0 for ret, before in calls)
    (row,) = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap")
    assert row["listings"]["other_names"] == 0
    assert row["listings"]["compared" if snapshot == "full" else "not_compared"]
    assert row["divergent"] == 0
