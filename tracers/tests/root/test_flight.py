"""The flight recorder: a bounded window on disk, frozen by a command, a signal or a rule."""

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from spoolscope.traces.recording import CAPTURES, Recording
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.steady]

CLI = [sys.executable, "-m", "spoolscope.cli.main"]
PARTS = 8  # number of segments of a window


@contextmanager
def recording(
    mount: Path, output: Path, *options: str, until_ready: bool = True
) -> Iterator[subprocess.Popen[str]]:
    command = [*CLI, "record", "-q", "--keep-names", "--snapshot", "none", "--spool", str(mount)]
    process = subprocess.Popen(
        [*command, "-o", str(output), *options], stderr=subprocess.PIPE, text=True
    )
    try:
        if until_ready:
            wait_for(lambda: "ready" in said(output), process)
        yield process
    finally:
        process.kill()
        process.communicate()


def said(output: Path) -> str:
    answers = output / CAPTURES / "capture.json"
    return answers.read_text() if answers.exists() else ""


def wait_for(what: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 40
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


@contextmanager
def creating(mount: Path) -> Iterator[dict[int, tuple[int, int]]]:
    """Create numbered files all the time; yield when each began and ended, in ns since the epoch.

    The keys are the numbers.
    """
    made: dict[int, tuple[int, int]] = {}
    stop = threading.Event()

    def create() -> None:
        while not stop.is_set():
            begin_ns = time.time_ns()
            (mount / str(len(made))).touch()
            made[len(made)] = begin_ns, time.time_ns()
            time.sleep(0.001)

    thread = threading.Thread(target=create)
    thread.start()
    try:
        yield made
    finally:
        stop.set()
        thread.join()


def created_in(trace: Path) -> set[int]:
    connection: duckdb.DuckDBPyConnection = Trace.open(trace).connect()
    rows = connection.execute(
        "SELECT path FROM syscalls JOIN paths USING (path_id)"
        " WHERE syscall = 'openat' AND kind = 'spool' AND path SIMILAR TO '[0-9]+'"
    ).fetchall()
    return {int(path) for (path,) in rows}


def test_freezing_keeps_exactly_the_last_window(spool, tmp_path):
    mount, output = spool("ext4"), tmp_path / "box"
    most = 0
    with recording(mount, output, "--last", "2s") as process, creating(mount) as made:
        for _ in range(20):
            time.sleep(0.25)
            most = max(most, len(list((output / CAPTURES).glob("*.seg"))))
        done = subprocess.run(
            [*CLI, "freeze", output, "--json"], capture_output=True, text=True, check=True
        )
        frozen = Path(json.loads(done.stdout)["trace"])
        meta = Trace.open(frozen).meta
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 0, process.communicate()
    assert meta["frozen"]["why"] == "signal"
    assert meta["complete"]
    assert most <= PARTS + 3  # those of the window, the open ones at a border, one too old
    assert 2e9 <= meta["frozen"]["window_ns"] < 4.5e9
    # The window, by its meta.json, holds exactly the files that the program made in it.
    start, end = meta["start_ns"], meta["frozen"]["at_ns"]
    slack = 1_000_000  # the clocks are read separately
    inside = {i for i, (on, off) in made.items() if start + slack < on and off < end - slack}
    around = {i for i, (on, off) in made.items() if start - slack < off and on < end + slack}
    assert len(inside) > 100
    assert inside <= created_in(frozen) <= around
    # The recording went on, and its end is a freeze, too; nothing else is left.
    first, last = Recording.open(output).traces()
    assert first == frozen
    assert Trace.open(last).meta["frozen"]["why"] == "end"
    assert Trace.open(last).meta["start_ns"] > end - slack
    assert not (output / CAPTURES).exists()


def test_a_slow_call_freezes_once_per_window(spool, tmp_path):
    mount, output = spool("ext4"), tmp_path / "box"
    (mount / "lock").touch()
    with recording(mount, output, "--last", "30s", "--freeze-on", "slow=200ms") as process:
        _waiting_for_a_lock(mount / "lock", 0.4)
        wait_for(lambda: Recording.open(output).traces(), process)
        _waiting_for_a_lock(mount / "lock", 0.4)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=40)
        assert process.returncode == 0, told
    first, last = (Trace.open(trace) for trace in Recording.open(output).traces())
    assert first.meta["frozen"]["why"].startswith("slow: call ")
    words = r"by fcntl on lock of python\d* \(process \d+\), which took [\d.]+ m?s and ended at"
    said = r"the recording froze at .* UTC: slow: call \d+ of thread \d+ took [\d.]+ m?s\n"
    assert re.search(said, told)
    assert re.search(rf"^frozen-000001: frozen {words}", told, re.M)
    assert "frozen-000002: frozen because the recording ended" in told
    explained = subprocess.run([*CLI, "explain", first.path], capture_output=True, text=True)
    assert re.match(f"Frozen {words} .* UTC: file lock", " ".join(explained.stdout.split()))
    listed = subprocess.run([*CLI, "info", output], capture_output=True, text=True).stdout
    assert re.search(f", frozen {words}", " ".join(listed.split()))
    assert last.meta["frozen"]["why"] == "end"
    slow = "SELECT count(*) FROM syscalls WHERE syscall = 'fcntl' AND dur_ns > 200000000"
    assert [t.connect().execute(slow).fetchall() for t in (first, last)] == [[(1,)], [(1,)]]


