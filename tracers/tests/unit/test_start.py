"""The state at the start is found whatever happened while the snapshot was taken."""

import pytest

from spoolscope.tracers.lives import CUT, EXIT, FORK, SEEN
from spoolscope.tracers.resolve import resolve
from spoolscope.traces.abi import AT_FDCWD

O_CREAT, O_EXCL = 0o100, 0o200
DIRECTORY = 0o040700
EXCHANGE = 2
SECOND = 1_000_000_000


def open_files(story) -> dict[tuple[int, int], tuple[str, int, bool]]:
    """Return the descriptors at the start: name, position and whether it is deleted."""
    ids: list[bytes] = []
    columns = resolve(story.end()).state.open_files(lambda path: ids.append(path) or len(ids) - 1)
    names = ("pid", "fd", "path_id", "offset", "deleted")
    rows = zip(*(columns[name] for name in names), strict=True)
    return {(pid, fd): (ids[at].decode(), pos, gone) for pid, fd, at, pos, gone in rows}


@pytest.fixture
def story(new_story):
    """Return a capture with the cut at 10; events that are added come after it."""
    story = new_story()
    story.task(CUT, 0)
    return story


def test_what_no_call_touched_was_there(story) -> None:
    story.name("/spool", 2, DIRECTORY)
    story.name("/spool/x", 3)
    assert story.tree() == {"/spool": 2, "/spool/x": 3}


def test_names_lie_where_their_directory_was(story) -> None:
    story.call(1, "rename", "/spool/one", "/spool/two")
    story.name("/spool", 2, DIRECTORY)
    story.name("/spool/two", 5, DIRECTORY)
    story.name("/spool/two/x", 6)
    assert story.tree() == {"/spool": 2, "/spool/one": 5, "/spool/one/x": 6}


def test_a_directory_is_renamed_while_it_is_walked(story) -> None:
    story.name("/spool", 2, DIRECTORY)
    story.name("/spool/one", 5, DIRECTORY)
    of_one = len(story.records["tree"])
    story.seen_in(of_one, "x", 6)
    story.call(1, "rename", "/spool/one", "/spool/two")
    story.seen_in(of_one, "y", 7)
    assert story.tree() == {
        "/spool": 2,
        "/spool/one": 5,
        "/spool/one/x": 6,
        "/spool/one/y": 7,
    }


def test_a_name_that_moved_twice_is_met_at_the_end(story) -> None:
    story.call(1, "rename", "/spool/a", "/spool/b")
    story.call(1, "rename", "/spool/b", "/spool/c")
    story.name("/spool/c", 9)
    assert story.tree() == {"/spool/a": 9}


def test_a_name_met_before_it_moved(story) -> None:
    story.name("/spool/a", 9)
    story.call(1, "rename", "/spool/a", "/spool/b")
    assert story.tree() == {"/spool/a": 9}


def test_a_name_met_twice_as_it_moved_ahead_of_the_walk(story) -> None:
    story.name("/spool/a", 9)
    story.call(1, "rename", "/spool/a", "/spool/b")
    story.name("/spool/b", 9)
    assert story.tree() == {"/spool/a": 9}


def test_exchanged_names_are_told_apart(story) -> None:
    story.call(1, "renameat2", AT_FDCWD, "/spool/a", AT_FDCWD, "/spool/b", EXCHANGE)
    story.name("/spool/a", 1)
    story.name("/spool/b", 2)
    assert story.tree() == {"/spool/a": 2, "/spool/b": 1}


@pytest.mark.parametrize("known", [False, True])
def test_the_walk_meets_the_result_of_a_rename_under_way(story, known) -> None:
    if known:
        story.name("/spool/a", 9)
    begin = story.now
    story.now += 10
    story.name("/spool/b", 9)
    story.call(1, "rename", "/spool/a", "/spool/b", start_ns=begin + 1)
    assert story.tree() == {"/spool/a": 9}


def test_the_walk_enters_the_result_of_a_rename_under_way(story) -> None:
    story.name("/spool/a", 9, DIRECTORY)
    story.seen_in(1, "known", 10)
    begin = story.now
    story.now += 10
    story.name("/spool/b", 9, DIRECTORY)
    of_b = len(story.records["tree"])
    story.seen_in(of_b, "before", 11)
    story.call(1, "rename", "/spool/a", "/spool/b", start_ns=begin + 1)
    story.seen_in(of_b, "after", 12)
    assert story.tree() == {
        "/spool/a": 9,
        "/spool/a/known": 10,
        "/spool/a/before": 11,
        "/spool/a/after": 12,
    }


