"""Block requests by kind, device, order and stage, from requests with known sums."""

import pytest

from spoolscope.analysis.block_io import AWAITED, DATA, LATER, PARTS, numbers
from spoolscope.analysis.study import study
from spoolscope.report.build import trace_page
from spoolscope.report.page import Figure

pytestmark = pytest.mark.slow

MS = 1_000_000
LOOP, DISK, OTHER = 7 << 20 | 1, 8 << 20, 254 << 20 | 16


def stage(builder, at_ns, what="write", rwbs="W", **stages):
    """Add a request of a block trace."""
    row = {"ts_ns": at_ns, "dev": LOOP, "op": what, "rwbs": rwbs, "bios": 1, "bytes": 4096}
    builder.add("block_stages", **(row | stages))


def report(builder):
    return study(builder.write()).block_io


def kinds(found, dev=LOOP):
    return {one.kind: one for one in found.requests if one.dev == dev}


def test_requests_are_counted_by_what_their_flags_say(builder):
    for n, flags in enumerate(({}, {"sync": True}, {"meta": True}, {"meta": True, "sync": True},
                               {"bytes": 0, "preflush": True}, {"op": "flush", "bytes": 0},
                               {"op": "read"}, {"op": "read", "meta": True},
                               {"op": "discard"}, {"op": "zeroes"})):  # fmt: skip
        builder.block_io(n * MS, 10, 20, dev=LOOP, **flags)
    found = kinds(report(builder))
    assert {kind: one.n for kind, one in found.items()} == {
        DATA: 2, LATER: 1, AWAITED: 1, "flush_asked": 1, "flush": 1, "read": 1,
        "read_metadata": 1, "discard": 1, "other": 1,
    }  # fmt: skip
    assert (found[DATA].sync, found[DATA].bytes) == (1, 8192)
    assert (found[DATA].queue_ns, found[DATA].device_ns, found[DATA].max_ns) == (20, 40, 30)


def test_what_lies_on_another_device_is_written_once(builder):
    """Check a loop device on a disk: the disk's requests for it are the same ones."""
    builder.call("write", 0, 1000, ret=1000)
    builder.call("pwrite64", MS, 1000, ret=-1)
    builder.call("read", 2 * MS, 1000, ret=5000)
    builder.block_io(0, dev=LOOP, bytes=3000)
    builder.block_io(1, dev=LOOP, bytes=1000, meta=True, sync=True)
    builder.block_io(2, dev=DISK, parent_dev=LOOP, bytes=4096)
    builder.block_io(3, dev=OTHER, parent_dev=OTHER + 1, bytes=500)  # a partition
    found = report(builder)
    assert found.written_bytes == {DATA: 3500, AWAITED: 1000, LATER: 0}
    assert (found.call_bytes, found.amplification) == (1000, 4.5)
    assert [one.device for one in found.requests] == ["254:16 for 254:17", "7:1", "7:1",
                                                      "8:0 for 7:1"]  # fmt: skip


def test_what_calls_and_io_uring_copied_to_the_spool_is_counted(builder):
    """Check sendfile to a socket, to open files, to one closed meanwhile, and from elsewhere."""
    opened = {"path": "u/new", "dev": DISK}
    builder.call("openat", 0, 10, ret=5, **opened)
    builder.call("sendfile", 100, 10, fd=4, fd2=9, ret=1 << 30, path="u/mail", dev=DISK)
    builder.call("sendfile", 200, 10, fd=4, fd2=5, ret=10, path="u/mail", dev=DISK)
    builder.call("close", 300, 10, fd=5, **opened)
    builder.call("sendfile", 400, 10, fd=4, fd2=5, ret=1 << 30, path="u/mail", dev=DISK)
    builder.call("openat", 500, 10, tid=2, ret=5, **opened)
    builder.call("splice", 600, 10, tid=2, fd=4, fd2=5, ret=200, path="u/mail", dev=DISK)
    builder.call("splice", 700, 10, tid=3, fd=4, fd2=5, ret=3000, dev=None)
    for op, ret in (("write", 40_000), ("write_fixed", 500_000), ("read", 1 << 30), ("write", -1)):
        builder.add("uring_ops", ts_ns=800, pid=1, tid=1, op=op, ret=ret, dev=DISK)
    assert report(builder).call_bytes == 543_210


FIRST, SECOND, ANONYMOUS = DISK + 1, DISK + 2, 43


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({}, ""),
        ({"spools": [{"dev": LOOP, "mount": "/m", "part": True}]}, "only a directory"),
        ({"filter": {"command": True, "comms": []}}, ""),
        ({"filter": {"command": False, "comms": ["lmtp"]}}, "only some programs"),
        ({"shed": 5}, "left out"),
        ({"aio_calls": 1}, "io_submit"),
    ],
)
def test_bytes_of_other_writers_are_not_compared_with_those_of_calls(builder, meta, said):
    builder.call("write", 0, 1000, ret=1024)
    builder.block_io(0, dev=LOOP, bytes=4096)
    path = builder.write(**({"spools": [{"dev": LOOP, "mount": "/m"}]} | meta))
    found = study(path).block_io
    assert said in found.unlike
    assert bool(found.unlike) == bool(said)
    assert found.amplification == (None if said else 4.0)
    (section,) = [s for s in trace_page(path).sections if s.key == "block-io"]
    text = " ".join(block.caption for block in section.blocks)
    assert (f"not compared with what calls wrote, as {found.unlike}." in text) == bool(said)
    assert ("4.0 bytes for each of 1.00 KiB that calls wrote" in text) != bool(said)


