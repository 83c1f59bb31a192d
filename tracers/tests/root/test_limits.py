"""The longest names, more threads than there are tids, a tid that is reused."""

import json
import os
import subprocess
import sys
from errno import ENAMETOOLONG
from pathlib import Path

import pytest

from spoolscope.replay.run import replay
from spoolscope.tracers.session import Request, record
from spoolscope.traces.native import find_binary
from spoolscope.traces.text import decoded
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
HERE = Path(__file__).parent

PATH_CUT = 1 << 2
LONGEST = 4095  # PATH_MAX without the NUL
ANY = bytes(b for b in range(1, 256) if b != ord("/")) + b"\xfe"
ODD = (b"\n%41%\xc3\x28 '\"\\\x7f\xed\xa0\x80" * 20)[:255]
NOT_UTF8 = b"\xff" * 255

# Calls functions of os, with texts in hexadecimal; it prints the error of each, or 0.
STEPS = """
import json, os, sys
for name, *paths in json.load(open(sys.argv[1])):
    try:
        getattr(os, name)(*map(bytes.fromhex, paths))
    except OSError as error:
        print(error.errno)
    else:
        print(0)
"""
THREADS = 100_000
CONVERT = """
import json, resource, sys, time
from pathlib import Path
from spoolscope.tracers.convert import convert
began = time.process_time()
convert([Path(sys.argv[1])], Path(sys.argv[2]), None)
rss_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"cpu_s": time.process_time() - began, "peak_bytes": rss_kib << 10}))
"""


@pytest.fixture
def built(tmp_path: Path):
    """Return ``built(name)``: it builds a program of this directory."""

    def build(name: str) -> Path:
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-static", "-pthread"]
        subprocess.run(["cc", *flags, "-o", tmp_path / name, HERE / f"{name}.c"], check=True)
        return tmp_path / name

    return build


def deep(top: bytes) -> list[bytes]:
    """Return names, of 255 bytes if possible, that make a path of LONGEST bytes."""
    left, names = LONGEST - len(top), []
    while left:
        size = min(255, left - 1)
        size -= left - 1 - size == 1  # one byte would be a '/' without a name
        names.append((ANY, ODD, NOT_UTF8)[len(names) % 3][:size])
        left -= 1 + size
    return names


# A function of os, its arguments, the path and second path to be recorded, the error.
Step = tuple[str, tuple[bytes, ...], tuple[bytes, bytes | None], int]


def take(steps: list[Step], mount: Path, tmp_path: Path) -> Trace:
    """Record the steps; check that every name is in the trace as it was given, in order."""
    plan = tmp_path / "steps.json"
    plan.write_text(json.dumps([[name, *(p.hex() for p in paths)] for name, paths, *_ in steps]))
    script = f"{sys.executable} -c '{STEPS}' {plan} > {tmp_path}/said"
    output = tmp_path / "trace"
    record(Request(spools=[mount], output=output, command=["sh", "-c", script], keep_names=True))
    errors = [error for *_, error in steps]
    assert [int(line) for line in (tmp_path / "said").read_text().split()] == errors
    trace = Trace.open(output)
    assert (trace.meta["complete"], trace.meta["paths_unresolved"]) == (True, 0)
    rows = trace.connect().execute(
        "SELECT a.path, b.path, errno, flags_seen FROM syscalls c JOIN paths a USING (path_id)"
        " LEFT JOIN paths b ON b.path_id = c.path2_id"
        " WHERE a.kind = 'spool' AND a.path <> '' ORDER BY ts_ns"
    )
    found = []
    for path, path2, errno, flags in rows.fetchall():
        second = None if path2 is None else decoded(path2)
        found.append((decoded(path), second, errno or 0, bool(flags & PATH_CUT)))
    below = len(os.fsencode(mount)) + 1
    expected = []
    for name, given, (path, path2), error in steps:
        second = path2[below:] if path2 and name in ("rename", "link") else path2
        expected.append((path[below:], second, error, len(given[0]) > LONGEST))
    assert found == expected
    return trace


def test_the_longest_paths_are_kept_byte_by_byte(spool, tmp_path):
    mount = spool("ext4")
    top = os.fsencode(mount)
    names = deep(top)
    at = [top + b"/" + b"/".join(names[:n]) for n in range(1, len(names) + 1)]
    last, directory = at[-1], at[-2]
    assert len(last) == LONGEST
    other = last[:-1] + b"X"
    steps: list[Step] = [
        *(("mkdir", (path,), (path, None), 0) for path in at[:-1]),
        ("mknod", (last,), (last, None), 0),
        ("rename", (last, other), (last, other), 0),
        ("link", (other, last), (other, last), 0),
        ("unlink", (last,), (last, None), 0),
        ("symlink", (other, last), (last, other), 0),
        ("readlink", (last,), (last, None), 0),
        ("chdir", (directory,), (directory, None), 0),
        ("mknod", (b"relative",), (directory + b"/relative", None), 0),
    ]
    trace = take(steps, mount, tmp_path)
    (row,) = replay(trace.path, ["ext4"], tmp_path / "out", pace="afap")
    assert (row["divergent"], row["final_state"]["mismatched"]) == (0, 0)


