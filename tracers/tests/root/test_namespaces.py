"""Processes with a separate root or separate mounts: systemd services, containers, chroots.

They use the names that they see. Each one prints its calls on its standard output.
"""

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recordings import ask, recorded_during

from spoolscope.replay.one_run import is_true
from spoolscope.replay.run import replay
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

# It works in a directory and has a file open. It waits for a line, then uses absolute names below
# argv[1] only, and prints its calls. With argv[2] it begins then, makes two calls by names that
# the recorder does not know yet, and waits that many seconds before it goes on.
WORK = """
import os, sys, time
top, pause = sys.argv[1], float(sys.argv[2])
if pause:
    input()
    held = os.open(top + "/cur/held", os.O_RDWR)
    os.access(top + "/first", os.F_OK)
    print("called", flush=True)
    time.sleep(pause)
else:
    os.chdir(top + "/cur")
    held = os.open("held", os.O_RDWR)
    print("ready", flush=True)
    input()
    os.stat("held")
os.write(held, b"x")
said = []
def do(what, *names):
    try:
        getattr(os, what)(*(top + name for name in names))
    except FileNotFoundError:
        pass
    said.append((what, *(os.path.normpath(name)[1:] for name in names)))
do("mkdir", "/box")
for i in range(10):
    fd = os.open(top + f"/box/{i}.tmp", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"x" * 100)
    os.close(fd)
    do("stat", f"/box/{i}")
    do("rename", f"/box/{i}.tmp", f"/.//box/{i}")
    do("link", f"/box/{i}", f"/box/{i}.link")
    do("unlink", f"/box/{i}")
print(said)
"""
# Commands of the shell before it becomes that program, which decide the name of the spool there.
SAME = ""
ELSEWHERE = "mount --bind {spool} /mnt"
CHROOT = "mount --bind / {root}; mount --bind {spool} {root}/mnt"
CONTAINER = """mount -t tmpfs none {root}
for dir in usr lib lib64 bin etc dev; do
    [ ! -e /$dir ] || {{ mkdir {root}/$dir && mount --rbind /$dir {root}/$dir; }}
done
mkdir -p {root}/srv/mail && mount --bind {spool} {root}/srv/mail"""


