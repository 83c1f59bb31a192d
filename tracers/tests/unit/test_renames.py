"""Names follow renames and inodes; if the kernel's inode contradicts, there is no name."""

import pytest

from spoolscope.tracers.lives import EXIT, FORK, SEEN
from spoolscope.tracers.resolve import resolve
from spoolscope.traces.abi import AT_FDCWD

DIRECTORY = 0o040700
EXCHANGE, CREATE = 2, 0o300
STRANGER = 99  # a descriptor that no recorded call made


def names(story) -> list[str | None]:
    resolved = resolve(story.end())
    return [resolved.paths[i].decode() if i >= 0 else None for i in resolved.path.tolist()]


def read(story, pid: int, fd: int, ino: int) -> None:
    story.call(pid, "read", fd, 0, 1, ret=1, ino=ino)


def test_a_file_renamed_while_open_is_found_under_its_new_name(new_story) -> None:
    story = new_story()
    story.opened(1, "/spool/tmp/x", 3, 50, CREATE)
    story.call(1, "rename", "/spool/tmp/x", "/spool/new/x")
    read(story, 1, 3, 50)
    read(story, 2, STRANGER, 50)
    assert names(story)[-2:] == ["/spool/new/x", "/spool/new/x"]


def test_inodes_move_with_every_directory_above_them(new_story) -> None:
    story = new_story()
    for path, ino, mode in (("a", 10, DIRECTORY), ("a/b", 11, DIRECTORY), ("a/b/m", 12, 0o100600)):
        story.name(f"/spool/{path}", ino, mode)
    story.call(1, "rename", "/spool/a/b", "/spool/a/c")
    story.call(1, "rename", "/spool/a", "/spool/z")
    read(story, 1, STRANGER, 12)
    story.call(1, "rename", "/spool/z/c/m", "/spool/z/c/n")
    read(story, 1, STRANGER, 12)
    assert [names(story)[i] for i in (2, 4)] == ["/spool/z/c/m", "/spool/z/c/n"]


def test_exchanged_directories_take_their_content_with_them(new_story) -> None:
    story = new_story()
    for path, ino, mode in (
        ("a", 10, DIRECTORY),
        ("a/m", 11, 0o100600),
        ("b", 20, DIRECTORY),
        ("b/m", 21, 0o100600),
    ):
        story.name(f"/spool/{path}", ino, mode)
    story.opened(1, "/spool/a", 3, 10)
    story.call(1, "renameat2", AT_FDCWD, "/spool/a", AT_FDCWD, "/spool/b", EXCHANGE)
    story.call(1, "unlinkat", 3, "x", 0)
    read(story, 1, STRANGER, 11)
    read(story, 1, STRANGER, 21)
    assert names(story)[2:] == ["/spool/b/x", "/spool/b/m", "/spool/a/m"]


@pytest.mark.parametrize("call", ["unlink", "rmdir"])
def test_a_removed_name_does_not_stay_with_its_inode(new_story, call) -> None:
    story = new_story()
    story.name("/spool/old", 50)
    story.call(1, call, "/spool/old")
    read(story, 1, STRANGER, 50)
    assert names(story)[-1] is None


def test_a_hard_link_keeps_its_inode_known(new_story) -> None:
    story = new_story()
    story.opened(1, "/spool/tmp/x", 3, 50, CREATE)
    story.call(1, "link", "/spool/tmp/x", "/spool/new/x")
    story.call(1, "unlink", "/spool/tmp/x")
    read(story, 1, STRANGER, 50)
    assert names(story)[-1] == "/spool/new/x"


def test_an_inode_number_given_out_again_forgets_its_old_name(new_story) -> None:
    story = new_story()
    story.name("/spool/old", 50)  # unlinked by a process that is not recorded
    story.opened(1, "/spool/young", 3, 50, CREATE)
    story.call(1, "unlink", "/spool/young")
    read(story, 1, STRANGER, 50)
    assert names(story)[-1] is None


def test_a_mapping_keeps_its_name_after_the_file_lost_it(new_story) -> None:
    story = new_story()
    story.name("/spool/index", 50)
    story.call(1, "unlink", "/spool/index")
    story.call(1, "munmap", 0x1000, 4096, ino=50)
    assert names(story)[-1] == "/spool/index"


