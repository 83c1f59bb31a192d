"""Names are found through descriptors, working directories, fork and exec."""

import errno

import pytest

from spoolscope.tracers.lives import FORK, SEEN
from spoolscope.tracers.named import BASE_FD, BASE_ROOT
from spoolscope.tracers.resolve import resolve
from spoolscope.tracers.resolved import Resolved
from spoolscope.traces.abi import AT_FDCWD, O_CLOEXEC


def names(resolved: Resolved) -> list[str | None]:
    return [resolved.paths[i].decode() if i >= 0 else None for i in resolved.path.tolist()]


@pytest.fixture
def story(new_story):
    story = new_story()
    story.task(SEEN, 1, path=story.string("/spool/queue"))
    return story


def test_relative_to_cwd_and_to_dirfd(story) -> None:
    story.call(1, "openat", AT_FDCWD, "incoming/x", 0, 0, ret=5)
    story.call(1, "openat", AT_FDCWD, "active", 0, 0, ret=6)
    story.call(1, "unlinkat", 6, "y", 0)
    story.call(1, "chdir", "../vmail/./bob//")
    story.call(1, "stat", "cur")
    story.call(1, "fchdir", 6)
    story.call(1, "rename", "a", "b")
    resolved = resolve(story.end())
    assert names(resolved) == [
        "/spool/queue/incoming/x",
        "/spool/queue/active",
        "/spool/queue/active/y",
        "/spool/vmail/bob",
        "/spool/vmail/bob/cur",
        "/spool/queue/active",
        "/spool/queue/active/a",
    ]
    assert resolved.paths[resolved.path2[-1]] == b"/spool/queue/active/b"
    assert resolved.unresolved == 0


def test_a_directory_is_known_from_above_the_spool_by_its_inode(story) -> None:
    story.call(1, "open", "/spool/queue", 0, 0, ret=8, ino=70, obj_mode=0o40755)
    # Descriptor 9 was opened on a directory above the spool, which is not recorded.
    story.call(1, "openat", 9, "queue", 0, 0, ret=3, ino=70, obj_mode=0o40755)
    story.call(1, "openat", 3, "active/x", 0, 0, ret=4)
    story.call(1, "newfstatat", 9, "queue", 0, 0, ino=70, obj_mode=0o40755, dev=0)
    story.call(1, "openat", 9, "elsewhere", 0, 0, ret=3, ino=71, obj_mode=0o40755)
    story.call(1, "unlinkat", 3, "y", 0)
    story.call(1, "openat", 9, "file", 0, 0, ret=3, ino=70, obj_mode=0o100644)
    resolved = resolve(story.end())
    queue = "/spool/queue"
    assert names(resolved) == [queue, queue, f"{queue}/active/x", queue, None, None, None]
    assert resolved.base.tolist()[1:4] == [BASE_ROOT, BASE_FD, BASE_ROOT]


def test_a_link_outside_into_the_spool_is_what_it_leads_to(story) -> None:
    story.call(1, "open", "/spool/queue/a", 0, 0, ret=8, ino=70, obj_mode=0o100644)
    story.call(1, "open", "/home/me/Maildir/a", 0, 0, ret=9, ino=70, obj_mode=0o100644)
    story.call(1, "read", 9, 0, 5, ret=5, ino=70, obj_mode=0o100644)
    story.call(1, "open", "/home/me/other", 0, 0, ret=9, ino=71, obj_mode=0o100644)
    resolved = resolve(story.end())
    assert names(resolved) == ["/spool/queue/a"] * 3 + ["/home/me/other"]
    assert resolved.base.tolist() == [BASE_ROOT, BASE_ROOT, 0, BASE_ROOT]


def test_descriptors_are_duplicated_closed_and_reused(story) -> None:
    story.call(1, "open", "one", 0, 0, ret=3)
    story.call(1, "dup2", 3, 9, ret=9)
    story.call(1, "close", 3)
    story.call(1, "open", "two", 0, 0, ret=3)
    story.call(1, "read", 9, 0, 1)
    story.call(1, "read", 3, 0, 1)
    assert names(resolve(story.end()))[-2:] == ["/spool/queue/one", "/spool/queue/two"]


def test_a_failed_open_changes_nothing(story) -> None:
    story.call(1, "open", "one", 0, 0, ret=3)
    story.call(1, "open", "two", 0, 0, ret=-errno.ENOENT)
    story.call(1, "read", 3, 0, 1)
    assert names(resolve(story.end()))[-1] == "/spool/queue/one"


def test_fork_copies_and_exec_closes(story) -> None:
    story.call(1, "open", "kept", 0, 0, ret=3)
    story.call(1, "open", "lost", O_CLOEXEC, 0, ret=4)
    story.task(FORK, 2, parent_pid=1, parent_tid=1)
    story.call(1, "close", 3)
    story.call(2, "read", 3, 0, 1)
    story.call(2, "read", 4, 0, 1)
    story.task(3, 2)
    story.call(2, "read", 3, 0, 1)
    story.call(2, "stat", "here")
    resolved = resolve(story.end())
    assert names(resolved)[3:] == [
        "/spool/queue/kept",
        "/spool/queue/lost",
        "/spool/queue/kept",
        "/spool/queue/here",
    ]


def test_a_new_thread_does_not_make_a_new_process(story) -> None:
    story.task(FORK, 1, tid=7, parent_pid=1, parent_tid=1)
    story.call(1, "stat", "here")
    assert names(resolve(story.end())) == ["/spool/queue/here"]


def test_open_directories_move_with_a_renamed_parent(story) -> None:
    story.call(1, "mkdir", "box", 0o700)
    story.call(1, "mkdir", "box/cur", 0o700)
    story.call(1, "open", "box/cur", 0, 0, ret=3)
    story.call(1, "rename", "box", "tree")
    story.call(1, "unlinkat", 3, "x", 0)
    assert names(resolve(story.end()))[-1] == "/spool/queue/tree/cur/x"


def test_an_unknown_cwd_is_counted_not_guessed(new_story) -> None:
    story = new_story()
    story.call(3, "stat", "somewhere")
    resolved = resolve(story.end())
    assert names(resolved) == [None]
    assert resolved.unresolved == 1


def test_no_name_leads_above_the_root_directory_of_its_process(story) -> None:
    story.call(1, "chroot", "jail")
    story.call(1, "stat", "jail/../../one")  # the working directory is still outside
    story.call(1, "stat", "../two")
    story.call(1, "chdir", "/")
    story.call(1, "open", "/../up", 0, 0, ret=3)
    story.call(1, "read", 3, 0, 1)
    story.call(1, "chdir", "d/e")
    story.call(1, "rename", "../../../../three", "/../d/../../four")
    story.call(1, "openat", AT_FDCWD, "../..", 0, 0, ret=4)
    story.call(1, "unlinkat", 4, "../five", 0)
    story.call(1, "rmdir", "../../..")
    resolved = resolve(story.end())
    jail = "/spool/queue/jail"
    assert names(resolved) == [
        jail, f"{jail}/one", "/spool/two", jail, f"{jail}/up", f"{jail}/up", f"{jail}/d/e",
        f"{jail}/three", jail, f"{jail}/five", jail,
    ]  # fmt: skip
    assert resolved.paths[resolved.path2[7]] == f"{jail}/four".encode()
    # A replay calls by these forms, and has another root directory.
    given = [resolved.paths[at].decode() if at >= 0 else None for at in resolved.given.tolist()]
    assert given[7:] == [
        f"{jail}/d/e/../../three",
        f"{jail}/d/e/../..",
        None,
        f"{jail}/d/e/../../.",
    ]
