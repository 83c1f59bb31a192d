"""A spool that is a directory of its filesystem: all its calls are recorded, and no others.

The recording is compared with strace, call by call, and replayed.
"""

import re
import subprocess
from pathlib import Path

import comparison
import expected
import pytest
import strace_log
from recordings import ask, recorded_during

from spoolscope.replay.one_run import is_true
from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.calls import CALLS
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]


FORKS = ("fork", "vfork", "clone", "clone3")
# Calls whose arguments cannot show that they are not on the spool.
LIFE = {name for name, call in CALLS.items() if call.klass == "task"} | {
    "close_range", "inotify_rm_watch", "sync", "chdir", "fchdir", "chroot",
}  # fmt: skip


def recorded(spool: Path, output: Path, *command: object, **more: object) -> Trace:
    words = [str(word) for word in command] or None
    request = Request(spools=[spool], output=output, command=words, keep_names=True, **more)
    return Trace.open(record(request).trace)


def paths(trace: Trace, kind: str = "spool") -> set[str]:
    return {path for (path,) in ask(trace, f"SELECT path FROM paths WHERE kind = '{kind}'")}


def raw(line: strace_log.Line) -> str:
    """Return a line of strace with its strings unescaped."""
    return re.sub(r"\\x([0-9a-f]{2})", lambda byte: chr(int(byte[1], 16)), line.text)


def children(logs: dict[int, list[strace_log.Line]], tid: int) -> set[int]:
    forks = {x.ret for x in logs.get(tid, []) if x.name in FORKS and (x.ret or 0) > 0}
    return forks.union(*(children(logs, child) for child in forks))


@pytest.fixture(params=["ext4", "xfs", "btrfs"])
def part(request, spool) -> Path:
    """Return a directory of a filesystem on which other processes work, too."""
    top = spool(request.param)
    for name in ("var/mail/work", "var/lib/work"):
        (top / name).mkdir(parents=True)
    return top / "var/mail"


def test_every_call_is_recorded_and_none_of_the_neighbours(part, allcalls, require, tmp_path):
    require("strace")
    neighbour = part.parent / "lib/work"
    counts = f"ALLCALLS_COUNTS={tmp_path}/counts {allcalls}"
    script = f"cd {part}; {counts} {neighbour}; {counts} {part}/work"
    command = ["strace", *strace_log.OPTIONS, "-o", tmp_path / "log", "sh", "-c", script]
    trace = recorded(part, tmp_path / "trace", *command)
    assert (trace.meta["lost"], trace.meta["calls_unjudged"]) == (0, 0)
    logs, rows = strace_log.read(tmp_path, "log"), comparison.rows_by_thread(trace)
    seen = expected.calls_on_spool(logs, str(part))
    assert sum(map(len, seen.values())) > 500
    # The neighbour, which belongs to the command, has only rows of its life as a process.
    runs = f'{neighbour}"]'
    (first,) = (tid for tid, lines in logs.items() if any(runs in raw(x) for x in lines))
    beside = {first} | children(logs, first)
    assert len(beside) > 3
    assert {row["syscall"] for tid in beside for row in rows.get(tid, [])} <= LIFE
    found = comparison.differences({tid: seen[tid] for tid in seen.keys() - beside}, rows)
    assert found == [], comparison.summary(found)
    assert not [path for path in paths(trace, "outside") if path.startswith(f"{neighbour}/")]


def test_an_idle_spool_beside_a_busy_directory_has_no_calls(part, tmp_path):
    busy = part.parent / "lib/work"
    (busy / "held").touch()
    script = (
        "exec 9>held; for i in 1 2 3 4 5; do echo $i >&9; echo x > $i; mv $i ./$i.a; cat $i.a; "
        "ln $i.a ../$i.b; rm ../$i.b; mkdir d; rmdir d; ls .. ; touch ../../lib/work/$i; done"
    )

    def work() -> None:
        done = subprocess.run(["sh", "-ec", script], cwd=busy, check=True, capture_output=True)
        assert b"work" in done.stdout

    trace = recorded_during(work, part, tmp_path)
    assert trace.meta["counts"]["syscalls"] == trace.meta["counts"]["open_files"] == 0
    assert paths(trace) <= {"", "work"}


