"""Names of processes, links and directories are bytes: no text, or cut within a character."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from recordings import recorded_during

from spoolscope.tracers.session import Request, record
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

NAME = "резервная_копия".encode()[:15]  # its last character is cut
# It takes the name and opens a file; its child has the name, too, and writes after a line of input.
WORK = """
import ctypes, os, sys
os.chdir(sys.argv[1])
ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[2]))
held = open("held", "w")
child = os.fork()
if child == 0:
    os.read(0, 1)
    with open("written", "w") as file:
        file.write("x")
    os._exit(0)
print(child, flush=True)
os.waitpid(child, 0)
"""


@pytest.fixture
def mount(spool) -> Path:
    made: Path = spool("ext4")
    return made


@pytest.fixture
def process(mount: Path) -> Iterator["subprocess.Popen[str]"]:
    words = [sys.executable, "-c", WORK, str(mount), NAME.hex()]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as running:
        yield running
        running.kill()


def names(trace: Trace, table: str) -> set[tuple[int, str]]:
    return set(trace.connect().execute(f"SELECT pid, comm FROM {table}").fetchall())


@pytest.mark.parametrize("chosen", [False, True])
def test_a_process_whose_name_is_no_text(
    chosen: bool, mount: Path, process: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    """It is in the snapshot by the name that its calls have, also a child of a chosen one."""
    assert process.stdout
    child = int(process.stdout.readline())
    assert Path(f"/proc/{child}/comm").read_bytes() == NAME + b"\n"
    with pytest.raises(UnicodeDecodeError):
        NAME.decode()
    options = {"pids": [process.pid]} if chosen else {}
    trace = recorded_during(lambda: process.communicate("\n"), mount, tmp_path, **options)
    calls = {(pid, comm) for pid, comm in names(trace, "syscalls") if pid == child}
    assert len(calls) == 1
    assert calls <= names(trace, "threads")
    assert {process.pid, child} <= {pid for pid, _ in names(trace, "threads")}
    at_start = trace.connect().execute("SELECT DISTINCT pid FROM open_files").fetchall()
    assert {pid for (pid,) in at_start} == {process.pid, child}
    assert trace.meta["complete"]


def test_a_link_to_the_spool_whose_name_is_no_text(mount: Path, tmp_path: Path) -> None:
    spool = mount / "mail"
    spool.mkdir()
    Path(os.fsdecode(os.fsencode(mount) + b"/\xff")).symlink_to(spool)
    trace = recorded_during((spool / "made").touch, spool, tmp_path)
    assert [path for (path,) in trace.connect().execute(
        "SELECT path FROM paths JOIN syscalls USING (path_id) WHERE syscall = 'openat'"
    ).fetchall()] == ["made"]  # fmt: skip


def test_a_spool_whose_name_is_no_text(mount: Path, tmp_path: Path) -> None:
    spool = Path(os.fsdecode(os.fsencode(mount) + b"/\xff"))
    spool.mkdir()
    with pytest.raises(SpoolscopeError, match="no UTF-8 text") as caught:
        record(Request(spools=[spool], output=tmp_path / "t", command=["true"]))
    assert caught.value.exit_code == USAGE
    assert not (tmp_path / "t").exists()
