"""Extended attributes: in the trace as in getfattr, in the replay with their length."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.text import decoded
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

READ = """
import os, sys
for at, directories, files in os.walk(sys.argv[1]):
    for name in directories + files:
        path = os.path.join(at, name)
        for xattr in os.listxattr(path, follow_symlinks=False):
            if not xattr.startswith("system."):
                os.getxattr(path, xattr)
        try:
            os.getxattr(path, "user.none")
        except OSError:
            pass
"""


def populate(mount: Path) -> None:
    """Make attributes of any length, on files and directories; an ACL, a label, a link."""
    box = mount / "box"
    box.mkdir()
    for length in (0, 1, 100, 900):
        mail = box / f"mail{length}"
        mail.write_bytes(b"m" * length)
        os.setxattr(mail, "user.mdbox.guid", b"v" * length)
        os.setxattr(mail, f"user.{'n' * (length // 10 + 1)}", b"w" * (length // 2))
    os.link(box / "mail100", mount / "linked")
    os.setxattr(box, "user.box", b"of the directory")
    os.setxattr(box / "mail1", "trusted.label", b"trusted")
    entries = [(1, 6, 0xFFFFFFFF), (2, 4, 1234), (4, 4, 0xFFFFFFFF), (16, 4, 0xFFFFFFFF)]
    entries.append((32, 0, 0xFFFFFFFF))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(box / "mail1", "system.posix_acl_access", acl)


def getfattr(mount: Path) -> dict[tuple[str, str], int]:
    """Return the length of every attribute, by names of file and attribute, by getfattr."""
    words = ["getfattr", "-R", "-P", "-h", "-d", "-m", "-", "-e", "hex", "."]
    found, path = {}, ""
    for line in subprocess.check_output(words, cwd=mount, text=True).splitlines():
        if line.startswith("# file: "):
            path = line.removeprefix("# file: ").removeprefix(".").removeprefix("/")
        elif line:
            name, _, value = line.partition("=")
            found[path, name] = len(value.removeprefix("0x")) // 2
    return found


def table(trace: Trace) -> dict[tuple[str, str], int]:
    rows = trace.connect().execute(
        "SELECT p.path, n.path, x.length FROM xattrs x JOIN paths p USING (path_id)"
        " JOIN paths n ON n.path_id = x.name_id"
    )
    shown = ((os.fsdecode(decoded(p)), os.fsdecode(decoded(n)), v) for p, n, v in rows.fetchall())
    return {(path, name): length for path, name, length in shown}


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
@pytest.mark.parametrize("snapshot", ["full", "touched"])
def test_the_trace_has_what_getfattr_shows(fstype, snapshot, spool, tmp_path, require):
    require("getfattr")
    mount = spool(fstype)
    populate(mount)
    command = [sys.executable, "-c", READ, str(mount)]
    output = tmp_path / "trace"
    record(
        Request(spools=[mount], output=output, command=command, keep_names=True, snapshot=snapshot)
    )
    expected = getfattr(mount)
    assert len(expected) >= 13
    if snapshot == "touched":  # invisible without CAP_SYS_ADMIN
        expected = {at: n for at, n in expected.items() if not at[1].startswith("trusted.")}
    assert table(Trace.open(output)) == expected
    (row,) = replay(output, [fstype], tmp_path / "out", pace="afap")
    assert row["divergent"] == 0
    # The two of mail100 are listed under both of its names, but set once. xfs lists an ACL twice,
    # the second time as a trusted attribute, which is left out.
    assert row["xattrs"] == {"set": 11, "skipped": 1 if fstype == "xfs" else 0}
    assert row["final_state"]["mismatched"] == 0, row["final_state"]
    outcomes = pq.read_table(Path(row["run"]) / "outcomes.parquet").to_pylist()
    calls = Trace.open(output).table("syscalls").to_pylist()
    replayed = {row["call"]: row for row in outcomes if row["call"] is not None}
    checked = 0
    for at, call in enumerate(calls):
        if call["syscall"] in ("getxattr", "lgetxattr") and replayed[at]["verdict"] != "skipped":
            assert (replayed[at]["ret"], call["errno"]) == (call["ret"], call["errno"])
            checked += 1
    assert checked >= 15


def test_names_are_private_and_keep_namespace_and_length(spool, tmp_path, require):
    require("getfattr")
    mount = spool("xfs")
    populate(mount)
    output = tmp_path / "trace"
    key = tmp_path / "key"
    command = [sys.executable, "-c", READ, str(mount)]
    record(Request(spools=[mount], output=output, command=command, key_file=key))
    lengths = sorted(
        (name.partition(".")[0], len(name), n) for (_, name), n in getfattr(mount).items()
    )
    trace = Trace.open(output)
    shown = sorted((name.partition(".")[0], len(name), n) for (_, name), n in table(trace).items())
    assert shown == lengths
    for file in output.iterdir():
        for secret in (b"mdbox.guid", b"user.box", b"label", b"n" * 11):
            assert secret not in file.read_bytes(), file
    (row,) = replay(output, ["xfs"], tmp_path / "out", pace="afap")
    assert (row["divergent"], row["xattrs"]) == (0, {"set": 12, "skipped": 0})
    assert len(lengths) == 14  # mail100's two under each name; the second ACL has a strange name
