"""Traces that several tests replay, and disks that they replay on."""

import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from spoolscope.replay import images
from spoolscope.replay.candidates import parse
from spoolscope.replay.targets import SMALLEST_BYTES, prepared
from spoolscope.tracers.session import Request, record

MIB = 1 << 20
Loop = Callable[..., Path]
ORACLE = Path(__file__).resolve().parents[3] / "tracers" / "tests" / "oracle"


@pytest.fixture
def every_call(
    tmp_path: Path, require: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return the trace of a program that makes every call of calls.txt, on ext4."""
    require("bpf")
    require("ext4")
    program = tmp_path / "allcalls"
    sources = sorted(map(str, ORACLE.glob("*.c")))
    subprocess.run(["cc", "-O1", "-static", "-pthread", "-o", str(program), *sources], check=True)
    monkeypatch.setenv("ALLCALLS_COUNTS", str(tmp_path / "counts"))
    with prepared(parse("ext4"), tmp_path, SMALLEST_BYTES) as spool:
        command = [str(program), str(spool.mount)]
        done = record(Request([spool.mount], tmp_path / "trace", command=command))
    assert done.command_status == 0
    return done.trace


@pytest.fixture
def loop(tmp_path: Path, require: Callable[..., None]) -> Iterator[Loop]:
    """Return ``loop(name, size_bytes, *words)``: a loop device of an empty file."""
    require("ext4")
    with ExitStack() as cleanup:

        def make(name: str = "disk", size_bytes: int = 64 * MIB, *words: str) -> Path:
            image = tmp_path / f"{name}.img"
            if not image.exists():
                image.touch()
            with image.open("r+b") as file:
                file.truncate(size_bytes)
            device = images.run("losetup", "--find", "--show", *words, image).strip()
            cleanup.callback(images.run, "losetup", "--detach", device)
            return Path(device)

        yield make


@pytest.fixture
def parted(loop: Loop, require: Callable[..., None]) -> tuple[Path, Path]:
    """Return a disk, and its partition of 32 MiB."""
    disk = loop("disk", 64 * MIB, "--partscan")
    entry = struct.pack("<B3sB3sII", 0, bytes(3), 0x83, bytes(3), 2048, 65536)
    with disk.open("r+b") as file:
        file.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
    # A kernel may have partitions that are added by hand, but read no partition table.
    told = subprocess.run(["addpart", disk, "1", "2048", "65536"], capture_output=True, check=False)
    partition = Path(f"{disk}p1")
    if told.returncode or not partition.exists():
        require("partitions", "this kernel has no partitions of loop devices")
    return disk, partition
