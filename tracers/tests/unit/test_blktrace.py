"""Events of a block trace -> requests: rule by rule, and against blkparse on a real trace.

``blktrace/fx.blktrace.*`` were written by blktrace 1.2.0 on a Debian 6.1 kernel, for a disk with
ext4 on its first partition: writes with fsync, direct writes, sync, fstrim, reads, a large write.
"""

import re
import struct
import subprocess
from pathlib import Path

import pytest
from blkparse import blkparse_lines, events_as_lines

from spoolscope.tracers.blktrace import records as r
from spoolscope.tracers.blktrace.columns import stage_columns
from spoolscope.tracers.blktrace.records import HEADER, MAGIC, process_note, read_events
from spoolscope.tracers.blktrace.stages import NEVER, Request, join
from spoolscope.traces.comms import Comms
from spoolscope.traces.errors import SpoolscopeError

REAL = Path(__file__).with_name("blktrace")
DISK = 7 << 20
KINDS = {
    "": 0,
    "R": r.READ,
    "W": r.WRITE,
    "WS": r.WRITE | r.SYNC,
    "FWFS": r.FLUSH | r.WRITE | r.FUA | r.SYNC,
    "FWS": r.FLUSH | r.WRITE | r.SYNC,
    "FN": r.FLUSH | r.READ,
}
ACTIONS = {
    "Q": r.QUEUE, "G": r.GETRQ, "M": r.BACKMERGE, "F": r.FRONTMERGE, "I": r.INSERT, "D": r.ISSUE,
    "C": r.COMPLETE, "R": r.REQUEUE, "P": r.PLUG, "U": r.UNPLUG_IO, "X": r.SPLIT, "A": r.REMAP,
}  # fmt: skip


def packed(time, action, kind="", sector=0, sectors=0, tid=1, error=0, extra=b"", dev=DISK):
    word = KINDS[kind] << 16 | ACTIONS[action]
    head = (MAGIC, 0, time, sector, sectors * 512, word, tid, dev, 0, error, len(extra))
    return HEADER.pack(*head) + extra


def requests(tmp_path: Path, *lines) -> list[Request]:
    file = tmp_path / "x.blktrace.0"
    file.write_bytes(b"".join(packed(time, *line) for time, line in enumerate(lines, 1)))
    found: list[Request] = []
    join(read_events([file]), found.append)
    return sorted(found, key=lambda request: (request.begin, request.sector))


def stages(request: Request) -> tuple[int, ...]:
    times = (request.queue, request.getrq, request.insert, request.issue, request.complete)
    return tuple(0 if time == NEVER else time for time in times)


def place(request: Request) -> tuple[int, int]:
    return request.sector, request.length // 512


def test_one_request_through_all_stages(tmp_path: Path) -> None:
    [request] = requests(
        tmp_path,
        ("Q", "W", 100, 8), ("G", "W", 100, 8), ("P",), ("U",), ("I", "W", 100, 8),
        ("D", "W", 100, 8, 2), ("C", "W", 100, 8, 0, -5),
    )  # fmt: skip
    assert stages(request) == (1, 2, 5, 6, 7)
    assert (request.unplug, request.tid, request.error) == (4, 1, -5)


def test_an_unplug_is_of_the_requests_of_its_plug_only(tmp_path: Path) -> None:
    first, second, other = requests(
        tmp_path,
        ("Q", "W", 100, 8), ("G", "W", 100, 8), ("P",),
        ("Q", "W", 300, 8), ("G", "W", 300, 8),
        ("Q", "W", 500, 8, 2), ("G", "W", 500, 8, 2),
        ("D", "W", 100, 8), ("U",),
    )  # fmt: skip
    assert [q.unplug for q in (first, second, other)] == [NEVER, 9, NEVER]


def test_bios_merge_behind_and_before(tmp_path: Path) -> None:
    [request] = requests(
        tmp_path,
        ("Q", "W", 100, 8), ("G", "W", 100, 8),
        ("Q", "W", 108, 8), ("M", "W", 108, 8),
        ("Q", "W", 92, 8), ("F", "W", 92, 8),
        ("D", "W", 92, 24), ("C", "W", 92, 24),
    )  # fmt: skip
    assert place(request) == (92, 24)
    assert (request.bios, request.merged) == (3, 2)
    assert stages(request) == (1, 2, 0, 7, 8)


