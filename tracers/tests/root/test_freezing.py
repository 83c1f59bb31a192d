"""Rules freeze a flight recorder: real faults, one after the other, in one recording."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spoolscope.traces.recording import CAPTURES, Recording
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

CLI = [sys.executable, "-m", "spoolscope.cli.main"]
# If two rules are broken at once, the first one counts.
RULES = ("journal_commit > 300ms", "in-flight > 400ms", "lock-held > 1s", "commits > 20/s")
ORDER = ("in-flight", "lock-held", "journal_commit", "commits")
DELAY_S = 0.8

HOLDER = """
import fcntl, os, sys, time
file = open(sys.argv[1], "r+")
for _ in range(20):  # taken and given up many times before it is held
    fcntl.lockf(file, fcntl.LOCK_EX)
    fcntl.lockf(file, fcntl.LOCK_UN)
fcntl.lockf(file, fcntl.LOCK_EX)
print(time.time_ns(), flush=True)
sys.stdin.read()
"""
WAITER = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX)"

# It prints control characters of terminals, takes some time, and fails.
HOOK = r"""#!/bin/sh
echo "$1 $SPOOLSCOPE_WHY" >> "$0.log"
test -f "$1/meta.json" && printf 'seen\033[2J\n' && exit 3
"""


@pytest.fixture
def hook(tmp_path: Path) -> Path:
    file = tmp_path / "hook"
    file.write_text(HOOK)
    file.chmod(0o755)
    return file


@pytest.mark.times
def test_each_fault_freezes_and_says_which_it_was(slow_spool, tmp_path, hook):
    mount, disk = slow_spool("ext4")
    output, lock = tmp_path / "box", mount / "lock"
    lock.touch()
    rules = [word for rule in RULES for word in ("--freeze-on", rule)]
    command = [*CLI, "record", "-q", "--keep-names", "--snapshot", "none", "--spool", mount]
    command += ["-o", output, "--last", "1s", *rules, "--on-freeze", str(hook)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recorder:
        try:
            wait_for(lambda: "ready" in said(output))
            holder, waiter, held_ns = a_stopped_holder_of(lock, output)
            delayed_ns = a_slow_commit(mount, disk, output)
            many_commits(mount, output)
        finally:
            recorder.send_signal(signal.SIGINT)
            _, told = recorder.communicate(timeout=40)
    assert recorder.returncode == 0, told
    traces = Recording.open(output).traces()
    flight, held, slow, rate, end = [Trace.open(trace).meta["frozen"] for trace in traces]
    explained = [explain(trace) for trace in traces[:4]]

    assert (slow["rule"], flight["rule"], held["rule"], rate["rule"]) == RULES
    assert (end["why"], end["rule"]) == ("end", None)
    # Without --user-stacks no user stacks are recorded.
    assert Trace.open(traces[0]).meta["user_stacks"] is None
    assert not (traces[0] / "user_calls.parquet").exists()
    called = flight["in_flight"]
    assert (called["pid"], called["syscall"]) == (waiter, "fcntl")
    assert 400e6 < called["dur_ns"] < 900e6
    under_way = Trace.open(traces[0]).meta["under_way"]
    assert (waiter, called["ts_ns"]) in [(call["pid"], call["ts_ns"]) for call in under_way]
    assert re.match(
        rf"Frozen by fcntl on lock of python\S* \(process {waiter}\), which had not returned for"
        r" \d+ ms at [\d:]+ UTC: it waits for file locks\. The rule was: in-flight > 400ms\.",
        explained[0],
    )

    assert (held["lock"]["pid"], held["lock"]["waiters"]) == (holder, 1)
    assert abs(held["lock"]["ts_ns"] - held_ns) < 60e6
    assert 1e9 < held["lock"]["dur_ns"] < 3e9
    assert re.match(
        rf"Frozen by python\S* \(process {holder}\), which had held an exclusive fcntl lock on lock"
        r" for \S+ s at [\d:]+ UTC, while 1 process waited for it\.",
        explained[1],
    )

    # The delay that the disk itself counted is longer than the rule allows.
    assert delayed_ns >= DELAY_S * 1e9
    assert slow["why"].startswith("journal_commit: ")
    me = os.getpid()
    assert re.match(rf"Frozen by fsync on slow of \S+ \(process {me}\)", explained[2])
    assert re.search(r"it waits for journal commits|journal commit \d+ ms", explained[2])

    assert rate["commits"]["n"] == 21
    asked = rf"Frozen by 21 journal commits within 1.00 s at \S+ UTC, \d+ of them .*{me}\)\."
    assert re.match(asked, explained[3])

    # The command ran for each but the last, and its output has no control characters.
    ran = Recording.open(output).control["hooks"]
    assert [one["trace"] for one in ran] == [trace.name for trace in traces[:4]]
    assert {(one["status"], one["output"]) for one in ran} == {(3, "seen\x1b[2J\n")}
    log = (hook.parent / "hook.log").read_text().splitlines()
    assert [line.split()[:2] for line in log] == [
        [str(trace), f"{what}:"] for trace, what in zip(traces[:4], ORDER, strict=True)
    ]
    assert told.count(r"it ended with 3: seen\x1b[2J") == 4
    listed = subprocess.run([*CLI, "info", output], capture_output=True, text=True).stdout
    assert listed.count(r"it ended with 3: seen\x1b[2J") == 4
    assert "\x1b" not in told + listed


def a_stopped_holder_of(lock: Path, output: Path) -> tuple[int, int, int]:
    """Cause two freezes, by its waiter and by its holder; return their pids, and the start."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", HOLDER, lock],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        held_ns = int(holder.stdout.readline())
        holder.send_signal(signal.SIGSTOP)
        waiter = subprocess.Popen([sys.executable, "-S", "-c", WAITER, lock])
        wait_for(lambda: said(output).count('"frozen"') == 2)
        holder.send_signal(signal.SIGCONT)
        holder.communicate("")
        assert waiter.wait(60) == 0
    return holder.pid, waiter.pid, held_ns


def a_slow_commit(mount: Path, disk, output: Path) -> int:
    """Cause a freeze by a commit that waits for the disk; return the disk's own delay, ns."""
    time.sleep(1.1)  # after a freeze the rules are not checked for a window
    (mount / "slow").mkdir()
    directory = os.open(mount / "slow", os.O_RDONLY)  # no data: the whole delay is in the commit
    disk.delay("write", int(DELAY_S * 1e9))
    syncing = threading.Thread(target=os.fsync, args=[directory])
    syncing.start()
    wait_for(lambda: said(output).count('"frozen"') == 3)
    disk.clear()
    syncing.join()
    os.close(directory)
    return max(one.end_ns - one.begin_ns for one in disk.delayed())


def many_commits(mount: Path, output: Path) -> None:
    """Cause a freeze by a process that forces commits."""
    time.sleep(1.1)
    deadline = time.monotonic() + 60
    with (mount / "many").open("w") as file:
        while said(output).count('"frozen"') < 4 and time.monotonic() < deadline:
            file.write("x" * 5000)
            file.flush()
            os.fsync(file)
    wait_for(lambda: said(output).count('"frozen"') == 4)


def explain(trace: Path) -> str:
    done = subprocess.run([*CLI, "explain", trace], capture_output=True, text=True)
    return " ".join(done.stdout.split())


def said(output: Path) -> str:
    answers = output / CAPTURES / "capture.json"
    return answers.read_text() if answers.exists() else ""


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)
