"""Modes, owners, times and attributes: only changes of these order the processes."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
ROUNDS = 3


def test_changes_by_one_process_after_another_end_as_they_did(spool, tmp_path, require):
    for needed in ("bpf", "ext4", "getfattr"):
        require(needed)
    mount = spool("ext4")
    command = ["bash", str(Path(__file__).with_name("attributes.sh")), str(mount)]
    done = record(Request([mount], tmp_path / "trace", command=command, stdout_to_stderr=True))
    assert done.command_status == 0
    rows = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap", rounds=ROUNDS)
    assert len(rows) == ROUNDS
    for row in rows:
        told = (Path(row["run"]) / "divergences.json").read_text()
        assert row["syscalls"] > 5_000
        assert row["divergent"] == 0, told
        assert row["final_state"]["mismatched"] == 0, row["final_state"]


BY_DESCRIPTOR_NAMES = """
import os, sys
os.chdir(sys.argv[1])
os.mkdir("d", 0o700)
open("f", "w").close()
for name, mode in (("d", 0o2770), ("f", 0o640)):
    at = os.open(name, os.O_PATH)
    os.chmod(f"/proc/self/fd/{at}", mode)  # what glibc 2.36 does of fchmodat
    os.close(at)
    assert os.stat(name).st_mode & 0o7777 == mode
at = os.open("f", os.O_RDWR)
os.write(at, b"x" * 1000)
os.truncate(f"/dev/fd/{at}", 10)
os.setxattr(f"/proc/self/fd/{at}", "user.a", b"1")
os.stat("f")
"""


def test_changes_by_names_of_open_descriptors_are_recorded_and_replayed(spool, tmp_path, require):
    for needed in ("bpf", "ext4"):
        require(needed)
    mount = spool("ext4")
    command = [sys.executable, "-c", BY_DESCRIPTOR_NAMES, str(mount)]
    done = record(Request([mount], tmp_path / "trace", command=command, stdout_to_stderr=True))
    assert done.command_status == 0
    calls = Counter(Trace.open(done.trace).table("syscalls", ["syscall"])["syscall"].to_pylist())
    assert [calls[name] for name in ("fchmod", "ftruncate", "fsetxattr")] == [2, 1, 1]
    [row] = replay(done.trace, ["ext4"], tmp_path / "out", pace="afap")
    assert (row["divergent"], row["skipped"], row["final_state"]["mismatched"]) == (0, 0, 0)
