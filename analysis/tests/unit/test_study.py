"""Timeline, kinds of files, directories and slowest calls of a small trace."""

import pytest

from spoolscope.analysis.study import study

pytestmark = pytest.mark.slow

MS = 1_000_000
WAIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
DIR = 0o40700


@pytest.fixture
def found(builder):
    builder.call("openat", 0, 1 * MS, path="u1/tmp/1.M2P3.host", runq_ns=MS)
    builder.call("fsync", 1100 * MS, MS, ((WAIT, 30 * MS),), path="u1/tmp/1.M2P3.host")
    builder.call("getdents64", 1200 * MS, 5 * MS, path="u1/new", obj_mode=DIR)
    builder.call("fsync", 2500 * MS, MS, ((WAIT, 9 * MS),), path="u1/dovecot-uidlist", errno=5)
    builder.call("umask", 2600 * MS, MS)
    for n in range(3):
        builder.add("tree", path_id=builder.path_id(f"u1/tmp/{n}"), ino=n, dev=1)
    builder.commit(1110 * MS, 20 * MS)
    builder.commit(1140 * MS, 10 * MS)
    return study(builder.write())


def test_timeline(found):
    line = found.timeline
    assert (line.bin_ns, line.n_bins) == (1000 * MS, 3)
    assert line.calls == [1, 2, 2]
    assert line.causes["journal_commit"] == [0, 30 * MS, 9 * MS]
    assert line.causes["runq"] == [MS, 0, 0]
    assert (line.commits, line.commit_ns) == ([0, 2, 0], [0, 30 * MS, 0])
    total = sum(map(sum, line.causes.values()))
    assert total == found.explanation.latency_ns


def test_a_long_trace_gets_longer_bins(builder):
    builder.call("read", 0)
    builder.call("read", 3600 * 1000 * MS)
    line = study(builder.write()).timeline
    assert line.bin_ns % (1000 * MS) == 0
    assert 200 <= line.n_bins <= 300
    assert sum(line.calls) == 2


def test_kinds_of_files(found):
    rows = {row.name: row for row in found.path_classes}
    assert rows["message file in tmp"].n == 2
    assert rows["message file in tmp"].causes["journal_commit"] == 30 * MS
    assert rows["new directory"].total_ns == 5 * MS
    assert rows["no path"].n == 1
    assert sum(row.total_ns for row in found.path_classes) == found.explanation.latency_ns


def test_hot_directories(found):
    first, second, third = found.directories
    assert (first.path, first.entries, first.n) == ("u1/tmp", 3, 2)
    assert (first.total_ns, first.cause, first.cause_ns) == (33 * MS, "journal_commit", 30 * MS)
    assert (second.path, third.path) == ("u1", "u1/new")


def test_slowest_calls_carry_their_whole_split(found):
    slow = found.slowest[0]
    assert (slow.syscall, slow.path, slow.at_ns) == ("fsync", "u1/tmp/1.M2P3.host", 1100 * MS)
    assert slow.causes == {"journal_commit": 30 * MS, "cpu": MS}
    assert all(sum(call.causes.values()) == call.dur_ns for call in found.slowest)
    assert found.slowest[1].errno == 5


def test_headline_names_the_largest_part(found):
    assert found.headline == "80 % of the time is fsync/fdatasync waiting for journal commits."
    assert found.findings[0].startswith("39.0 ms (79.6 %): fsync/fdatasync waiting")


def test_an_empty_trace_can_be_studied(builder):
    found = study(builder.write())
    assert found.headline == "No time was spent in calls."
    assert (found.directories, found.slowest, found.findings) == ([], [], [])


def test_processes_can_be_named_after_what_they_stood_for(builder):
    builder.call("fsync", 0, MS, ((WAIT, MS),), tid=5000, comm="spoolscope-repl")
    builder.call("fsync", 0, 2 * MS, tid=5001, comm="other")
    found = study(builder.write(), comms={5000: "imap"})
    assert [call.comm for call in found.slowest] == ["imap", "other"]
    assert found.explanation.split.sum_error_ns == 0


def test_programs_of_a_replay_have_the_names_of_what_they_stood_for(builder):
    builder.call("fsync", 0, MS, ((WAIT, MS),), tid=5000, comm="spoolscope-repl")
    builder.thread(5000, "spoolscope-repl")
    found = study(builder.write(), comms={5000: "imap"})
    assert [row.name for row in found.explanation.callers.by_program] == ["imap"]


def test_an_import_does_not_say_what_calls_waited_for(builder):
    builder.call("fsync", 0, 0, ((None, 3 * MS),))
    builder.call("mkdir", 10 * MS, 0, ((None, MS),))
    found = study(builder.write(imported={"from": "strace"}, tier="T0"))
    assert found.headline == "75 % of the time is in fsync/fdatasync; causes were not recorded."
    assert found.findings[0] == "3.00 ms (75.0 %): fsync/fdatasync."


def test_what_makes_calls_slow_and_what_to_try_comes_first(builder):
    builder.call("write", 0, 10**9, stolen_ns=5 * 10**8)
    first, second, *_ = study(builder.write()).findings
    assert first.startswith("The host of this virtual machine took the CPU away")
    assert second.startswith("500 ms (50.0 %): write")
