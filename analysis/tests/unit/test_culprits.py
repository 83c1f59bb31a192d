"""Victims and culprits: each instant has one culprit, the most direct one."""

import random
from itertools import pairwise

import duckdb
import pyarrow.parquet as pq
import pytest

from spoolscope.analysis import culprits
from spoolscope.analysis.claims import MECHANISMS
from spoolscope.analysis.explain import TOO_LONG, explain
from spoolscope.cli.blame import _in
from spoolscope.traces.errors import SpoolscopeError

pytestmark = pytest.mark.slow

COMMIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
LOCKED = "rwsem_down_write_slowpath < filename_create < do_linkat"
FILE_LOCK = "schedule < fcntl_setlk < do_fcntl"
LOOKUP = "io_schedule < bit_wait_io < __ext4_find_entry < ext4_lookup"
LOGGING = "schedule < bit_wait_io < jbd2_journal_commit_transaction < kjournald2"
UNKNOWN = "schedule < do_nanosleep < hrtimer_nanosleep"


@pytest.fixture
def edges_of(builder, tmp_path):
    """Return ``edges_of(hop)``: the edges of the built trace, as dicts."""

    def read(hop=1):
        file = tmp_path / "edges.parquet"
        if not file.exists():
            explain(builder.write(), edges=file)
        rows = pq.read_table(file).to_pylist()
        return [row for row in rows if row["hop"] == hop]

    return read


def short(rows):
    return [(r["victim_tid"], r["mechanism"], r["culprit_tid"], r["to_ns"] - r["from_ns"])
            for r in rows]  # fmt: skip


def test_the_owner_of_a_lock_and_what_it_was_doing(builder, edges_of):
    builder.call("rename", 0, 5000, tid=1, comm="mover", path="box/new/1")
    builder.call("link", 100, 10, ((LOCKED, 900),), tid=2, comm="lmtp")
    builder.lock_wait(2, 90, 910, "rwsem_write", address=5, owner_pid=1, owner_tid=1,
                      owner_comm="mover", owner_seq=0)  # fmt: skip
    (edge,) = edges_of()
    assert short([edge]) == [(2, "lock_holder", 1, 900)]
    assert (edge["culprit_comm"], edge["culprit_syscall"]) == ("mover", "rename")
    assert (edge["cause"], edge["evidence"]) == ("dir_lock", "recorded")


def test_a_lock_that_is_handed_on_has_one_owner_at_a_time(builder, edges_of):
    for tid, at, dur in ((2, 0, 300), (3, 0, 800), (4, 0, 1000)):
        builder.call("link", at, 10, ((LOCKED, dur),), tid=tid)
        builder.lock_wait(tid, at, dur, "rwsem_write", address=5, owner_pid=1, owner_tid=1)
    builder.lock_wait(9, 0, 500, "rwsem_write", address=6, owner_pid=8, owner_tid=8)
    assert short(edges_of()) == [
        (2, "lock_holder", 1, 300),
        (3, "lock_holder", 1, 300),
        (4, "lock_holder", 1, 300),
        (3, "lock_holder", 2, 500),
        (4, "lock_holder", 2, 500),
        (4, "lock_holder", 3, 200),
    ]


def test_who_waits_for_a_file_lock_itself_passes_the_blame_on(builder, edges_of):
    same = {"dev": 1, "ino": 77}
    builder.call("write", 0, 5000, tid=1, comm="holder")
    builder.call("fcntl", 0, 10, ((FILE_LOCK, 600),), tid=2)
    builder.lock_wait(2, 0, 600, "posix_lock", owner_pid=1, **same)
    builder.call("fcntl", 100, 10, ((FILE_LOCK, 900),), tid=3)
    builder.lock_wait(3, 100, 900, "posix_lock", owner_pid=2, **same)
    rows = edges_of()
    assert short(rows) == [
        (2, "file_lock", 1, 600),
        (3, "file_lock", 1, 500),
        (3, "file_lock", 2, 400),
    ]
    assert (rows[0]["culprit_comm"], rows[0]["culprit_syscall"]) == ("holder", "write")