def test_the_walk_meets_what_a_rename_under_way_replaces(story) -> None:
    story.name("/spool/a", 9)
    begin = story.now
    story.now += 10
    story.name("/spool/b", 8)
    story.call(1, "rename", "/spool/a", "/spool/b", start_ns=begin + 1)
    assert story.tree() == {"/spool/a": 9, "/spool/b": 8}


@pytest.mark.parametrize(("call", "mode"), [("open", 0o100600), ("mkdir", DIRECTORY)])
def test_the_walk_meets_what_is_just_being_made(story, call, mode) -> None:
    begin = story.now
    story.now += 10
    story.name("/spool/new", 9, mode)
    if call == "open":
        story.call(1, "open", "/spool/new", O_CREAT | O_EXCL, ret=3, ino=9, start_ns=begin + 1)
    else:
        story.call(1, "mkdir", "/spool/new", start_ns=begin + 1)
    assert story.tree() == {}


def test_made_moved_and_met(story) -> None:
    story.call(1, "open", "/spool/tmp", O_CREAT | O_EXCL, ret=3, ino=9)
    story.call(1, "rename", "/spool/tmp", "/spool/new")
    story.name("/spool/new", 9)
    assert story.tree() == {}


def test_moved_into_a_directory_made_since(story) -> None:
    story.call(1, "mkdir", "/spool/made")
    story.call(1, "rename", "/spool/x", "/spool/made/x")
    story.name("/spool/made", 5, DIRECTORY)
    story.name("/spool/made/x", 6)
    assert story.tree() == {"/spool/x": 6}


def test_an_inode_number_given_out_again(story) -> None:
    story.name("/spool/old", 6)
    story.call(1, "unlink", "/spool/old")
    story.call(1, "open", "/spool/other", O_CREAT | O_EXCL, ret=3, ino=6)
    story.name("/spool/other", 6)
    assert story.tree() == {"/spool/old": 6}


def test_links_made_since_are_not_at_the_start(story) -> None:
    story.call(1, "link", "/spool/a", "/spool/b")
    story.name("/spool/a", 6, nlink=2)
    story.name("/spool/b", 6, nlink=2)
    assert story.tree() == {"/spool/a": 6}


def test_the_time_of_birth_tells_what_nobody_saw_made(story) -> None:
    story.name("/spool/old", 5, btime_ns=5)
    story.name("/spool/young", 6, btime_ns=11)
    assert story.tree() == {"/spool/old": 5}


@pytest.mark.parametrize(("born", "there"), [(1, True), (SECOND - 1, False), (0, True)])
def test_an_open_that_perhaps_created(new_story, born, there) -> None:
    story = new_story()
    story.now = SECOND
    story.task(CUT, 0)
    story.call(1, "open", "/spool/index", O_CREAT, ret=3, ino=5)
    story.name("/spool/index", 5, btime_ns=born)
    assert story.tree() == ({"/spool/index": 5} if there else {})


def test_what_returned_before_the_cut_has_happened(new_story) -> None:
    story = new_story()
    story.call(1, "open", "/spool/new", O_CREAT | O_EXCL, ret=3, ino=9)
    story.call(1, "rename", "/spool/a", "/spool/b")
    story.task(CUT, 0)
    story.call(1, "rename", "/spool/new", "/spool/cur")
    story.name("/spool/cur", 9)
    story.name("/spool/b", 8)
    assert story.tree() == {"/spool/b": 8, "/spool/new": 9}


