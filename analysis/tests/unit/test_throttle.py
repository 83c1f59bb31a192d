"""Waits for requests held back by a control group's limit, from hand-made tables."""

import pytest

from spoolscope.analysis.explain import explain_with
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.slow

MS = 1_000_000
DISK, OTHER = 8 << 20, 8 << 20 | 16
WRITEBACK = "io_schedule < folio_wait_writeback < __filemap_fdatawait_range < ext4_sync_file"
COMMIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
ORDERED = "io_schedule < jbd2_journal_finish_inode_data_buffers < jbd2_journal_commit_transaction"
BTRFS_LOG = "io_schedule < btrfs_wait_tree_log_extents < btrfs_sync_log < btrfs_sync_file"
HELD = {"held_back": True, "cgroup": "/mail", "tid": 90, "pid": 90, "comm": "kworker/0:1"}


def fsync(builder, *waits, **columns):
    """Call fsync at 10 ms on the disk, 0.001 ms of it on a CPU."""
    return builder.call("fsync", 10 * MS, 1000, waits, **({"dev": DISK} | columns))


def request(builder, made_ms, done_ms, **columns):
    builder.block_io(made_ms * MS, 0, (done_ms - made_ms) * MS, **({"dev": DISK} | columns))


@pytest.fixture
def explained(builder, check_every_row):
    """Explain the built trace; return {cause: ms} of waits and the connection's edges."""

    def explain():
        trace = Trace.open(builder.write())
        assert check_every_row(trace) > 0
        with trace.connect() as con:
            found = explain_with(con, trace, blame=True)
            chains = con.execute(
                "SELECT hop, cause, CAST(sum(to_ns - from_ns) AS BIGINT) // 1000000 FROM edges "
                "GROUP BY ALL ORDER BY ALL"
            ).fetchall()
        causes = {c: ns // MS for c, ns in found.causes.items() if c not in {"cpu", "runq"}}
        return causes, chains, found

    return explain


def test_a_wait_is_for_the_limit_until_the_request_is_made(builder, explained):
    fsync(builder, (WRITEBACK, 50 * MS))  # from 10 to 60 ms
    request(builder, 52, 60, **HELD)
    causes, _, _ = explained()
    assert causes == {"io_throttle": 42, "writeback": 8}


def test_all_who_waited_for_that_request_waited_for_the_limit(builder, explained):
    fsync(builder, (WRITEBACK, 50 * MS))
    fsync(builder, (WRITEBACK, 51 * MS), tid=101)
    request(builder, 52, 60, **HELD)
    causes, _, _ = explained()
    assert causes == {"io_throttle": 84, "writeback": 17}


def test_without_a_limit_nothing_changes(builder, explained):
    fsync(builder, (WRITEBACK, 50 * MS))
    # Equally late, and by a worker, too, but not held back: this is no sign of a limit.
    request(builder, 52, 60, **(HELD | {"held_back": False, "cgroup": None}))
    causes, _, _ = explained()
    assert causes == {"writeback": 50}


def test_a_trace_that_does_not_know_of_limits_is_explained_as_before(builder, explained):
    fsync(builder, (WRITEBACK, 50 * MS))
    request(builder, 52, 60)
    assert builder.rows["block_ios"][0].get("held_back") is None
    causes, _, _ = explained()
    assert causes == {"writeback": 50}


def test_a_limit_on_another_disk_does_not_count(builder, explained):
    fsync(builder, (WRITEBACK, 50 * MS))
    request(builder, 9, 59)
    request(builder, 52, 60, dev=OTHER, **HELD)
    causes, _, _ = explained()
    assert causes == {"writeback": 50}


def test_a_request_that_its_caller_made_at_once_was_not_held_back(builder, explained):
    fsync(builder, (WRITEBACK, 50 * MS))
    request(builder, 52, 58, **HELD)  # another process's
    request(builder, 9, 60, tid=100, pid=100)
    causes, _, _ = explained()
    assert causes == {"writeback": 50}


def test_what_was_let_go_before_the_wait_is_the_disks(builder, explained):
    fsync(builder, (WRITEBACK, 50 * MS))
    request(builder, 9, 60, **HELD)
    causes, _, _ = explained()
    assert causes == {"writeback": 50}


def test_a_request_for_a_partition_or_over_several_disks_is_found(builder, explained):
    partition = 8 << 20 | 1
    fsync(builder, (WRITEBACK, 50 * MS), dev=partition)
    fsync(builder, (BTRFS_LOG, 50 * MS), dev=42, tid=101)  # btrfs: an anonymous device number
    request(builder, 52, 60, parent_dev=partition, **HELD)
    causes, _, _ = explained()
    assert causes == {"io_throttle": 84, "writeback": 8, "journal_commit": 8}


def test_the_drivers_own_flush_after_a_request_does_not_hide_it(builder, explained):
    fsync(builder, (BTRFS_LOG, 50 * MS))
    request(builder, 52, 58, fua=True, **HELD)
    request(builder, 58, 60, op="flush")
    causes, _, _ = explained()
    assert causes == {"io_throttle": 42, "journal_commit": 8}


def test_who_waits_for_the_thread_of_a_journal_waits_for_its_commit(builder, explained):
    """Check the end of the chain: the thread's own wait for held-back data."""
    fsync(builder, (COMMIT, 50 * MS))
    # From 11 to 60 ms: first the data of a process with a limit, then the log.
    builder.commit(11 * MS, 49 * MS, dev=DISK, flushing_ns=40 * MS, logging_ns=8 * MS, locking_ns=0)
    builder.sleep(12 * MS, 40 * MS, ORDERED)
    builder.call("write", 1 * MS, tid=101, comm="backup", dev=DISK, ret=4096)
    request(builder, 50, 52, **HELD)
    request(builder, 53, 59)
    request(builder, 59.5, 59.9, **HELD)  # made and done just before the caller is woken
    causes, chains, _ = explained()
    assert causes == {"journal_commit": 50}
    assert (2, "io_throttle", 38) in chains


def test_the_control_group_and_its_limit_are_named(builder, explained):
    limit = {"cgroup": "/mail", "dev": DISK, "write_iops": 40}
    builder.meta["io_limits"] = [limit, limit | {"cgroup": "/web", "write_iops": 7}]
    fsync(builder, (WRITEBACK, 50 * MS))
    request(builder, 52, 60, **(HELD | {"cgroup": "/mail/imap"}))
    _, _, found = explained()
    [finding] = [f for f in found.to_json()["findings"] if f["kind"] == "io_limit"]
    assert finding["culprit"] == "A limit of the control group /mail/imap"
    assert "40 writes a second" in finding["mechanism"]
    assert "7 writes" not in finding["mechanism"]
    assert finding["share"] == pytest.approx(0.84, abs=0.01)
