"""The whole path of a user: record, info, explain, replay, compare, report."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.root, pytest.mark.steady]

# A delivery agent and a reader: two processes, locks, renames, syncs, and calls that fail.
WORK = """
import fcntl, os, sys
os.chdir(sys.argv[1])
for name in ("tmp", "new", "cur"):
    os.mkdir(name)
def deliver(n):
    fd = os.open(f"tmp/{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.write(fd, b"x" * (1000 + n)); os.fsync(fd); os.close(fd)
    lock = os.open("index", os.O_CREAT | os.O_RDWR)
    fcntl.lockf(lock, fcntl.LOCK_EX); os.write(lock, b"%d" % n); os.close(lock)
    os.rename(f"tmp/{n}", f"new/{n}")
child = os.fork()
for n in range(61):
    deliver(2 * n + (child == 0))
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
for name in sorted(os.listdir("new")):
    os.rename(f"new/{name}", f"cur/{name}:2,S")
    try:
        os.unlink(f"new/{name}")
    except FileNotFoundError:
        pass
"""
INFO = {"syscalls", "duration_ns", "processes", "threads", "lost", "complete", "paths_unresolved",
        "bytes_on_disk", "bytes_per_syscall", "tier", "schema"}  # fmt: skip
EXPLAIN = {"latency_ns", "sum_error_ns", "blocked_ns", "blocked_named_ns", "causes", "by_syscall",
           "commits"}  # fmt: skip
RUN = {"candidate", "round", "syscalls", "executed", "divergent", "makespan_ns", "lateness_p50_ns",
       "lateness_p99_ns", "final_state", "run"}  # fmt: skip


def spoolscope(*words: object, codes: tuple[int, ...] = (0,)) -> str:
    command = [sys.executable, "-m", "spoolscope.cli.main", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in codes, done.stderr
    return done.stdout


def answer(*words: object) -> dict[str, Any]:
    value = json.loads(spoolscope(*words, "--json"))
    assert isinstance(value, dict)
    return value


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a trace of WORK on a fresh ext4."""
    work = tmp_path_factory.mktemp("end-to-end")
    image, mount = work / "image", work / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop,noatime", image, mount], check=True)
    try:
        command = [sys.executable, "-c", WORK, mount]
        spoolscope("record", "--spool", mount, "-o", work / "trace", "-q", "--", *command)
        yield work / "trace"
    finally:
        subprocess.run(["umount", mount], check=True)


@pytest.fixture(autouse=True)
def _capabilities(require) -> None:
    for name in ("bpf", "ext4", "xfs", "btrfs"):
        require(name)


def test_info_and_explain_have_the_promised_fields(recorded: Path) -> None:
    info, explained = answer("info", recorded), answer("explain", recorded)
    assert info.keys() >= INFO
    assert (info["lost"], info["complete"], info["paths_unresolved"]) == (0, True, 0)
    assert info["bytes_on_disk"] == sum(f.stat().st_size for f in recorded.iterdir())
    assert explained.keys() >= EXPLAIN
    assert explained["sum_error_ns"] == 0
    assert explained["blocked_named_ns"] >= 0.99 * explained["blocked_ns"]
    assert sum(explained["causes"].values()) == explained["latency_ns"]
    assert explained["by_syscall"]["fsync"]["n"] == 122
    assert explained["by_syscall"]["rename"]["n"] == 244


def test_replay_compare_and_report_on_three_filesystems(recorded: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "report.html"
    on = ("--on", "ext4", "--on", "xfs", "--on", "btrfs")
    replayed = answer("replay", recorded, *on, "--repeats", "0", "-o", out, "-q")
    runs = replayed["runs"]
    assert sorted(run["candidate"] for run in runs) == ["btrfs", "ext4", "xfs"]
    for run in runs:
        assert run.keys() >= RUN
        assert (run["executed"], run["divergent"]) == (run["syscalls"], 0)
        assert run["final_state"]["checked"] >= 122 + 4
        assert run["final_state"]["mismatched"] == 0
        assert (Path(run["run"]) / "trace" / "meta.json").is_file()
    # 3: a busy machine cannot keep the pace of the trace, and compare warns.
    compared = spoolscope("compare", out, "-q", codes=(0, 3))
    assert all(name in compared for name in ("ext4", "xfs", "btrfs"))
    spoolscope("report", out, "-o", page, "-q", codes=(0, 3))
    assert "</html>" in page.read_text()
    mounts = Path("/proc/mounts").read_text()
    assert str(tmp_path) not in mounts
    loops = subprocess.check_output(["losetup", "-a"], text=True)
    assert str(tmp_path) not in loops


def test_what_a_user_does_wrong_is_one_line_and_changes_nothing(
    recorded: Path, tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine").write_text("keep")
    before = sorted(p.name for p in recorded.iterdir())
    wrong = [
        ("replay", recorded, "--on", "zfs", "-o", tmp_path / "o"),
        ("replay", recorded, "--on", f"dir:{taken}", "-o", tmp_path / "o"),
        ("replay", recorded, "--on", "ext4", "-o", taken),
        ("replay", taken, "--on", "ext4", "-o", tmp_path / "o"),
        ("explain", taken),
        ("compare", recorded),
        ("report", taken, "-o", tmp_path / "o"),
        ("report", recorded, "-o", taken),
    ]
    for words in wrong:
        done = subprocess.run(
            [sys.executable, "-m", "spoolscope.cli.main", *map(str, words)],
            capture_output=True,
            text=True,
        )
        said = [line for line in done.stderr.splitlines() if "error: " in line]
        assert done.returncode in (1, 2), words
        assert len(said) == 1, (words, done.stderr)
        assert ";" in said[0], words
        assert "Traceback" not in done.stderr
    assert (taken / "mine").read_text() == "keep"
    assert sorted(p.name for p in taken.iterdir()) == ["mine"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["taken"]
    assert sorted(p.name for p in recorded.iterdir()) == before