def program(
    spool: Path, root: Path, before: str, top: str, *, chroot: bool, pause: float
) -> "subprocess.Popen[str]":
    """Begin the program in a new mount namespace."""
    root.mkdir(exist_ok=True)
    enter = f"chroot {root} " if chroot else ""
    script = before.format(spool=spool, root=root)
    python = "/usr/bin/python3 -S -c"
    shell = f'set -e; cd /; {script}\nexec {enter}{python} "$1" {top} {pause}'
    return subprocess.Popen(
        ["unshare", "-m", "sh", "-c", shell, "sh", WORK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def told(process: "subprocess.Popen[str]") -> list[tuple[str, ...]]:
    """Let the program work; return the calls that it prints."""
    said, _ = process.communicate("go\n", timeout=60)
    assert process.returncode == 0
    return ast.literal_eval(said.splitlines()[-1])


def told_unseen(place: Path, begin: "Callable[[], subprocess.Popen[str]]") -> list[tuple[str, ...]]:
    """Return the same; it begins and makes its first calls while the recorder is stopped."""
    pattern = f"spoolscope-record run .*{place}"
    recorder = int(subprocess.check_output(["pgrep", "-o", "-f", pattern]))
    os.kill(recorder, signal.SIGSTOP)
    try:
        process = begin()
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "called\n"
    finally:
        os.kill(recorder, signal.SIGCONT)
    return told(process)


def make_held(mount: Path) -> None:
    """Make the files that exist before the recording."""
    (mount / "cur").mkdir(parents=True)
    (mount / "cur" / "held").write_text("0123456789")


def recorded_calls(trace: Trace) -> list[tuple[str, ...]]:
    """Return the calls on names in the form that the program prints."""
    rows = ask(
        trace,
        "SELECT syscall, p.path, q.path FROM syscalls s JOIN paths p USING (path_id)"
        " LEFT JOIN paths q ON q.path_id = s.path2_id"
        " WHERE syscall IN ('mkdir', 'newfstatat', 'rename', 'link', 'unlink')"
        " AND p.path LIKE 'box%' ORDER BY ts_ns",
    )
    calls = {"newfstatat": "stat"}
    return [(calls.get(name, name), *filter(None, paths)) for name, *paths in rows]


@pytest.mark.parametrize(
    ("before", "top", "chroot"),
    [(SAME, None, False), (ELSEWHERE, "/mnt", False), (CHROOT, "/mnt", True),
     (CONTAINER, "/srv/mail", True)],
    ids=["same names", "elsewhere", "chroot", "container"],
)  # fmt: skip
@pytest.mark.parametrize("begun", ["before", "during"])
def test_absolute_names_are_those_of_the_spool(begun, before, top, chroot, spool, tmp_path):
    mount, said = spool("ext4"), []
    make_held(mount)
    # The recorder examines a new process only after its first calls, which it thus misses.
    pause = 0.3 if begun == "during" else 0.0

    def begin() -> "subprocess.Popen[str]":
        return program(
            mount, tmp_path / "root", before, top or str(mount), chroot=chroot, pause=pause
        )

    early = begin() if begun == "before" else None
    if early:
        assert early.stdout.readline() == "ready\n"

    def work() -> None:
        said.extend(told(early) if early else told_unseen(tmp_path, begin))

    trace = recorded_during(work, mount, tmp_path)
    assert len(said) == 41
    assert recorded_calls(trace) == said
    held = ask(
        trace,
        "SELECT syscall FROM syscalls JOIN paths USING (path_id)"
        " WHERE path = 'cur/held' AND syscall IN ('write', 'newfstatat')",
    )
    assert sorted(held) == ([] if pause else [("newfstatat",)]) + [("write",)]
    early_calls = ask(
        trace, "SELECT errno FROM syscalls JOIN paths USING (path_id) WHERE path = 'first'"
    )
    assert early_calls == ([(2,)] if pause and before == SAME else [])
    assert trace.meta["complete"]
    assert trace.meta["paths_unresolved"] == 0
    # Missed calls are known only of processes with another root directory.
    assert (trace.meta["calls_unjudged"] > 0) == (begun == "during" and before == CONTAINER)
    unjudged = trace.meta["unjudged"]
    assert sum(calls["calls"] for calls in unjudged) == trace.meta["calls_unjudged"]
    assert {calls["why"] for calls in unjudged} <= {"not looked at"}
    assert all(calls["comm"] in ("python3", "sh", "chroot", "mount") for calls in unjudged)
    if before == CONTAINER:
        (row,) = replay(trace.path, ["ext4"], tmp_path / "replayed")
        # The process's own root directory has no name here.
        assert is_true(row) or (begun, row["skipped"]) == ("during", 1)
        assert (row["divergent"], row["final_state"]["mismatched"]) == (0, 0)
        assert sorted(f.name for f in (mount / "box").iterdir()) == [f"{i}.link" for i in range(10)]


HIDDEN = "mount -t tmpfs none {parent}; mkdir -p {spool}/cur; touch {spool}/cur/held"


def test_a_spool_that_a_mount_hides_is_none(spool, tmp_path):
    """A mount hides the spool, as bwrap and firejail hide /home: names lead elsewhere."""
    mount = spool("ext4")
    before = HIDDEN.format(parent=mount.parent, spool=mount)
    early = program(mount, tmp_path, before, str(mount), chroot=False, pause=0.0)
    assert early.stdout.readline() == "ready\n"
    trace = recorded_during(lambda: told(early), mount, tmp_path)
    assert trace.meta["counts"]["syscalls"] == 0
    assert trace.meta["calls_unjudged"] == 0


def test_mounts_made_later_are_seen(spool, tmp_path):
    """A namespace gets the spool only after the recorder has examined it."""
    mount = spool("ext4")
    steps = ["read line", "stat /mnt/early", "sleep 0.2", f"mount --bind {mount} /mnt",
             "stat /mnt/at-once", "sleep 0.2", "stat /mnt/late"]  # fmt: skip
    process = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", "; ".join(steps)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    trace = recorded_during(lambda: process.communicate(b"go\n"), mount, tmp_path)
    found = ask(trace, "SELECT path FROM syscalls JOIN paths USING (path_id) WHERE errno = 2")
    assert ("late",) in found
    assert ("early",) not in found


@pytest.mark.parametrize("way", ["chdir", "chroot"])
def test_another_filesystem_at_the_same_place_is_no_spool(way, spool, tmp_path):
    """A container works in a filesystem of its own that is mounted where the spool is here."""
    mount, image = spool("ext4"), tmp_path / "other"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    to = {"chdir": ".", "chroot": "/"}[way]
    work = (
        f"import os, time; os.{way}({str(mount)!r}); os.chdir({to!r}); "
        "print('ready', flush=True); time.sleep(60)"
    )
    inside = f'mount -o loop {image} {mount} && exec {sys.executable} -c "$0"'
    other = subprocess.Popen(["unshare", "-m", "sh", "-c", inside, work], stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"ready\n"
    calls = f"cd {mount} && mkdir box && (cd box; touch a; mv a b); rm -r box"
    try:
        trace = recorded_during(
            lambda: subprocess.run(["sh", "-c", calls], check=True), mount, tmp_path
        )
    finally:
        other.kill()
        other.communicate()
    found = ask(trace, "SELECT path FROM syscalls JOIN paths USING (path_id) WHERE errno = 0")
    assert {("box",), ("box/a",)} <= set(found)
    assert trace.meta["paths_unresolved"] == 0
    assert ("",) in ask(trace, "SELECT path FROM tree JOIN paths USING (path_id)")


def test_a_root_directory_in_the_spool_that_is_no_mount_point(spool, tmp_path):
    """A chrooted server of a unit with private mounts works in its queue, as Postfix does."""
    top = spool("ext4") / "queue"
    (top / "active").mkdir(parents=True)
    work = (
        "import os, sys; os.chroot(sys.argv[1]); os.chdir('/active'); print('ready', flush=True); "
        "input(); os.mkdir('one'); os.mkdir('/two')"
    )
    server = subprocess.Popen(
        ["unshare", "-m", sys.executable, "-c", work, top],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdout.readline() == b"ready\n"
    trace = recorded_during(lambda: server.communicate(b"go\n"), top, tmp_path)
    assert server.returncode == 0
    found = ask(trace, "SELECT path FROM syscalls JOIN paths USING (path_id) WHERE errno = 0")
    assert {("active/one",), ("two",)} <= set(found)
    assert trace.meta["paths_unresolved"] == 0
