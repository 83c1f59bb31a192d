"""Names through symlinks at each moment: those of the plan, compared with the kernel's."""

import os
import random
from pathlib import Path

import numpy as np
import pytest

from spoolscope.replay.outcomes import read_plan
from spoolscope.replay.plan import build
from spoolscope.traces.flat import DTYPES, NONE
from spoolscope.traces.trace import Trace

PARTS = ("a", "b", "c", "d")
LINK, DIR, REG = 0o120777, 0o040700, 0o100600
NOFOLLOW, EXCHANGE = 0x100, 2
O_CREAT, O_EXCL, O_NOFOLLOW, O_PATH = 0o100, 0o200, 0o400000, 0o10000000


def planned(script, tmp_path: Path, spools=None) -> list[str]:
    """Return the name of each call, in order of time."""
    build(Trace.open(script.write(tmp_path / "trace", spools)), tmp_path / "plan")
    plan = read_plan(tmp_path / "plan")
    return [plan.strings[int(op["path"])] for op in plan.ops]


def fixture_names(path: Path) -> list[str]:
    """Return the names of a plan's fixture."""
    raw = np.memmap(path, np.uint8, "r")
    header = raw[: DTYPES["plan_header"].itemsize].view(DTYPES["plan_header"])[0]
    at, n = int(header["entries_at"]), int(header["n_entries"])
    entries = raw[at : at + n * DTYPES["plan_entry"].itemsize].view(DTYPES["plan_entry"])
    return [read_plan(path).strings[int(number)] for number in entries["path"]]


def grow(root: Path, chance: random.Random) -> None:
    """Make a tree of directories, files and symlinks of all sorts."""
    for _ in range(60):
        path = root.joinpath(*chance.choices(PARTS, k=chance.randint(1, 4)))
        up = "../" * chance.randint(0, 3)
        target = up + "/".join(chance.choices((*PARTS, "."), k=chance.randint(0, 3)))
        sort = chance.choice(("directory", "file", "relative", "absolute"))
        try:
            parent = path.parent.resolve(strict=True)  # a symlink may lead out
            if not parent.is_relative_to(root):
                continue
            if sort == "directory":
                path.mkdir()
            elif sort == "file":
                path.touch(exist_ok=False)
            else:
                path.symlink_to(target or "." if sort == "relative" else root / (target or "."))
        except (OSError, RuntimeError):  # nothing there, something there, a loop
            continue


