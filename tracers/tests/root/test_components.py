"""The name that a call looks up while it sleeps; the program knows which one has to be read.

Everything is in the caches except the names themselves and the block of one directory, so that
each of its calls reads that block only, which the device's own counter confirms.
"""

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

NOBODY = 65534
# The delay is long, so that no block arrives before its call waits for it.
READ_NS = 10_000_000
CHAIN = ["alpha", "b", "b", "gamma with a longer name", "message:2,S"]
PROGRAM = """
import contextlib, json, os, sys, time
spool, device, told = sys.argv[1:4]
trials = json.load(open(told))
disk = os.open(device, os.O_RDONLY)
os.chdir(spool)

def reads():
    with open(f"/sys/block/{os.path.basename(device)}/stat") as file:
        return int(file.read().split()[0])

def attempt(trial):
    for path in trial["paths"]:
        os.access(path, os.F_OK)  # all blocks are in the cache
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("2")  # but names have to be found in them again
    os.posix_fadvise(disk, trial["block"] * 4096, 4096, os.POSIX_FADV_DONTNEED)
    before = reads()
    os.seteuid(trial["user"])
    with contextlib.suppress(OSError):
        os.stat(*trial["paths"]) if trial["call"] == "stat" else os.link(*trial["paths"])
    os.seteuid(0)
    # The kernel wakes who waits for a request before it counts that.
    end = time.monotonic() + 1
    while (n := reads() - before) == 0 and time.monotonic() < end:
        time.sleep(0.001)
    return n

for trial in trials:
    # The kernel may take another block out of the cache meanwhile: such an attempt tells nothing.
    trial["reads"] = [attempt(trial)]
    while trial["reads"][-1] != 1 and len(trial["reads"]) < 5:
        trial["reads"].append(attempt(trial))
json.dump(trials, open(told, "w"))
"""


def trials(mount: Path, blocks: dict[str, int]) -> list[dict]:
    """Return calls with the name that each has to read: directory, name, string that has it."""
    path = "/".join(CHAIN)
    made = [
        ("stat", [given], "/".join(CHAIN[:k]), CHAIN[k], "path")
        for k in range(len(CHAIN))
        for given in (path, f"{mount}//./{'//'.join(CHAIN)}")
    ]
    made += [
        ("stat", [f"{'/'.join(CHAIN[:3])}/missing"], "alpha/b/b", "missing", "path"),
        ("stat", ["short/b/missing"], "alpha", None, "link"),
        ("stat", ["short/b/missing"], "alpha/b", "b", "path"),
        ("link", ["old", path], "alpha/b", "b", "path2"),
        ("link", ["old", path], "alpha", "b", "path2"),
        ("link", [path, "old"], "alpha/b/b", CHAIN[3], "path"),
    ]
    names = ("call", "paths", "directory", "name", "of")
    tried = [dict(zip(names, t, strict=True)) | {"block": blocks[t[2]], "user": 0} for t in made]
    # The directory is found and entered: then its ACL is read, without a lookup of a name.
    entered = {"directory": "alpha", "name": None, "of": None, "block": blocks["rights"]}
    return [*tried, {"call": "stat", "paths": [path], "user": NOBODY, **entered}]


def ask(device: str, question: str) -> str:
    """Return the answer of debugfs."""
    asked = ["debugfs", "-R", question, device]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout


def build(mount: Path) -> tuple[str, dict[str, int]]:
    """Make the names; return the device, and the blocks of each directory and of the ACL."""
    (mount / Path(*CHAIN[:-1])).mkdir(parents=True)
    (mount / Path(*CHAIN)).touch()
    (mount / "old").touch()
    (mount / "short").symlink_to("alpha/b")
    os.setxattr(mount / "alpha", "user.fills-the-inode", b"x" * 40)
    rights = struct.pack(
        "<I" + 5 * "HHi", 2, 1, 7, -1, 2, 5, NOBODY, 4, 5, -1, 16, 5, -1, 32, 5, -1
    )
    os.setxattr(mount / "alpha", "system.posix_acl_access", rights)
    # The remount writes everything, so that the journal keeps no block in memory, and stops the
    # kernel from reading the bitmap of each group at some time in the first seconds.
    for way in ("ro", "rw"):
        options = f"remount,{way},no_prefetch_block_bitmaps"
        subprocess.run(["mount", "-o", options, mount], check=True)
    found = ["findmnt", "-no", "SOURCE", str(mount)]
    device = subprocess.run(found, check=True, capture_output=True, text=True).stdout.strip()
    directories = ["/".join(CHAIN[:k]) for k in range(len(CHAIN))]
    blocks = {name: int(ask(device, f'blocks "/{name}"')) for name in directories}
    told = re.search(r"File ACL: ([1-9]\d*)", ask(device, "stat /alpha"))
    assert told
    return device, blocks | {"rights": int(told[1])}


@pytest.mark.parametrize("keep_names", [True, False])
def test_the_name_that_is_read_is_the_one_that_is_told(slow_spool, tmp_path, keep_names):
    mount, disk = slow_spool("ext4")
    device, blocks = build(mount)
    disk.delay("read", READ_NS)
    told = tmp_path / "trials.json"
    told.write_text(json.dumps(trials(mount, blocks)))
    command = [sys.executable, "-S", "-c", PROGRAM, str(mount), device, str(told)]
    request = Request([mount], tmp_path / "trace", command, keep_names=keep_names)
    trace = Trace.open(record(request).trace)
    expected = json.loads(told.read_text())
    assert [t["reads"][-1] for t in expected] == [1] * len(expected), expected
    with trace.connect() as con:
        made = con.execute(
            "SELECT seq FROM syscalls WHERE syscall IN ('newfstatat', 'link', 'linkat')"
            " ORDER BY seq"
        ).fetchall()
        rows = con.execute(
            "SELECT c.seq, d.path, n.path, s.name_of"
            " FROM syscalls c JOIN segments s USING (tid, seq)"
            " LEFT JOIN paths d ON d.path_id = s.dir_id LEFT JOIN paths n ON n.path_id = s.name_id"
            " WHERE s.state = 'blocked' AND c.syscall IN ('newfstatat', 'link', 'linkat')"
            " AND s.stack_id IN (SELECT stack_id FROM stacks WHERE"
            " symbol LIKE '%ext4_find_entry%' OR symbol LIKE 'ext4_get_acl%') ORDER BY s.ts_ns"
        ).fetchall()
    attempts = [(t, n) for t in expected for n in t["reads"]]
    told_of = list(zip([seq for (seq,) in made], attempts, strict=True))
    trial_of = {seq: trial for seq, (trial, n) in told_of if n == 1}
    rows = [row for row in rows if row[0] in trial_of]
    assert len({seq for seq, *_ in rows}) == len(rows)
    assert len(rows) == len(expected)
    for seq, directory, name, of in rows:
        trial = trial_of[seq]
        assert of == trial["of"], trial
        if keep_names:
            whole = trial["name"] and f"{trial['directory']}/{trial['name']}".lstrip("/")
            assert (directory, name) == (trial["directory"], whole), trial
        elif trial["name"] is None:
            assert name is None
        else:  # of the same length, and in the same place
            assert name.startswith(f"{directory}/".lstrip("/")), trial
            assert len(Path(name).name) == len(trial["name"]), trial
