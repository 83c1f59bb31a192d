"""The state at the start is found in any order of changes and of steps of the walk."""

import random
from operator import itemgetter

import pytest

from spoolscope.tracers import quiet
from spoolscope.tracers.lives import CUT
from spoolscope.tracers.resolve import resolve

O_CREAT, O_EXCL = 0o100, 0o200
DIRECTORY = 0o040700


class Disk:
    """A filesystem that recorded calls change and that is walked step by step.

    Some directories exist before any call, each with another directory and a file that no call
    uses.
    """

    def __init__(self, story, chance: random.Random) -> None:
        self.story, self.chance = story, chance
        self.directories: dict[int, dict[str, int]] = {2: {}}
        self.next_ino = 3
        for number in range(4):
            _, into, _ = self.free()
            into[f"old{number}"] = ino = self.new(directory=True)
            kept = self.new(directory=True)
            self.directories[ino][f"kept{number}"] = kept
            self.directories[kept]["kept"] = self.new(directory=False)

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
        """Return a random name: its path, its directory and the name."""
        names = {path: ino for path, ino in self.names().items() if "kept" not in path}
        if directory is not None:
            names = {p: i for p, i in names.items() if (i in self.directories) == directory}
        if not names:
            return None
        path = self.chance.choice(sorted(names))
        above, _, name = path.rpartition("/")
        return path, self.directories[names.get(above) or self.names().get(above, 2)], name

    def free(self) -> tuple[str, dict[str, int], str]:
        """Return a name that does not exist, with its path and directory."""
        directories = {"/spool": 2} | {
            path: ino
            for path, ino in self.names().items()
            if ino in self.directories and "kept" not in path
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
    """Change and walk alternately; return the names at the cut and the inodes the walk met."""
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
                continue  # removed after the directory was listed
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_changes_and_steps_of_the_walk(new_story, seed) -> None:
    story = new_story()
    truth, met = walk_amid_changes(story, seed)
    found = story.tree()
    del found["/spool"]
    assert {path: ino for path, ino in found.items() if truth.get(path) != ino} == {}
    single = {path: ino for path, ino in truth.items() if list(truth.values()).count(ino) == 1}
    missed = {path for path, ino in single.items() if ino in met} - found.keys()
    assert missed == set()


class Lister:
    """Lists directories some time after a call used them, as `lister.rs` does."""

    def __init__(self, story, disk: Disk, chance: random.Random) -> None:
        self.story, self.disk, self.chance = story, disk, chance
        self.rows: dict[int, int] = {}
        self.wanted: list[str] = []
        self.listed: set[int] = set()
        self.met: set[int] = set()

    def row(self, parent: int, path: str, ino: int) -> int:
        """Add a name that the walk met; return the number of its row."""
        directory = ino in self.disk.directories
        if not directory or ino not in self.rows:
            links = [i for d in self.disk.directories.values() for i in d.values()]
            mode = DIRECTORY if directory else 0o100600
            name = path.rpartition("/")[2] if parent else path
            nlink = 1 if directory else links.count(ino)
            self.story.seen_in(parent, name, ino, mode, nlink=nlink)
            self.met.add(ino)
            self.rows[ino] = len(self.story.records["tree"])
        return self.rows[ino]

    def step(self) -> None:
        """List the first directory in the queue, if it still has the same path."""
        path, row, ino = self.wanted.pop(0), self.row(0, "/spool", 2), 2
        above = "/spool"
        for name in path.split("/")[2:]:
            below = self.disk.directories[ino].get(name, 0)
            if below not in self.disk.directories:
                return
            above, ino = f"{above}/{name}", below
            row = self.row(row, above, ino)
        if ino in self.listed:
            return
        self.listed.add(ino)
        for name, below in list(self.disk.directories[ino].items()):
            if self.disk.directories[ino].get(name) == below:
                self.row(row, name, below)
            if self.chance.random() < 0.3:
                self.change()
        self.story.seen_in(row, "", 0, 0)

    def change(self) -> None:
        """Make a call; queue the directories that it used."""
        calls = len(self.story.records["syscall"])
        self.disk.change()
        for call in self.story.records["syscall"][calls:]:
            texts = [self.story.capture.strings[call[at]].decode() for at in ("path", "path2")]
            self.wanted += [text.rpartition("/")[0] for text in texts if text]


@pytest.mark.parametrize("seed", range(40))
def test_directories_listed_at_any_time_after_a_call_used_them(new_story, seed) -> None:
    story, chance = new_story(), random.Random(seed)
    disk = Disk(story, chance)
    for _ in range(30):
        disk.change()
    story.task(CUT, 0)
    truth, lister = disk.names(), Lister(story, disk, chance)
    for _ in range(60):
        lister.change()
        while lister.wanted and chance.random() < 0.5:
            lister.step()
    found = story.tree()
    found.pop("/spool", None)
    assert {path: ino for path, ino in found.items() if truth.get(path) != ino} == {}
    single = {path: ino for path, ino in truth.items() if list(truth.values()).count(ino) == 1}
    missed = {path for path, ino in single.items() if ino in lister.met} - found.keys()
    assert missed == set()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_names_that_no_call_touched_are_where_they_would_be_if_they_were_followed(
    new_story, seed, monkeypatch
) -> None:
    story = new_story()
    story.capture.start_real_ns = 10**18
    walk_amid_changes(story, seed)
    found = sorted(story.rows(), key=itemgetter("path"))
    monkeypatch.setattr(quiet, "_followed", lambda capture, *_: capture.records["tree"]["ino"] >= 0)
    followed = sorted(story.rows(), key=itemgetter("path"))
    assert [row | {"path_id": 0} for row in found] == [row | {"path_id": 0} for row in followed]


def test_only_names_that_may_have_been_touched_are_followed(new_story) -> None:
    story = new_story()
    story.task(CUT, 0)
    story.name("/spool", 2, DIRECTORY)
    for box in range(1000):
        story.seen_in(1, f"box{box}", 10 + 10 * box, DIRECTORY)
        above = len(story.records["tree"])
        for at, name in enumerate(("cur", "new", "tmp")):
            story.seen_in(above, name, 11 + 10 * box + at, DIRECTORY)
        story.seen_in(above, "", 0, 0)
    story.call(1, "open", "/spool/box7/tmp/x", O_CREAT | O_EXCL, ret=3, ino=99_999)
    story.call(1, "fsync", 4, ino=11 + 10 * 8)
    state = resolve(story.end()).state
    # A call uses the name "tmp", and a call reached box8.
    followed = {"", "box7", "box7/tmp", "box8", "box8/cur", "box8/tmp"}
    assert len(state.quiet.rows) == 4001 - len(followed)
    assert len(story.tree()) == 4001


def test_names_that_a_mount_leads_to_are_followed(new_story) -> None:
    story = new_story()
    story.capture.meta["mounted_below"] = [
        {"own": True, "mount_ns": 1, "places": [["/spool/shown", "/spool/real"]]}
    ]
    story.task(CUT, 0)
    story.name("/spool", 2, DIRECTORY)
    story.seen_in(1, "real", 3, DIRECTORY)
    story.seen_in(2, "x", 4)
    story.call(1, "unlink", "/spool/shown/x")
    capture = story.end()
    resolved = resolve(capture)
    assert resolved.paths[resolved.path[0]] == b"/spool/real/x"
    assert len(resolved.state.quiet.rows) == 0
    assert story.tree() == {"/spool": 2, "/spool/real": 3, "/spool/real/x": 4}