def test_descriptors_are_those_at_the_cut(new_story) -> None:
    story = new_story()
    story.call(1, "close", 3)
    for fd, path in ((4, "/spool/tmp/four"), (5, "/spool/five (deleted)"), (6, "/spool/six")):
        story.add("open_file", ts_ns=story.now, pid=1, fd=fd, path=path, ino=fd, dev=7, pos=fd)
    story.call(1, "rename", "/spool/tmp/four", "/spool/new/four")
    story.opened(1, "/spool/seven", 7, 7)
    story.call(1, "close", 6)
    story.task(FORK, 2, parent_pid=1, parent_tid=1)
    story.task(FORK, 3, parent_pid=1, parent_tid=1)
    story.task(EXIT, 3)
    story.task(CUT, 0)
    story.opened(1, "/spool/eight", 8, 8)
    story.call(1, "read", 7, 0, 9, ret=9, ino=7, pos=100)
    story.call(1, "read", 7, 0, 9, ret=9, ino=7, pos=109)
    expected = {4: ("/spool/new/four", 4, False), 5: ("/spool/five", 5, True)}
    found = open_files(story)
    assert {fd: row for (pid, fd), row in found.items() if pid == 1} == {
        **expected,
        7: ("/spool/seven", 100, False),
    }
    assert {fd: row for (pid, fd), row in found.items() if pid == 2} == {
        **expected,
        7: ("/spool/seven", 0, False),
    }
    assert {pid for pid, _ in found} == {1, 2}


def test_a_working_directory_moves_with_its_directory(new_story) -> None:
    story = new_story()
    story.task(SEEN, 1, path="/spool/one")
    story.call(2, "rename", "/spool/one", "/spool/two")
    story.task(CUT, 0)
    story.call(2, "rename", "/spool/two", "/spool/three")
    story.call(1, "stat", "x")
    resolved = resolve(story.end())
    assert resolved.state.cwds[1] == b"/spool/two"
    assert resolved.paths[resolved.path[-1]] == b"/spool/three/x"


def test_a_child_that_moved_before_its_calls_were_recorded(new_story) -> None:
    story = new_story()
    story.task(SEEN, 1, path="/spool/box")
    story.task(FORK, 2, parent_pid=1, parent_tid=1)
    story.task(CUT, 0)
    story.task(SEEN, 2, cwd_dev=7, cwd_ino=6)
    story.call(2, "unlink", "x")
    story.name("/spool", 2, DIRECTORY)
    story.seen_in(1, "box", 5, DIRECTORY)
    story.seen_in(2, "cur", 6, DIRECTORY)
    story.call(2, "unlink", "y")
    capture = story.end()
    resolved = resolve(capture)
    assert [resolved.paths[i] for i in resolved.path] == [b"/spool/box/cur/x", b"/spool/box/cur/y"]
    assert story.tree() == {"/spool": 2, "/spool/box": 5, "/spool/box/cur": 6}


def test_what_an_open_made_in_a_listed_directory_is_new(story) -> None:
    story.name("/spool", 2, DIRECTORY)
    story.seen_in(1, "old", 5)
    story.seen_in(1, "", 0, 0)
    story.call(1, "unlink", "/spool/old")
    story.call(1, "open", "/spool/new", O_CREAT, ret=3, ino=5)
    assert story.tree() == {"/spool": 2, "/spool/old": 5}


def test_what_was_removed_before_it_was_met_is_told_of(story) -> None:
    story.name("/spool", 2, DIRECTORY)
    story.call(1, "unlink", "/spool/file")
    story.call(1, "rmdir", "/spool/directory")
    story.call(1, "open", "/spool/own", O_CREAT | O_EXCL, ret=3, ino=9)
    story.call(1, "unlink", "/spool/own")
    story.name("/spool/late", 8)
    ids: list[bytes] = []
    missed = resolve(story.end()).state.missed_names(
        lambda path: ids.append(path) or len(ids) - 1, lambda path: path.startswith(b"/spool")
    )
    assert dict(zip(ids, missed["directory"].tolist(), strict=True)) == {
        b"/spool/file": False,
        b"/spool/directory": True,
    }


def test_a_number_given_out_again_at_once_is_not_taken_for_the_first(new_story) -> None:
    story = new_story()
    story.now = SECOND
    story.task(CUT, 0)
    story.opened(1, "/spool/index", 3, 5)
    story.call(1, "rename", "/spool/index.new", "/spool/index")
    story.call(1, "mkdir", "/spool/directory")
    story.name("/spool/directory", 5, DIRECTORY, btime_ns=SECOND - 1)
    story.name("/spool/late", 8)
    assert story.tree() == {"/spool/late": 8}


def test_the_first_look_is_the_one_that_counts(story) -> None:
    story.name("/spool/a", 9, mode=0o100600)
    story.call(1, "chmod", "/spool/a", 0o640)
    story.name("/spool/a", 9, mode=0o100640)
    assert [row["mode"] for row in story.rows()] == [0o100600]
