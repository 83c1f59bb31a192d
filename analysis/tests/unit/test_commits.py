"""Commits are charged to their triggers; waits on them are refined by phase."""

import pytest

from spoolscope.analysis.explain import explain

WAIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
XFS_WAIT = "schedule < xlog_wait_on_iclog < xfs_log_force_seq"


def trigger(tid, seq, comm):
    return {
        "trigger": "call",
        "trigger_pid": tid,
        "trigger_tid": tid,
        "trigger_seq": seq,
        "trigger_comm": comm,
        "trigger_stack_id": 1,
    }


def test_blame_charges_the_waits_of_others_to_the_trigger(builder):
    builder.call("fsync", 0, 10, ((WAIT, 1000),), tid=1, comm="cleanup", path="incoming/AB12")
    builder.call("fsync", 200, 10, ((WAIT, 800),), tid=2, comm="lmtp", path="u/tmp/1.M2P3.host")
    builder.commit(0, 1000, **trigger(1, 0, "cleanup"))
    builder.commit(5000, 100, trigger="timer")
    found = explain(builder.write()).commits
    assert (found.n, found.trigger_named) == (2, 2)
    first = found.blame[0]
    assert (first.comm, first.syscall, first.path_class) == (
        "cleanup",
        "fsync",
        "postfix queue file",
    )
    assert (first.n, first.commit_ns, first.own_ns, first.others_ns) == (1, 1000, 1000, 800)
    assert first.n_others == 1
    assert found.blame[1].comm == "(timer)"


def test_an_unknown_trigger_is_not_named(builder):
    builder.call("fsync", 0)
    builder.commit(0, 10)
    builder.commit(100, 10, trigger="call")
    found = explain(builder.write()).commits
    assert (found.n, found.trigger_named) == (2, 0)


def test_phases_cover_the_wait(builder):
    builder.call("fsync", 0, 10, ((WAIT, 1000),), tid=1)
    builder.commit(-500, 600, locking_ns=10, flushing_ns=10, logging_ns=500)
    builder.commit(200, 700, locking_ns=100, flushing_ns=50, logging_ns=400)
    phases = explain(builder.write()).commits.phases
    assert phases == {
        "previous_commit": 100,
        "locking": 100,
        "flushing": 50,
        "logging": 400,
        "finishing": 150,
        "no_commit": 200,
    }
    assert sum(phases.values()) == 1000


def test_overlapping_log_writes_are_charged_once(builder):
    builder.call("fsync", 0, 10, ((XFS_WAIT, 1000),), tid=1, comm="a")
    builder.commit(0, 600, "xfs_log_write", **trigger(9, 0, "b"))
    builder.commit(100, 900, "xfs_log_write", **trigger(8, 0, "c"))
    blame = {row.comm: row.others_ns for row in explain(builder.write()).commits.blame}
    assert blame == {"b": 600, "c": 400}


@pytest.mark.parametrize(("dev", "charged"), [(1, 1000), (2, 0)])
def test_commits_of_another_device_are_not_charged(builder, dev, charged):
    builder.call("fsync", 0, 10, ((WAIT, 1000),), tid=1, dev=1)
    builder.commit(0, 1000, dev=dev)
    assert explain(builder.write()).commits.blame[0].others_ns == charged


def test_the_commit_thread_is_seen_while_others_wait(builder):
    builder.call("fsync", 0, 10, ((WAIT, 1000),), tid=1)
    builder.commit(0, 900, locking_ns=100, flushing_ns=0, logging_ns=800)
    stack = builder.stack("schedule < bit_wait_io < jbd2_journal_commit_transaction < kjournald2")
    start = builder.rows["commits"][0]["ts_ns"]
    builder.wait(7, None, start + 200, 400, "blocked", stack)
    builder.wait(7, None, start + 600, 50, "runq", None)
    builder.wait(7, None, start + 850, 500, "blocked", builder.stack("schedule < kjournald2"))
    found = explain(builder.write()).commits
    assert found.phases["no_commit"] == 100
    assert found.thread == {"log blocks": 400, "no CPU": 50, "other waits": 50, "running": 400}
    assert sum(found.thread.values()) == sum(found.phases.values()) - 100


def test_waits_over_many_bins_are_charged_once(builder):
    second = 10**9
    builder.call("fsync", 0, 10, ((WAIT, 3 * second),), tid=1)
    builder.commit(second // 2, 2 * second, logging_ns=2 * second, locking_ns=0, flushing_ns=0)
    found = explain(builder.write()).commits
    assert found.blame[0].others_ns == 2 * second
    assert found.phases["logging"] == 2 * second