def test_names_that_the_kernel_refuses_and_paths_beyond_its_limit(spool, tmp_path):
    """Relative names reach deeper than a path can; a path that is too long is cut."""
    mount = spool("ext4")
    top = os.fsencode(mount)
    steps: list[Step] = []
    at = top
    for i in range(18):
        name = (ANY, ODD, NOT_UTF8)[i % 3]
        at += b"/" + name
        given = name if i else at
        steps += [("mkdir", (given,), (at, None), 0), ("chdir", (given,), (at, None), 0)]
    assert len(at) > LONGEST
    wide, long = top + b"/" + b"n" * 256, top + b"/n" * LONGEST
    attribute = b"user." + b"n" * 250
    steps += [
        ("mknod", (ODD,), (at + b"/" + ODD, None), 0),
        ("setxattr", (ODD, attribute, b"v"), (at + b"/" + ODD, attribute), 0),
        ("stat", (wide,), (wide, None), ENAMETOOLONG),
        # Cut behind a slash if the length of the mount point is even.
        ("stat", (long,), (long[:LONGEST].rstrip(b"/"), None), ENAMETOOLONG),
    ]
    take(steps, mount, tmp_path)


def test_a_hundred_thousand_threads(spool, tmp_path, built):
    """Each thread looks up its own name; most get a tid that another thread had before."""
    mount, capture, output = spool("ext4"), tmp_path / "capture.seg", tmp_path / "trace"
    recorder = [find_binary("spoolscope-record"), "run", "--spool", mount, "--output", capture]
    command = [built("manythreads"), mount, str(THREADS)]
    subprocess.run([*recorder, "--", *command], check=True, stdout=subprocess.DEVNULL)
    output.mkdir()
    said = subprocess.check_output([sys.executable, "-c", CONVERT, capture, output])
    spent = json.loads(said)
    trace = Trace.open(output)
    assert (trace.meta["complete"], trace.meta["lost"]) == (True, 0)
    ask = trace.connect().execute
    calls = "syscalls JOIN paths USING (path_id) WHERE syscall = 'access' AND comm = path"
    named = f"SELECT count(*), count(DISTINCT comm), count(DISTINCT (tid, seq)) FROM {calls}"
    assert ask(named).fetchall() == [(THREADS,) * 3]
    # The row of each thread has its name, and the time of its call lies in its life.
    lives = (
        "SELECT count(*), count(DISTINCT t.comm) FROM threads t JOIN syscalls c"
        " ON c.tid = t.tid AND c.comm = t.comm AND c.ts_ns BETWEEN t.start_ns AND t.end_ns"
        " WHERE c.syscall = 'access' AND t.tid <> t.pid AND t.n_calls = 2"
    )
    assert ask(lives).fetchall() == [(THREADS, THREADS)]
    if int(Path("/proc/sys/kernel/pid_max").read_text()) < THREADS:
        ((tids,),) = ask("SELECT count(DISTINCT tid) FROM threads").fetchall()
        assert tids < THREADS
    assert spent["peak_bytes"] < 1 << 30
    assert spent["cpu_s"] < 60


def test_three_lives_of_one_number(spool, tmp_path, built, require):
    mount = spool("ext4")
    script = f"cd {mount} && {built('reuse')} > {tmp_path}/said"
    summary = record(
        Request(
            spools=[mount], output=tmp_path / "trace", command=["sh", "-c", script], keep_names=True
        )
    )
    if summary.command_status == 3:
        require("clone3", "this kernel lets no program choose the pid of a child")
    assert summary.command_status == 0
    tid = int((tmp_path / "said").read_text())
    trace = Trace.open(summary.trace)
    assert (trace.meta["complete"], trace.meta["paths_unresolved"]) == (True, 0)
    ask = trace.connect().execute
    lives = ask(
        "SELECT comm, pid = tid, start_ns, end_ns, n_calls FROM threads"
        f" WHERE tid = {tid} ORDER BY start_ns"
    ).fetchall()
    assert [life[:2] for life in lives] == [("one", False), ("two", True), ("three", True)]
    times = [time for life in lives for time in life[2:4]]
    assert times == sorted(times)
    calls = ask(
        "SELECT comm, syscall, path, seq, ts_ns, ts_ns + dur_ns FROM syscalls"
        f" LEFT JOIN paths USING (path_id) WHERE tid = {tid} ORDER BY ts_ns"
    ).fetchall()
    assert [seq for *_, seq, _, _ in calls] == list(range(len(calls)))
    for comm, start_ns, end_ns, n_calls in ((c, s, e, n) for c, _, s, e, n in lives):
        within = [call for call in calls if start_ns <= call[4] <= end_ns]
        assert {call[0] for call in within} == {comm}
        assert len(within) == n_calls
    writes = [(comm, path) for comm, syscall, path, *_ in calls if syscall == "write"]
    assert writes == [
        ("two", "of-parent"),
        ("two", "of-two"),
        ("three", "of-parent"),
        ("three", "of-three"),
    ]
    (row,) = replay(summary.trace, ["ext4"], tmp_path / "out", pace="afap")
    assert (row["divergent"], row["final_state"]["mismatched"]) == (0, 0)
