"""Recordings of small programs; programs of layers; a disk."""

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from spoolscope.replay.images import program_path
from spoolscope.replay.layers import LAYERS
from spoolscope.tracers.session import Request, record

# Those calls of mail servers that change names, sizes or modes, by three processes in three boxes.
BOXES = """
import fcntl, os, sys
os.chdir(sys.argv[1])
def use(who):
    for i in range(12):
        box, name = f"box{(who + i) % 3}", f"{i}.{who}"
        os.mkdir(f"{box}/.{name}", 0o700)
        os.chmod(f"{box}/.{name}", 0o750)
        fd = os.open(f"{box}/tmp/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, b"x" * 6000)
        os.fsync(fd)
        os.close(fd)
        os.utime(f"{box}/tmp/{name}", (i, who))
        os.link(f"{box}/tmp/{name}", f"{box}/new/{name}")
        os.unlink(f"{box}/tmp/{name}")
        os.rename(f"{box}/new/{name}", f"{box}/cur/{name}:2,S")
        os.listdir(f"{box}/cur")
        for path in (f"{box}/cur/{name}:2,S", f"{box}/cur/none", f"{box}/cur/{i}"):
            os.access(path, os.R_OK)
        os.stat(os.readlink(f"{box}/link"))
        log = os.open(f"{box}/log", os.O_RDWR | os.O_CREAT)
        fcntl.lockf(log, fcntl.LOCK_EX)
        end = os.lseek(log, 0, os.SEEK_END)
        os.write(log, b"y" * 60)
        os.lseek(log, end, os.SEEK_SET)
        os.read(log, 60)
        os.ftruncate(log, end + 30)
        os.close(log)
        os.rmdir(f"{box}/.{name}")
        if i % 3 == 0:
            os.unlink(f"{box}/cur/{i}")
pids = []
for who in range(3):
    pids.append(os.fork())
    if not pids[-1]:
        use(who)
        os._exit(0)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
"""


@pytest.fixture(scope="session")
def require_layers(require):
    """Return ``require_layers()``: skip, or fail, without the programs of dm-crypt, LVM and md."""

    def check():
        for layer in LAYERS.values():
            if not shutil.which(layer.make[0][0], path=program_path()):
                require("layers", f"no program {layer.make[0][0]}")

    return check


@pytest.fixture
def recorded(tmp_path):
    """Return ``recorded(mount, program)``: the trace of a Python program that gets the mount."""

    def run(mount, program):
        script = tmp_path / "program.py"
        script.write_text(textwrap.dedent(program))
        summary = record(
            Request(
                spools=[mount],
                output=tmp_path / "trace",
                command=[sys.executable, str(script), str(mount)],
                duration_s=None,
                pids=[],
                cgroups=[],
                comms=[],
                keep_names=True,
                snapshot="none",
            )
        )
        assert summary.command_status == 0
        return summary.trace

    return run


@pytest.fixture
def few_files(spool, tmp_path):
    """Return a recording for replays in emulated machines: some 1,000 calls in some 100 files."""
    mount = spool("ext4")
    for box in (mount / f"box{n}" for n in range(3)):
        for directory in ("tmp", "new", "cur"):
            (box / directory).mkdir(parents=True)
        for i in range(24):
            (box / "cur" / str(i)).write_bytes(b"m" * 1000 * i)
        (box / "link").symlink_to("box0/cur/23")
    command = [sys.executable, "-S", "-c", BOXES, str(mount)]
    made = record(Request([mount], tmp_path / "few-files", command, keep_names=True))
    assert made.command_status == 0
    return made.trace


@pytest.fixture
def disk(tmp_path):
    """Yield the path of a loop device of 1100 MiB, which stands in for a disk."""
    with (tmp_path / "disk").open("wb") as file:
        file.truncate(1100 << 20)
    words = ["losetup", "--find", "--show", str(tmp_path / "disk")]
    device = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    yield Path(device)
    subprocess.run(["losetup", "--detach", device], check=True)
