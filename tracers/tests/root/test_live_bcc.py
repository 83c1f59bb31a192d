"""The BCC tools during a recording of the same workload, and their messages if they cannot run."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from clocks import alike, compares_times
from journals import device_of, ftrace
from live import COMM, LIVE, SYNCERS, ask, bcc, beside, missing_bcc, workload

pytestmark = [pytest.mark.root, compares_times]
SLACK_MS = 0.02


@pytest.fixture
def mail(spool, require):
    if missing := missing_bcc():
        require("bcc", reason=missing)
    return spool("ext4")


def traced_calls() -> set[str]:
    """Return the calls that spooltop traces, by the recorder's names."""
    sys.path.insert(0, str(LIVE))
    spec = importlib.util.spec_from_file_location("spooltop", LIVE / "spooltop.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(LIVE))
    return set(module.CALLS)


@pytest.fixture
def kernel_times_programs():
    """Have the kernel count how long BPF programs run."""
    switch = Path("/proc/sys/kernel/bpf_stats_enabled")
    before = switch.read_text()
    switch.write_text("1")
    yield
    switch.write_text(before)


def spent_ms(program: str) -> float:
    """Return how long BPF programs of this name have run, by the kernel's own count."""
    command = ["bpftool", "-j", "prog", "show"]
    shown = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return sum(p["run_time_ns"] for p in shown if p.get("name") == program) / 1e6


@pytest.mark.usefixtures("kernel_times_programs")
def test_spooltop_counts_and_times_the_calls_of_the_recording(mail, tmp_path):
    command = workload(tmp_path, SYNCERS, mail, 23, 7, 101).split()
    with bcc("spooltop.py", "-C", "-d", mail, 600) as rows:
        trace = beside(mail, tmp_path, command)
        spent = spent_ms("tracepoint__sched__sched_switch")
    assert spent > 0
    ours = {
        pid: numbers
        for pid, *numbers in ask(
            trace,
            "SELECT pid, count(*), sum(dur_ns) / 1e6, max(dur_ns) / 1e6, sum(blocked_ns) / 1e6,"
            " sum(runq_ns + preempted_ns) / 1e6, sum((syscall = 'fsync')::INT) FROM syscalls"
            f" WHERE comm = '{COMM}' AND syscall IN {tuple(traced_calls())} GROUP BY pid",
        )
        if numbers[0] > 5
    }
    theirs = {int(row["PID"]): row for row in rows if row["COMM"] == COMM}
    assert all(len(line) < 80 for line in rows.text.splitlines())
    assert sorted(n[5] for n in ours.values()) == [7, 23, 101]
    n_calls = sum(n[0] for n in ours.values())
    for pid, (n, total, longest, blocked, runq, _) in ours.items():
        row = theirs[pid]
        assert int(row["CALLS"]) == n
        slack = n * SLACK_MS
        # spooltop is attached first: it reads the clock, and walks the stack before the recorder
        # reads the clock.
        walks = spent * n / n_calls
        for name, ms, share, least, more in (
            ("TOTALms", total, 0.02, slack, 0),
            ("MAXms", longest, 0.02, 0.1, 0),
            ("BLKms", blocked, 0.02, slack, walks),
            ("RUNQms", runq, 0.05, slack, 0),
        ):
            alike(name, float(row[name]), ms, rel=share, least=least, more=more)
        # All of these sleep in fsync; the stacks of the trace show for what.
        frames = {
            name
            for (name,) in ask(
                trace,
                "SELECT DISTINCT symbol FROM stacks JOIN segments USING (stack_id)"
                f" JOIN syscalls c USING (tid, seq) WHERE c.pid = {pid} AND state = 'blocked'",
            )
        }
        assert any(frame.startswith(row["TOPWAIT"]) for frame in frames)


def test_spooltop_shows_one_process_or_name_and_no_other_mount(mail, tmp_path):
    program = "import os, sys\nfor i in range(13):\n    os.stat('/etc/passwd')\n"
    program += "for i in range(17):\n    os.stat(sys.argv[1])\n"
    program += "for i in range(19):\n    os.access(sys.argv[1] + 'x', 0)\n"
    command = workload(tmp_path, program, mail).split()
    with bcc("spooltop.py", "-C", "-d", mail, "-c", COMM, 600) as rows:
        subprocess.run(command, check=True)
        subprocess.run(["stat", mail], check=True, capture_output=True)
    assert [(row["COMM"], int(row["CALLS"])) for row in rows] == [(COMM, 17)]
    with bcc("spooltop.py", "-C", "-d", mail, "-p", os.getpid(), 600) as rows:
        subprocess.run(command, check=True)
        for _ in range(11):
            mail.stat()
    assert [int(row["PID"]) for row in rows] == [os.getpid()]
    assert int(rows[0]["CALLS"]) >= 11


def test_kjournaltop_charges_commits_handles_and_waits(mail, tmp_path):
    command = workload(tmp_path, SYNCERS, mail, 23, 7, 2).split()
    disk, dev = device_of(mail)
    with (
        bcc("kjournaltop.py", "-C", "-d", disk, 600) as rows,
        ftrace({"jbd2/jbd2_handle_stats": f"dev == {dev}"}) as lines,
    ):
        trace = beside(mail, tmp_path, command)
    commits = dict(
        ask(trace, "SELECT trigger_pid, count(*) FROM commits WHERE trigger = 'call' GROUP BY 1")
    )
    assert sorted(commits.values()) == [2, 7, 23]
    theirs = {int(row["PID"]): row for row in rows if row["COMM"] == COMM}
    assert {pid: int(theirs[pid]["COMMITS"]) for pid in commits} == commits
    # Handles in the kernel's own trace, by process.
    handles = [line for line in lines if "jbd2_handle_stats:" in line]
    for pid in commits:
        mine = [line for line in handles if f"-{pid} " in line]
        assert int(theirs[pid]["HANDLES"]) == len(mine) > 0
        blocks = sum(max(0, int(line.rpartition("dirtied_blocks ")[2])) for line in mine)
        assert int(theirs[pid]["BLOCKS"]) == blocks > 0
    waits = dict(
        ask(
            trace,
            "SELECT c.pid, sum(s.dur_ns) / 1e6 FROM segments s JOIN syscalls c USING (tid, seq)"
            " WHERE state = 'blocked' AND waker_comm LIKE 'jbd2/%' GROUP BY 1",
        )
    )
    for pid, n in commits.items():
        slack = 0.1 + n * SLACK_MS
        waited = float(theirs[pid]["WAITms"])
        # Each process was alone on the journal, so it waited for itself.
        assert float(theirs[pid]["CAUSEDms"]) >= waited - slack
        alike("waited", waited, waits[pid], rel=0.02, least=slack)
    assert all(row["DISK"] == disk for row in rows)
    assert all(int(row["BLOCKS"]) < 1 << 32 for row in rows)
    assert all(len(line) < 80 for line in rows.text.splitlines())


@pytest.mark.parametrize("tool", ["kjournaltop.py", "spooltop.py"])
def test_without_headers_one_line_names_the_remedy(tool, require):
    if missing := missing_bcc():
        require("bcc", reason=missing)
    Path("/lib/modules").mkdir(exist_ok=True)
    hidden = 'mount -t tmpfs none /lib/modules; cd /sys; exec "$0"'
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", hidden, LIVE / tool],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert f"apt-get install linux-headers-{os.uname().release}" in line
    assert line.startswith(tool.removesuffix(".py"))


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("kjournaltop.py", ["-d", "nosuch0"], "no disk nosuch0"),
        ("spooltop.py", ["-d", "/etc/passwd"], "/etc/passwd is not a mount point"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(tool, arguments, expected):
    ended = subprocess.run([LIVE / tool, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert expected in line
