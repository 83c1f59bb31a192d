"""Calls that were denied to root without all capabilities, as to a backup that may only read."""

import subprocess
from pathlib import Path

import pytest

from spoolscope.replay.engine import Engine
from spoolscope.replay.outcomes import read_outcomes, read_plan
from spoolscope.replay.plan import build
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
REG, DIR = 0o100600, 0o040700
NOATIME, APPEND, TRUNCATE, CREATE = 0o1000000, 0o2001, 0o1001, 0o101
EPERM, EACCES = -1, -13
SAME = 1
OF_ALICE = {"uid": 5000, "gid": 5000}


@pytest.fixture
def mailbox(script, require):
    """A mailbox of a user, in which root can read with CAP_DAC_READ_SEARCH only."""
    require("root")
    script.entry("alice", ino=2, mode=DIR, **OF_ALICE)
    script.entry("alice/m", ino=5, mode=REG, size=9000, **OF_ALICE)
    script.entry("mine", ino=6, mode=0o040755)
    script.thread(10, uid=0, gid=0)
    return script


def replayed(script, tmp_path: Path) -> list[str]:
    """Return the calls with another result; the tree must be as recorded."""
    target, plan, outcomes = tmp_path / "target", tmp_path / "plan", tmp_path / "outcomes"
    target.mkdir()
    build(Trace.open(script.write(tmp_path / "trace")), plan)
    words = [find_binary("spoolscope-replay"), "run", plan, "--target", target, "--pace", "afap"]
    subprocess.run([*words, "--outcomes", outcomes], check=True)
    state = Engine(plan).verify(target)
    assert state["mismatched"] == 0, state["examples"]
    found = read_outcomes(outcomes)
    return [
        f"{number}: {op['ret']} became {one['ret']}"
        for number, (op, one) in enumerate(zip(read_plan(plan).ops, found, strict=True))
        if one["verdict"] != SAME
    ]


def test_what_only_the_owner_may_is_denied_to_who_may_read_everything(mailbox, tmp_path):
    script = mailbox
    file = {"ino": 5, "obj_mode": REG, "obj_size": 9000}
    script.call(10, 1, "openat", "alice/m", ret=EPERM, flags=NOATIME)
    script.call(10, 2, "openat", "alice/m", ret=3, flags=0, **file)
    script.call(10, 3, "chmod", "alice/m", ret=EPERM, mode=0o644)
    script.call(10, 4, "chown", "alice/m", ret=EPERM, arg=0)
    script.call(10, 5, "chmod", "alice", ret=EPERM, mode=0o755)
    script.call(10, 6, "stat", "alice/m", **file)
    assert replayed(script, tmp_path) == []


def test_what_modes_forbid_is_denied_to_a_root_without_capabilities(mailbox, tmp_path):
    script = mailbox
    file = {"ino": 5, "obj_mode": REG, "obj_size": 9000}
    script.call(10, 1, "openat", "alice/m", ret=EACCES, flags=APPEND)
    script.call(10, 2, "openat", "alice/m", ret=EACCES, flags=TRUNCATE)
    script.call(10, 3, "openat", "alice/new", ret=EACCES, flags=CREATE, mode=0o600)
    script.call(10, 4, "unlink", "alice/m", ret=EACCES)
    script.call(10, 5, "rename", "alice/m", ret=EACCES, path2="mine/m")
    script.call(10, 6, "access", "alice/m", ret=EACCES, mode=2)
    script.call(10, 7, "truncate", "alice/m", ret=EACCES, offset=0)
    # Calls that were permitted before are permitted afterwards, too.
    script.call(10, 8, "access", "alice/m", mode=2, **file)
    script.call(10, 9, "stat", "alice/m", **file)
    assert replayed(script, tmp_path) == []


def test_other_users_are_denied_as_before(mailbox, tmp_path):
    script = mailbox
    script.thread(11, uid=5001, gid=5001)
    script.call(11, 1, "openat", "alice/m", ret=EACCES, flags=0)
    script.call(11, 2, "chmod", "mine", ret=EPERM, mode=0o777)
    script.call(11, 3, "mkdir", "mine/d", ret=EACCES, mode=0o700)
    script.call(11, 4, "access", "alice/m", ret=EACCES, mode=4)
    assert replayed(script, tmp_path) == []
