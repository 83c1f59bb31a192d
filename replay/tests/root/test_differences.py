"""Classes of differences against real results of filesystems, and one in a whole replay."""

import ctypes
import errno
import fcntl
import mmap
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from spoolscope.replay.candidates import parse
from spoolscope.replay.differences import Answer, Types, known_differences
from spoolscope.replay.run import replay
from spoolscope.replay.targets import SMALLEST_BYTES, prepared
from spoolscope.tracers.session import Request, record
from spoolscope.traces.calls import CALLS, FICLONERANGE
from spoolscope.traces.flat import DTYPES

pytestmark = [pytest.mark.root, pytest.mark.steady]
TYPES = ("ext2", "ext3", "ext4", "xfs", "btrfs")
LIBC = ctypes.CDLL(None, use_errno=True)
TIB = 1 << 40
RENAME = "rename onto a directory that is not empty"
ONTO_FULL = """
import os, sys
os.chdir(sys.argv[1])
os.makedirs("full/in"); os.mkdir("empty")
try: os.rename("empty", "full")
except OSError: pass
os.rmdir("empty"); os.mkdir("empty")
"""


def c_call(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "")


def fallocate(mode: int, start: int = 1 << 14) -> Callable[[Path], None]:
    def make(at: Path) -> None:
        with (at / "ranges").open("wb", buffering=0) as file:
            file.write(bytes(1 << 17))
            os.fsync(file.fileno())
            offset, length = ctypes.c_long(start), ctypes.c_long(1 << 14)
            c_call(LIBC.fallocate(file.fileno(), mode, offset, length))

    return make


def onto_full(at: Path) -> None:
    (at / "from").mkdir()
    (at / "onto" / "in").mkdir(parents=True)
    (at / "from").rename(at / "onto")


def links(n: int) -> Callable[[Path], None]:
    def make(at: Path) -> None:
        (at / "names").mkdir()
        (at / "file").touch()
        for number in range(1, n):
            os.link(at / "file", at / "names" / str(number))

    return make


def unaligned(at: Path) -> None:
    fd = os.open(at / "direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    try:
        os.write(fd, memoryview(mmap.mmap(-1, 4096))[:100])
    finally:
        os.close(fd)


def attribute(n: int) -> Callable[[Path], None]:
    def make(at: Path) -> None:
        (at / "labelled").touch()
        os.setxattr(at / "labelled", "user.a", bytes(n))

    return make


def long_file(n: int) -> Callable[[Path], None]:
    def make(at: Path) -> None:
        (at / "long").touch()
        os.truncate(at / "long", n)

    return make


def far_seek(n: int) -> Callable[[Path], None]:
    def make(at: Path) -> None:
        with (at / "sought").open("wb") as file:
            os.lseek(file.fileno(), n, os.SEEK_SET)

    return make


def clone(offset: int) -> Callable[[Path], None]:
    def make(at: Path) -> None:
        (at / "whole").write_bytes(bytes(8192))
        with (at / "whole").open("rb") as source, (at / "clone").open("wb") as file:
            ends = struct.pack("qQQQ", source.fileno(), offset, 4096, offset)
            fcntl.ioctl(file, FICLONERANGE, ends)

    return make


# By name: the call, its arguments that matter, and a function that makes it.
CASES: dict[str, tuple[str, dict[str, int], Callable[[Path], None]]] = {
    "rename": ("rename", {}, onto_full),
    "symlink": ("symlink", {"text": 1024}, lambda at: (at / "s").symlink_to("t" * 1024)),
    "symlink, short": ("symlink", {"text": 1023}, lambda at: (at / "s3").symlink_to("t" * 1023)),
    "links 65001": ("link", {}, links(65_001)),
    "xattr 5000": ("setxattr", {}, attribute(5000)),
    "xattr 20000": ("setxattr", {}, attribute(20_000)),
    "direct": ("write", {"direct": 1}, unaligned),
    "truncate 3 TiB": ("truncate", {"offset": 3 * TIB}, long_file(3 * TIB)),
    "truncate 17 TiB": ("truncate", {"offset": 17 * TIB}, long_file(17 * TIB)),
    "lseek 17 TiB": ("lseek", {"offset": 17 * TIB}, far_seek(17 * TIB)),
    "clone": ("ioctl", {}, clone(4096)),
    "clone, no whole block": ("ioctl", {}, clone(1)),
    **{f"fallocate {mode}": ("fallocate", {"flags": mode}, fallocate(mode))
       for mode in (0, 1, 3, 8, 16, 32, 64)},
    **{f"fallocate {mode} at the end": ("fallocate", {"flags": mode}, fallocate(mode, 1 << 17))
       for mode in (8, 32)},
}  # fmt: skip


def answered(make: Callable[[Path], None], at: Path) -> int:
    at.mkdir()
    try:
        make(at)
    except OSError as error:
        return error.errno or 0
    return 0


def asked(call: str, what: dict[str, int], recorded: int, replayed: int) -> Answer:
    op = np.zeros(1, DTYPES["plan_op"])[0]
    op["op"], op["offset"], op["size"] = CALLS[call].id, what.get("offset", -1), -1
    op["flags"] = what.get("flags", 0)
    return Answer(op, recorded, replayed, what.get("text", 0), bool(what.get("direct")))


def test_classes_say_what_these_filesystems_do(tmp_path, require):
    """For every pair of types with different results there is a class with both results."""
    found: dict[str, dict[str, int]] = {}
    for fstype in TYPES:
        require("ext4" if fstype.startswith("ext") else fstype)
        with prepared(parse(fstype), tmp_path, SMALLEST_BYTES) as target:
            for number, (name, (_, _, make)) in enumerate(CASES.items()):
                answer = answered(make, target.mount / str(number))
                found.setdefault(name, {})[fstype] = answer
    assert len(set(found["rename"].values())) == 2
    for name, answers in found.items():
        call, what, _ = CASES[name]
        for recorded in TYPES:
            for candidate in TYPES:
                before, after = answers[recorded], answers[candidate]
                types = Types(frozenset([recorded]), candidate)
                fits = [d for d in known_differences()
                        if d.fits(asked(call, what, before, after), types)]  # fmt: skip
                assert bool(fits) == (before != after), (name, recorded, candidate, answers)


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_a_refused_rename_is_a_difference_of_xfs(tmp_path, require, fstype):
    require("bpf")
    for name in ("ext4", "xfs", "btrfs"):
        require(name)
    with prepared(parse(fstype), tmp_path, SMALLEST_BYTES) as target:
        command = [sys.executable, "-c", ONTO_FULL, str(target.mount)]
        done = record(Request([target.mount], tmp_path / "trace", command=command))
    assert done.command_status == 0
    rows = replay(done.trace, ["ext4", "xfs", "btrfs"], tmp_path / "out", pace="afap")
    by = {row["candidate"]: SimpleNamespace(**row) for row in rows}
    for name, row in by.items():
        other = (name == "xfs") != (fstype == "xfs")
        assert row.divergent == 0, row.divergences
        assert row.of_filesystem == int(other), (fstype, name)
        assert row.divergences["of_filesystem"] == ({RENAME: 1} if other else {})
        assert row.certificate["calls"]["of_filesystem"] == int(other)
        if other:
            (root,) = row.divergences["roots"]
            words = {errno.errorcode[errno.EEXIST], errno.errorcode[errno.ENOTEMPTY]}
            assert {root["recorded"], root["replayed"]} == words
            assert (root["filesystem"], root["class"]) == (name, RENAME)
