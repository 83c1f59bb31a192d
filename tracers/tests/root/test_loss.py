"""Loss is counted exactly and located, against the program's own count of its calls."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spoolscope.tracers.session import Request, Summary, record
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.root

SPOOLSCOPE = [sys.executable, "-m", "spoolscope.cli.main"]
REPLAY = ["--pace", "afap", "--no-record"]

# Threads make calls on the spool only; each prints their number at its end. Two live all the time,
# others begin and end all the time: some while the rings are not read.
BUSY = """
import json, os, sys, threading, time
spool, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
def loop(path, end):
    n = 0
    while time.monotonic() < end:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(fd, b"x" * 100)
        os.close(fd)
        os.rename(path, path + "x")
        n += 4
        time.sleep(0.0002)
    said.append((threading.get_native_id(), n))
def threads(names, end):
    started = [threading.Thread(target=loop, args=(f"{spool}/{n}", end)) for n in names]
    for thread in started: thread.start()
    for thread in started: thread.join()
said = []
child = os.fork()
if child:
    threads(["a", "b"], end)
else:
    while time.monotonic() < end:
        threads(["c"], time.monotonic() + 0.1)
for tid, n in said:
    print(tid, n, flush=True)
time.sleep(0.5)  # join returns before a thread's exit, which is a call, too
if not child:
    os._exit(0)
os.waitpid(child, 0)
"""


def stalled(mount: Path, tmp_path: Path, when_ready, seconds: float) -> Summary:
    """Record the program while the recorder is stopped for some seconds."""
    script = tmp_path / "busy.py"
    script.write_text(BUSY)

    def stall() -> None:
        time.sleep(1)
        pattern = f"spoolscope-record run .*{tmp_path}"
        recorder = int(subprocess.check_output(["pgrep", "-o", "-f", pattern]))
        os.kill(recorder, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(recorder, signal.SIGCONT)

    busy = f"{sys.executable} {script} {mount} {seconds + 2}"
    when_ready(tmp_path / "trace", stall)
    return record(
        Request(
            spools=[mount],
            output=tmp_path / "trace",
            command=["sh", "-c", f"{busy} > {tmp_path}/said"],
            keep_names=True,
            snapshot="none",
            ring_mib=1,
        )
    )


def test_a_stopped_consumer_loses_nothing_that_is_not_located(spool, tmp_path, when_ready):
    mount = spool("ext4")
    began_ns = time.time_ns()
    stalled(mount, tmp_path, when_ready, 5)
    ended_ns = time.time_ns()
    trace = Trace.open(tmp_path / "trace")
    lines = (tmp_path / "said").read_text().splitlines()
    theirs = dict(tuple(map(int, line.split())) for line in lines)
    assert len(theirs) == len(lines) > 20, "a tid was given out twice"
    rows = dict(trace.connect().execute("SELECT tid, count(*) FROM syscalls GROUP BY 1").fetchall())
    losses = trace.table("losses").to_pylist()
    lost: dict[int, int] = {}
    for loss in losses:
        if loss["kind"] == "syscall":
            assert loss["n"] == loss["last_seq"] - loss["first_seq"] + 1
            assert (loss["after_ns"] or began_ns) <= loss["before_ns"] <= ended_ns
            lost[loss["tid"]] = lost.get(loss["tid"], 0) + loss["n"]
    ours = {tid: rows.get(tid, 0) + lost.get(tid, 0) for tid in theirs}
    ends = 1  # its own exit, which the program does not count
    assert ours == {tid: n + ends for tid, n in theirs.items()}
    # Many calls were lost: of threads that live on, of threads that ended, and all of some threads.
    assert sum(lost.values()) > 10_000
    assert len(set(lost) & set(theirs)) > 10
    assert [tid for tid in theirs if tid not in rows], "no thread lost everything"
    # Every number is either in the trace or in a loss.
    assert trace.meta["lost"] == sum(loss["n"] for loss in losses)
    assert trace.meta["complete"] is False
    _every_verb_says_so(tmp_path)


def _every_verb_says_so(tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    def said(*words: object) -> str:
        done = subprocess.run(
            [*SPOOLSCOPE, *map(str, words)], capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    facts = json.loads(said("info", trace, "--json"))
    assert facts["complete"] is False
    assert "calls of thread" in said("info", trace)
    explained = said("explain", trace)
    assert "NOT complete" in explained
    assert f"{facts['lost']:,} records were lost while recording" in explained
    said("report", trace, "-o", tmp_path / "report.html")
    assert f"{facts['lost']:,} lost records are missing" in (tmp_path / "report.html").read_text()
    runs, fresh = tmp_path / "runs", tmp_path / "fresh"
    fresh.mkdir()
    replayed = said("replay", trace, "--on", f"dir:{fresh}", "-o", runs, *REPLAY)
    assert "is incomplete: results after a loss may differ" in replayed
    assert "Wrote" in replayed  # although forks were lost, too
    assert "The replayed trace is not complete" in said("compare", runs)
    said("report", runs, "-o", tmp_path / "runs.html")
    assert "The replayed trace is not complete" in (tmp_path / "runs.html").read_text()
