"""Commits that only sleeps show: begin, end and trigger of each."""

import numpy as np
import pytest

from spoolscope.tracers.call_index import CallIndex
from spoolscope.tracers.commits_by_sleep import BySleep
from spoolscope.traces.flat import STACK_FRAMES

WATCHED, BLOCKED = 7, 1
TASK, IRQ = 1, 2
MS = 1_000_000

OUTSIDE = "schedule < folio_wait_writeback < reiserfs_sync_file"
WRITING = "schedule < io_schedule < __sync_dirty_buffer < flush_commit_list.isra.0 < do_fsync"
OTHERS = "schedule < __mutex_lock.constprop.0 < flush_commit_list.isra.0 < do_fsync"
IDLE = "schedule < nilfs_segctor_thread < kthread"
LOCK = "schedule < rwsem_down_write_slowpath < nilfs_transaction_lock < nilfs_segctor_thread"
SEGMENT = "schedule < wait_for_completion < nilfs_segctor_do_construct < nilfs_segctor_thread"
OPERATIONS = "schedule < down_write < block_operations < f2fs_write_checkpoint < f2fs_sync_fs"
CHECKPOINT = "schedule < down_write < f2fs_write_checkpoint < f2fs_sync_fs"
GROUP = "schedule < io_schedule < lmGroupCommit < txCommit < jfs_fsync"


class Sleepers:
    """A recording of threads that sleep in calls, or in no call."""

    def __init__(self, story) -> None:
        self._story = story
        self._symbols: dict[str, int] = {}
        self._stacks: list[list[int]] = [[]]
        self._calls: dict[int, int] = {}

    def thread(self, tid: int, comm: str) -> None:
        record = self._story.add("task", event=WATCHED, tid=tid, pid=tid)
        record["comm"] = comm.encode()

    def call(self, tid: int, start: int, end: int) -> None:
        self._story.call(tid, "fsync", 3, start_ns=start, end_ns=end)
        self._calls[tid] = start

    def sleep(self, tid: int, start: int, end: int, stack: str, **members: int) -> None:
        names = stack.split(" < ")
        self._stacks.append([self._symbols.setdefault(n, len(self._symbols) + 1) for n in names])
        record = self._story.add(
            "switch", tid=tid, pid=tid, call_ns=self._calls.get(tid, 0), out_ns=start,
            wake_ns=end, in_ns=end, state=BLOCKED, stack=len(self._stacks) - 1, **members,
        )  # fmt: skip
        record["waker_comm"] = b"waker"

    def commits(self) -> list[tuple[object, ...]]:
        """Return begin, end, thread, and trigger with its thread and call, of each commit."""
        capture = self._story.end()
        capture.symbols = {address: name for name, address in self._symbols.items()}
        capture.stacks = np.zeros((len(self._stacks), STACK_FRAMES), np.uint64)
        for row, stack in zip(capture.stacks, self._stacks, strict=True):
            row[: len(stack)] = stack
        index = CallIndex(capture.records["syscall"])
        found = BySleep(capture, index).commits()
        assert {commit["dev"] for commit in found} <= {7}
        return [
            (c["ts_ns"], c["ts_ns"] + c["dur_ns"], c["tid"], c["trigger"],
             c.get("trigger_tid"), c.get("trigger_seq"))
            for c in found
        ]  # fmt: skip


@pytest.fixture
def on(new_story):
    return lambda fstype: Sleepers(new_story(fstype))


def test_a_caller_commits_while_it_does_not_wait_for_another_one(on):
    spool = on("reiserfs")
    spool.call(1, 5, 1000)
    spool.call(2, 150, 900)
    spool.sleep(1, 10, 50, OUTSIDE)
    spool.sleep(1, 100, 200, WRITING)
    spool.sleep(1, 250, 400, WRITING)
    spool.sleep(1, 450, 700, OTHERS)
    spool.sleep(2, 160, 800, OTHERS)
    assert spool.commits() == [(100, 400, 1, "call", 1, 0)]


def test_each_call_has_its_own_commit(on):
    spool = on("reiserfs")
    spool.call(1, 5, 300)
    spool.sleep(1, 100, 200, WRITING)
    spool.call(1, 310, 500)
    spool.sleep(1, 350, 400, WRITING)
    assert spool.commits() == [(100, 200, 1, "call", 1, 0), (350, 400, 1, "call", 1, 1)]


def test_a_thread_of_the_kernel_begins_when_it_is_woken(on):
    spool = on("nilfs2")
    spool.thread(9, "segctord")
    spool.call(1, 5, 400)
    spool.sleep(9, 0, 100, IDLE, waker=TASK, waker_pid=1, waker_tid=1, waker_call_ns=5)
    spool.sleep(9, 110, 200, LOCK)
    spool.sleep(9, 220, 300, SEGMENT)
    spool.sleep(9, 320, 500, IDLE, waker=IRQ)
    spool.sleep(9, 510, 600, SEGMENT)
    assert spool.commits() == [
        (100, 300, 9, "call", 1, 0),
        (500, 600, 9, "timer", None, None),
    ]


def test_a_worker_begins_with_its_first_sleep(on):
    spool = on("reiserfs")
    spool.thread(8, "kworker/0:1")
    spool.sleep(8, 0, 50, "schedule < io_schedule < reiserfs_write_full_page < wb_workfn")
    spool.sleep(8, 100, 200, WRITING.replace("do_fsync", "flush_async_commits"))
    assert spool.commits() == [(100, 200, 8, "timer", 8, None)]


def test_who_waits_to_begin_a_checkpoint_does_none(on):
    spool = on("f2fs")
    spool.call(1, 5, 400)
    spool.call(2, 50, 400)
    spool.sleep(1, 10, 100, OPERATIONS)
    spool.sleep(2, 60, 300, CHECKPOINT)
    assert spool.commits() == [(10, 100, 1, "call", 1, 0)]


def test_those_who_wake_together_waited_for_one_write_of_the_log(on):
    spool = on("jfs")
    for tid, start, end in ((1, 1 * MS, 5 * MS), (2, 2 * MS, 5 * MS + 9000), (3, 4 * MS, 9 * MS)):
        spool.call(tid, start - 5, end + 5)
        spool.sleep(tid, start, end, GROUP)
    assert spool.commits() == [
        (1 * MS, 5 * MS + 9000, 1, "call", 1, 0),
        (5 * MS + 9000, 9 * MS, 3, "call", 3, 0),
    ]


def test_a_filesystem_that_is_not_recorded_has_no_commits(on):
    spool = on("ext4")
    spool.call(1, 5, 300)
    spool.sleep(1, 100, 200, WRITING)
    assert spool.commits() == []
