"""Services of disks: requests read in parts give the same results as all at once."""

import random
from collections import defaultdict

import pytest

from spoolscope.analysis.services import by_kind, disk_turns
from spoolscope.analysis.stages import begin
from spoolscope.traces.trace import Trace

DISK, FIRST, SECOND = 8 << 20, 8 << 20 | 1, 8 << 20 | 2


@pytest.fixture
def in_parts(monkeypatch):
    """Make tables be read in parts of a few rows."""
    whole = Trace.parts

    def parts(trace, name, columns=None):
        for part in whole(trace, name, columns):
            for first in range(0, part.num_rows, 7):
                yield part.slice(first, 7)

    monkeypatch.setattr(Trace, "parts", parts)


def test_a_split_request_is_of_the_only_partition_of_its_disk(builder):
    """Check that the kernel's remark on the partition, lost at a split, is made good."""
    builder.call("fsync", 0)
    builder.block_io(0, 0, 100, dev=DISK, parent_dev=FIRST)
    builder.block_io(200, 0, 100, dev=DISK)
    for at, parent in enumerate((FIRST, SECOND, None)):
        builder.block_io(400 + at, 0, 100, dev=DISK + 16, parent_dev=parent and parent + 16)
    with (trace := Trace.open(builder.write())).connect() as con:
        begin(con, trace.meta).make("services")
        found = con.execute("SELECT disk FROM services ORDER BY from_ns").fetchall()
    assert [disk for (disk,) in found] == [FIRST, FIRST, FIRST + 16, SECOND + 16, DISK + 16]


@pytest.mark.usefixtures("in_parts")
def test_requests_are_served_one_after_the_other_on_each_disk(builder):
    rng = random.Random(5)
    builder.call("read", 0)
    for n in range(200):
        kind = {"dev": rng.randrange(2), "op": rng.choice(["read", "write", "flush", "discard"])}
        builder.block_io(n * 1000, rng.randrange(5000), rng.randrange(20_000), **kind)
    with (trace := Trace.open(builder.write())).connect() as con:
        expected = con.execute(
            "SELECT dev, op, list(ns ORDER BY ns) FROM (SELECT dev, op, to_ns - greatest(from_ns, "
            "coalesce(lag(to_ns) OVER (PARTITION BY dev ORDER BY to_ns), from_ns)) AS ns FROM ("
            "SELECT dev, op, ts_ns + queue_ns AS from_ns, ts_ns + queue_ns + device_ns AS to_ns "
            "FROM block_ios WHERE op != 'discard')) GROUP BY ALL"
        ).fetchall()
    found = defaultdict(list)
    for turns in disk_turns(trace):
        for key, ns in by_kind(turns):
            found[key] += ns.tolist()
    assert {(dev, op): ns for dev, op, ns in expected} == {
        key: sorted(ns) for key, ns in found.items()
    }


def test_a_flush_by_the_driver_is_for_the_partition_that_was_due_for_one(builder):
    """Check that a flush, which names the whole disk only, goes to the last that asked for one."""
    builder.call("fsync", 0)
    builder.block_io(0, 0, 50, dev=DISK, op="flush", tid=55)  # nobody is known
    for at, partition in ((100, FIRST), (1000, SECOND), (2000, FIRST)):
        builder.block_io(at, 0, 100, dev=DISK, parent_dev=partition, fua=True, tid=partition & 3)
        builder.block_io(at + 100, 0, 700, dev=DISK, op="flush", tid=55)
    builder.block_io(3000, 500, 100, dev=DISK, parent_dev=SECOND, preflush=True, tid=2)
    builder.block_io(3010, 0, 490, dev=DISK, op="flush", tid=55)
    builder.block_io(3520, 0, 90, dev=DISK + 16, op="flush", tid=55)  # of another disk
    with (trace := Trace.open(builder.write())).connect() as con:
        begin(con, trace.meta).make("services")
        found = con.execute(
            "SELECT disk, tid, to_ns - from_ns FROM services WHERE part = 'disk_flush' "
            "ORDER BY from_ns"
        ).fetchall()
    assert found == [
        (DISK, None, 50), (FIRST, 1, 700), (SECOND, 2, 700), (FIRST, 1, 700), (SECOND, 2, 490),
        (DISK + 16, None, 90),
    ]  # fmt: skip