CROSSING = """
import os, sys
part, other = sys.argv[1:]
def make(name, text):
    with open(name, "w") as file:
        file.write(text)
os.chdir(other)
make("in", "from outside")
os.mkdir("box"); make("box/letter", "in a box")
os.rename("in", "../mail/in")
make("in", "again")
os.rename("in", part + "/in2")
os.rename("box", part + "/box")
os.link("../mail/old", "old-link")
os.chdir(part)
for name in ("in", "in2", "box/letter"):
    with open(name, "a+") as file:
        file.write("!")
os.rename("old", other + "/out")
os.rename(other + "/out", "back")
os.rename("gone", "../lib/gone")
make("gone", "new")
print(open("back").read())
"""


def test_what_crosses_the_edge_is_counted_and_replayed(part, tmp_path):
    for name in ("old", "gone"):
        (part / name).write_text("was here")
    other = part.parent / "lib"
    (part / "twin").write_text("two names")
    (other / "twin").hardlink_to(part / "twin")
    trace = recorded(part, tmp_path / "t", "/usr/bin/python3", "-S", "-c", CROSSING, part, other)
    assert trace.meta["complete"]
    assert trace.meta["paths_unresolved"] == 0
    assert trace.meta["edge"] == {
        "renamed_in": 4, "renamed_out": 2, "linked_in": 0, "linked_out": 1, "linked_elsewhere": 1,
    }  # fmt: skip
    (row,) = replay(trace.path, ["ext4"], tmp_path / "replayed")
    assert is_true(row)
    assert (row["divergent"], row["final_state"]["mismatched"]) == (0, 0)
    assert row["skipped"] == 0


def test_open_files_and_relative_names_of_before_are_found(part, tmp_path):
    (part / "work/held").write_text("0123456789")
    code = (
        "import os; held = os.open('held', os.O_RDWR); other = os.open('../../lib/x', 66)\n"
        "print('ready', flush=True); input()\n"
        "os.write(held, b'y'); os.write(other, b'y'); os.stat('held'); os.chdir('../../..')\n"
        "os.stat('var/mail/work/held'); os.stat('var/lib/x'); os.stat('var/./mail/../lib/x')"
    )
    early = subprocess.Popen(
        ["/usr/bin/python3", "-S", "-c", code],
        cwd=part / "work", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert early.stdout.readline() == "ready\n"
    trace = recorded_during(lambda: early.communicate("go\n"), part, tmp_path)
    rows = ask(
        trace,
        "SELECT syscall, path FROM syscalls JOIN paths USING (path_id)"
        " WHERE syscall IN ('write', 'newfstatat', 'stat') ORDER BY ts_ns",
    )
    names = [(name.removeprefix("newf").removesuffix("at"), path) for name, path in rows]
    assert names[:3] == [("write", "work/held"), *[(n, "work/held") for n, _ in names[1:3]]]
    assert ask(trace, "SELECT p.path FROM open_files JOIN paths p USING (path_id)") == [
        ("work/held",)
    ]


def test_a_bind_mount_of_a_directory_is_that_directory(part, tmp_path):
    shown = tmp_path / ("m" * 100) / ("n" * 100)
    shown.mkdir(parents=True)
    subprocess.run(["mount", "--bind", part, shown], check=True)
    try:
        script = (
            f"cd {part.parent}/lib && echo x > a && cat a; echo y > {shown}/b; echo z > {part}/c;"
            f"cd {shown} && cat b c"
        )
        trace = recorded(shown, tmp_path / "t", "sh", "-c", script)
    finally:
        subprocess.run(["umount", shown], check=True)
    assert len(str(shown)) > 200
    assert {"b", "c"} <= paths(trace)
    assert not [path for path in paths(trace, "outside") if path.endswith("/lib/a")]
    opened = ask(
        trace,
        "SELECT count(*) FROM syscalls JOIN paths USING (path_id)"
        " WHERE syscall = 'openat' AND kind = 'spool'",
    )
    assert opened == [(4,)]


def test_the_output_may_lie_beside_the_spool_but_not_on_it(part):
    beside = part.parent / "trace"
    trace = recorded(part, beside, "touch", part / "x")
    assert paths(trace) >= {"x"}
    assert not [path for path in paths(trace, "outside") if str(beside) in path]
    with pytest.raises(SpoolscopeError, match="lies on the spool"):
        recorded(part, part / "work/trace", "true")


def test_below_a_directory_that_was_never_a_mount_point(tmp_path):
    """The spool is a directory as in a checkout: nothing is mounted."""
    place = tmp_path / ("long" * 50) / "spool"
    place.mkdir(parents=True)
    trace = recorded(
        place, tmp_path / "t", "sh", "-c", f"echo 1 > {place}/a; mv {place}/a {place}/b"
    )
    assert {"a", "b"} <= paths(trace)
    assert trace.meta["spools"][0]["part"]