def test_the_parts_of_a_wait_for_a_commit_have_their_own_culprits(builder, edges_of):
    for tid, comm in ((3, "asker"), (4, "holder")):
        builder.call("fsync", 0, 2000, tid=tid, comm=comm)
    builder.call("write", -500, 10, tid=5, comm="writer", dev=1, ret=70_000)
    builder.call("write", -400, 10, tid=6, comm="small", dev=1, ret=700)
    builder.call("fsync", 0, 10, ((COMMIT, 1_000_000),), tid=2, comm="lmtp", dev=1)
    builder.commit(
        0, 1_000_000, dev=1, locking_ns=100_000, flushing_ns=200_000, logging_ns=700_000,
        trigger="call", trigger_pid=3, trigger_tid=3, trigger_seq=0, trigger_comm="asker",
        handles=1, holder_pid=4, holder_tid=4, holder_seq=0, holder_comm="holder",
        holder_ns=60_000,
    )  # fmt: skip
    rows = edges_of()
    assert short(rows) == [
        (2, "handle_holder", 4, 60_000),
        (2, "commit_trigger", 3, 40_000),
        (2, "ordered_data", 5, 200_000),
        (2, "commit_trigger", 3, 700_000),
    ]
    assert [r["evidence"] for r in rows] == ["recorded", "recorded", "inferred", "recorded"]


def test_data_that_a_commit_waits_for_while_it_writes_the_log_is_its_writers(builder, edges_of):
    """Kernels since 3.x submit the data in the flushing phase, and wait for it in the next one."""
    builder.call("write", -500, 10, tid=5, comm="writer", dev=1, ret=70_000)
    builder.call("fsync", 0, 10, ((COMMIT, 1_000_000),), tid=2, comm="lmtp", dev=1)
    builder.commit(0, 1_000_000, dev=1, locking_ns=0, flushing_ns=10_000, logging_ns=990_000)
    data = "filemap_fdatawait_range_keep_errors < jbd2_journal_commit_transaction < kjournald2"
    builder.sleep(100_000, 600_000, f"schedule < io_schedule < folio_wait_writeback < {data}")
    assert (2, "ordered_data", 5, 600_000) in short(edges_of())


def test_ones_own_commit_has_no_culprit(builder, edges_of):
    builder.call("fsync", 0, 10, ((COMMIT, 1000),), tid=2)
    builder.commit(0, 1000, trigger="call", trigger_pid=2, trigger_tid=2, trigger_seq=0,
                   trigger_comm="lmtp")  # fmt: skip
    assert edges_of() == []


def test_the_oldest_request_at_the_disk_is_to_blame(builder, edges_of):
    disk, other = 8 << 20, 8 << 20 | 16
    builder.call("stat", 0, 10, ((LOOKUP, 1000),), tid=2, dev=disk)
    builder.block_io(-200, 0, 500, tid=8, pid=8, comm="backup", op="read", dev=disk)
    builder.block_io(0, 100, 900, tid=2, pid=2, comm="lmtp", op="read", dev=disk)
    builder.block_io(200, 0, 900, tid=9, pid=9, comm="late", op="read", dev=disk)
    builder.block_io(0, 0, 900, tid=9, pid=9, comm="elsewhere", op="read", dev=other)
    (edge,) = edges_of()
    assert short([edge]) == [(2, "device", 8, 300)]
    assert (edge["culprit_comm"], edge["evidence"]) == ("backup", "inferred")


def test_the_flush_after_a_write_is_its_writer_s(builder, edges_of):
    disk = 8 << 20
    builder.call("stat", 150, 10, ((LOOKUP, 850),), tid=2, dev=disk)
    builder.block_io(0, 0, 100, tid=8, pid=8, comm="syncer", fua=True, dev=disk)
    builder.block_io(100, 0, 800, tid=55, pid=55, comm="kworker/0:1H", op="flush", dev=disk)
    (edge,) = edges_of()
    assert short([edge]) == [(2, "device", 8, 750)]
    assert edge["culprit_comm"] == "syncer"


def test_the_waker_is_named_where_nothing_else_is_known(builder, edges_of):
    builder.call("read", 0, 10, ((UNKNOWN, 1000),), tid=2)
    builder.rows["segments"][-1].update(waker="task", waker_pid=3, waker_tid=3, waker_comm="peer")
    builder.call("fsync", 5000, 10, ((COMMIT, 1000),), tid=2)
    builder.rows["segments"][-1].update(waker="task", waker_pid=7, waker_tid=7, waker_comm="jbd2")
    builder.add("threads", tid=7, pid=7, comm="jbd2/loop0-8", kind="kernel")
    assert short(edges_of()) == [(2, "waker", 3, 1000)]  # a kernel thread is no culprit


