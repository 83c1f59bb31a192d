"""The recording in bins: sums equal to those of a slice, slowest calls, and marks."""

from collections import Counter

import pytest

from spoolscope.analysis.bins import OTHERS, PROCESSES, SLOWEST, between, in_bins
from spoolscope.analysis.explain import explain, explain_with
from spoolscope.analysis.selection import Selection
from spoolscope.traces.slices import Slice
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.slow

MS = 1_000_000
COMMIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
FROZEN = "schedule < percpu_rwsem_wait < __percpu_down_read < ext4_file_write_iter"


def binned(path, most=200):
    trace = Trace.open(path)
    with trace.connect() as con:
        explain_with(con, trace)
        return trace, in_bins(con, trace.meta, most)


@pytest.fixture
def path(builder):
    """Return a trace of one second with calls of three programs, some of which wait."""
    for n in range(300):
        waits = ((COMMIT, (n % 7) * MS),) if n % 3 == 0 else ()
        comm = ("lmtp", "imap", "cleanup")[n % 3]
        call = ("fsync", "openat", "fcntl")[n % 3]
        builder.call(call, n * 3 * MS, 1000 + n, waits, tid=100 + n % 3, comm=comm, path=f"u/{n}",
                     preempted_ns=n % 5)  # fmt: skip
    return builder.write()


@pytest.mark.parametrize(("first", "last"), [(0, 89), (0, 0), (17, 41), (60, 89)])
def test_a_window_of_bins_is_a_slice_of_the_trace(path, first, last):
    trace, bins = binned(path, most=100)
    assert (bins.bin_ns, bins.n) == (10 * MS, 90)
    part = Slice(first * bins.bin_ns, (last + 1) * bins.bin_ns)
    assert bins.causes(first, last) == explain(trace, selection=Selection(part=part)).causes
    start = trace.meta["start_ns"]
    begun = f"ts_ns >= {start + part.from_ns} AND ts_ns < {start + part.to_ns}"
    with trace.connect() as con:
        ((ns, n),) = con.execute(
            f"SELECT sum(dur_ns), count(*) FROM syscalls WHERE {begun}"
        ).fetchall()
        rows = con.execute(
            f"SELECT comm, dur_ns FROM syscalls WHERE {begun} AND syscall != 'fcntl' "
            f"ORDER BY dur_ns DESC, ts_ns LIMIT {SLOWEST}"
        ).fetchall()
    assert sum(bins.causes(first, last).values()) == ns
    assert sum(sum(one.calls[first : last + 1]) for one in bins.processes.values()) == n
    assert [(m.comm, m.dur_ns) for m in between(bins.slowest, first, last)] == rows


def test_every_call_but_those_for_locks_has_its_length_in_the_heat_map(path):
    trace, bins = binned(path)
    calls = trace.table("syscalls").to_pylist()
    lengths = [call["dur_ns"] for call in calls if call["syscall"] != "fcntl"]
    found = Counter()
    for level, row in zip(bins.levels, bins.counts, strict=True):
        found[level] += sum(row)
        low, high = (10 ** ((level + k) / 4) for k in (0, 1))
        assert sum(row) == sum(low <= ns < high for ns in lengths)
    assert found.total() == len(lengths)


def test_the_largest_part_of_a_slow_call_is_named(path):
    _, bins = binned(path)
    slow = max((call for calls in bins.slowest for call in calls), key=lambda call: call.dur_ns)
    assert (slow.syscall, slow.comm, slow.cause, slow.cause_ns) == (
        "fsync", "lmtp", "journal_commit", 6 * MS)  # fmt: skip
    assert slow.path == f"u/{slow.at_ns // (3 * MS)}"


def test_many_processes_are_few_and_the_others(builder):
    for n in range(40):
        builder.call("openat", n * MS, 1000 * (n + 1), tid=100 + n, comm=f"p{n}")
    _, bins = binned(builder.write())
    own = [f"p{39 - n} ({139 - n})" for n in range(PROCESSES)]
    assert list(bins.processes) == [*own, OTHERS]
    assert bins.causes() == {"cpu": sum(1000 * (n + 1) for n in range(40))}


def test_marks_cover_an_instant_once_and_every_bin_that_they_reach(builder):
    builder.call("write", 5 * MS, 1000, ((FROZEN, 30 * MS),))
    builder.call("fsync", 120 * MS)
    builder.commit(0, 25 * MS)
    builder.commit(20 * MS, 10 * MS)
    builder.block_io(50 * MS, 0, 4 * MS, op="flush")
    _, bins = binned(builder.write(duration_ns=121 * MS), most=13)
    assert (bins.bin_ns, bins.n) == (10 * MS, 13)
    commit, flush, frozen = (bins.marks[mark] for mark in ("commit", "flush", "frozen"))
    assert commit.covered_ns[:4] == [10 * MS, 10 * MS, 10 * MS, 0]
    assert (commit.begun[:4], commit.longest_ns[:4]) == ([1, 0, 1, 0], [25 * MS, 0, 10 * MS, 0])
    assert (flush.covered_ns[5], sum(flush.covered_ns)) == (4 * MS, 4 * MS)
    assert frozen.covered_ns[:5] == [5 * MS, 10 * MS, 10 * MS, 5 * MS, 0]


def test_a_cache_flush_is_marked_once_and_not_again_for_the_request_that_waits_for_it(builder):
    builder.call("fsync", 120 * MS)
    builder.block_io(50 * MS, 4 * MS, MS, preflush=True)
    builder.block_io(50 * MS, 0, 4 * MS, op="flush")
    _, bins = binned(builder.write(duration_ns=121 * MS), most=13)
    assert sum(bins.marks["flush"].begun) == 1


def test_a_call_that_began_before_the_recording_is_of_its_first_instant(builder):
    builder.call("fsync", -500 * MS, 1000, ((COMMIT, 600 * MS),))
    builder.call("fsync", 900 * MS)
    _, bins = binned(builder.write())
    assert bins.causes(0, 0) == {"journal_commit": 600 * MS, "cpu": 1000}
    assert bins.slowest[0][0].at_ns == 0


def test_a_trace_without_calls_has_no_bins(builder):
    _, bins = binned(builder.write())
    assert (bins.n, bins.causes(), bins.processes) == (0, {}, {})


def test_bins_are_1_2_or_5_of_something_and_few(builder):
    builder.call("read", 0)
    for seconds, width in ((1, 5), (3.9, 20), (60, 500), (3600, 20_000), (400_000, 2_000_000)):
        builder.rows["syscalls"] = builder.rows["syscalls"][:1]
        builder.call("read", round(seconds * 1e9) - 1)
        _, bins = binned(builder.write(duration_ns=round(seconds * 1e9)))
        assert bins.bin_ns == width * MS
        assert bins.n <= 200