def found(path: Path, *, follow: bool) -> str | int:
    """Return the name that a path leads to, or -errno."""
    try:
        fd = os.open(path, os.O_PATH | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        return -error.errno
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    finally:
        os.close(fd)


@pytest.mark.parametrize("seed", range(20))
def test_names_are_those_that_the_kernel_finds(script, tmp_path, seed):
    chance, root = random.Random(seed), tmp_path / "root"
    root.mkdir()
    grow(root, chance)
    made = sorted(root.rglob("*"))
    for at, path in enumerate(made, 1):
        name, mode = str(path.relative_to(root)), path.lstat().st_mode
        target = script.path(str(path.readlink()), "text") if path.is_symlink() else None
        script.entry(name, ino=at, mode=mode, target_id=target)
    expected = []
    for at in range(200):
        start = str(chance.choice(made).relative_to(root))
        name = "/".join([start, *chance.choices(PARTS, k=chance.randint(0, 3))])
        follow = chance.random() < 0.5
        answer = found(root / name, follow=follow)
        ret = answer if isinstance(answer, int) else 0
        flags = 0 if follow else NOFOLLOW
        seen = 0 if ret else (root / name).stat(follow_symlinks=follow).st_mode
        script.call(10, at, "newfstatat", name, ret=ret, flags=flags, obj_mode=seen)
        inside = not ret and (str(answer) + "/").startswith(f"{root}/")
        expected.append(str(answer)[len(str(root)) + 1 :] if inside else None)
    names = planned(script, tmp_path, [{"mount": str(root), "fstype": "ext4", "dev": 1}])
    pairs = [pair for pair in zip(names, expected, strict=True) if pair[1] is not None]
    assert len(pairs) > 20
    assert [pair for pair in pairs if pair[0] != pair[1]] == []


def test_a_name_leads_on_from_when_its_symlink_was_made_until_it_was_removed(script, tmp_path):
    script.entry("real", ino=2, mode=DIR)
    script.call(10, 1, "stat", "link/x", ret=-2)
    script.call(10, 2, "symlink", "link", path2="real", kind2="text")
    script.call(10, 3, "stat", "link/x", ret=-2)
    script.call(10, 4, "lstat", "link", obj_mode=LINK)
    script.call(10, 5, "stat", "link", obj_mode=DIR)
    script.call(10, 6, "lstat", "link", obj_mode=DIR)  # link/ was asked for
    script.call(10, 7, "unlink", "link")
    script.call(10, 8, "mkdir", "link", mode=0o700)
    script.call(10, 9, "stat", "link/x", ret=-2)
    assert planned(script, tmp_path) == [
        "link/x", "link", "real/x", "link", "real", "real", "link", "link", "link/x",
    ]  # fmt: skip


def test_a_symlink_is_swapped_by_a_rename(script, tmp_path):
    """`ln -sfn` and deployments do that."""
    script.call(10, 1, "symlink", "now", path2="one", kind2="text")
    script.call(10, 2, "openat", "now/f", ret=3, obj_mode=REG)
    script.call(10, 3, "symlink", "new", path2="two", kind2="text")
    script.call(10, 4, "rename", "new", path2="now")
    script.call(10, 5, "openat", "now/f", ret=4, obj_mode=REG)
    script.call(10, 6, "fstat", "now/f", base=0, fd=3, obj_mode=REG)
    script.call(10, 7, "openat", "new/f", ret=-2)
    names = planned(script, tmp_path)
    # A descriptor keeps the name that it was opened by, even if that leads elsewhere now.
    assert [names[at] for at in (1, 4, 6)] == ["one/f", "two/f", "new/f"]


def test_symlinks_move_with_their_directory_and_change_places(script, tmp_path):
    script.entry("top", ino=2, mode=DIR)
    script.entry("top/up", ino=3, mode=LINK, target_id=script.path("../a", "text"))
    script.entry("other", ino=4, mode=LINK, target_id=script.path("b", "text"))
    script.call(10, 1, "stat", "top/up/x", ret=-2)
    script.call(10, 2, "rename", "top", path2="moved")
    script.call(10, 3, "stat", "moved/up/x", ret=-2)
    script.call(10, 4, "stat", "top/up/x", ret=-2)
    script.call(10, 5, "renameat2", "moved/up", path2="other", flags=EXCHANGE)
    script.call(10, 6, "stat", "moved/up/x", ret=-2)
    script.call(10, 7, "stat", "other/x", ret=-20)
    names = planned(script, tmp_path)
    assert [names[at] for at in (0, 2, 3, 5)] == ["a/x", "a/x", "top/up/x", "moved/b/x"]
    assert names[6] == "other/x"  # ../a leads out of the spool from here


def test_a_symlink_that_is_made_through_another_one_is_where_that_leads(script, tmp_path):
    script.entry("real/sub", ino=2, mode=DIR)
    script.call(10, 1, "symlink", "ln", path2="real/sub", kind2="text")
    script.call(10, 2, "symlink", "ln/up", path2="../..", kind2="text")
    script.call(10, 3, "openat", "ln/up/f", ret=3, obj_mode=REG)
    script.call(10, 4, "symlink", "ln/top", path2="/srv/mail", kind2="text")
    script.call(10, 5, "openat", "real/sub/top/f", ret=4, obj_mode=REG)
    script.call(10, 6, "unlink", "ln/up")
    script.call(10, 7, "stat", "ln/up/f", ret=-2)
    script.call(10, 8, "rename", "ln/top", path2="ln/up")
    script.call(10, 9, "openat", "ln/up/f", ret=5, obj_mode=REG)
    script.call(10, 10, "link", "ln/up", path2="other")
    script.call(10, 11, "openat", "other/f", ret=6, obj_mode=REG)
    sub = "real/sub"
    assert planned(script, tmp_path) == [
        "ln", f"{sub}/up", "f", f"{sub}/top", "f", f"{sub}/up", f"{sub}/up/f", f"{sub}/top", "f",
        f"{sub}/up", "f",
    ]  # fmt: skip


def test_a_symlink_at_the_start_is_removed_and_moved_through_another_one(script, tmp_path):
    script.entry("a/b", ino=2, mode=DIR)
    script.entry("ln", ino=3, mode=LINK, target_id=script.path("a/b", "text"))
    for ino, name in enumerate(("one", "two"), 4):
        script.entry(f"a/b/{name}", ino=ino, mode=LINK, target_id=script.path("..", "text"))
    script.call(10, 1, "openat", "ln/one/f", ret=3, obj_mode=REG)
    script.call(10, 2, "unlink", "ln/one")
    script.call(10, 3, "mkdir", "ln/one", mode=0o700)
    script.call(10, 4, "openat", "a/b/one/f", ret=4, obj_mode=REG)
    # Not below ln: the name leads up from a/b.
    script.call(10, 5, "rename", "ln/two", path2="moved", given2_id=script.path("ln/../moved"))
    script.call(10, 6, "openat", "a/moved/f", ret=5, obj_mode=REG)
    script.call(10, 7, "openat", "moved/f", ret=-2)
    assert planned(script, tmp_path) == [
        "a/f", "a/b/one", "a/b/one", "a/b/one/f", "a/b/two", "f", "moved/f",
    ]  # fmt: skip


def test_both_names_of_a_rename_lead_on_and_the_last_parts_do_not(script, tmp_path):
    script.entry("box", ino=2, mode=DIR)
    script.entry("alias", ino=3, mode=LINK, target_id=script.path("/srv/mail/box", "text"))
    script.call(10, 1, "rename", "alias/tmp/1", path2="alias/new/1")
    script.call(10, 2, "rename", "alias", path2="away")
    script.call(10, 3, "stat", "away/new/1", obj_mode=REG)
    trace = Trace.open(script.write(tmp_path / "trace"))
    assert build(trace, tmp_path / "plan").followed == 2
    plan = read_plan(tmp_path / "plan")
    names = [
        [plan.strings[int(op[m])] for m in ("path", "path2") if op[m] != NONE] for op in plan.ops
    ]
    assert names == [["box/tmp/1", "box/new/1"], ["alias", "away"], ["box/new/1"]]


def test_calls_on_a_symlink_itself_keep_its_name(script, tmp_path):
    script.entry("link", ino=3, mode=LINK, target_id=script.path("real", "text"))
    script.call(10, 1, "openat", "link", ret=-40, flags=O_NOFOLLOW)
    script.call(10, 2, "openat", "link", ret=-17, flags=O_CREAT | O_EXCL)
    script.call(10, 3, "openat", "link", ret=3, flags=O_PATH | O_NOFOLLOW, obj_mode=LINK)
    script.call(10, 4, "fstat", "link", base=0, fd=3, obj_mode=LINK)
    script.call(10, 5, "openat", "link", ret=4, flags=O_CREAT, obj_mode=REG)
    script.call(10, 6, "link", "link", path2="second")
    script.call(10, 7, "openat", "second", ret=5, obj_mode=REG)
    assert planned(script, tmp_path) == ["link"] * 4 + ["real", "link", "real"]


def test_a_link_is_made_of_the_symlink_or_of_what_it_leads_to(script, tmp_path):
    follow = 0x400  # AT_SYMLINK_FOLLOW
    script.entry("real", ino=2, mode=REG)
    script.entry("link", ino=3, mode=LINK, target_id=script.path("real", "text"))
    script.call(10, 1, "linkat", "link", path2="itself", flags=0)
    script.call(10, 2, "linkat", "link", path2="file", flags=follow)
    script.call(10, 3, "truncate", "itself", offset=0)
    script.call(10, 4, "truncate", "file", offset=0)
    assert planned(script, tmp_path) == ["link", "real", "real", "file"]


def test_a_name_through_a_symlink_is_no_file_of_the_fixture(script, tmp_path):
    script.entry("real", ino=2, mode=DIR)
    script.entry("link", ino=3, mode=LINK, target_id=script.path("real", "text"))
    missed = [script.path(name) for name in ("link/x", "real/x", "link")]
    script.more["missed_names"] = [{"path_id": at, "ino": 9, "directory": False} for at in missed]
    script.call(10, 1, "stat", "real/y", ret=-2)
    planned(script, tmp_path)
    made = fixture_names(tmp_path / "plan")
    assert sorted(made) == ["link", "link", "real", "real/x"]


def test_who_overlaps_the_making_of_a_symlink_met_it_if_it_succeeded(script, tmp_path):
    script.call(10, 1, "symlink", "link", path2="real", kind2="text", dur_ms=10)
    script.call(11, 2, "openat", "link/a", ret=3, obj_mode=REG)
    script.call(12, 3, "openat", "link/b", ret=-2)
    assert planned(script, tmp_path) == ["link", "real/a", "link/b"]


@pytest.mark.parametrize(
    "target", ["link", "../../etc", "/etc", "/srv/mail/../../etc", "x/" * 3000]
)
def test_symlinks_that_lead_nowhere_here_leave_names_as_they_are(script, tmp_path, target):
    script.entry("link", ino=3, mode=LINK, target_id=script.path(target, "text"))
    script.call(10, 1, "stat", "link/passwd", ret=-2)
    [name] = planned(script, tmp_path)
    assert name in ("link/passwd", target + "passwd")
    assert not name.startswith("/")
    assert ".." not in name


def test_each_of_several_spools_is_left_by_no_name(script, tmp_path):
    script.entry("link", ino=3, mode=LINK, target_id=script.path("/srv/more/x", "text"))
    script.entry("up", ino=4, mode=LINK, target_id=script.path("../spool1/x", "text"))
    script.call(10, 1, "stat", "link/f", ret=-2)
    script.call(10, 2, "stat", "up/f", ret=-2)
    spools = [{"mount": f"/srv/{name}", "fstype": "ext4", "dev": 1} for name in ("mail", "more")]
    assert planned(script, tmp_path, spools) == ["spool1/x/f", "spool0/up/f"]