def test_a_call_that_fails_with_an_errno_freezes(spool, tmp_path):
    mount, output = spool("ext4"), tmp_path / "box"
    (mount / "full").mkdir()
    (mount / "full" / "name").touch()
    with recording(mount, output, "--last", "30s", "--freeze-on", "errno=ENOTEMPTY") as process:
        for _ in range(20):
            with pytest.raises(FileNotFoundError):
                (mount / "nothing").stat()
        time.sleep(1)
        assert Recording.open(output).traces() == []  # another errno
        with pytest.raises(OSError, match="not empty"):
            (mount / "full").rmdir()
        wait_for(lambda: Recording.open(output).traces(), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0, process.communicate()
    first, last = (Trace.open(trace) for trace in Recording.open(output).traces())
    assert first.meta["frozen"]["why"].startswith(f"errno {errno.ENOTEMPTY}: call ")
    assert last.meta["frozen"]["why"] == "end"
    failed = first.connect().execute(
        "SELECT syscall, path, tid, seq FROM syscalls JOIN paths USING (path_id) WHERE errno = ?",
        [errno.ENOTEMPTY],
    )
    [(call, path, tid, seq)] = failed.fetchall()
    assert (call, path, tid) == ("rmdir", "full", threading.get_native_id())
    assert f"call {seq} of thread {tid} " in first.meta["frozen"]["why"]


def _waiting_for_a_lock(path: Path, seconds: float) -> None:
    code = "import fcntl, sys; file = open(sys.argv[1], 'r+'); print(flush=True); "
    code += "fcntl.lockf(file, fcntl.LOCK_EX)"
    with path.open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        command = [sys.executable, "-S", "-c", code, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as waiter:
            assert waiter.stdout is not None
            waiter.stdout.readline()
            time.sleep(seconds)
            fcntl.lockf(file, fcntl.LOCK_UN)


def test_a_killed_recorder_leaves_its_window(spool, tmp_path):
    mount, output = spool("ext4"), tmp_path / "box"
    with recording(mount, output, "--last", "4s") as process, creating(mount) as made:
        time.sleep(4)
        pid = Recording.open(output).recorder()
        os.kill(pid, signal.SIGKILL)
        killed_ns = time.time_ns()
        _, said = process.communicate(timeout=40)
    assert process.returncode == 3
    assert "ended early" in said
    [trace] = Recording.open(output).traces()
    meta = Trace.open(trace).meta
    assert meta["frozen"]["why"] == "the recorder died"
    assert meta["complete"] is False
    assert meta["lost"] == 0
    # Records are written once a second, on a busy machine later.
    safe_ns = killed_ns - 2_500_000_000
    safe = {i for i, (on, off) in made.items() if meta["start_ns"] < on and off < safe_ns}
    assert safe
    assert safe <= created_in(trace)


def test_a_failed_conversion_is_reported_at_once_and_made_at_the_end(spool, tmp_path):
    mount, output = spool("ext4"), tmp_path / "box"
    freeze = [*CLI, "freeze", output]
    with recording(mount, output, "--last", "30s") as process:
        (mount / "before").touch()
        in_the_way = output / "frozen-000001" / "file"
        in_the_way.parent.mkdir()
        in_the_way.touch()
        done = subprocess.run(freeze, capture_output=True, text=True, timeout=40)
        assert done.returncode == 1
        assert "error: cannot write frozen-000001: Directory not empty; it is tried" in done.stderr
        [failed] = Recording.open(output).control["failures"]
        assert failed["trace"] == "frozen-000001"
        info = subprocess.run([*CLI, "info", output], capture_output=True, text=True, check=False)
        assert info.returncode == 3, info.stderr
        said = " ".join(info.stdout.split())
        assert f"The recording {failed['failure']}; its segments are kept." in said
        subprocess.run(freeze, check=True, capture_output=True, timeout=40)
        in_the_way.unlink()
        in_the_way.parent.rmdir()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=40)
        assert process.returncode == 0, told
    said = "the recording cannot write frozen-000001: Directory not empty; it is tried"
    assert said in told.split("froze at", 2)[1], "not before the next freeze"
    traces = Recording.open(output).traces()
    assert [trace.name for trace in traces] == [f"frozen-00000{n}" for n in (1, 2, 3)]
    metas = [Trace.open(trace).meta for trace in traces]
    assert [meta["frozen"]["why"] for meta in metas] == ["signal", "signal", "end"]
    assert metas[0]["start_ns"] < metas[1]["start_ns"] < metas[2]["start_ns"]
    assert Recording.open(output).control["failures"] == []
    assert not (output / CAPTURES).exists()


def test_a_full_disk_is_told_at_once_and_afterwards(spool, tmp_path):
    mount, small = spool("ext4"), tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], check=True)
    busy = f"i=0; while :; do : > {mount}/f$((i%50)); i=$((i+1)); done"
    load = subprocess.Popen(["sh", "-c", f"exec 2>/dev/null; {busy}"])
    try:
        # On a fast machine the disk is full before the recorder is ready.
        with recording(mount, small / "box", "--last", "1h", until_ready=False) as process:
            told = ""
            while "ended early" not in told and (line := process.stderr.readline()):
                told += line
            process.communicate(timeout=60)
        listed = subprocess.run(
            [*CLI, "info", small / "box"], capture_output=True, text=True, check=False
        ).stdout
    finally:
        load.kill()
        load.wait()
        subprocess.run(["umount", "-l", small], check=True)
    early = r"recording ended early at 20.* UTC: the disk of its output was full"
    assert re.search(f"^spoolscope: warning: the {early}$", told, re.M)
    assert re.search(f"^The {early}\\.$", listed, re.M)


def test_freeze_refuses_what_it_cannot_freeze(spool, tmp_path):
    def refused(*words: object) -> str:
        done = subprocess.run([*CLI, *map(str, words)], capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert done.stderr.count("\n") == 1
        return done.stderr

    mount, output = spool("ext4"), tmp_path / "rec"
    assert "not a recording of several traces" in refused("freeze", tmp_path)
    with recording(mount, output, "--rotate", "1h") as process:
        assert "no flight recorder" in refused("freeze", output)
        new = tmp_path / "new"
        assert "still being recorded" in refused("record", "--recover", output, "-o", new)
        assert "exists" in refused("record", "--spool", mount, "-o", output)
        assert "is in use: a command works" in refused(
            "record", "-f", "--spool", mount, "-o", output
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 0, process.communicate()
    box = tmp_path / "box"
    with recording(mount, box, "--last", "1h") as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 0, process.communicate()
    assert "no running recorder" in refused("freeze", box)
