"""Time as a tree: parts add up, small ones are merged, waits between programs left out."""

import pytest

from spoolscope.analysis.bins import OTHERS
from spoolscope.analysis.study import study
from spoolscope.analysis.time_tree import OTHER_CALLS, OTHER_CAUSES, PROGRAMS, Node

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
    programs = [path for path in tree if len(path) == 1]
    assert len(programs) == PROGRAMS + 1
    assert (OTHERS,) in programs


def test_waits_of_programs_for_programs_are_no_part(builder):
    builder.call("fcntl", 0, 1000, ((LOCK, 900 * MS),), comm="qmgr")
    builder.call("fsync", 0, 1000, ((COMMIT, 3 * MS),), tid=2, comm="lmtp")
    tree = tree_of(builder.write())
    assert tree[()].ns == 3 * MS + 2000
    assert tree["lmtp", "fsync", "journal_commit"] == Node(
        ("lmtp", "fsync", "journal_commit"), 3 * MS, None)  # fmt: skip


def test_small_calls_and_causes_are_together(builder):
    builder.call("fsync", 0, 1000, ((COMMIT, 1000 * MS),))
    for n, call in enumerate(("stat", "access", "read")):
        builder.call(call, 2000 * MS + n, 700)
    tree = tree_of(builder.write())
    assert (tree["lmtp", OTHER_CALLS].ns, tree["lmtp", OTHER_CALLS].n) == (2100, 3)
    assert tree["lmtp", "fsync", OTHER_CAUSES].ns == 1000


@pytest.mark.parametrize("calls", [0, 1])
def test_a_trace_without_time_has_no_tree(builder, calls):
    for _ in range(calls):
        builder.call("fcntl", 0, 0, ((LOCK, MS),))
    assert study(builder.write()).tree == []
