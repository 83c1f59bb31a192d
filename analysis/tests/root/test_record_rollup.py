"""Roll-ups against a full recording of the same calls, and against the program's own counts."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pytest

from spoolscope.analysis.query import query
from spoolscope.cli.freeze_rules import all_cause_rules
from spoolscope.tracers.request import Limit, Request
from spoolscope.tracers.rolling import RolledUp, record_rollups
from spoolscope.traces.rollups.buckets import bucket_of
from spoolscope.traces.rollups.contract import unequal
from spoolscope.traces.rollups.files import Rollups
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

# Four processes sync, rename and look up in one directory; each prints how many calls it made.
LOAD = """
import collections, json, os, sys
made = collections.Counter()
place = sys.argv[1]
for n in range(4):
    if not os.fork():
        os.chdir(place)
        for i in range(int(sys.argv[2])):
            name = f"{n}-{i}"
            fd = os.open(name, os.O_CREAT | os.O_RDWR, 0o600)
            os.write(fd, b"x" * (1 << i % 14))
            os.fsync(fd)
            os.pread(fd, 100, 0)
            os.writev(fd, [b"a" * 300, b"b" * 300])
            os.close(fd)
            os.rename(name, name + "-new")
            try:
                os.unlink(name)
            except FileNotFoundError:
                pass
            os.unlink(name + "-new")
        os._exit(0)
for n in range(4):
    os.wait()
"""
CALLS_OF_ONE = {
    ("openat", 0): 1, ("write", 0): 1, ("fsync", 0): 1, ("pread64", 0): 1, ("writev", 0): 1,
    ("close", 0): 1, ("rename", 0): 1, ("unlink", 1): 1, ("unlink", 0): 1,
}  # fmt: skip
ROUNDS = 50

SUMS = """
SELECT syscall, cause, size_class, failed, bucket, CAST(sum(n) AS BIGINT),
    CAST(sum(sum_ns) AS BIGINT)
FROM calls GROUP BY ALL
"""
# Time of a cause in each call of a full recording, in the form of the table of calls.
PARTS = """
SELECT s.syscall, c.cause, s.size, s.errno, c.ns FROM call_causes c
JOIN syscalls s USING (tid, seq, ts_ns) WHERE c.ns > 0
UNION ALL SELECT syscall, 'call', size, errno, dur_ns FROM syscalls
"""


def both(spool: Path, output: Path, rounds: int) -> RolledUp:
    """Record roll-ups and all calls at once."""
    command = [sys.executable, "-S", "-c", LOAD, str(spool), str(rounds)]
    return record_rollups(
        Request(
            spools=[spool], output=output, command=command, keep_names=True, last=Limit(age_s=600),
            cause_rules=all_cause_rules(),
        )
    )  # fmt: skip


def sums_of(rollups: Rollups) -> dict[tuple[object, ...], tuple[int, int]]:
    calls = rollups.read("calls")
    rows = duckdb.from_arrow(calls).query("calls", SUMS).fetchall()
    return {row[:5]: row[5:] for row in rows}


def sums_of_trace(trace: Trace) -> dict[tuple[object, ...], tuple[int, int]]:
    found: dict[tuple[object, ...], tuple[int, int]] = {}
    with query(trace, PARTS, 1 << 20) as batches:
        parts = batches.read_all()
    rows = list(zip(*(column.to_pylist() for column in parts.columns), strict=True))
    buckets = bucket_of(np.array([row[4] for row in rows], np.int64)).tolist()
    data = {"read", "write", "pread64", "pwrite64", "readv", "writev"}
    for (syscall, cause, size, errno, ns), bucket in zip(rows, buckets, strict=True):
        size_class = int(size).bit_length() - 1 if syscall in data and size else -1
        key = (syscall, cause, size_class, int(errno != 0), bucket)
        n, sum_ns = found.get(key, (0, 0))
        found[key] = (n + 1, sum_ns + ns)
    return found


def differing(found, expected):
    """Return the rows that are not in both."""
    keys = sorted(k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k))
    return [(key, found.get(key), expected.get(key)) for key in keys]


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_sums_are_those_of_all_calls_to_the_nanosecond(spool, tmp_path, fstype):
    mount = spool(fstype)
    done = both(mount, tmp_path / "rollups", ROUNDS)
    rollups = Rollups(tmp_path / "rollups")
    found = sums_of(rollups)
    assert done.windows is not None
    trace = Trace.open(done.windows / "frozen-000001")
    assert trace.meta["complete"]
    expected = sums_of_trace(trace)
    assert found == expected, differing(found, expected)
    assert not unequal(rollups.read("calls"), rollups.read("minutes"))
    waits = {cause for _, cause, *_ in found} - {"call", "cpu", "runq", "preempt", "steal"}
    assert waits - {"unexplained"}, "nothing waited"

    own = {
        (syscall, failed): sum(
            n
            for (call, cause, _, wrong, _), (n, _) in found.items()
            if (call, wrong, cause) == (syscall, failed, "call")
        )
        for syscall, failed in CALLS_OF_ONE
    }
    own[("openat", 0)] = own[("openat", 0)] // ROUNDS // 4 * ROUNDS * 4  # the interpreter's own
    assert own == {call: 4 * ROUNDS * n for call, n in CALLS_OF_ONE.items()}
    commits = rollups.read("commits")
    (told,) = trace.connect().execute("SELECT count(*) FROM commits").fetchone()
    assert sum(commits["n"].to_pylist()) == told > 0


# It removes a missing directory, not around the turn of a second, and notes when calls returned.
TICKER = """
import os, sys, time
with open(sys.argv[2], "w", 1) as out:
    while True:
        if 0.2 < time.time() % 1 < 0.8:
            try:
                os.rmdir(sys.argv[1] + "/missing")
            except FileNotFoundError:
                out.write(f"{time.time():.6f}\\n")
        time.sleep(0.002)
