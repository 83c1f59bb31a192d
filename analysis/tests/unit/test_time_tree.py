"""Time as a tree: parts add up, small ones are merged, waits between programs left out."""

import pytest

from spoolscope.analysis.bins import OTHERS
from spoolscope.analysis.study import study
from spoolscope.analysis.time_tree import OTHER_CALLS, OTHER_CAUSES, PROCESSES, Node

pytestmark = pytest.mark.slow

MS = 1_000_000
COMMIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
LOCK = "schedule < posix_lock_inode_wait < fcntl_setlk"


def tree_of(path):
    return {node.path: node for node in study(path).tree}


def test_parts_add_up_to_what_they_are_of(builder):
    for n in range(200):
        waits = ((COMMIT, n * 1000),) if n % 2 else ()
        builder.call(("fsync", "openat", "read")[n % 3], n * MS, 500 + n, waits, tid=100 + n % 17,
                     comm=f"p{n % 17}")  # fmt: skip
    found = study(builder.write())
    tree = {node.path: node for node in found.tree}
    assert tree[()].ns == found.explanation.filesystem_ns
    assert tree[()].n == 200
    for path, node in tree.items():
        parts = [one for key, one in tree.items() if key[:-1] == path and len(key) > len(path)]
        if parts:
            assert sum(part.ns for part in parts) == node.ns
        if len(path) < 2:
            assert sum(part.n for part in parts) == node.n
    processes = [path for path in tree if len(path) == 1]
    assert len(processes) == PROCESSES + 1
    assert (OTHERS,) in processes


def test_waits_of_programs_for_programs_are_no_part(builder):
    builder.call("fcntl", 0, 1000, ((LOCK, 900 * MS),), comm="qmgr")
    builder.call("fsync", 0, 1000, ((COMMIT, 3 * MS),), tid=2, comm="lmtp")
    tree = tree_of(builder.write())
    assert tree[()].ns == 3 * MS + 2000
    assert tree["lmtp (2)", "fsync", "journal_commit"] == Node(
        ("lmtp (2)", "fsync", "journal_commit"), 3 * MS, None)  # fmt: skip


def test_small_calls_and_causes_are_together(builder):
    builder.call("fsync", 0, 1000, ((COMMIT, 1000 * MS),))
    for n, call in enumerate(("stat", "access", "read")):
        builder.call(call, 2000 * MS + n, 700)
    tree = tree_of(builder.write())
    assert (tree["lmtp (100)", OTHER_CALLS].ns, tree["lmtp (100)", OTHER_CALLS].n) == (2100, 3)
    assert tree["lmtp (100)", "fsync", OTHER_CAUSES].ns == 1000


def test_large_processes_are_alone_and_the_small_ones_of_a_program_together(builder):
    times = {("imap", pid): 1000 * MS for pid in (1, 2)}
    times |= {("imap", 10 + n): MS for n in range(1200)} | {
        ("lmtp", 5000 + n): MS for n in range(3)
    }
    times |= {("qmgr", 6000): MS, ("cleanup", 7000): 900 * MS, ("cleanup", 7001): MS}
    for (comm, pid), ns in times.items():
        builder.call("fsync", 0, ns, tid=pid, pid=pid, comm=comm)
    builder.call("fcntl", 0, 0, ((LOCK, 5000 * MS),), tid=5000, pid=5000, comm="lmtp")
    processes = {path[0]: (node.ns, node.n) for path, node in tree_of(builder.write()).items()
                 if len(path) == 1}  # fmt: skip
    assert processes == {
        "imap (1)": (1000 * MS, 1),
        "imap (2)": (1000 * MS, 1),
        "imap (1,200 others)": (1200 * MS, 1200),
        "cleanup (7000)": (900 * MS, 1),
        "cleanup (7001)": (MS, 1),
        "lmtp (3 processes)": (3 * MS, 4),
        "qmgr (6000)": (MS, 1),
    }


@pytest.mark.parametrize("calls", [0, 1])
def test_a_trace_without_time_has_no_tree(builder, calls):
    for _ in range(calls):
        builder.call("fcntl", 0, 0, ((LOCK, MS),))
    assert study(builder.write()).tree == []