def test_a_request_merged_into_another_is_one_no_more(tmp_path: Path) -> None:
    [request] = requests(
        tmp_path,
        ("Q", "W", 108, 8), ("G", "W", 108, 8),
        ("Q", "W", 92, 8), ("G", "W", 92, 8),
        ("Q", "W", 100, 8), ("M", "W", 100, 8), ("M", "W", 108, 8),
        ("D", "W", 92, 24), ("C", "W", 92, 24),
    )  # fmt: skip
    assert place(request) == (92, 24)
    assert (request.bios, request.merged) == (3, 2)
    assert stages(request) == (1, 2, 0, 8, 9)


def test_a_merge_goes_to_the_request_that_is_not_issued(tmp_path: Path) -> None:
    issued, waiting = requests(
        tmp_path,
        ("Q", "W", 100, 8), ("G", "W", 100, 8), ("D", "W", 100, 8),
        ("Q", "W", 102, 6), ("G", "W", 102, 6),
        ("Q", "W", 108, 8), ("M", "W", 108, 8),
        ("D", "W", 102, 14), ("C", "W", 100, 8), ("C", "W", 102, 14),
    )  # fmt: skip
    assert (place(issued), stages(issued)[4]) == ((100, 8), 9)
    assert (place(waiting), stages(waiting)[4]) == ((102, 14), 10)


def test_the_parts_of_a_split_bio_share_its_queueing(tmp_path: Path) -> None:
    first, second = requests(
        tmp_path,
        ("A", "W", 100, 12, 1, 0, struct.pack(">IIQ", DISK + 1, DISK, 50)),
        ("Q", "W", 100, 12),
        ("X", "W", 100, 8, 1, 0, struct.pack(">Q", 108)), ("G", "W", 100, 8), ("G", "W", 108, 4),
        ("D", "W", 100, 8), ("D", "W", 108, 4), ("C", "W", 108, 4), ("C", "W", 100, 8),
    )  # fmt: skip
    assert (stages(first), stages(second)) == ((2, 4, 0, 6, 9), (2, 5, 0, 7, 8))
    assert (first.from_dev, first.from_sector, second.from_sector) == (DISK + 1, 50, 58)


def test_two_threads_on_one_sector_keep_their_own(tmp_path: Path) -> None:
    one, two = requests(
        tmp_path,
        ("Q", "R", 100, 8, 1), ("Q", "R", 100, 8, 2), ("G", "R", 100, 8, 2), ("G", "R", 100, 8, 1),
    )  # fmt: skip
    assert [(q.tid, q.queue, q.getrq) for q in (one, two)] == [(1, 1, 4), (2, 2, 3)]


def test_requeued_and_completed_in_parts(tmp_path: Path) -> None:
    [request] = requests(
        tmp_path,
        ("Q", "W", 100, 8), ("G", "W", 100, 8), ("D", "W", 100, 8), ("R", "W", 100, 8),
        ("D", "W", 100, 8), ("C", "W", 100, 2), ("C", "W", 102, 6),
    )  # fmt: skip
    assert (stages(request), request.requeued, place(request)) == ((1, 2, 0, 5, 7), 1, (100, 8))


def test_a_write_between_two_flushes_has_a_second_end(tmp_path: Path) -> None:
    write, before, after = requests(
        tmp_path,
        ("Q", "FWFS", 100, 2), ("G", "FWFS", 100, 2),
        ("D", "FN"), ("C", "FN"),
        ("I", "WS", 100, 2), ("D", "WS", 100, 2), ("C", "WS", 100, 2),
        ("D", "FN"), ("C", "FN"), ("C", "WS", 100, 0),
    )  # fmt: skip
    assert (stages(write), write.end, write.letters) == ((1, 2, 5, 6, 7), 10, "FWFS")
    assert [(q.issue, q.complete) for q in (before, after)] == [(3, 4), (8, 9)]


def test_flushes_without_data_end_in_order_and_are_never_issued(tmp_path: Path) -> None:
    first, second, own = requests(
        tmp_path,
        ("Q", "FWS", 0, 0, 1), ("G", "FWS", 0, 0, 1), ("Q", "FWS", 0, 0, 2), ("G", "FWS", 0, 0, 2),
        ("D", "FN"), ("C", "FN"), ("C", "WS"), ("C", "WS"),
    )  # fmt: skip
    assert [stages(q) for q in (first, second)] == [(1, 2, 0, 0, 7), (3, 4, 0, 0, 8)]
    assert stages(own) == (0, 0, 0, 5, 6)