"""
# A busy machine ends seconds late. One that is as long as it should be has all of its calls.
QUIET_NS = 40_000_000
RECORDER = """
import sys
from pathlib import Path
from spoolscope.cli.freeze_rules import all_cause_rules
from spoolscope.tracers.request import Request
from spoolscope.tracers.rolling import record_rollups
done = record_rollups(
    Request([Path(sys.argv[1])], Path(sys.argv[2]), duration_s=float(sys.argv[3]), rollup_s=1,
            keep_names=True, cause_rules=all_cause_rules()),
    tell=lambda what: print("the recording", what),
)
print(done.minutes, done.failure)
"""


def native_of(pid: int) -> int:
    found = subprocess.run(["pgrep", "-P", str(pid), "spoolscope-reco"], stdout=subprocess.PIPE)
    return int(found.stdout.split()[0])


def test_a_kill_loses_only_the_second_that_was_running_and_top_shows_each(spool, tmp_path):
    mount, rollups, ticks = spool("ext4"), tmp_path / "rollups", tmp_path / "ticks"
    running: list[subprocess.Popen[str]] = []
    ticker = subprocess.Popen([sys.executable, "-S", "-c", TICKER, mount, ticks])

    words = [sys.executable, "-m", "spoolscope.cli.main", "top", "-i", "1s", "--json", "--names"]
    top = subprocess.Popen([*words, "--spool", mount], stdout=subprocess.PIPE, text=True)

    def recorder(seconds: float) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", RECORDER, mount, rollups, str(seconds)]
        running.append(
            subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
        )
        return running[-1]

    def recorded() -> dict[int, tuple[int, int]]:
        if not (rollups / "schema=1" / "minutes").exists():
            return {}
        minutes = Rollups(rollups).read("minutes").to_pylist()
        return {row["minute_s"]: (row["calls"], row["covered_ns"]) for row in minutes}

    def after_two_more(process: subprocess.Popen[str]) -> float:
        before = len(recorded())
        while len(recorded()) < before + 3:
            assert process.poll() is None
            time.sleep(0.05)
        return time.time()

    try:
        native_killed = recorder(60)
        killed_at = after_two_more(native_killed)
        os.kill(native_of(native_killed.pid), signal.SIGKILL)
        said, _ = native_killed.communicate()
        assert "None" not in said, "the end is told"
        assert max(recorded()) >= killed_at - 2.5, "only the last second may be missing"
        all_killed = recorder(60)
        after_two_more(all_killed)
        os.killpg(all_killed.pid, signal.SIGKILL)
        all_killed.communicate()
        said, _ = recorder(1.5).communicate()
        assert "did not end in order" in said
        top.send_signal(signal.SIGINT)
        said, _ = top.communicate()
    finally:
        top.kill()
        for process in running:
            process.terminate()
        ticker.kill()
        ticker.wait()
    removals = Counter[int]()
    for row in Rollups(rollups).read("calls").to_pylist():
        if (row["syscall"], row["cause"]) == ("rmdir", "call"):
            removals[row["minute_s"]] += row["n"]
    ended = [float(line) for line in ticks.read_text().split()]
    made = [int(at) for at in ended]
    # On a busy machine a call may still end around the turn of a second.
    doubtful = {int(at) + off for at in ended if not 0.2 < at % 1 < 0.81 for off in (-1, 0, 1)}
    whole = [
        at
        for at, (_, covered_ns) in recorded().items()
        if abs(covered_ns - 10**9) < QUIET_NS and at not in doubtful
    ]
    assert len(whole) >= 4
    shown = {
        round(interval["start_ns"] / 1e9): max(use["failed"] for use in interval["programs"])
        for interval in map(json.loads, said.splitlines())
        if abs(interval["duration_ns"] - 10**9) < QUIET_NS
        and abs(interval["start_ns"] - round(interval["start_ns"], -9)) < 2e8
        and round(interval["start_ns"] / 1e9) not in doubtful
    }
    assert len(shown) >= 4
    assert shown == {at: made.count(at) for at in shown}
    assert {at: removals[at] for at in whole} == {at: made.count(at) for at in whole}