@pytest.fixture
def chain(builder):
    """Make a chain: 2 waits for a lock of 3, 3 for a commit triggered by 4, that for a flush."""
    builder.call("rename", 0, 10, ((COMMIT, 900),), tid=3, comm="mover")
    builder.call("link", 0, 10, ((LOCKED, 950),), tid=2, comm="lmtp")
    builder.lock_wait(2, 0, 950, "rwsem_write", address=5, owner_pid=3, owner_tid=3, owner_seq=0)
    builder.call("fsync", 0, 5000, tid=4, comm="asker")
    builder.commit(100, 800, dev=1, trigger="call", trigger_pid=4, trigger_tid=4, trigger_seq=0,
                   trigger_comm="asker")  # fmt: skip
    builder.sleep(200, 700, LOGGING)


@pytest.mark.usefixtures("chain")
def test_a_chain_says_what_each_culprit_waited_for(edges_of):
    assert short(edges_of(1)) == [(2, "lock_holder", 3, 950), (3, "commit_trigger", 4, 800)]
    second = edges_of(2)
    assert short(second) == [
        (3, None, None, 100),
        (3, "commit_trigger", 4, 800),
        (7, None, None, 700),
    ]
    assert [r["cause"] for r in second] == ["journal_commit"] * 3
    (third,) = edges_of(3)
    assert (third["victim_tid"], third["victim_comm"]) == (7, "jbd2/loop0-8")
    assert third["parent_id"] == second[1]["edge_id"]
    assert edges_of(4) == []


@pytest.mark.usefixtures("chain")
def test_the_origin_of_a_wait_is_what_the_last_of_its_chain_slept_for(builder):
    found = explain(builder.write(), blame=True).origins
    assert {(one.cause, one.origin): one.ns for one in found} == {
        ("dir_lock", "journal_commit"): 900,  # 3 slept this long, and 7 within that
        ("dir_lock", "dir_lock"): 50,  # then 3 ran on and still had the lock
        ("journal_commit", "journal_commit"): 800,
    }


def test_who_had_the_cpu_that_was_waited_for(builder, edges_of):
    builder.call("write", 0, 5000, tid=9, comm="hog")
    builder.call("fsync", 0, 10, ((COMMIT, 300),), tid=2, comm="lmtp", runq_ns=700)
    builder.held(9, 150, 500)
    builder.call("fsync", 0, 10, tid=3, comm="lmtp", preempted_ns=400)  # no culprit is known
    (edge,) = edges_of()
    assert short([edge]) == [(2, "cpu", 9, 500)]
    assert edge["from_ns"] == builder.rows["syscalls"][1]["ts_ns"] + 300 + 150
    assert (edge["cause"], edge["evidence"]) == ("runq", "recorded")
    assert (edge["culprit_comm"], edge["culprit_syscall"]) == ("hog", "write")


def test_a_lock_whose_holder_has_no_cpu_leads_to_who_has_it(builder, edges_of):
    builder.call("rename", 0, 100, tid=3, comm="mover", preempted_ns=800)
    builder.held(9, 0, 800)
    builder.call("link", 0, 10, ((LOCKED, 1000),), tid=2)
    builder.lock_wait(2, 0, 1000, "rwsem_write", owner_pid=3, owner_tid=3, owner_seq=0)
    assert short(edges_of()) == [(2, "lock_holder", 3, 1000), (3, "cpu", 9, 800)]
    (second,) = edges_of(2)
    assert (second["victim_tid"], second["mechanism"], second["culprit_comm"]) == (3, "cpu", "hog")


def test_a_journal_without_a_cpu_leads_to_who_has_it(builder, edges_of):
    builder.call("fsync", 0, 10, ((COMMIT, 1000),), tid=2, dev=1)
    builder.commit(0, 1000, dev=1, trigger="call", trigger_pid=4, trigger_tid=4, trigger_seq=0,
                   trigger_comm="asker")  # fmt: skip
    builder.sleep(100, 600, None, state="runq")
    builder.held(9, 0, 600)
    (second,) = edges_of(2)
    assert (second["victim_tid"], second["cause"], second["culprit_tid"]) == (7, "runq", 9)


