"""Charges of commits to their triggers, and waits for commits by phase."""

import pytest

from spoolscope.analysis import commit_parts
from spoolscope.analysis.explain import explain
from spoolscope.analysis.stages import begin
from spoolscope.analysis.study import study
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.slow

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


def test_a_wait_that_began_before_its_commit_counts_once(builder):
    builder.call("fsync", 0, 10, ((WAIT, 1000),), tid=1, comm="cleanup", path="incoming/AB12")
    builder.call("fsync", 0, 10, ((WAIT, 1000),), tid=2, comm="lmtp", path="u/tmp/1.M2P3.host")
    builder.sleep(50, 50, None, state="runq")
    builder.commit(100, 900, **trigger(1, 0, "cleanup"))
    (found,) = explain(builder.write()).commits.blame
    assert (found.n_others, found.others_ns) == (1, 950)


def test_a_timer_is_not_charged_to_the_call_that_was_under_way(builder):
    builder.call("openat", 0, 900, tid=3, comm="imap", path="box/new/1")
    builder.call("fsync", 0, 10, ((WAIT, 1000),), tid=4, comm="lmtp", path="u/tmp/1")
    builder.commit(0, 1000, **trigger(3, 0, "imap") | {"trigger": "timer"})
    found = explain(builder.write(), blame=True)
    (row,) = found.commits.charges.by_call
    assert (row.comm, row.syscall, row.path_class, row.n, row.others_ns) == (
        "(timer)", "-", "-", 1, 1000,
    )  # fmt: skip
    (row,) = found.commits.charges.by_process
    assert (row.comm, row.pid) == ("(timer)", None)
    assert [row.mailbox for row in found.commits.charges.by_mailbox] == ["-"]
    assert "imap" not in {culprit.culprit for culprit in found.culprits}


def test_an_unknown_trigger_is_not_named(builder):
    builder.call("fsync", 0)
    builder.commit(0, 10)
    builder.commit(100, 10, trigger="call")
    found = explain(builder.write()).commits
    assert (found.n, found.trigger_named) == (2, 0)


LOGGING = "schedule < bit_wait_io < jbd2_journal_commit_transaction < kjournald2"


def test_a_wait_is_divided_by_what_the_commit_was_doing(builder):
    builder.call("fsync", 0, 10, ((WAIT, 1000),), tid=1)
    builder.commit(-500, 600, locking_ns=10, flushing_ns=10, logging_ns=500)
    builder.commit(200, 700, locking_ns=100, flushing_ns=50, logging_ns=550)
    builder.sleep(200, 80, "schedule < kjournald2")  # for the handles
    builder.sleep(300, 50, LOGGING)  # in the flushing phase
    builder.sleep(350, 400, LOGGING)
    builder.sleep(750, 60, None, state="runq")
    builder.block_io(360, queue_ns=190, device_ns=100, preflush=True)
    found = explain(builder.write()).commits
    assert found.waits == {
        "ext4": {
            "previous_commit": 100,
            "handles": 80,
            "ordered_data": 50,
            "log_write": 210,
            "cache_flush": 190,
            "no_cpu": 60,
            "running": 110,
            "no_commit": 200,
        }
    }
    assert sum(found.waits["ext4"].values()) == 1000
    (kind,) = found.kinds
    assert sum(kind.parts.values()) == kind.total_ns == 1300


def test_commits_are_cut_in_batches_alike(builder, monkeypatch):
    for n in range(7):
        builder.call("fsync", n * 5000, 10, ((WAIT, 3000),), tid=n)
        builder.commit(n * 5000, 2000 + n, locking_ns=100, flushing_ns=50, logging_ns=1500 + n)
        builder.sleep(n * 5000 + 700, 800, LOGGING)
        builder.block_io(n * 5000 + 750, queue_ns=100, device_ns=300)
    whole = explain(builder.write()).commits
    monkeypatch.setattr(commit_parts, "BATCH", 2)
    assert explain(builder.path).commits == whole
    assert whole.waits["ext4"]["log_write"] == 7 * 700


PARTITION, DISK = 8 << 20 | 1, 8 << 20


@pytest.mark.parametrize("on", [DISK, PARTITION])
def test_a_flush_after_a_fua_write_is_a_flush(builder, on):
    """Check it on a whole disk and on a partition: the flush names the whole disk only."""
    parent = None if on == DISK else on
    builder.call("fsync", 0, 10, ((WAIT, 1000),), tid=1, dev=on)
    builder.commit(0, 1000, locking_ns=0, flushing_ns=0, logging_ns=1000, dev=on)
    builder.sleep(0, 1000, LOGGING)
    builder.block_io(0, queue_ns=100, device_ns=200, fua=True, dev=DISK, parent_dev=parent)
    builder.block_io(300, queue_ns=0, device_ns=700, op="flush", tid=55, dev=DISK)
    found = explain(builder.write()).commits
    assert found.waits["ext4"] == {"queue": 100, "log_write": 200, "cache_flush": 700}


