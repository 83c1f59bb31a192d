"""Calls that failed for reasons that a replay does not have: they change nothing here either."""

import errno
import fcntl
import os

import pytest

from spoolscope.replay.outcomes import REASONS, VERDICTS
from spoolscope.replay.run import replay

REG = 0o100600
OPENED = {"ino": 5, "obj_mode": REG, "obj_size": 100}
MAIL = {"base": 0, "fd": 3, **OPENED}
SAME = ("same", "none")


def ends(outcomes) -> list[tuple[str, str]]:
    """Return verdict and reason of each call after the open."""
    pairs = zip(outcomes["verdict"], outcomes["reason"], strict=True)
    return [(VERDICTS[verdict], REASONS[reason]) for verdict, reason in pairs][1:]


@pytest.fixture
def mail(script):
    """A trace in which descriptor 3 leads to a file of 100 bytes."""
    script.entry("mail", ino=5, mode=REG, size=100)
    script.call(10, 1, "openat", "mail", ret=3, flags=os.O_RDWR, **OPENED)
    return script


@pytest.mark.parametrize(
    ("error", "flags"), [(errno.ENOSPC, 0), (errno.EINVAL, 8)], ids=["space", "collapse"]
)
def test_a_preallocation_that_failed_needs_no_room(mail, tmp_path, target, error, flags):
    mail.call(10, 2, "fallocate", "mail", ret=-error, size=1 << 40, offset=0, flags=flags, **MAIL)
    trace = mail.write(tmp_path / "trace")
    (row,) = replay(trace, [f"dir:{target}"], tmp_path / "out", pace="afap")
    assert row["syscalls"] == 2


@pytest.mark.parametrize("call", ["setxattr", "getxattr", "removexattr"])
def test_a_name_in_no_namespace_gets_none(mail, execute, target, call):
    mail.call(10, 2, call, "mail", ret=-errno.ENOTSUP, size=3, path2="bogus.a", kind2="text",
              ino=5, obj_mode=REG)  # fmt: skip
    outcomes, _ = execute(mail, target)
    assert ends(outcomes) == [SAME]
    assert os.listxattr(target / "mail") == []


def test_a_descriptor_above_the_limit_is_not_made(mail, execute, target):
    for at, least in enumerate((25, -1)):
        mail.call(10, 2 + at, "fcntl", "mail", ret=-errno.EINVAL, cmd=fcntl.F_DUPFD, arg=least,
                  **MAIL)  # fmt: skip
    outcomes, _ = execute(mail, target)
    assert ends(outcomes) == [("skipped", "used_up")] * 2


def test_a_write_above_the_limit_of_file_sizes_is_not_made(mail, execute, target):
    mail.call(10, 2, "lseek", "mail", ret=1 << 40, offset=1 << 40, cmd=os.SEEK_SET, **MAIL)
    mail.call(10, 3, "write", "mail", ret=-errno.EFBIG, size=10, offset=1 << 40, **MAIL)
    outcomes, _ = execute(mail, target)
    assert ends(outcomes) == [SAME, ("skipped", "used_up")]
    assert (target / "mail").stat().st_size == 100


def test_a_bad_address_is_not_recorded(mail, execute, target):
    mail.call(10, 2, "write", "mail", ret=-errno.EFAULT, size=10, offset=0, **MAIL)
    mail.call(10, 3, "stat", "mail", ret=-errno.EFAULT)
    mail.call(10, 4, "mkdir", "made", ret=-errno.EFAULT, mode=0o700)
    mail.call(10, 5, "execve", "mail", ret=-errno.EFAULT)
    outcomes, state = execute(mail, target)
    assert ends(outcomes) == [("skipped", "unsupported")] * 3 + [SAME]
    assert [entry.name for entry in target.iterdir()] == ["mail"]
    assert state["mismatched"] == 0, state["examples"]


def test_the_number_of_parts_of_a_vector_is_not_recorded(mail, execute, target):
    mail.call(10, 2, "writev", "mail", ret=-errno.EINVAL, size=640, offset=0, **MAIL)
    mail.call(10, 3, "preadv", "mail", ret=-errno.EINVAL, size=640, offset=0, **MAIL)
    # A bad offset is recorded.
    mail.call(10, 4, "pwritev", "mail", ret=-errno.EINVAL, size=640, offset=-1, **MAIL)
    outcomes, _ = execute(mail, target)
    assert ends(outcomes) == [("skipped", "unsupported")] * 2 + [SAME]
    assert (target / "mail").stat().st_size == 100


def test_what_is_not_aligned_is_refused_again(script, execute, target):
    script.entry("mail", ino=5, mode=REG, size=100)
    script.call(10, 1, "openat", "mail", ret=3, flags=os.O_RDWR | os.O_DIRECT, **OPENED)
    script.call(10, 2, "writev", "mail", ret=-errno.EINVAL, size=10, offset=0, **MAIL)
    outcomes, _ = execute(script, target)
    assert ends(outcomes)[0][0] != "skipped"
