"""Files cloned by ioctl, and close-on-exec that an ioctl sets."""

import errno
import os
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.outcomes import VERDICTS
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.traces.calls import FICLONE, FICLONERANGE, FIOCLEX, FIONCLEX
from spoolscope.traces.trace import Trace

REG = 0o100600
CREATE = 0o302
FS_IOC_SHUTDOWN = 0x8004587D - (1 << 32)


@pytest.fixture
def unshared(target) -> Path:
    """A directory on a filesystem whose files share no blocks."""
    (target / "a").write_bytes(b"x")
    words = ["cp", "--reflink=always", target / "a", target / "b"]
    if subprocess.run(words, capture_output=True, check=False).returncode == 0:
        pytest.skip("the filesystem of the test directory has files that share blocks")
    for left in target.iterdir():
        left.unlink()
    return Path(target)


def verdicts(script, tmp_path: Path, target: Path):
    trace = script.write(tmp_path / "trace")
    (row,) = replay(trace, [f"dir:{target}"], tmp_path / "out", pace="afap")
    table = pq.read_table(Path(row["run"]) / "outcomes.parquet")
    return table.column("verdict").to_pylist(), table.column("errno").to_pylist(), row


def open_both(script) -> None:
    script.entry("mail", ino=5, mode=REG, size=90_000)
    script.call(10, 1, "openat", "mail", ret=3, ino=5, obj_mode=REG, obj_size=90_000)
    script.call(10, 2, "openat", "copy", ret=4, flags=CREATE, mode=0o600, ino=6, obj_mode=REG,
                obj_size=0)  # fmt: skip


def clone(script, at: float, cmd: int, after: int, ret: int = 0, **values) -> None:
    """Add a clone that leaves ``after`` bytes."""
    script.call(10, at, "ioctl", "copy", ret=ret, base=0, fd=4, fd2=3, cmd=cmd, ino=6,
                obj_mode=REG, obj_size=after, **values)  # fmt: skip


def test_what_cannot_be_cloned_is_copied_and_told(script, tmp_path, unshared):
    """Later calls find the recorded data, so that one difference causes no more."""
    open_both(script)
    clone(script, 3, FICLONE, 90_000)
    script.call(10, 4, "pread64", "copy", ret=4096, base=0, fd=4, offset=81_920, size=4096, ino=6,
                obj_mode=REG, obj_size=90_000)  # fmt: skip
    clone(script, 5, FICLONERANGE, 135_056, arg=81_920, size=0, offset=126_976)
    script.call(10, 6, "fstat", "copy", base=0, fd=4, ino=6, obj_mode=REG, obj_size=135_056)
    found, errors, row = verdicts(script, tmp_path, unshared)
    assert found == ["same", "same", "diverged", "same", "diverged", "same"]
    assert (errors[2], errors[4]) == (errno.EOPNOTSUPP, errno.EOPNOTSUPP)
    assert row["final_state"]["mismatched"] == 0, row["final_state"]


def test_a_copy_has_the_holes_of_what_was_cloned(script, execute, unshared):
    """Without holes the copy of a file of a terabyte would take as much on every filesystem."""
    size, tail = 1 << 40, (1 << 40) - 4096
    script.call(10, 1, "openat", "map", ret=3, flags=CREATE, mode=0o600, ino=5, obj_mode=REG,
                obj_size=0)  # fmt: skip
    of_map = {"base": 0, "fd": 3, "ino": 5, "obj_mode": REG, "obj_size": size}
    script.call(10, 2, "ftruncate", "map", offset=size, **of_map)
    script.call(10, 3, "pwrite64", "map", ret=5000, offset=1 << 30, size=5000, **of_map)
    script.call(10, 4, "openat", "copy", ret=4, flags=CREATE, mode=0o600, ino=6, obj_mode=REG,
                obj_size=0)  # fmt: skip
    clone(script, 5, FICLONE, size)
    for at, (offset, ret) in enumerate([(tail, 4096), (size, 0)], 6):
        script.call(10, at, "pread64", "copy", ret=ret, base=0, fd=4, offset=offset, size=4096,
                    ino=6, obj_mode=REG, obj_size=size)  # fmt: skip
    script.call(10, 9, "lseek", "map", ret=0, cmd=1, offset=0, **of_map)
    outcomes, state = execute(script, unshared)
    assert [VERDICTS[v] for v in outcomes["verdict"]] == ["same"] * 4 + ["diverged"] + ["same"] * 3
    copy = (unshared / "copy").stat()
    assert (copy.st_size, copy.st_blocks * 512 < 1 << 20) == (size, True)
    with (unshared / "map").open("rb") as source, (unshared / "copy").open("rb") as copied:
        written = [os.pread(file.fileno(), 6000, 1 << 30) for file in (source, copied)]
    assert written[0] == written[1] != bytes(6000)
    assert state["mismatched"] == 0, state["examples"]


def test_a_clone_that_was_refused_is_refused(script, tmp_path, unshared):
    open_both(script)
    clone(script, 3, FICLONE, 0, ret=-errno.EOPNOTSUPP)
    script.call(10, 4, "fstat", "copy", base=0, fd=4, ino=6, obj_mode=REG, obj_size=0)
    found, _, row = verdicts(script, tmp_path, unshared)
    assert found == ["same"] * 4
    assert row["final_state"]["mismatched"] == 0, row["final_state"]


def test_no_other_command_is_made(script, tmp_path, target):
    open_both(script)
    clone(script, 3, FS_IOC_SHUTDOWN, 0)
    found, _, row = verdicts(script, tmp_path, target)
    assert found == ["same", "same", "skipped"]
    assert row["certificate"]["calls"]["skipped_for"] == {"unsupported": 1}


def test_a_clone_reads_one_file_and_writes_the_other(script, tmp_path):
    open_both(script)
    script.call(11, 3, "truncate", "mail", offset=50_000, ino=5, obj_mode=REG, obj_size=50_000)
    clone(script, 5, FICLONE, 50_000)
    script.call(12, 7, "stat", "copy", ino=6, obj_mode=REG, obj_size=50_000)
    script.call(11, 9, "truncate", "mail", offset=0, ino=5, obj_mode=REG, obj_size=0)
    plan_file = tmp_path / "plan"
    build(Trace.open(script.write(tmp_path / "trace")), plan_file)
    told = Engine(plan_file).explain("resource", [3, 4, 5])["explained"]
    waits = [{(edge["before"], edge["did"]) for edge in one["waits"]} for one in told]
    assert waits == [{(2, "changes")}, {(3, "changes")}, {(3, "reads")}]


@pytest.mark.parametrize("marked", [True, False])
def test_what_an_ioctl_marked_is_closed_by_exec(script, tmp_path, target, marked):
    script.entry("mail", ino=5, mode=REG, size=10)
    flags = 0 if marked else 0o2000000
    script.call(10, 1, "openat", "mail", ret=3, flags=flags, ino=5, obj_mode=REG, obj_size=10)
    script.call(10, 2, "ioctl", "mail", base=0, fd=3, cmd=FIOCLEX if marked else FIONCLEX, ino=5,
                obj_mode=REG, obj_size=10)  # fmt: skip
    script.event("exec", 10, 3)
    wrong = -errno.EBADF if marked else 10
    script.call(10, 4, "read", None if marked else "mail", ret=wrong, base=0, fd=3, size=100)
    found, _, _ = verdicts(script, tmp_path, target)
    assert found == ["same"] * 4
