"""Spools with many names: dozens of bind mounts, chroots, namespaces, the root directory."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from recordings import ask, recorded_during

from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
Bind = Callable[[Path, Path], None]


@pytest.fixture
def bind() -> Iterator[Bind]:
    """Return ``bind(source, place)``: it mounts a directory elsewhere until the test ends."""
    with ExitStack() as undo:

        def make(source: Path, place: Path) -> None:
            place.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--bind", source, place], check=True)
            undo.callback(subprocess.run, ["umount", "-l", place], check=True)

        yield make


@pytest.fixture
def shm() -> Iterator[Path]:
    """Return a directory on another filesystem than the root directory."""
    with TemporaryDirectory(dir="/dev/shm") as place:
        yield Path(place)


def created(trace: Trace) -> dict[str, int]:
    rows = ask(
        trace,
        "SELECT path, count(*) FROM syscalls JOIN paths USING (path_id) WHERE syscall = 'openat'"
        " AND coalesce(errno, 0) = 0 GROUP BY path",
    )
    return {path: n for path, n in rows if "made" in path}


def test_many_names_of_one_spool(spool, bind, tmp_path):
    """Each path to the spool is tested by a file that is made by that path only."""
    mount = spool("ext4")
    (mount / "home/alice").mkdir(parents=True)
    places = [tmp_path / f"jails/user{i}/rather/deep/below/home" for i in range(100)]
    for i, place in enumerate(places):
        bind(mount / "home" if i % 2 else mount, place)
    root = tmp_path / "root"
    bind(Path("/"), root)
    bind(mount, root / "mnt")
    made, script = {}, ["set -e"]
    for i, place in enumerate(places):
        made[f"home/made{i}" if i % 2 else f"made{i}"] = 1
        ways = [("/", place), (place.parents[2], "deep/below/home"),
                (place.parents[4] / "user0", f"../user{i}/rather/deep/below/home")]  # fmt: skip
        directory, way = ways[i % 3]
        script.append(f"cd {directory}; : > {way}/made{i}")
    shell = "; ".join(script)
    others = (
        f"chroot {root} sh -c 'sleep 0.3; : > /mnt/made-chroot'; "
        f"unshare -m sh -c 'mount --bind {mount} /mnt; sleep 0.3; cd /; : > /mnt/made-ns'"
    )
    made |= {"made-chroot": 1, "made-ns": 1}

    def work() -> None:
        subprocess.run(["sh", "-c", f"{shell}; {others}"], check=True)

    trace = recorded_during(work, mount, tmp_path)
    assert created(trace) == made
    assert trace.meta["paths_unresolved"] == 0


def test_the_root_directory_is_recorded(tmp_path, require, shm):
    """All of its filesystem is recorded, and nothing of the mounts below it."""
    require("bpf")
    place, other = tmp_path / "work", shm / "work"
    script = (
        f"mkdir {place} {other}; cd /; echo x > {place}/a; echo y > {other}/b;"
        f"cat /proc/self/stat >&2; head -1 proc/self/status >&2; ls {str(other)[1:]} >&2;"
        f" mv {place}/a {place}/c"
    )
    request = Request(
        spools=[Path("/")], output=shm / "t", command=["sh", "-c", script], keep_names=True,
        snapshot="touched",
    )  # fmt: skip
    summary = record(request)
    trace = Trace.open(summary.trace)
    assert (summary.command_status, summary.failure) == (0, None)
    called = ask(
        trace,
        "SELECT DISTINCT path FROM syscalls s JOIN paths p ON p.path_id IN (s.path_id, s.path2_id)"
        " WHERE syscall NOT IN ('chdir', 'execve')",
    )
    paths = {path for (path,) in called}
    assert {f"{str(place)[1:]}/{name}" for name in "ac"} <= paths
    assert not [path for path in paths if path.split("/")[0] in ("proc", "dev", "sys")]
