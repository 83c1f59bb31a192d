"""The recorder on other kernels: distribution kernels, each booted in an emulated machine.

Their filesystems are modules, and they have fewer tracepoints and other verifiers than the kernel
that these tests run on. There is one boot and one recording per kernel; the recording is compared
with strace and with the kernel's own counters.
"""

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import comparison
import expected
import pytest
import strace_log
import touches

from spoolscope.cli.freeze_rules import all_cause_rules
from spoolscope.lab.vm.running import run
from spoolscope.replay.images import program_path
from spoolscope.tracers.questions import NO, answers
from spoolscope.tracers.session import recover
from spoolscope.tracers.summed import Names, Summed
from spoolscope.tracers.uring import name_of
from spoolscope.traces.calls import CALLS
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.steady]

FILESYSTEMS = ("ext4", "xfs", "btrfs")
JOB = Path(__file__).with_name("portability.sh")
SECTORS_WRITTEN = 6  # column of /sys/block/*/stat


@dataclass(frozen=True)
class Guest:
    """The output of a machine, and the trace of its capture."""

    release: str
    out: Path
    trace: Trace

    @property
    def unloaded(self) -> dict[str, Any]:
        """The doctor's answers before the modules were loaded; with them, the recording has some.

        In an emulator a doctor takes as long as the start of a recording, which finds the same.
        """
        found: dict[str, Any] = json.loads((self.out / "doctor-unloaded.json").read_text())
        return found

    @property
    def programs(self) -> dict[str, Any]:
        """The answers with which the recording began."""
        found: dict[str, Any] = self.trace.meta["programs"]
        return found

    def grown(self, counter: str) -> int:
        """Return by how much a counter of the kernel grew during the recording."""
        before, after = ((self.out / f"{when}.{counter}").read_text() for when in WHEN)
        return int(after) - int(before)

    def ask(self, sql: str) -> list[tuple]:
        return self.trace.connect().execute(sql).fetchall()


WHEN = ("before", "after")


def between(begin: str, end: str) -> str:
    """Return the time between the makings of two directories, for BETWEEN of SQL."""
    return " AND ".join(
        f"(SELECT ts_ns FROM syscalls JOIN paths USING (path_id)"
        f" WHERE syscall = 'mkdir' AND path = '{name}')"
        for name in (begin, end)
    )


# A reading of the counters takes a while, between two directories that are made: what grew is at
# least what ended in the first of these windows, and at most what ended in the second.
WINDOWS = (between("before-read", "after"), between("before", "after-read"))


@pytest.fixture(scope="module", params=["6.1", "6.12"])
def guest(request, require, allcalls, lab_machine, tmp_path_factory) -> Guest:
    for needed in ("strace", *FILESYSTEMS):
        require(needed)
    machine = lab_machine(request.param)
    work = tmp_path_factory.mktemp(f"kernel-{request.param}-")
    programs = [find_binary("spoolscope-record"), allcalls]
    programs += [compiled(Path(__file__).with_name(c), work) for c in ("mapped.c", "uring.c")]
    out, rules = work / "out", work / "rules.json"
    rules.write_text(json.dumps(all_cause_rules()))
    # If the root filesystem is not ext4, its module is not loaded yet.
    with run(
        machine,
        ["sh", "-e", JOB, out, rules],
        back=[out],
        disks=[disk(work, fs) for fs in FILESYSTEMS],
        environment=os.environ
        | {
            "PATH": ":".join([*(str(p.parent) for p in programs), program_path()]),
            "STRACE": shlex.join(strace_log.OPTIONS),
        },
        scratch=False,
    ) as ended:
        assert ended.bring(out, out)
    assert ended.status == 0
    release = (out / "release").read_text().strip()
    assert release == machine.kernel.release
    trace = Trace.open(recover(out / "capture.seg", work / "trace", None).trace)
    return Guest(release, out, trace)


def compiled(source: Path, work: Path) -> Path:
    program = work / source.stem
    subprocess.run(["cc", "-O1", "-static", "-o", program, source], check=True)
    return program


def disk(work: Path, fstype: str) -> Path:
    image = work / f"{fstype}.img"
    with image.open("wb") as file:
        file.truncate(512 << 20)
    force = "-F" if fstype == "ext4" else "-f"
    subprocess.run([f"mkfs.{fstype}", "-q", force, image], check=True, capture_output=True)
    return image


def test_every_program_loads_that_has_a_tracepoint(guest: Guest) -> None:
    said = guest.programs
    assert said["unloaded"] == []
    here = json.loads(subprocess.check_output([find_binary("spoolscope-record"), "doctor"]))
    stand_ins = set(said["instead"].values())
    asked = [({*answer["attached"], *answer["missing"]} - stand_ins) for answer in (said, here)]
    assert asked[0] == asked[1]
    refused = {name: why for name, why in said["missing"].items() if "has no" not in why}
    assert refused == {}


def test_the_same_questions_are_answered(guest: Guest) -> None:
    assert {a.name: a.reason for a in answers(guest.programs) if a.answer == NO} == {}
    before = {a.name for a in answers(guest.unloaded) if a.unloaded}
    assert before >= {"commit_phases", "xfs_log", "btrfs_log"}


def test_a_filesystem_that_is_not_loaded_is_not_a_lack_of_the_kernel(guest: Guest) -> None:
    before, after = guest.unloaded, guest.programs
    assert (before["usable"], before["tier"]) == (True, "T2")
    assert before["unloaded"] != []
    assert set(before["missing"]) - set(before["unloaded"]) == set(after["missing"])
    for name in before["unloaded"]:
        assert "is not loaded" in before["missing"][name]
        assert name in after["attached"]


