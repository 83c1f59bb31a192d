"""Import of block traces: blktrace's files, blkparse's text, ftrace's text."""

import re
import struct
import subprocess
from pathlib import Path

import pytest

from spoolscope.tracers.blktrace.importer import import_blocks
from spoolscope.tracers.blktrace.records import HEADER, read_events
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.private import Hiding
from spoolscope.traces.trace import Trace

REAL = sorted(Path(__file__).with_name("blktrace").glob("fx.blktrace.*"))
STEM = REAL[0].with_suffix("").with_suffix("")

# Output of a 6.18 kernel: the tracer blk, and the tracepoints.
BLK = """\
# tracer: blk
#
              dd-20522   [001] d..1. 46669.533088:   7,0    Q  WS 0 + 128 [dd]
              dd-20522   [001] d..1. 46669.533092:   7,0    G  WS 0 + 128 [dd]
              dd-20522   [001] d..1. 46669.533093:   7,0    P   N [dd]
              dd-20522   [001] d..1. 46669.533094:   7,0    U   N [dd] 1
              dd-20522   [001] d..1. 46669.533096:   7,0    D  WS 0 + 128 [dd]
     ksoftirqd/1-22      [001] d.s1. 46669.533155:   7,0    C  WS 0 + 128 [0]
          <idle>-0       [000] d.s1. 46669.534000:   7,0    m   N hello
    kworker/1:1H-88      [001] ..... 46669.540000:   7,0    D  FN [kworker/1:1H]
    kworker/1:1H-88      [001] ..... 46669.541000:   7,0    C  FN 0 [0]
 jbd2/loop0-8-91         [001] ..... 46669.550000:   7,0    D FWFSM 16 + 8 [jbd2/loop0-8]
    ksoftirqd/1-22       [001] ..... 46669.551000:   7,0    C FWFSM 16 + 8 [-5]
"""
POINTS = """\
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
              dd-42      [001] ..... 46669.664858: block_bio_queue: 254,0 RA 800 + 48 [dd]
              dd-42      [001] ..... 46669.664861: block_getrq: 254,0 RA 800 + 48 [dd]
              dd-42      [001] ...1. 46669.664862: block_rq_insert: 254,0 RA 24576 () 800 + 48 be,0,4 [dd]
              dd-42      [001] ..... 46669.664865: block_rq_issue: 254,0 RA 24576 () 800 + 48 be,0,4 [dd]
              dd-42      (     40) [001] d..2. 46669.664866: sched_switch: prev_comm=dd
          <idle>-0       [000] d.s1. 46669.665865: block_rq_complete: 254,0 RA () 800 + 48 be,0,4 [0]
"""  # noqa: E501
FLUSH = """\
    kworker/1:1H-88      [001] ..... 46669.540000: block_rq_issue: 8,0 FF 0 () 0 + 0 none,0,0 [kworker/1:1H]
          <idle>-0       [001] d.h1. 46669.541000: block_rq_complete: 8,0 FF () 18446744073709551615 + 0 none,0,0 [0]
"""  # noqa: E501


def imported(tmp_path, form, *files, hiding=None):
    output = tmp_path / f"{form}.trace"
    import_blocks(files, form, output, hiding, lambda _what, _share: None)
    return Trace.open(output)


def written(tmp_path, text):
    file = tmp_path / "text"
    file.write_text(text)
    return file


@pytest.fixture
def blkparse(require):
    """Return blkparse's output for the real files, with its sums at the end."""
    require("blkparse")
    return subprocess.run(
        ["blkparse", "-i", STEM], capture_output=True, text=True, check=True
    ).stdout


def test_blktrace_files_agree_with_the_sums_of_blkparse(tmp_path, blkparse):
    trace = imported(tmp_path, "blktrace", *REAL)
    rows = trace.table("block_stages").to_pylist()
    told = blkparse[blkparse.index("Total (") :] if "Total (" in blkparse else blkparse
    reads, writes = (
        int(re.search(rf"{kind} Completed: *([\d,]+)", told)[1].replace(",", ""))
        for kind in ("Reads", "Writes")
    )
    done = [row for row in rows if row["c_ns"] is not None]
    # blkparse counts the driver's own flushes as reads, as they write nothing.
    assert sum(row["op"] in ("read", "flush") for row in done) == reads
    # blkparse counts discards as writes, and the second completion of a flush sequence.
    ours = [row for row in done if row["op"] in ("write", "discard")]
    assert len(ours) + sum(row["end_ns"] is not None for row in ours) == writes
    assert trace.meta["complete"]
    assert trace.meta["imported"]["events"] == len(read_events(REAL))
    assert not trace.table("syscalls").num_rows