def test_inode_numbers_of_btrfs_subvolumes_name_nothing(new_story) -> None:
    story = new_story("btrfs")
    story.name("/spool/a/m", 257)
    story.name("/spool/b/m", 257)
    story.name("/spool/c/m", 258, nlink=2)
    story.name("/spool/c/n", 258, nlink=2)
    read(story, 1, STRANGER, 257)
    read(story, 1, STRANGER, 258)
    story.opened(1, "/spool/b/m", 3, 257)
    read(story, 1, 3, 257)
    found = names(story)
    assert found[0] is None
    assert found[1] in ("/spool/c/m", "/spool/c/n")
    assert found[3] == "/spool/b/m"


def test_a_descriptor_replaced_unseen_loses_its_name(new_story) -> None:
    story = new_story()
    story.name("/spool/known", 60)
    story.opened(1, "/spool/first", 3, 50)
    read(story, 1, 3, 60)
    read(story, 1, 3, 61)
    story.call(1, "dup", 3, ret=4, ino=61)
    read(story, 1, 4, 61)
    resolved = resolve(story.end())
    assert names(story)[1:] == ["/spool/known", None, None, None]
    assert resolved.unresolved == 3


def test_an_open_that_cannot_be_named_does_not_leave_the_old_name(new_story) -> None:
    story = new_story()
    story.opened(1, "/spool/first", 3, 50)
    story.call(1, "open", "relative", 0, 0, ret=3)
    story.call(1, "fsync", 3)
    assert names(story)[-1] is None


def test_close_range_may_only_mark(new_story) -> None:
    story = new_story()
    story.opened(1, "/spool/x", 3, 50)
    story.call(1, "close_range", 3, 9, 4)
    read(story, 1, 3, 0)
    story.task(3, 1)
    read(story, 1, 3, 0)
    assert names(story)[-2:] == ["/spool/x", None]


def test_a_process_lives_as_long_as_its_last_thread(new_story) -> None:
    story = new_story()
    story.task(FORK, 1, parent_pid=9, parent_tid=9)
    story.task(FORK, 1, tid=2, parent_pid=1, parent_tid=1)
    story.opened(1, "/spool/x", 3, 50)
    story.task(EXIT, 1)
    story.call(1, "read", 3, 0, 1, tid=2)
    story.task(EXIT, 1, tid=2)
    story.call(1, "read", 3, 0, 1, tid=2)
    assert names(story)[-2:] == ["/spool/x", None]


def test_the_snapshot_holds_from_its_own_time_on(new_story) -> None:
    story = new_story()
    story.call(1, "stat", "x")  # no chdir before the snapshot: the cwd was the same
    story.call(2, "stat", "x")
    story.call(2, "chdir", "elsewhere")
    story.call(2, "stat", "x")
    read(story, 1, 3, 0)
    story.call(1, "close", 4)
    story.task(SEEN, 1, path=story.string("/spool/one"))
    story.task(SEEN, 2, path=story.string("/spool/two"))
    for fd in (3, 4):
        story.add("open_file", ts_ns=story.now, pid=1, fd=fd, path=f"/spool/f{fd}", ino=fd, dev=7)
    story.call(2, "stat", "x")
    assert names(story) == [
        "/spool/one/x",
        None,
        None,
        None,
        "/spool/f3",
        None,
        "/spool/two/x",
    ]


def test_a_wrong_working_directory_is_noticed(new_story) -> None:
    """The recorder notes it when the first call of a thread has returned."""
    story = new_story()
    story.name("/spool/one", 10, DIRECTORY)
    story.name("/spool/two", 20, DIRECTORY)
    for pid, ino in ((1, 10), (2, 20), (3, 30)):
        story.task(SEEN, pid, path=story.string("/spool/one"))
        story.task(SEEN, pid, cwd_dev=7, cwd_ino=ino)
        story.call(pid, "stat", "x")
    story.task(SEEN, 4, path=story.string("/spool/one"))
    story.task(SEEN, 4, cwd_dev=7, cwd_ino=20)  # after the chdir, which was the first call
    story.call(4, "chdir", "/spool/two")
    story.call(4, "stat", "x")
    assert names(story) == [
        "/spool/one/x",
        "/spool/two/x",
        None,
        "/spool/two",
        "/spool/two/x",
    ]


def test_other_names_of_a_spool_are_read_as_its_own(new_story) -> None:
    story = new_story()
    story.capture.meta["aliases"] = {"/link": "/spool", "/link/deep": "/spool/a", "/mail": "/spool"}
    story.task(SEEN, 1, path=story.string("/mail/queue"))
    story.call(1, "stat", "/link/./x")
    story.call(1, "stat", "/link/deep/x")
    story.call(1, "stat", "../x")
    story.call(1, "stat", "/mailbox")
    assert names(story) == ["/spool/x", "/spool/a/x", "/spool/x", "/mailbox"]
