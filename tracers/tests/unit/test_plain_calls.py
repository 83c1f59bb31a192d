"""Calls that change nothing get the same names apart as they would get among the others."""

import random

import numpy as np
import pytest

from spoolscope.tracers import named as naming
from spoolscope.tracers import resolve as resolving
from spoolscope.tracers.lives import EXEC, FORK, SEEN
from spoolscope.tracers.named import BASE_FD
from spoolscope.tracers.plain_calls import (
    CLOSE,
    IDLE,
    LOOK,
    OPEN,
    OTHER,
    PLAIN,
    REMOVE,
    RENAME,
    descriptors_of,
    kinds_of,
    second_descriptors_of,
)
from spoolscope.tracers.resolve import resolve
from spoolscope.tracers.resolved import Resolved
from spoolscope.traces.abi import AT_FDCWD, F_DUPFD, O_CLOEXEC, RENAME_EXCHANGE

pytestmark = pytest.mark.slow

COLUMNS = ("path", "path2", "given", "given2", "base", "base2", "comm", "elsewhere")
SETLK = 6


def random_story(new_story, seed: int):
    """Return calls of three processes on ten files, of every kind that matters here."""
    story, draw = new_story(), random.Random(seed)
    for pid in (1, 2):
        story.task(SEEN, pid, path=story.string("/spool/queue"), comm=f"p{pid}")
    for number in range(400):
        pid, fd, ino = draw.randrange(1, 4), draw.randrange(3, 7), draw.randrange(20, 30)
        known = {"ino": ino} if draw.random() < 0.7 else {}
        match draw.randrange(16):
            case 0 | 1:
                story.opened(pid, f"/spool/queue/{ino}", fd, ino, draw.choice((0, O_CLOEXEC)))
            case 2:
                story.call(pid, "close", fd, ret=draw.choice((0, -9)), **known)
            case 3:
                story.call(pid, "dup2", fd, fd + 1, ret=fd + 1, **known)
            case 4:
                command = draw.choice((F_DUPFD, SETLK))
                story.call(pid, "fcntl", fd, command, 0, ret=draw.choice((fd, -11)), **known)
            case 5 if number % 2:
                old, new = draw.choice((f"{ino}", f"/home/{ino}")), f"moved{number}"
                flags = draw.choice((0, RENAME_EXCHANGE))
                story.call(pid, "renameat2", draw.choice((fd, AT_FDCWD)), old, AT_FDCWD, new, flags)
            case 5:
                story.call(pid, draw.choice(("unlink", "rmdir")), f"/spool/queue/{ino}")
            case 6:
                story.call(pid, "stat", f"/spool/queue/{ino}", ret=draw.choice((0, -2)))
            case 8:
                at, path = draw.choice((fd, AT_FDCWD)), draw.choice((f"{ino}", f"../queue/{ino}/"))
                story.call(pid, "newfstatat", at, path, 0, 0, ret=draw.choice((0, -2)), **known)
            case 9:
                at = draw.choice((fd, AT_FDCWD))  # with an empty path, or a lost one
                story.call(pid, "newfstatat", at, 0, 0, 0, ret=draw.choice((0, -2)), **known)
            case 10:
                name, end = draw.choice((("mkdir", -17), ("unlink", -2), ("open", -18)))
                story.call(pid, name, draw.choice((f"/spool/{ino}", f"/home/{ino}")), ret=end)
            case 11:
                mode = draw.choice((0o40755, 0o100644))
                story.call(pid, "access", f"/home/{ino}", obj_mode=mode, **known)
            case 7 if number % 3 == 0:
                story.task(FORK, 3, parent_pid=pid, parent_tid=pid, comm="child")
            case 7:
                story.task(EXEC, pid, comm=f"exec{number}")
            case _:
                name = draw.choice(("read", "fstat", "fsync", "lseek"))
                story.call(pid, name, fd, 0, 0, ret=draw.choice((0, -5)), **known)
    return story


def shown(resolved: Resolved) -> dict[str, object]:
    columns = {name: getattr(resolved, name).tolist() for name in COLUMNS}
    return columns | {
        "paths": resolved.paths, "comms": resolved.comms, "unresolved": resolved.unresolved,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_names_are_the_same_as_among_the_others(new_story, monkeypatch, seed) -> None:
    capture = random_story(new_story, seed).end()
    apart = resolve(capture)
    kinds = kinds_of(capture.records["syscall"])
    assert {OTHER, PLAIN, IDLE, CLOSE, LOOK, OPEN, REMOVE, RENAME} == set(kinds.tolist())
    assert BASE_FD in apart.base[kinds == PLAIN]
    monkeypatch.setattr(resolving, "kinds_of", lambda calls: np.full(len(calls), OTHER, np.int8))
    assert shown(apart) == shown(resolve(capture))
    assert apart.unresolved > 0
    assert (apart.path[kinds != OTHER] >= 0).any()


def test_names_that_are_joined_again_are_the_same(new_story, monkeypatch) -> None:
    once = resolve(random_story(new_story, 3).end())
    monkeypatch.setattr(naming, "REMEMBERED", 2)
    assert shown(once) == shown(resolve(random_story(new_story, 3).end()))


def test_what_may_change_something_is_not_plain(new_story) -> None:
    story = new_story()
    story.call(1, "read", 7)
    story.call(1, "close", -1, ret=-9)
    story.call(1, "fcntl", 5, SETLK, 0)
    story.call(1, "fcntl", 5, F_DUPFD, 0, ret=6)
    story.call(1, "fsetxattr", 5, "user.name")
    story.call(1, "fstatfs", 5)
    story.call(1, "fchdir", 5)
    story.call(1, "mmap", 0, 0, 0, 0, 5)
    story.call(1, "open", "x", ret=-2)
    story.call(1, "open", "x", ret=3)
    story.call(1, "newfstatat", 6, 0)
    story.call(1, "stat", 0)
    story.call(1, "getxattr", "x", "user.name")
    story.call(1, "execve", "x", ret=-2)
    story.call(1, "unlinkat", 6, "x", 0)
    story.call(1, "renameat", 6, "x", 7, "y")
    story.call(1, "rename", "x", "y", ret=-18)
    calls = story.end().records["syscall"]
    calls["path2"][4] = calls["path"][4]
    kinds = kinds_of(calls).tolist()
    assert kinds[:8] == [PLAIN, CLOSE, IDLE, OTHER, OTHER, PLAIN, OTHER, OTHER]
    assert kinds[8:14] == [LOOK, OPEN, PLAIN, OTHER, OTHER, OTHER]
    assert kinds[14:] == [REMOVE, RENAME, OTHER]
    assert second_descriptors_of(calls)[14:].tolist() == [AT_FDCWD, 7, AT_FDCWD]
    assert descriptors_of(calls)[[0, 2, 8, 10]].tolist() == [7, 5, AT_FDCWD, 6]