def test_the_text_of_blkparse_gives_the_same_requests(tmp_path, blkparse):
    ours = imported(tmp_path, "blktrace", *REAL)
    theirs = imported(tmp_path, "blkparse", written(tmp_path, blkparse))
    for table in ("block_stages", "block_ios"):
        both = [trace.table(table) for trace in (ours, theirs)]
        starts = [table["ts_ns"].to_numpy() for table in both]
        assert (starts[0] - starts[0][0] == starts[1] - starts[1][0]).all()
        columns = [name for name in both[0].column_names if name not in ("ts_ns", "comm")]
        assert both[0].select(columns).equals(both[1].select(columns))
    facts = theirs.meta["imported"]
    assert (facts["not_understood"], facts["lost"], facts["times"]) == (0, 0, "relative")


def test_requests_of_block_ios_are_those_of_the_stages(tmp_path):
    trace = imported(tmp_path, "blktrace", *REAL)
    stages = {(r["sector"], r["ts_ns"] + (r["d_ns"] or 0)): r
              for r in trace.table("block_stages").to_pylist()}  # fmt: skip
    rows = trace.table("block_ios").to_pylist()
    assert rows == sorted(rows, key=lambda row: row["ts_ns"])
    for row in rows:
        stage = stages[row["sector"], row["ts_ns"] + row["queue_ns"]]
        assert row["device_ns"] == stage["c_ns"] - stage["d_ns"] >= 0
        assert row["queue_ns"] >= 0
        assert row["sync"] == ("S" in stage["rwbs"])
        assert row["preflush"] == (stage["rwbs"].startswith("F") and row["op"] != "flush")