@pytest.mark.parametrize(
    ("spool", "parents", "compared"),
    [
        (FIRST, [FIRST, FIRST], True),
        (FIRST, [FIRST, None], True),  # a large one that was split
        (FIRST, [FIRST, SECOND], False),
        (ANONYMOUS, [FIRST, FIRST], True),
        (ANONYMOUS, [FIRST, SECOND], False),
        (DISK, [None, None], True),
        (OTHER, [FIRST, None], True),  # the volume that lies on this partition
    ],
)
def test_another_partition_that_was_written_prevents_the_comparison(
    builder, spool, parents, compared
):
    builder.call("write", 0, 1000, ret=2048)
    for at, parent in enumerate(parents):
        builder.block_io(at, dev=DISK, parent_dev=parent, bytes=4096)
    builder.block_io(9, dev=DISK, parent_dev=spool, bytes=0, preflush=True)
    found = study(builder.write(spools=[{"dev": spool, "mount": "/m"}])).block_io
    assert (found.amplification == 4.0, bool(found.unlike)) == (compared, not compared)


def test_a_sequence_is_of_one_device_and_direction(builder):
    for at, (op, sector) in enumerate((("write", 0), ("read", 900), ("write", 8), ("write", 16),
                                       ("write", 100), ("read", 908))):  # fmt: skip
        builder.block_io(at * MS, dev=LOOP, op=op, sector=sector)
        builder.block_io(at * MS + 1, dev=OTHER, op=op, sector=5000 - sector)
    found = report(builder)
    assert (kinds(found)[DATA].follows, kinds(found)["read"].follows) == (2, 1)
    assert kinds(found, OTHER)[DATA].follows == 0


def test_quantiles_need_enough_requests(builder):
    for n in range(999):
        builder.block_io(n * MS, n, 2 * n, dev=LOOP)
    few = kinds(report(builder))[DATA]
    assert (few.queue_p50_ns, few.device_p50_ns, few.queue_p99_ns) == (499, 998, None)


def test_stages_add_up_and_a_missing_one_takes_no_time(builder):
    stage(builder, 0, g_ns=1, i_ns=3, d_ns=7, c_ns=20)
    stage(builder, 1, g_ns=2, d_ns=9, c_ns=10)  # issued at once, never inserted
    stage(builder, 2, c_ns=5)  # a bio without a request
    stage(builder, 3, rwbs="FWFSM", g_ns=1, i_ns=100, d_ns=101, c_ns=150)
    stage(builder, 4, g_ns=1, i_ns=2)  # never complete
    stage(builder, 5, bios=0, d_ns=1, c_ns=2)  # begun before the recording
    plain, flushed = report(builder).stages
    assert (plain.device, plain.what, plain.n, plain.unseen) == ("7:1", "write", 3, 2)
    assert plain.parts == dict(zip(PARTS, (3, 2, 11, 19), strict=True))
    assert sum(plain.parts.values()) == plain.total_ns == 35
    assert (flushed.what, flushed.parts["inserted_ns"]) == ("write after a flush", 99)


def test_the_report_shows_it_and_says_what_cannot_be_said(builder):
    for n in range(120):
        builder.call("write", n * MS, 1000, ret=4096)
        builder.block_io(n * MS, 10, MS, dev=LOOP, error=-5 if n == 7 else 0)
        stage(builder, n * MS, g_ns=1, i_ns=3, d_ns=7, c_ns=MS)
    (section,) = [s for s in trace_page(builder.write()).sections if s.key == "block-io"]
    text = " ".join(block.caption for block in section.blocks)
    assert "100 % of 480 KiB is data" in text
    assert "1.0 bytes for each of 480 KiB that calls wrote" in text
    said = " ".join(block.finding for block in section.blocks if isinstance(block, Figure))
    assert "100 % of the time of all requests is write data on 7:1" in said
    assert "cannot be seen" in text
    assert "1 failed." in text
    assert "7:1 write: > 99 % of the time from Q to C is D to C: at the device" in said
    assert {block.key for block in section.blocks if hasattr(block, "key")} == {
        "block-times", "block-stages",
    }  # fmt: skip


@pytest.mark.parametrize("with_calls", [True, False])
def test_without_block_tables_there_is_no_section(builder, with_calls):
    if with_calls:
        builder.call("fsync", 0, 1000)
    page = trace_page(builder.write())
    assert "block-io" not in {section.key for section in page.sections}


def test_numbers_of_a_device():
    assert (numbers(LOOP), numbers(OTHER)) == ("7:1", "254:16")