def test_the_journal_thread_that_gets_no_cpu_to_begin_is_seen(builder):
    builder.call("fsync", 0, 10, ((WAIT, 1000),), tid=1)
    builder.sleep(100, 500, None, state="runq")
    builder.commit(600, 400, locking_ns=0, flushing_ns=0, logging_ns=400)
    found = explain(builder.write()).commits
    assert found.waits["ext4"] == {"no_cpu": 500, "running": 400, "no_commit": 100}


def test_waits_for_a_segment_of_nilfs2_are_taken_apart(builder):
    sync = "schedule < nilfs_segctor_sync < nilfs_sync_file"
    lock = "schedule < rwsem_down_write_slowpath < nilfs_transaction_lock < nilfs_segctor_thread"
    write = "schedule < wait_for_completion < nilfs_wait_on_logs < nilfs_segctor_do_construct"
    builder.call("fsync", 0, 10, ((sync, 1000),), tid=1)
    builder.commit(100, 800, "nilfs_segment")
    builder.sleep(100, 300, lock)
    builder.sleep(450, 450, write)
    found = explain(builder.write()).commits
    parts = {"handles": 300, "log_write": 450, "running": 50}
    assert found.kinds[0].parts == parts
    assert found.waits == {"nilfs2": parts | {"no_commit": 200}}


BATCH = "schedule < schedule_timeout < btrfs_sync_log < btrfs_sync_file"
JOIN = "schedule < wait_log_commit < btrfs_sync_log < btrfs_sync_file"


def test_a_btrfs_leader_pauses_for_others_to_join(builder):
    builder.call("fsync", 0, 100, ((BATCH, 900),), tid=1, comm="lead", path="u/tmp/1.M2P3.host")
    builder.call("fsync", 10, 10, ((JOIN, 980),), tid=2, comm="join", path="u/tmp/2.M2P3.host")
    builder.commit(0, 1000, "btrfs_log_commit", tid=1, flushing_ns=900, logging_ns=100,
                   **trigger(1, 0, "lead"))  # fmt: skip
    builder.commit(10, 990, "btrfs_log_commit", **(trigger(2, 0, "join") | {"tid": 2}))
    found = explain(builder.write()).commits
    assert found.waits["btrfs"] == {"batching": 900 + 890, "running": 90}
    assert [(b.comm, b.n, b.others_ns) for b in found.blame] == [("lead", 1, 980)]


def test_a_sync_that_joined_the_log_commit_of_another_is_no_commit(builder):
    """Check that sums, charges, the longest ones and the timeline count the same commits."""
    builder.call("fsync", 0, 1000, tid=1, comm="lead")
    for n in range(3):
        builder.commit(n * 5000, 1000, "btrfs_log_commit", flushing_ns=900, logging_ns=100,
                       **(trigger(1, 0, "lead") | {"tid": 1}))  # fmt: skip
        builder.commit(n * 5000 + 10, 2000, "btrfs_log_commit", **trigger(2, 0, "join"))
    builder.commit(90_000, 500, "btrfs_commit", trigger="timer")
    seen = study(builder.write())
    found = seen.explanation.commits
    kinds = {kind.kind: (kind.n, kind.total_ns, sum(kind.parts.values())) for kind in found.kinds}
    assert kinds == {"btrfs_log_commit": (3, 3000, 3000), "btrfs_commit": (1, 500, 500)}
    assert (found.n, found.charges.commit_ns, len(found.longest)) == (4, 3500, 4)
    assert sum(row.n for row in found.blame) == 4
    assert {row.comm for row in found.blame} == {"lead", "(timer)"}


def test_a_btrfs_leader_that_waits_for_another_is_not_the_one_waited_for(builder):
    builder.call("fsync", 0, 100, ((JOIN, 900),), tid=1, comm="second", path="u/tmp/1.M2P3.host")
    builder.call("fsync", 50, 850, tid=2, comm="first", path="u/tmp/2.M2P3.host")
    builder.call("fsync", 60, 10, ((JOIN, 930),), tid=3, comm="victim", path="u/tmp/3.M2P3.host")
    builder.sleep(5000, 1, None, tid=2, state="runq")  # it is watched
    builder.commit(0, 1000, "btrfs_log_commit", flushing_ns=900, logging_ns=100,
                   **(trigger(1, 0, "second") | {"tid": 1}))  # fmt: skip
    builder.commit(50, 850, "btrfs_log_commit", flushing_ns=800, logging_ns=50,
                   **(trigger(2, 0, "first") | {"tid": 2}))  # fmt: skip
    found = explain(builder.write()).commits
    others = {row.comm: row.others_ns for row in found.blame}
    assert others == {"first": 850 + 840, "second": 90}


