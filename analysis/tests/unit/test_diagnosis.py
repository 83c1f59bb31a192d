"""Rules from causes to culprits: each fires on its own evidence and on no other."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from spoolscope.analysis.answerers import ELSEWHERE, Answerer
from spoolscope.analysis.askers import Asker
from spoolscope.analysis.cpu_holders import CpuHolder
from spoolscope.analysis.diagnosis import (
    Evidence,
    Requests,
    diagnose,
)
from spoolscope.analysis.explain import explain
from spoolscope.analysis.lookups import LookupCost
from spoolscope.cli.explain import command
from spoolscope.traces.native import source_root

S = 1_000_000_000
FORCED = Asker(
    "statsd (process 7)", "statsd", 300, 40, 500, 5 * S, 4 * S, 8 * S, "fsync", "statistics.db"
)
LINEAR = LookupCost("shared", 60_000, "none", S // 2, S, 2 * S, 3000, 0.35)
SLOW = Requests("flush", 240, 25_000_000, 6 * S)


def explanation(causes=None, asker=None, requests=(), directories=(), spools=(), holder=None):
    causes = causes or {"journal_commit": 8 * S, "cpu": 2 * S}
    return SimpleNamespace(
        causes=causes,
        filesystem_ns=sum(causes.values()),
        meta={"duration_ns": 10 * S, "spools": list(spools)},
        shown_ns=10 * S,
        evidence=Evidence(asker, tuple(requests), holder),
        by_syscall={"fsync": SimpleNamespace(latency=SimpleNamespace(total_ns=4 * S))},
        lookups=list(directories),
    )


def kinds(found):
    return [finding.kind for finding in diagnose(found)]


def test_nothing_is_found_in_a_healthy_trace():
    assert kinds(explanation({"cpu": S, "journal_commit": S})) == []
    assert diagnose(explanation({"cpu": 0})) == []


def test_one_process_that_forces_the_commits_is_named():
    [found] = diagnose(explanation(asker=FORCED))
    assert found.kind == "forced_commits"
    assert found.culprit == "statsd (process 7)"
    assert "300 of 500 commits, 30 a second" in found.mechanism
    assert "fsync on statistics.db" in found.mechanism
    assert found.share == pytest.approx(4 / 8)


def test_who_forces_commits_asks_far_more_often_than_any_other():
    assert FORCED.forces
    for change in ({"n": 90}, {"n": 15, "n_next": 0, "n_commits": 16}, {"n_next": 150}):
        assert not replace(FORCED, **change).forces


def test_forced_commits_without_victims_are_no_finding():
    assert kinds(explanation(asker=replace(FORCED, others_ns=1))) == []


@pytest.mark.parametrize(
    ("spool", "remedy"),
    [
        ({"fstype": "ext4", "options": "rw,data=journal"}, "data=ordered"),
        ({"fstype": "ext4", "options": "rw"}, "tune2fs"),
        ({"fstype": "xfs", "options": "rw"}, "mkfs.xfs"),
    ],
)
def test_a_full_journal_is_named_with_its_remedy(spool, remedy):
    [found] = diagnose(explanation({"log_space": 6 * S, "cpu": 4 * S}, spools=[spool]))
    assert (found.kind, found.share) == ("full_journal", 0.6)
    assert remedy in found.remedy


def test_a_directory_searched_name_by_name_is_named():
    [found] = diagnose(explanation(directories=[LINEAR]))
    assert (found.kind, found.culprit) == ("linear_directory", "The directory shared")
    assert "60,000 names and no index" in found.mechanism
    assert found.share == 0.35
    for change in ({"index": "hash"}, {"index": "unknown"}, {"entries": 200}, {"entries": None}):
        assert kinds(explanation(directories=[replace(LINEAR, **change)])) == []


def test_a_slow_disk_is_named_with_what_waited_for_it():
    causes = {"journal_commit": 6 * S, "io_throttle": S, "file_lock": 0, "cpu": 3 * S}
    [found] = diagnose(explanation(causes, requests=[SLOW]))
    assert (found.kind, found.share) == ("slow_disk", 0.6)
    assert "25.0 ms for a flush" in found.mechanism
    assert kinds(explanation(requests=[Requests("flush", 240, 2_000_000, S)])) == []


def test_the_largest_share_comes_first():
    both = explanation(asker=FORCED, requests=[SLOW])
    assert kinds(both) == ["slow_disk", "forced_commits"]


def test_waiting_behind_others_in_the_device_is_not_slowness(builder):
    """Ten writes handed over at once, served one after the other in 2 ms each, are 2 ms long."""
    builder.call("read", 0)
    for n in range(10):
        builder.block_io(100, device_ns=(n + 1) * 2_000_000)
    assert explain(builder.write()).evidence.requests == (
        Requests("write", 10, 2_000_000, 20_000_000),
    )


def test_explain_begins_with_what_was_found():
    root = source_root()
    assert root is not None
    sample = root / "traces" / "samples" / "postfix-dovecot"
    found = diagnose(explain(sample))
    lines = CliRunner().invoke(command, [str(sample)]).stdout
    began = " ".join(lines.partition(" calls, ")[0].split())
    assert began.startswith(" ".join(f"* {finding.text}" for finding in found))
    assert began.count("* ") == len(found)


CC1 = CpuHolder("cc1 (2 processes)", "cc1", 3 * S, "fsync", 2 * S, 10 * S)


def test_who_has_the_cpus_that_calls_wait_for_is_named():
    causes = {"runq": 4 * S, "cpu": 6 * S}
    [found] = diagnose(explanation(causes, holder=CC1))
    assert (found.kind, found.culprit) == ("busy_cpu", "cc1 (2 processes)")
    assert "50.0 % of the time of fsync was waiting for a CPU that cc1 had" in found.mechanism
    assert found.share == pytest.approx(0.3)
    assert kinds(explanation(causes, holder=replace(CC1, ns=S // 2))) == []


def test_the_worst_holder_is_the_one_of_the_most_time(builder):
    for pid, runq in ((9, 500), (8, 300), (8, 300)):
        builder.call("fsync", 0, 10, ((None, 1),), tid=pid)
        builder.call("write", 0, 10, tid=2, comm="imap", runq_ns=runq)
        builder.held(pid, 0, runq, comm="cc1" if pid == 8 else "ld")
    builder.call("write", 0, 10, tid=3, comm="imap", runq_ns=3000)
    builder.held(2, 0, 3000, comm="imap")  # one of its own
    builder.sleep(0, 5000, None, state="runq")  # a kernel thread's wait is no call's
    builder.held(9, 0, 5000, comm="ld")
    for _ in range(2):  # the recording's own turns are measurement
        builder.call("write", 0, 10, tid=4, comm="imap", runq_ns=4000)
        builder.held(70, 0, 4000, comm="spoolscope-reco")
    found = explain(builder.write())
    held = found.evidence.cpu_holder
    assert (held.who, held.ns, held.syscall, held.syscall_ns) == (
        "cc1 (process 8)", 600, "write", 600,
    )  # fmt: skip
    assert found.evidence.measurement_ns == 8000
    assert "spoolscope" not in " ".join(f.text for f in diagnose(found))


def test_a_host_that_takes_the_cpu_is_told():
    [found] = diagnose(explanation({"steal": 3 * S, "cpu": 7 * S}))
    assert (found.kind, found.share) == ("host_steal", pytest.approx(0.3))
    assert "3.00 s" in found.mechanism
    assert kinds(explanation({"steal": S // 20, "cpu": 7 * S})) == []


@pytest.mark.parametrize("cause", ELSEWHERE)
def test_what_is_neither_filesystem_nor_disk_is_named(cause):
    [found] = diagnose(explanation({cause: 6 * S, "cpu": 4 * S}))
    assert (found.kind, found.culprit) == (ELSEWHERE[cause].kind, ELSEWHERE[cause].culprit)
    assert found.share == 0.6
    assert "6.00 s" in found.mechanism


@pytest.mark.parametrize(("ns", "culprit"), [(4 * S, "scand (process 9)"), (2 * S, "A program")])
def test_the_program_that_ended_most_of_it_is_named(ns, culprit):
    waited = explanation({"scanner": 6 * S, "cpu": 4 * S})
    waited.evidence = replace(waited.evidence, answerers=(Answerer("scanner", 9, "scand", ns),))
    [found] = diagnose(waited)
    assert found.culprit.startswith(culprit)
