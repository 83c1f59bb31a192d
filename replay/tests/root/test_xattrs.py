"""Extended attributes after a replay: getfattr shows the same ones as after the recording."""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spoolscope.replay.candidates import parse
from spoolscope.replay.engine import Engine
from spoolscope.replay.pace import parse_pace
from spoolscope.replay.planned import plan
from spoolscope.replay.targets import SMALLEST_BYTES, prepared
from spoolscope.replay.whatif import WHOLE
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
# Attributes that are never made, and those that xfs shows besides an ACL.
LEFT_OUT = ("security.", "system.posix_acl_default", "trusted.SGI_")

WORK = """
import os, struct, sys
def acl(*entries):
    packed = (struct.pack("<HHI", tag, bits, who) for tag, bits, who in entries)
    return struct.pack("<I", 2) + b"".join(packed)
ALL = 0xffffffff
os.chdir(sys.argv[1])
os.setxattr("box/kept", "user.grown", b"g" * 300)
os.setxattr("box/kept", "user.new", b"n" * 20, os.XATTR_CREATE)
os.setxattr("box/kept", "trusted.seen", b"", os.XATTR_REPLACE)
os.removexattr("box/kept", "user.gone")
for wrong in ("user.new", os.XATTR_CREATE), ("user.gone", os.XATTR_REPLACE):
    try:
        os.setxattr("box/kept", wrong[0], b"w", wrong[1])
    except OSError:
        pass
with open("box/made", "w") as made:
    os.setxattr(made.fileno(), "user.made", b"m" * 7)
    os.setxattr(made.fileno(), "trusted.made", b"t" * 9)
os.link("box/made", "second")
os.rename("box/made", "box/old")
os.rename("box/moved", "moved")
os.setxattr("moved", "user.moved", b"v")
os.unlink("box/lost")
os.setxattr("box", "user.box", b"b" * 40)
os.symlink("moved", "link")
os.setxattr("link", "trusted.link", b"l" * 5, follow_symlinks=False)
os.chmod("box/shared", 0o604)
os.removexattr("second", "user.made")
# No later call tells what these come to.
named = acl((1, 7, ALL), (2, 6, 2000), (4, 1, ALL), (8, 4, 2001), (16, 5, ALL), (32, 4, ALL))
os.setxattr("box/kept", "system.posix_acl_access", named)
os.setxattr("moved", "system.posix_acl_access", acl((1, 6, ALL), (4, 2, ALL), (32, 4, ALL)))
os.setxattr("box", "system.posix_acl_access", acl((1, 7, ALL), (4, 5, ALL), (32, 1, ALL)))
os.removexattr("box/alone", "system.posix_acl_access")
"""


def acl(named: int) -> bytes:
    """Return an access ACL that names ``named`` users."""
    users = [(2, 4, 2000 + at) for at in range(named)]
    entries = [(1, 6, 0xFFFFFFFF), *users, (4, 4, 0xFFFFFFFF), (16, 4, 0xFFFFFFFF)]
    entries.append((32, 0, 0xFFFFFFFF))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def populate(mount: Path) -> None:
    box = mount / "box"
    box.mkdir()
    for name in ("kept", "moved", "lost", "old", "shared", "alone"):
        (box / name).write_text(name)
        os.setxattr(box / name, "user.own", name.encode())
    for name in ("user.grown", "user.gone", "trusted.seen"):
        os.setxattr(box / "kept", name, b"k" * 10)
    os.setxattr(box / "alone", "security.capability", struct.pack("<5I", 0x02000000, 0, 0, 0, 0))
    os.setxattr(box / "alone", "system.posix_acl_access", acl(0))
    os.setxattr(box / "shared", "system.posix_acl_access", acl(3))
    (mount / "heirs").mkdir()
    os.setxattr(mount / "heirs", "system.posix_acl_default", acl(0))


def getfattr(mount: Path) -> dict[tuple[str, str], int]:
    """Return the length of every attribute that is replayed, by file and name."""
    words = ["getfattr", "-R", "-P", "-h", "-d", "-m", "-", "-e", "hex", "."]
    found, path = {}, ""
    for line in subprocess.check_output(words, cwd=mount, text=True).splitlines():
        if line.startswith("# file: "):
            path = line.removeprefix("# file: ")
        elif line and not line.startswith(LEFT_OUT):
            name, _, value = line.partition("=")
            found[path, name] = len(value.removeprefix("0x")) // 2
    return found


def modes(mount: Path) -> dict[str, int]:
    return {str(at.relative_to(mount)): at.lstat().st_mode for at in mount.rglob("*")}


@contextmanager
def replayed(trace: Path, fstype: str, scratch: Path) -> Iterator[tuple[Path, Engine]]:
    """Replay as fast as possible; yield the tree that is left, and an engine to verify it."""
    plan(Trace.open(trace), scratch / "plan", WHOLE)
    engine = Engine(scratch / "plan")
    with prepared(parse(fstype), scratch, SMALLEST_BYTES) as target:
        built = engine.fixture(target.mount)
        # own x 6, grown, gone, seen, two ACLs; not the capability nor the default ACL, nor what
        # xfs shows of ACLs as trusted attributes.
        assert built["xattrs"] == 11
        assert built["xattrs_skipped"] == (5 if fstype == "xfs" else 2)
        files = engine.files(scratch, scratch)
        done = subprocess.run(
            engine.command(target.mount, parse_pace("afap"), "resource", files), check=False
        )
        summary = engine.summary(files, done.returncode)
        assert summary["same"] == summary["ops"]
        yield target.mount, engine


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_they_end_as_they_did_and_every_difference_is_found(fstype, spool, tmp_path, require):
    require("getfattr")
    mount = spool(fstype)
    populate(mount)
    command = [sys.executable, "-c", WORK, str(mount)]
    output = tmp_path / "trace"
    done = record(Request([mount], output, command=command, keep_names=True))
    assert done.command_status == 0
    expected = getfattr(mount)
    assert len(expected) == 14
    with replayed(output, fstype, tmp_path) as (target, engine):
        assert getfattr(target) == expected
        state = engine.verify(target)
        assert state["mismatched"] == 0, state["examples"]
        assert modes(target) == modes(mount)
        os.setxattr(target / "box/kept", "user.grown", b"x" * 300)
        os.setxattr(target / "second", "trusted.made", b"longer than it was")
        os.removexattr(target / "moved", "user.moved")
        os.removexattr(target / "box/shared", "system.posix_acl_access")
        os.setxattr(target / "link", "trusted.more", b"", follow_symlinks=False)
        found = {(e["path"], e["expected"], e["found"]) for e in engine.verify(target)["examples"]}
    assert found == {
        ("box/kept", "user.grown: the pattern", "other bytes"),
        ("box/old", "trusted.made: 9 bytes", "18 bytes"),
        ("second", "trusted.made: 9 bytes", "18 bytes"),
        ("moved", "user.moved: 1 bytes", "absent"),
        ("box/shared", "system.posix_acl_access: 60 bytes", "absent"),
        ("link", "trusted.more: absent", "0 bytes"),
    }