def test_times_of_day_are_those_that_blktrace_wrote_down(tmp_path):
    trace = imported(tmp_path, "blktrace", *REAL)
    data = b"".join(file.read_bytes() for file in REAL)
    at = next(
        at for at in range(0, len(data), 4)
        if data[at : at + 4] == struct.pack("<I", 0x65617407)
        and HEADER.unpack_from(data, at)[5] & 0xFFFFFFFF == (1 << 26) | 1
    )  # fmt: skip
    seconds, _ = struct.unpack_from("<II", data, at + HEADER.size)
    assert abs(trace.meta["start_ns"] // 10**9 - seconds) <= 10


def test_text_of_the_blk_tracer(tmp_path):
    trace = imported(tmp_path, "ftrace", written(tmp_path, BLK))
    first, flush, last = trace.table("block_stages").to_pylist()
    assert [first[name] for name in ("g_ns", "d_ns", "c_ns", "bytes", "comm", "tid")] == [
        4_000, 8_000, 67_000, 65_536, "dd", 20522,
    ]  # fmt: skip
    assert (flush["op"], flush["c_ns"], last["error"]) == ("flush", 1_000_000, -5)
    commit = trace.table("block_ios").to_pylist()[-1]
    assert [commit[name] for name in ("preflush", "fua", "sync", "meta")] == [True] * 4
    facts = trace.meta["imported"]
    assert (facts["not_understood"], facts["other_lines"], facts["events"]) == (0, 1, 10)


def test_text_of_the_blk_tracer_in_its_classic_form(tmp_path):
    text = """\
# tracer: blk
#
  7,1    1 80527.778970732  3117  Q  WS 18434 + 1024 [dd]
  7,1    1 80527.778971732  3117  G  WS 18434 + 1024 [dd]
  7,1    1 80527.778972732  3117  D  WS 18434 + 1024 [dd]
  7,1    1 80527.779970732    22  C  WS 18434 + 1024 [0]
"""
    trace = imported(tmp_path, "ftrace", written(tmp_path, text))
    (row,) = trace.table("block_stages").to_pylist()
    assert (row["dev"], row["sector"], row["bytes"], row["comm"]) == (
        7 << 20 | 1,
        18434,
        524288,
        "dd",
    )
    assert (row["tid"], row["d_ns"], row["c_ns"]) == (3117, 2_000, 1_000_000)
    assert trace.meta["complete"]
    with pytest.raises(SpoolscopeError, match="is text of ftrace"):
        imported(tmp_path, "blkparse", written(tmp_path, text))


def test_a_request_has_the_name_that_its_thread_had_then(tmp_path):
    text = "".join(
        f"  8,0 1 {2 * at} 0.00000{at}000 7 Q R {8 * at} + 8 [{name}]\n"
        f"  8,0 1 {2 * at + 1} 0.00000{at}500 7 C R {8 * at} + 8 [0]\n"
        for at, name in enumerate(["sh", "sh", "sh", "dd", "dd", "dd", "sh"], 1)
    )
    trace = imported(tmp_path, "blkparse", written(tmp_path, text))
    rows = trace.table("block_stages").to_pylist()
    names = [row["comm"] for row in sorted(rows, key=lambda row: row["ts_ns"])]
    assert names == ["sh", "sh", "sh", "dd", "dd", "dd", "sh"]


@pytest.mark.parametrize(
    ("text", "form"),
    [(BLK, "ftrace"), ("  8,0 1 1 0.000001000 7 Q R 8 + 8 [dd]\n", "blkparse")],
)
def test_text_among_files_of_blktrace_is_refused_with_what_it_is(tmp_path, text, form):
    with pytest.raises(SpoolscopeError, match=f"is text of {form}") as refused:
        imported(tmp_path, "blktrace", written(tmp_path, text))
    assert f"spoolscope import {form}" in refused.value.remedy


def test_text_of_tracepoints_leaves_other_events_out(tmp_path):
    trace = imported(tmp_path, "ftrace", written(tmp_path, POINTS))
    (row,) = trace.table("block_ios").to_pylist()
    assert [row[name] for name in ("op", "bytes", "queue_ns", "device_ns")] == [
        "read", 24_576, 3_000, 1_000_000,
    ]  # fmt: skip
    assert trace.meta["imported"]["other_lines"] == 1


def test_a_flush_whose_end_names_no_sector(tmp_path):
    trace = imported(tmp_path, "ftrace", written(tmp_path, FLUSH))
    (row,) = trace.table("block_ios").to_pylist()
    assert [row[name] for name in ("op", "sector", "bytes", "device_ns")] == [
        "flush", 0, 0, 1_000_000,
    ]  # fmt: skip
    assert trace.meta["imported"]["not_understood"] == 0


def test_a_request_with_data_but_without_a_sector_is_not_understood(tmp_path):
    text = FLUSH + FLUSH.splitlines()[1].replace("+ 0", "+ 8") + "\n"
    trace = imported(tmp_path, "ftrace", written(tmp_path, text))
    assert trace.meta["imported"]["not_understood"] == 1


def test_lines_that_are_nothing_are_counted(tmp_path):
    text = BLK + "CPU:1 [LOST 12 EVENTS]\nrubbish\n" + BLK.splitlines()[2][:70] + "\n"
    text += BLK.splitlines()[2].replace("0 + 128", f"{1 << 70} + 128") + "\n"
    text += BLK.splitlines()[2].replace("7,0", "7000000,0") + "\n"
    trace = imported(tmp_path, "ftrace", written(tmp_path, text))
    facts = trace.meta["imported"]
    assert (facts["not_understood"], facts["lost"]) == (4, 12)
    assert not trace.meta["complete"]
    assert trace.meta["lost"] == 12


def test_a_file_that_ends_in_the_middle_of_an_event(tmp_path):
    cut = tmp_path / "cut.blktrace.0"
    cut.write_bytes(REAL[0].read_bytes()[:-20])
    whole = imported(tmp_path, "blktrace", REAL[0]).meta
    (tmp_path / "blktrace.trace").rename(tmp_path / "whole")
    meta = imported(tmp_path, "blktrace", cut).meta
    assert meta["imported"]["events"] == whole["imported"]["events"] - 1
    assert 0 < meta["bytes_unread"] < HEADER.size
    assert (whole["complete"], meta["complete"]) == (True, False)


def test_events_that_are_missing_in_the_middle_are_counted(tmp_path):
    data = REAL[0].read_bytes()
    events = []
    at = 0
    while at < len(data):
        size = HEADER.size + HEADER.unpack_from(data, at)[10]
        events.append(data[at : at + size])
        at += size
    holed = tmp_path / "x.blktrace.0"
    holed.write_bytes(b"".join(events[:100] + events[103:]))
    meta = imported(tmp_path, "blktrace", holed).meta
    assert (meta["lost"], meta["complete"]) == (3, False)


DAMAGED = HEADER.pack(0x65617407, 1, 5, (1 << 64) - 1, 512, 1 << 16 | 7, 1, 7 << 20, 0, 0, 0)


@pytest.mark.parametrize(
    ("form", "content", "says"),
    [
        ("blktrace", DAMAGED, "numbers that no disk has"),
        ("blktrace", b"rubbish" * 100, "no block event"),
        ("blktrace", b"", "no block event"),
        ("blktrace", struct.pack(">I", 0x65617407) * 20, "byte order"),
        ("blkparse", b"rubbish\n", "no block event"),
        ("blkparse", BLK.encode(), "use 'spoolscope import ftrace'"),
        ("ftrace", struct.pack("<I", 0x65617407) * 20, "use 'spoolscope import blktrace'"),
        ("ftrace", b"\xff\xfe\0\n", "no block event"),
    ],
)
def test_what_is_none_is_refused_and_leaves_nothing(tmp_path, form, content, says):
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(SpoolscopeError) as caught:
        imported(tmp_path, form, file)
    assert says in f"{caught.value.message}; {caught.value.remedy}"
    assert list(tmp_path.iterdir()) == [file]


def test_names_of_programs_can_be_hidden(tmp_path):
    file = written(tmp_path, BLK)
    trace = imported(tmp_path, "ftrace", file, hiding=Hiding(b"k" * 32, programs=True))
    comms = set(trace.table("block_stages")["comm"].to_pylist())
    assert all(comm.startswith(("+", "kworker", "jbd2")) for comm in comms)
    assert trace.meta["pseudonymised"]
