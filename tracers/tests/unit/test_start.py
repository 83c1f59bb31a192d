"""The start of a recording is found whatever happened while the snapshot was taken."""

import random

import pytest

from spoolscope.tracers.lives import CUT, EXIT, FORK, SEEN
from spoolscope.tracers.resolve import AT_FDCWD, resolve

O_CREAT, O_EXCL = 0o100, 0o200
DIRECTORY = 0o040700
EXCHANGE = 2
SECOND = 1_000_000_000


def tree(story) -> dict[str, int]:
    """Inode of every name at the start that the walk tells of."""
    capture = story.end()
    state, ids = resolve(capture).state, []
    columns = state.tree(lambda path: ids.append(path) or len(ids) - 1, lambda _: -1)
    return {ids[i].decode(): int(ino) for i, ino in enumerate(columns["ino"])}


def open_files(story) -> dict[tuple[int, int], tuple[str, int, bool]]:
    """Name, position and being deleted of the descriptors at the start."""
    ids: list[bytes] = []
    columns = resolve(story.end()).state.open_files(lambda path: ids.append(path) or len(ids) - 1)
    names = ("pid", "fd", "path_id", "offset", "deleted")
    rows = zip(*(columns[name] for name in names), strict=True)
    return {(pid, fd): (ids[at].decode(), pos, gone) for pid, fd, at, pos, gone in rows}


@pytest.fixture
def story(new_story):
    """The cut was at 10; what is told is told after it."""
    story = new_story()
    story.task(CUT, 0)
    return story


def test_what_no_call_touched_was_there(story) -> None:
    story.name("/spool", 2, DIRECTORY)
    story.name("/spool/x", 3)
    assert tree(story) == {"/spool": 2, "/spool/x": 3}


def test_names_lie_where_their_directory_was(story) -> None:
    story.call(1, "rename", "/spool/one", "/spool/two")
    story.name("/spool", 2, DIRECTORY)
    story.name("/spool/two", 5, DIRECTORY)
    story.name("/spool/two/x", 6)
    assert tree(story) == {"/spool": 2, "/spool/one": 5, "/spool/one/x": 6}


def test_a_directory_is_renamed_while_it_is_walked(story) -> None:
    story.name("/spool", 2, DIRECTORY)
    story.name("/spool/one", 5, DIRECTORY)
    of_one = len(story.records["tree"])
    story.seen_in(of_one, "x", 6)
    story.call(1, "rename", "/spool/one", "/spool/two")
    story.seen_in(of_one, "y", 7)
    assert tree(story) == {
        "/spool": 2,
        "/spool/one": 5,
        "/spool/one/x": 6,
        "/spool/one/y": 7,
    }


def test_a_name_that_moved_twice_is_met_at_the_end(story) -> None:
    story.call(1, "rename", "/spool/a", "/spool/b")
    story.call(1, "rename", "/spool/b", "/spool/c")
    story.name("/spool/c", 9)
    assert tree(story) == {"/spool/a": 9}


def test_a_name_met_before_it_moved(story) -> None:
    story.name("/spool/a", 9)
    story.call(1, "rename", "/spool/a", "/spool/b")
    assert tree(story) == {"/spool/a": 9}


def test_a_name_met_twice_as_it_moved_ahead_of_the_walk(story) -> None:
    story.name("/spool/a", 9)
    story.call(1, "rename", "/spool/a", "/spool/b")
    story.name("/spool/b", 9)
    assert tree(story) == {"/spool/a": 9}


def test_exchanged_names_are_told_apart(story) -> None:
    story.call(1, "renameat2", AT_FDCWD, "/spool/a", AT_FDCWD, "/spool/b", EXCHANGE)
    story.name("/spool/a", 1)
    story.name("/spool/b", 2)
    assert tree(story) == {"/spool/a": 2, "/spool/b": 1}