def test_charged_and_uncharged_are_all_commit_time(builder):
    for n, name in enumerate(("a/tmp/1.M2P3.host", "a/new/1.M2P3.host", "b/dovecot-uidlist")):
        builder.call("fsync", n * 5000, 10, ((WAIT, 500),), tid=n, comm="lmtp", path=name)
        builder.commit(n * 5000, 300 + n, **trigger(n, 0, "lmtp"))
    builder.commit(50_000, 40, trigger="timer")
    builder.commit(60_000, 2, trigger="other", trigger_comm="sync", trigger_tid=9, trigger_pid=9)
    charges = explain(builder.write()).commits.charges
    assert (charges.commit_ns, charges.charged_ns, charges.uncharged_ns) == (945, 903, 42)
    assert charges.charged_ns + charges.uncharged_ns == charges.commit_ns
    for rows in (charges.by_call, charges.by_process, charges.by_mailbox):
        assert sum(row.commit_ns for row in rows) == charges.commit_ns
        assert sum(row.n for row in rows) == 5
    assert [(m.mailbox, m.commit_ns) for m in charges.by_mailbox] == [
        ("a", 601), ("b", 302), ("-", 42)
    ]  # fmt: skip
    assert ("(other: sync)", 2) in [(b.comm, b.commit_ns) for b in charges.by_call]
    assert {b.pid for b in charges.by_process} == {0, 1, 2, 9, None}


def test_the_longest_commit_is_taken_apart(builder):
    builder.call("fsync", 0, 10, ((WAIT, 1000),), tid=1, comm="lmtp", path="u/tmp/1.M2P3.host")
    wake = "try_to_wake_up < __wake_up < __jbd2_log_start_commit < ext4_sync_file < do_fsync"
    asked = trigger(1, 0, "lmtp") | {"trigger_stack_id": builder.stack(wake)}
    builder.commit(0, 1000, locking_ns=5, flushing_ns=6, logging_ns=989, **asked)
    builder.block_io(100, device_ns=50, meta=True, bytes=4096)
    builder.block_io(200, device_ns=50, bytes=8192)
    (commit,) = explain(builder.write()).commits.longest
    assert commit.stack == ("__jbd2_log_start_commit", "ext4_sync_file", "do_fsync")
    assert (commit.comm, commit.pid, commit.syscall) == ("lmtp", 1, "fsync")
    assert commit.path == "u/tmp/1.M2P3.host"
    assert (commit.locking_ns, commit.flushing_ns, commit.logging_ns) == (5, 6, 989)
    assert (commit.meta_bytes, commit.data_bytes) == (4096, 8192)
    assert (commit.waiters, commit.waited_ns) == (1, 1000)
    assert sum(commit.parts.values()) == 1000


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


def test_waits_over_many_bins_are_charged_once(builder):
    second = 10**9
    builder.call("fsync", 0, 10, ((WAIT, 3 * second),), tid=1)
    builder.commit(second // 2, 2 * second, logging_ns=2 * second, locking_ns=0, flushing_ns=0)
    found = explain(builder.write()).commits
    assert found.blame[0].others_ns == 2 * second
    assert found.waits["ext4"] == {"other": 2 * second, "no_commit": second}


def test_commits_of_no_length_are_counted(builder):
    builder.call("fsync", 0, 10, ((WAIT, 1000),))
    builder.commit(100, 0)
    found = explain(builder.write(), blame=True).commits
    assert (found.n, found.kinds[0].total_ns, found.kinds[0].parts) == (1, 0, {})


@pytest.mark.parametrize(("options", "trigger"), [("rw,noatime", "timer"), ("rw,sync", "call")])
def test_a_change_that_ends_after_the_interval_does_not_force_the_commit(builder, options, trigger):
    woke = "__wake_up < jbd2_log_start_commit < jbd2_journal_stop < __ext4_journal_stop"
    synced = "__wake_up < jbd2_log_start_commit < jbd2_complete_transaction < ext4_sync_file"
    for at_ns, frames in ((0, woke), (5000, synced)):
        builder.call("rename", at_ns, 1000, tid=3)
        builder.commit(at_ns, 4000, trigger="call", trigger_pid=3, trigger_tid=3, trigger_seq=0,
                       trigger_comm="lmtp", trigger_stack_id=builder.stack(frames))  # fmt: skip
    path = builder.write(spools=[{"fstype": "ext4", "options": options, "mount": "/m"}])
    trace = Trace.open(path)
    with trace.connect() as con:
        begin(con, trace.meta).make("commit_spans")
        found = con.execute("SELECT trigger FROM commit_spans ORDER BY ts_ns").fetchall()
    assert found == [(trigger,), ("call",)]