@pytest.mark.parametrize("fstype", FILESYSTEMS)
def test_every_call_is_recorded_as_strace_saw_it(guest: Guest, fstype, monkeypatch) -> None:
    monkeypatch.chdir("/")  # no name in the log is relative to the guest's working directory
    log = strace_log.read(guest.out, f"{fstype}.strace")
    seen = expected.calls_on_spool(log, f"/{fstype}")
    assert sum(map(len, seen.values())) > 500
    found = comparison.differences(seen, comparison.rows_by_thread(guest.trace))
    assert found == [], comparison.summary(found)


def test_nothing_is_lost_and_every_time_adds_up(guest: Guest) -> None:
    meta = guest.trace.meta
    assert (meta["complete"], meta["lost"], meta["paths_unresolved"]) == (True, 0, 0)
    assert (meta["kernel"], meta["tier"]) == (guest.release, "T2")
    assert guest.ask(
        "SELECT max(abs(dur_ns - oncpu_ns - blocked_ns - runq_ns - preempted_ns)),"
        " min(least(oncpu_ns, blocked_ns, runq_ns, preempted_ns)) FROM syscalls"
    ) == [(0, 0)]


def test_every_wait_in_a_filesystem_has_a_named_cause(guest: Guest) -> None:
    """Causes are those of explain's rules. Waits of forks and exits for strace are left out."""
    command = [Path(sys.executable).with_name("spoolscope"), "explain", "--json", guest.trace.path]
    said = json.loads(subprocess.check_output(command))
    assert said["causes"]["journal_commit"] > 0
    unexplained = {
        name: row["causes"]["unexplained"]
        for name, row in said["by_syscall"].items()
        if CALLS[name].klass != "task" and "unexplained" in row["causes"]
    }
    assert sum(unexplained.values()) <= 0.01 * said["blocked_ns"], unexplained


def test_page_faults_are_those_that_the_kernel_counted(guest: Guest) -> None:
    touches.compare(touches.read(guest.out / "touches"), guest.trace)


def test_io_uring_operations_have_the_results_that_the_program_got(guest: Guest) -> None:
    *lines, _ = (guest.out / "operations").read_text().splitlines()
    got = [(name_of(int(op)), int(result)) for op, *_, result in map(str.split, lines)]
    rows = guest.ask("SELECT op, ret, errno FROM uring_ops ORDER BY ts_ns")
    assert [(op, -errno if ret < 0 else ret) for op, ret, errno in rows] == got


def test_commits_agree_with_the_filesystems_own_counters(guest: Guest) -> None:
    kinds = {"ext4": "jbd2_commit", "xfs": "xfs_log_write", "btrfs": "btrfs_commit"}
    # XFS counts a write of its log when it begins.
    counted = "ts_ns + if(kind = 'xfs_log_write', 0, dur_ns)"
    least, most = (
        dict(
            guest.ask(
                f"SELECT kind, count(*) FROM commits WHERE {counted} BETWEEN {window} GROUP BY 1"
            )
        )
        for window in WINDOWS
    )
    for fstype, kind in kinds.items():
        assert least[kind] <= guest.grown(fstype) <= most[kind], fstype
    assert guest.ask("SELECT count(*) FROM commits WHERE trigger = 'unknown'") == [(0,)]


def test_block_requests_agree_with_the_disks_counters(guest: Guest) -> None:
    disks = [(guest.out / f"{when}.disks").read_text().splitlines() for when in WHEN]
    sectors = [[int(line.split()[SECTORS_WRITTEN]) for line in lines] for lines in disks]
    grown = [after - before for before, after in zip(*sectors, strict=True)]
    least, most = (
        guest.ask(
            "SELECT dev, sum(bytes) // 512 FROM block_ios WHERE op = 'write'"
            f" AND ts_ns + queue_ns + device_ns BETWEEN {window} GROUP BY 1 ORDER BY 1"
        )
        for window in WINDOWS
    )
    for fstype, (_, low), n, (_, high) in zip(FILESYSTEMS, least, grown, most, strict=True):
        assert 0 < low <= n <= high, fstype


def test_sums_have_the_calls_that_strace_saw_and_their_times_add_up(guest: Guest) -> None:
    """Task calls wait for strace, for which no rule has a cause."""
    found, causes, differs = Counter[tuple[str, bool]](), Counter[str](), Counter[tuple[Any, ...]]()
    for file in sorted((guest.out / "sums").glob("minute-*.json")):
        minute = Summed.read(file)
        assert minute.content["lost"] == 0
        calls = minute.calls(Names(None))
        columns = ("dev", "comm", "syscall", "failed", "cause", "n", "sum_ns")
        for *alike, cause, n, sum_ns in zip(*(calls[name] for name in columns), strict=True):
            differs[*alike] += sum_ns if cause == "call" else -sum_ns
            _, comm, syscall, failed = alike
            if (comm, cause) == ("allcalls", "call"):
                found[syscall, bool(failed)] += n
            if CALLS[syscall].klass != "task":
                causes[cause] += sum_ns
    seen = Counter(
        (call.line.name, (call.line.ret or 0) < 0)
        for fstype in FILESYSTEMS
        for calls in expected.calls_on_spool(
            strace_log.read(guest.out, f"summed.{fstype}"), f"/{fstype}"
        ).values()
        for call in calls
    )
    assert found == seen
    assert not any(differs.values())
    assert causes["journal_commit"] > 0
    assert causes["unexplained"] <= 0.01 * causes["call"]