@pytest.mark.parametrize("known", [False, True])
def test_the_walk_meets_the_result_of_a_rename_under_way(story, known) -> None:
    if known:
        story.name("/spool/a", 9)
    begin = story.now
    story.now += 10
    story.name("/spool/b", 9)
    story.call(1, "rename", "/spool/a", "/spool/b", start_ns=begin + 1)
    assert tree(story) == {"/spool/a": 9}


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
    assert tree(story) == {
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
    assert tree(story) == {"/spool/a": 9, "/spool/b": 8}


@pytest.mark.parametrize(("call", "mode"), [("open", 0o100600), ("mkdir", DIRECTORY)])
def test_the_walk_meets_what_is_just_being_made(story, call, mode) -> None:
    begin = story.now
    story.now += 10
    story.name("/spool/new", 9, mode)
    if call == "open":
        story.call(1, "open", "/spool/new", O_CREAT | O_EXCL, ret=3, ino=9, start_ns=begin + 1)
    else:
        story.call(1, "mkdir", "/spool/new", start_ns=begin + 1)
    assert tree(story) == {}


def test_made_moved_and_met(story) -> None:
    story.call(1, "open", "/spool/tmp", O_CREAT | O_EXCL, ret=3, ino=9)
    story.call(1, "rename", "/spool/tmp", "/spool/new")
    story.name("/spool/new", 9)
    assert tree(story) == {}


def test_moved_into_a_directory_made_since(story) -> None:
    story.call(1, "mkdir", "/spool/made")
    story.call(1, "rename", "/spool/x", "/spool/made/x")
    story.name("/spool/made", 5, DIRECTORY)
    story.name("/spool/made/x", 6)
    assert tree(story) == {"/spool/x": 6}


def test_an_inode_number_given_out_again(story) -> None:
    story.name("/spool/old", 6)
    story.call(1, "unlink", "/spool/old")
    story.call(1, "open", "/spool/other", O_CREAT | O_EXCL, ret=3, ino=6)
    story.name("/spool/other", 6)
    assert tree(story) == {"/spool/old": 6}


def test_links_made_since_are_not_at_the_start(story) -> None:
    story.call(1, "link", "/spool/a", "/spool/b")
    story.name("/spool/a", 6, nlink=2)
    story.name("/spool/b", 6, nlink=2)
    assert tree(story) == {"/spool/a": 6}


def test_the_time_of_birth_tells_what_nobody_saw_made(story) -> None:
    story.name("/spool/old", 5, btime_ns=5)
    story.name("/spool/young", 6, btime_ns=11)
    assert tree(story) == {"/spool/old": 5}


@pytest.mark.parametrize(("born", "there"), [(1, True), (SECOND - 1, False), (0, True)])
def test_an_open_that_perhaps_created(new_story, born, there) -> None:
    story = new_story()
    story.now = SECOND
    story.task(CUT, 0)
    story.call(1, "open", "/spool/index", O_CREAT, ret=3, ino=5)
    story.name("/spool/index", 5, btime_ns=born)
    assert tree(story) == ({"/spool/index": 5} if there else {})


def test_what_returned_before_the_cut_has_happened(new_story) -> None:
    story = new_story()
    story.call(1, "open", "/spool/new", O_CREAT | O_EXCL, ret=3, ino=9)
    story.call(1, "rename", "/spool/a", "/spool/b")
    story.task(CUT, 0)
    story.call(1, "rename", "/spool/new", "/spool/cur")
    story.name("/spool/cur", 9)
    story.name("/spool/b", 8)
    assert tree(story) == {"/spool/b": 8, "/spool/new": 9}


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


class Disk:
    """A filesystem, changed by calls that are told and walked step by step."""

    def __init__(self, story, chance: random.Random) -> None:
        self.story, self.chance = story, chance
        self.directories: dict[int, dict[str, int]] = {2: {}}
        self.next_ino = 3

    def new(self, *, directory: bool) -> int:
        ino, self.next_ino = self.next_ino, self.next_ino + 1
        if directory:
            self.directories[ino] = {}
        return ino

    def names(self) -> dict[str, int]:
        found, pending = {}, [("/spool", 2)]
        while pending:
            path, ino = pending.pop()
            for name, below in self.directories.get(ino, {}).items():
                found[f"{path}/{name}"] = below
                pending.append((f"{path}/{name}", below))
        return found

    def place(self, *, directory: bool | None = None) -> tuple[str, dict[str, int], str] | None:
        """Return any name: its path, its directory and itself."""
        names = self.names()
        if directory is not None:
            names = {p: i for p, i in names.items() if (i in self.directories) == directory}
        if not names:
            return None
        path = self.chance.choice(sorted(names))
        above, _, name = path.rpartition("/")
        return path, self.directories[names.get(above) or self.names().get(above, 2)], name

    def free(self) -> tuple[str, dict[str, int], str]:
        """Return a name that is not there, with its path and directory."""
        directories = {"/spool": 2} | {
            path: ino for path, ino in self.names().items() if ino in self.directories
        }
        above = self.chance.choice(sorted(directories))
        name = f"n{self.next_ino}.{self.chance.randrange(1000)}"
        return f"{above}/{name}", self.directories[directories[above]], name

    def change(self) -> None:
        path, into, name = self.free()
        kind = self.chance.choice(["open", "mkdir", "rename", "rename", "link", "unlink"])
        if kind in ("open", "mkdir"):
            into[name] = ino = self.new(directory=kind == "mkdir")
            if kind == "mkdir":
                self.story.call(1, "mkdir", path)
            else:
                self.story.call(1, "open", path, O_CREAT | O_EXCL, ret=3, ino=ino)
            return
        old = self.place(directory=None if kind == "rename" else False)
        if old is None or path.startswith(old[0] + "/"):
            return
        if kind == "unlink":
            del old[1][old[2]]
            self.story.call(1, "unlink", old[0])
        else:
            into[name] = old[1][old[2]]
            if kind == "rename":
                del old[1][old[2]]
            self.story.call(1, kind, old[0], path)


def walk_amid_changes(story, seed: int) -> tuple[dict[str, int], set[int]]:
    """Change and walk by turns; return the names at the cut and the inodes the walk met."""
    chance = random.Random(seed)
    disk = Disk(story, chance)
    for _ in range(30):
        disk.change()
    story.task(CUT, 0)
    story.name("/spool", 2, DIRECTORY)
    truth, met, pending = disk.names(), set(), [(1, 2)]
    while pending:
        for _ in range(chance.randrange(3)):
            disk.change()
        row, ino = pending.pop()
        links = [i for d in disk.directories.values() for i in d.values()]
        for name, below in list(disk.directories[ino].items()):
            if disk.directories[ino].get(name) != below:
                continue  # gone since the directory was listed
            directory = below in disk.directories
            mode = DIRECTORY if directory else 0o100600
            nlink = 1 if directory else links.count(below)
            story.seen_in(row, name, below, mode, nlink=nlink)
            met.add(below)
            if directory:
                pending.append((len(story.records["tree"]), below))
            if chance.random() < 0.3:
                disk.change()
    for _ in range(5):
        disk.change()
    return truth, met


@pytest.mark.parametrize("seed", range(100))
def test_any_order_of_changes_and_steps_of_the_walk(new_story, seed) -> None:
    story = new_story()
    truth, met = walk_amid_changes(story, seed)
    found = tree(story)
    del found["/spool"]
    assert {path: ino for path, ino in found.items() if truth.get(path) != ino} == {}
    single = {path: ino for path, ino in truth.items() if list(truth.values()).count(ino) == 1}
    missed = {path for path, ino in single.items() if ino in met} - found.keys()
    assert missed == set()