def test_edges_never_overlap_and_never_exceed_the_time_off_the_cpu(
    builder, edges_of, monkeypatch, tmp_path
):
    rng = random.Random(11)
    frames = [COMMIT, LOCKED, FILE_LOCK, LOOKUP, UNKNOWN, None]
    free = dict.fromkeys(range(1, 7), 0)
    for _ in range(300):
        tid = rng.randrange(1, 7)
        waits = tuple(
            (rng.choice(frames), rng.randrange(1, 10**6)) for _ in range(rng.randrange(4))
        )
        row = builder.call("fsync", free[tid], rng.randrange(1, 10**5), waits, tid=tid, dev=1,
                           preempted_ns=rng.randrange(10**5))  # fmt: skip
        if builder.rows["segments"] and builder.rows["segments"][-1]["state"] == "preempted":
            dur = builder.rows["segments"][-1]["dur_ns"]
            builder.held(rng.randrange(1, 9), dur // 4, dur // 2)
        free[tid] += row["dur_ns"] + rng.randrange(10**5)
    last = max(free.values())
    for _ in range(300):
        at, owner = rng.randrange(last), rng.randrange(1, 7)
        builder.lock_wait(rng.randrange(1, 7), at, rng.randrange(1, 10**6),
                          rng.choice(["mutex", "rwsem_read", "posix_lock"]), dev=1, ino=4,
                          address=rng.randrange(3), owner_pid=owner, owner_tid=owner)  # fmt: skip
        asker = rng.randrange(1, 7)
        builder.block_io(at, rng.randrange(10**4), rng.randrange(10**6), tid=asker, pid=asker,
                         preflush=rng.random() < 0.2, fua=rng.random() < 0.2)  # fmt: skip
    at = 0
    while at < last:
        asker, locking = rng.randrange(1, 7), rng.randrange(10**5)
        builder.commit(at, locking + 500_000, dev=1, locking_ns=locking, flushing_ns=200_000,
                       logging_ns=300_000, trigger="call", trigger_pid=asker, trigger_tid=asker,
                       trigger_seq=0, trigger_comm="x", holder_pid=3, holder_tid=3, holder_seq=0,
                       holder_ns=rng.randrange(10**5))  # fmt: skip
        at += locking + 500_000 + rng.randrange(10**6)
    rows = edges_of()
    monkeypatch.setattr(culprits, "BATCH", 17)
    found = explain(builder.path, edges=tmp_path / "again.parquet")
    again = pq.read_table(tmp_path / "again.parquet").to_pylist()
    assert [row for row in again if row["hop"] == 1] == rows
    assert {r["mechanism"] for r in rows} >= set(MECHANISMS) - {"ordered_data", "waker"}
    for call in builder.rows["syscalls"]:
        begin, end = call["ts_ns"], call["ts_ns"] + call["dur_ns"]
        key = (call["tid"], call["seq"])
        mine = (r for r in rows if (r["victim_tid"], r["victim_seq"]) == key)
        own = sorted((r["from_ns"], r["to_ns"]) for r in mine)
        assert all(begin <= a < b <= end for a, b in own)
        assert all(b <= c for (_, b), (c, _) in pairwise(own))
        assert sum(b - a for a, b in own) <= call["blocked_ns"] + call["preempted_ns"]
    ends = {r["edge_id"]: r for hop in (1, 2, 3) for r in edges_of(hop)}
    for hop in (2, 3, 4):
        for row in edges_of(hop):
            parent = ends[row["parent_id"]]
            assert parent["hop"] == hop - 1
            assert parent["from_ns"] <= row["from_ns"] < row["to_ns"] <= parent["to_ns"]
    for cause in {row["cause"] for row in rows}:
        waited = sum(r["to_ns"] - r["from_ns"] for r in rows if r["cause"] == cause)
        assert sum(one.ns for one in found.origins if one.cause == cause) == waited


def test_a_trace_too_long_for_the_memory_is_explained_without_culprits(builder, monkeypatch):
    builder.call("fcntl", 0, 10, ((FILE_LOCK, 1000),), tid=2)

    def full(*_):
        raise duckdb.OutOfMemoryException("failed to allocate")

    monkeypatch.setattr("spoolscope.analysis.culprits.make_claims", full)
    found = explain(builder.write(), blame=True)
    assert found.causes["file_lock"] == 1000
    assert found.remarks == [TOO_LONG]
    with pytest.raises(SpoolscopeError, match="memory"):
        explain(builder.path, edges=builder.path / "edges.parquet")


def test_of_a_process_in_a_table_only_the_name_is_cut():
    assert _in(24, "spoolscope-recor", 24621, "fsync") == "spoolscope-… 24621 fsync"
    assert _in(24, "imap", None, "-") == "imap"
    assert len(_in(19, "a" * 16, None, "name_to_handle_at")) <= 19
