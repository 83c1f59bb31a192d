"""Descriptors that only stand for a name (O_PATH), and calls relative to a descriptor itself."""

import errno
import os
import stat

import pytest

from spoolscope.replay.outcomes import VERDICTS
from spoolscope.traces.calls import FIOCLEX, FIONCLEX

REG, DIR, LINK = 0o100600, 0o040700, 0o120777
BASE_FD = 3


def found(outcomes) -> list[str]:
    return [VERDICTS[verdict] for verdict in outcomes["verdict"]]


def opened(script, path: str, mode: int, flags: int = 0, size: int = 0) -> None:
    """Add the open of a name as descriptor 3."""
    script.call(10, 1, "openat", path, ret=3, flags=os.O_PATH | flags, ino=5, obj_mode=mode,
                obj_size=size)  # fmt: skip


def test_the_times_of_a_directory_are_set_by_the_name_dot(script, execute, target):
    """GNU cp does so: ``utimensat(d, ".", ...)``. The trace has no mode of its directory."""
    script.entry("d", ino=5, mode=DIR)
    opened(script, "d", DIR, os.O_DIRECTORY)
    script.call(10, 2, "utimensat", "d", base=BASE_FD, dirfd=3, given_id=script.path("d/."))
    outcomes, _ = execute(script, target)
    assert found(outcomes) == ["same", "same"]


def test_the_times_of_a_descriptor_are_set_without_a_name(script, execute, target):
    script.entry("mail", ino=5, mode=REG)
    script.call(10, 1, "openat", "mail", ret=3, ino=5, obj_mode=REG, obj_size=0)
    script.call(10, 2, "utimensat", "mail", base=BASE_FD, dirfd=3)
    outcomes, _ = execute(script, target)
    assert found(outcomes) == ["same", "same"]


def test_a_file_is_changed_by_the_name_of_its_descriptor(script, execute, target):
    """The trace has ``truncate("/proc/self/fd/3")`` as ``ftruncate(3)``; so have the others."""
    script.entry("mail", ino=5, mode=REG, size=100)
    opened(script, "mail", REG, size=100)
    on_three = {"base": 0, "fd": 3, "ino": 5, "obj_mode": REG}
    script.call(10, 2, "ftruncate", "mail", offset=7, obj_size=7, **on_three)
    name = {"path2": "user.a", "kind2": "text"}
    script.call(10, 3, "fsetxattr", "mail", size=3, obj_size=7, **name, **on_three)
    script.call(10, 4, "fsetxattr", "mail", size=4, obj_size=7, path2="user.b", kind2="text",
                **on_three)  # fmt: skip
    script.call(10, 5, "fremovexattr", "mail", obj_size=7, **name, **on_three)
    on_three["obj_mode"] = 0o100640
    script.call(10, 6, "fchmod", "mail", mode=0o640, obj_size=7, **on_three)
    outcomes, state = execute(script, target)
    assert found(outcomes) == ["same"] * 6
    left = (target / "mail").stat()
    assert (left.st_size, stat.S_IMODE(left.st_mode)) == (7, 0o640)
    assert os.listxattr(target / "mail") == ["user.b"]
    assert state["mismatched"] == 0, state["examples"]


def test_a_file_open_for_reading_is_cut_by_the_name_of_its_descriptor(script, execute, target):
    script.entry("mail", ino=5, mode=REG, size=100)
    script.call(10, 1, "openat", "mail", ret=3, ino=5, obj_mode=REG, obj_size=100)
    script.call(10, 2, "ftruncate", "mail", base=0, fd=3, offset=7, ino=5, obj_mode=REG,
                obj_size=7)  # fmt: skip
    script.call(10, 3, "ftruncate", "mail", ret=-errno.EINVAL, base=0, fd=3, offset=3, ino=5,
                obj_mode=REG, obj_size=7)  # fmt: skip
    outcomes, _ = execute(script, target)
    assert found(outcomes) == ["same"] * 3
    assert (target / "mail").stat().st_size == 7


def test_a_call_by_such_a_descriptor_fails_as_it_did(script, execute, target):
    script.entry("mail", ino=5, mode=REG, size=100)
    opened(script, "mail", REG, size=100)
    script.call(10, 2, "ftruncate", "mail", ret=-errno.EBADF, base=0, fd=3, offset=7, ino=5,
                obj_mode=REG, obj_size=100)  # fmt: skip
    outcomes, _ = execute(script, target)
    assert found(outcomes) == ["same"] * 2
    assert (target / "mail").stat().st_size == 100


def test_a_symlink_is_read_by_its_descriptor(script, execute, target):
    script.snapshot = "full"
    script.entry("link", ino=5, mode=LINK, size=6, target_id=script.path("target", "text"))
    opened(script, "link", LINK, os.O_NOFOLLOW, size=6)
    script.call(10, 2, "readlinkat", "link", ret=6, base=BASE_FD, dirfd=3, size=100)
    outcomes, _ = execute(script, target)
    assert found(outcomes) == ["same", "same"]


@pytest.mark.parametrize("cmd", [FIOCLEX, FIONCLEX])
def test_an_ioctl_does_not_take_such_a_descriptor(script, execute, target, cmd):
    """The fcntl that other ioctls of this kind are planned as would take it."""
    script.entry("mail", ino=5, mode=REG)
    opened(script, "mail", REG)
    script.call(10, 2, "ioctl", "mail", ret=-errno.EBADF, base=0, fd=3, cmd=cmd, ino=5,
                obj_mode=REG)  # fmt: skip
    outcomes, _ = execute(script, target)
    assert found(outcomes) == ["same", "same"]
