"""Files that are made without a name (O_TMPFILE), and get one when they are complete."""

import sys
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
AT_EMPTY_PATH = 0x1000

PROGRAM = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
HERE, FOLLOW, EMPTY = -100, 0x400, 0x1000
os.umask(0o027)
os.chdir(sys.argv[1])
os.mkdir("shared", 0o777)
os.chmod("shared", 0o2777)
if sys.argv[2] != "0":
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
for number, way in enumerate(sys.argv[3:]):
    place = "shared" if number % 2 else "."
    at = os.open(place, os.O_TMPFILE | os.O_RDWR, 0o666)
    os.write(at, bytes(1000 + number))
    os.fsync(at)
    name = f"{place}/{number}".encode()
    if way == "empty":
        done = libc.linkat(at, b"", HERE, name, EMPTY)
    else:
        done = libc.linkat(HERE, f"{way}{at}".encode(), HERE, name, FOLLOW)
    assert done == 0, ctypes.get_errno()
    os.close(at)
    os.link(name, name + b"-again")
    os.rename(name, name + b"-moved")
gone = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o666)
os.write(gone, b"x")
"""


def tree(root: Path) -> dict[str, tuple[int, ...]]:
    """Return mode, owner, number of names and size of what is below a directory."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.name != "lost+found":
            s = path.lstat()
            own = s.st_size if path.is_file() else 0
            found[str(path.relative_to(root))] = (s.st_mode, s.st_uid, s.st_gid, s.st_nlink, own)
    return found


@pytest.mark.parametrize(
    ("user", "ways"),
    [(0, ["empty", "/proc/self/fd/", "/dev/fd/", "empty"]), (65534, ["/proc/self/fd/"] * 2)],
    ids=["root", "user"],
)
def test_a_file_that_gets_its_name_last(spool, tmp_path, require, user, ways):
    """Only root may link by an empty name; open(2) has the way for others."""
    for needed in ("bpf", "ext4", "xfs"):
        require(needed)
    mount, left = spool("ext4"), []
    mount.chmod(0o777)

    def recorder(place: Path, command: list[str], output: Path, _show: object) -> int:
        done = record(Request([place], output, command=command, keep_names=True, snapshot="none"))
        left.append(tree(place))
        return done.command_status or 0

    command = [sys.executable, "-c", PROGRAM, str(mount), str(user), *ways]
    done = record(Request([mount], tmp_path / "trace", command=command, keep_names=True))
    assert done.command_status == 0
    calls = Trace.open(done.trace).table("syscalls").to_pylist()
    links = [call for call in calls if call["syscall"] == "linkat" and call["flags"]]
    assert [call["flags"] for call in links] == [AT_EMPTY_PATH] * len(ways)
    named = {path.lstat().st_ino for path in mount.rglob("*-moved")}
    assert {call["ino"] for call in links} == named
    [row] = replay(done.trace, ["xfs"], tmp_path / "out", pace="afap", recorder=recorder)
    told = (Path(row["run"]) / "divergences.json").read_text()
    assert (row["divergent"], row["skipped"], row["final_state"]["mismatched"]) == (0, 0, 0), told
    assert left == [tree(mount)]