def test_a_bio_without_a_request_completes(tmp_path: Path) -> None:
    [bio] = requests(tmp_path, ("Q", "W", 100, 8), ("C", "W", 100, 8))
    assert stages(bio) == (1, 0, 0, 0, 2)


def test_what_began_before_or_goes_on_afterwards_is_kept(tmp_path: Path) -> None:
    early, issued, late, waiting = requests(
        tmp_path,
        ("C", "W", 900, 8), ("D", "W", 100, 8), ("C", "W", 100, 8),
        ("Q", "W", 300, 8), ("G", "W", 300, 8), ("Q", "W", 500, 8),
    )  # fmt: skip
    assert stages(early) == (0, 0, 0, 0, 1)
    assert stages(issued) == (0, 0, 0, 2, 3)
    assert stages(late) == (4, 5, 0, 0, 0)
    assert stages(waiting) == (6, 0, 0, 0, 0)


def test_columns_are_relative_and_within_the_window(tmp_path: Path) -> None:
    file = tmp_path / "x.blktrace.0"
    lines = [
        (10, "Q", "W", 100, 8), (11, "C", "W", 100, 8),
        (20, "Q", "R", 200, 8, 5), (22, "G", "R", 200, 8, 5), (25, "D", "R", 200, 8),
        (31, "C", "R", 200, 8), (50, "Q", "W", 300, 8),
    ]  # fmt: skip
    file.write_bytes(b"".join(packed(*line) for line in lines) + process_note(5, b"imap", 60, DISK))
    columns = stage_columns(read_events([file]), 1000, Comms(None), (12, 40))
    row = {name: values.tolist() for name, values in columns.items()}
    assert row["ts_ns"] == [1020]
    assert [row[name] for name in ("g_ns", "i_ns", "d_ns", "c_ns", "end_ns")] == [
        [2], [None], [5], [11], [None],
    ]  # fmt: skip
    assert (row["op"], row["rwbs"], row["bytes"], row["comm"]) == (
        ["read"],
        ["R"],
        [4096],
        ["imap"],
    )


def test_losses_and_foreign_text_between_events_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "x"
    text = b"CPU:1 [LOST 7 EVENTS]\n"
    whole = packed(1, "Q", "W", 100, 8) + text + packed(2, "G", "W", 100, 8)
    file.write_bytes(whole + packed(3, "D", "W", 100, 8)[:30])
    events = read_events([file])
    assert (len(events), events.lost, events.foreign_bytes) == (2, 7, len(text) + 30)


@pytest.mark.parametrize("magic", [struct.pack("<I", MAGIC + 1), struct.pack(">I", MAGIC)])
def test_another_version_or_byte_order_is_refused(tmp_path: Path, magic: bytes) -> None:
    file = tmp_path / "x"
    file.write_bytes(magic + packed(1, "Q", "W", 100, 8)[4:])
    with pytest.raises(SpoolscopeError, match="another version or byte order"):
        read_events([file])


def test_every_event_is_as_blkparse_reads_it(require) -> None:
    require("blkparse")
    events = read_events(sorted(REAL.glob("fx.blktrace.*")))
    assert events_as_lines(events) == blkparse_lines("-D", str(REAL), "-i", "fx")


def test_requests_of_a_real_trace_add_up_to_blkparses_sums(require) -> None:
    """blkparse has other rules: it counts every C of a byte or more, and every queued KiB."""
    require("blkparse")
    found: list[Request] = []
    join(read_events(sorted(REAL.glob("fx.blktrace.*"))), found.append)
    said = subprocess.run(
        ["blkparse", "-D", REAL, "-i", "fx"], check=True, capture_output=True, text=True
    ).stdout.split("Total (fx):")[1]
    total = {name.strip(): kib for name, kib in _totals(said)}
    written = [q for q in found if q.category & r.WRITE]
    assert (
        sum(q.length for q in written if q.complete != NEVER) // 1024 == total["Writes Completed"]
    )
    assert sum(q.length for q in written if q.issue != NEVER) // 1024 == total["Write Dispatches"]
    assert sum(q.length for q in found if not q.category & r.WRITE) // 1024 == total["Reads Queued"]
    assert all(q.complete != NEVER for q in found)
    assert all(list(filter(None, stages(q))) == sorted(filter(None, stages(q))) for q in found)


def _totals(said: str):
    for name, kib in re.findall(r"([A-Z][\w ]+):\s+\d+,\s+(\d+)KiB", said):
        yield name, int(kib)
