"""Block traces of real work: against the recorder's own requests, blkparse, and broken endings."""

import errno
import fcntl
import re
import subprocess
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path

import pyarrow.compute as pc
import pytest
from blkparse import blkparse_lines, events_as_lines
from recordings import in_processes

from spoolscope.tracers.blktrace import ftrace
from spoolscope.tracers.blktrace.capture import BLOCKS, FILES, block_tracing
from spoolscope.tracers.blktrace.disks import disks_of
from spoolscope.tracers.blktrace.ftrace import LEFTOVER, TRACEFS, tracing_by_ftrace
from spoolscope.tracers.blktrace.importer import import_blocks
from spoolscope.tracers.blktrace.records import read_events
from spoolscope.tracers.session import Request, record
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("alone")]

# Most pairs of probes of one event are closer; interrupts and the hypervisor delay others.
NEAR_NS = 20_000
FLUSH_NS = 4_000_000
# Deliveries by 4 processes, a file that is split and merged, reads past the cache, discards.
WORK = (
    r"""
import mmap, os, subprocess, sys
spool = sys.argv[1]
def deliver(who):
    for i in range(40):
        name = f"{spool}/{who}.{i}"
        fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(fd, b"x" * 512 * (1 + 7 * i))
        os.fsync(fd)
        os.close(fd)
        os.rename(name, name + ".new")
"""
    + in_processes(4)
    + r"""
with open(spool + "/large", "wb") as file:
    file.write(b"x" * (24 << 20))
    os.fsync(file.fileno())
fd = os.open(spool + "/large", os.O_RDONLY | os.O_DIRECT)
buffer = mmap.mmap(-1, 65536)
for i in range(100):
    os.preadv(fd, [buffer], 65536 * (i * 37 % 384))
os.close(fd)
os.unlink(spool + "/large")
subprocess.run(["sync", "-f", spool], check=True)
subprocess.run(["fstrim", spool])
subprocess.run(["sync", "-f", spool], check=True)
"""
)


@pytest.fixture
def alone(require):
    """Let one test run at a time on the machine: it has one ring buffer for block events."""
    if not list(Path("/sys/block").glob("*/trace/enable")):
        require("blk tracer", "this kernel has none (CONFIG_BLK_DEV_IO_TRACE)")
    with Path("/run/lock/spoolscope-test-blktrace").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = settings()
        yield
        after = settings()
        assert {file: after[file] for file in before} == before
        # Loop devices that were made during the test stay.
        assert {after[file] for file in after.keys() - before.keys()} <= {"0\n"}
        assert not LEFTOVER.exists()


def settings() -> dict[str, str]:
    """Return all settings that block tracing changes."""
    names = ["current_tracer", "trace_clock", "tracing_on", "buffer_size_kb"]
    files = [TRACEFS / name for name in (*names, "options/bin", "options/context-info")]
    size = TRACEFS / "buffer_size_kb"
    if "expanded" in size.read_text():  # not used since boot: the first use fixes its size
        size.write_text("1408")
    files += Path("/sys/block").glob("*/trace/enable")
    return {str(file): file.read_text() for file in files if file.exists()}


def work(tmp_path: Path, mount: Path) -> list[str]:
    script = tmp_path / "work.py"
    script.write_text(WORK)
    return [sys.executable, str(script), str(mount)]


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
def test_stages_agree_with_the_recorders_requests(fstype, slow_spool, tmp_path):
    """Two tracers with two mechanisms have the same requests, at the same times."""
    mount, disk = slow_spool(fstype)
    disk.delay("flush", FLUSH_NS)  # so that several are in flight at once
    summary = record(
        Request(
            spools=[mount],
            output=tmp_path / "trace",
            command=work(tmp_path, mount),
            keep_names=True,
            blktrace=True,
        )
    )
    trace = Trace.open(summary.trace)
    told = trace.meta["block_trace"]
    assert (told["lost"], told["foreign_bytes"]) == (0, 0)
    pairs, ours_alone, theirs_alone, edges = matched(trace)
    assert ours_alone == []
    assert len(theirs_alone) <= missed(trace), theirs_alone
    assert len(pairs) > 300 > 20 * edges
    apart = sorted(abs(b[stage] - s[stage]) for b, s in pairs for stage in ("issue", "done"))
    assert apart[len(apart) * 95 // 100] < NEAR_NS
    # Bios of several threads may share a request.
    alone = [(b, s) for b, s in pairs if s["bios"] + s["merged"] <= 1]
    assert [(b, s) for b, s in alone if b["bytes"] and b["tid"] != s["tid"]] == []
    # A block trace does not show which of several empty flushes in flight has completed.
    empty = [(b["tid"], s["tid"]) for b, s in alone if not b["bytes"]]
    assert Counter(b for b, _ in empty) == Counter(s for _, s in empty)
    for block, stages in pairs:
        assert asked_for(block) == stages["rwbs"].replace("A", ""), (block, stages)
        assert block["error"] == stages["error"]
    ordered = [
        "greatest(0, coalesce(g_ns, 0), coalesce(i_ns, 0)) <= d_ns",
        "d_ns <= c_ns",
        "c_ns <= coalesce(end_ns, c_ns)",
        "coalesce(u_ns, d_ns) <= d_ns",
    ]
    wrong = " OR ".join(f"NOT ({rule})" for rule in ordered)
    connection = trace.connect()
    assert connection.execute(f"SELECT * FROM block_stages WHERE {wrong}").fetchall() == []
    [(named,)] = connection.execute("SELECT count(comm) / count(*) FROM block_stages").fetchall()
    assert named > 0.9


def missed(trace: Trace) -> int:
    """Return how many missed completions the recorder itself reports.

    A BPF program does not run for every event: not while it already runs on the same CPU, and on
    some kernels not while certain threads run.
    """
    return trace.meta["requests_unfinished"] + trace.meta["requests_not_completed"]


def matched(trace: Trace):
    """Pair the completed requests of both tables by place, length and kind.

    The probe of the block trace was attached first, so it runs first: a record of the recorder
    belongs to the last event before it. Unpaired requests count between the first and the last
    call; the others are edges. A flush without data is never issued; the recorder then has the
    time of its completion.
    """
    calls = trace.table("syscalls", ["ts_ns", "dur_ns"])
    begin = pc.min(calls["ts_ns"]).as_py()
    end = pc.max(pc.add(calls["ts_ns"], calls["dur_ns"])).as_py()
    traced = set(trace.table("block_stages", ["dev"])["dev"].to_pylist())
    # The block trace covers the spool's own disk, not the disk below its loop device.
    ours = [row for row in trace.table("block_ios").to_pylist() if row["dev"] in traced]
    for row in ours:
        row["issue"] = row["ts_ns"] + row["queue_ns"]
        row["done"] = row["issue"] + row["device_ns"]
        row["sector"] = max(row["sector"], 0)  # -1 of a flush
    theirs = [r for r in trace.table("block_stages").to_pylist() if r["c_ns"] is not None]
    for row in theirs:
        row["done"] = row["ts_ns"] + row["c_ns"]
        row["issue"] = row["done"] if row["d_ns"] is None else row["ts_ns"] + row["d_ns"]
    events = defaultdict(list)
    for row in sorted(theirs, key=lambda r: r["done"]):
        events[place(row)].append(row)
    pairs, ours_alone = [], []
    for row in ours:
        there = events[place(row)]
        at = bisect_right(there, row["done"], key=lambda r: r["done"]) - 1
        if at < 0 or "taken" in there[at]:
            ours_alone.append(row)
        else:
            there[at]["taken"] = True
            pairs.append((row, there[at]))
    theirs_alone = [row for row in theirs if "taken" not in row]
    for row in [row for row in ours_alone if not row["bytes"]]:
        # The recorder missed its completion, and took the end of its flush sequence instead.
        request = [r for r in theirs_alone if r["end_ns"] and r["sector"] == row["sector"]]
        if len(request) == 1:
            ours_alone.remove(row)
            theirs_alone.remove(request[0])
    alone = [
        [row for row in rows if begin < row["issue"] and row["done"] < end]
        for rows in (ours_alone, theirs_alone)
    ]
    return pairs, *alone, len(ours_alone + theirs_alone) - sum(map(len, alone))


def place(row: dict) -> tuple:
    return row["dev"], row["sector"], row["bytes"], row["op"]


def asked_for(block: dict) -> str:
    """Return the operation in blkparse's letters, except read-ahead, which is not recorded."""
    if block["op"] == "flush":
        return "FN"
    kind = {"read": "R", "write": "W", "discard": "D", "zeroes": "W"}[block["op"]]
    return (
        "F" * block["preflush"] + kind + "F" * block["fua"] + "S" * block["sync"]
    ) + "M" * block["meta"]


def test_events_are_as_blkparse_reads_them(spool, tmp_path, require):
    require("blkparse")
    mount = spool("ext4")
    with block_tracing([mount], tmp_path):
        subprocess.run(work(tmp_path, mount), check=True)
    files = list((tmp_path / BLOCKS).glob(FILES))
    stream = b"".join(file.read_bytes() for file in files)
    events = read_events(files)
    assert len(events) > 3000
    assert sorted(events_as_lines(events)) == sorted(blkparse_lines("-i", "-", stream=stream))


def test_an_error_of_the_disk_is_told_by_both(tmp_path):
    """The injected fault is a loop device whose file cannot grow: its tmpfs is full."""
    small, mount = tmp_path / "small", tmp_path / "mount"
    small.mkdir()
    mount.mkdir()
    with ExitStack() as cleanup:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24M", "none", small], check=True)
        cleanup.callback(lambda: subprocess.run(["umount", "-l", small], check=True))
        image = small / "image"
        with image.open("wb") as file:
            file.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-qF", "-O", "^has_journal", image], check=True)
        subprocess.run(["mount", "-o", "loop,errors=continue", image, mount], check=True)
        cleanup.callback(lambda: subprocess.run(["umount", "-l", mount], check=True))
        fill = ["dd", "if=/dev/zero", f"of={mount}/f", "bs=1M", "count=40", "conv=fsync"]
        command = ["sh", "-c", f"{' '.join(fill)} 2>/dev/null || true"]
        request = Request(spools=[mount], output=tmp_path / "trace", command=command, blktrace=True)
        trace = Trace.open(record(request).trace)
    pairs, ours_alone, theirs_alone, _ = matched(trace)
    assert ours_alone == []
    assert len(theirs_alone) <= missed(trace)
    failed = [block["error"] for block, stages in pairs if block["error"] or stages["error"]]
    assert set(failed) == {-errno.ENOSPC}
    assert all(block["error"] == stages["error"] for block, stages in pairs)


# It traces until it is killed, which leaves the settings changed.
HOLDER = """
import sys, time
from pathlib import Path
from spoolscope.tracers.blktrace.ftrace import tracing_by_ftrace
with tracing_by_ftrace([sys.argv[1]], Path(sys.argv[2]) / "events"):
    print("tracing", flush=True)
    time.sleep(60)
"""


def disk_of(mount: Path) -> str:
    command = ["findmnt", "-no", "SOURCE", mount]
    source = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return source.strip().removeprefix("/dev/")


def test_what_a_killed_use_has_changed_the_next_one_puts_back(spool, tmp_path):
    """The injected fault is kill -9; settings() is read before it and after the next use."""
    mount = spool("ext4")
    before = settings()
    command = [sys.executable, "-c", HOLDER, disk_of(mount), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"tracing\n"
        with pytest.raises(SpoolscopeError, match="another spoolscope traces"):
            trace_shortly(mount, tmp_path / "refused")
        holder.kill()
    assert settings() != before
    assert LEFTOVER.exists()
    trace_shortly(mount, tmp_path / "next")
    assert settings() == before


def trace_shortly(mount: Path, output: Path) -> None:
    output.mkdir()
    with tracing_by_ftrace([disk_of(mount)], output / "events"):
        (mount / "f").write_bytes(b"x")
        subprocess.run(["sync", "-f", mount], check=True)


def test_a_use_of_ftrace_by_others_is_refused_and_left_alone(spool, tmp_path):
    mount = spool("ext4")
    event = TRACEFS / "events/sched/sched_process_exit/enable"
    event.write_text("1")
    try:
        before = settings()
        with pytest.raises(SpoolscopeError, match=r"somebody uses ftrace.*sched_process_exit"):
            trace_shortly(mount, tmp_path / "refused")
        assert settings() == before
        assert event.read_text() == "1\n"
    finally:
        event.write_text("0")


def test_losses_of_the_buffer_are_told(spool, tmp_path, monkeypatch):
    """The injected fault is a small buffer that is not emptied during the work."""
    mount = spool("ext4")
    monkeypatch.setattr(ftrace, "_BUFFER_KIB", "64")
    monkeypatch.setattr(ftrace, "_DRAIN_S", 600.0)
    with tracing_by_ftrace([disk_of(mount)], tmp_path / "events") as lost:
        subprocess.run(work(tmp_path, mount), check=True)
        held = [file.read_text() for file in TRACEFS.glob("per_cpu/cpu*/stats")]
    events = read_events([tmp_path / "events"])
    overrun = sum(int(n) for text in held for n in re.findall(r"^overrun: (\d+)", text, re.M))
    assert lost() >= overrun > 0
    assert events.lost > 0  # the stream has the losses, too
    assert len(events) > 100


def test_sigterm_ends_a_recording_in_order(spool, tmp_path, when_ready):
    mount = spool("ext4")
    output = tmp_path / "trace"
    command = [
        *(sys.executable, "-c", "from spoolscope.cli.main import main; main()"),
        *("record", "--spool", str(mount), "-o", str(output), "--blktrace", "--keep-names"),
    ]
    with subprocess.Popen(command) as process:

        def act() -> None:
            (mount / "f").write_bytes(b"x")
            subprocess.run(["sync", "-f", mount], check=True)
            process.terminate()

        when_ready(output, act)
    assert process.returncode == 0
    trace = Trace.open(output)
    assert trace.meta["counts"]["block_stages"] > 0
    assert trace.meta["block_trace"]["lost"] == 0


def test_ftraces_own_text_is_imported_with_all_requests_that_the_disk_counted(spool, tmp_path):
    """The second source is the disk's own counters, /sys/block/DISK/stat."""
    mount = spool("ext4")
    (disk,) = disks_of([mount])
    text, enable = tmp_path / "text", Path(f"/sys/block/{disk}/trace/enable")
    subprocess.run(["sync", "-f", mount], check=True)
    with ftrace._mounted():
        (TRACEFS / "trace").write_text("")
        (TRACEFS / "current_tracer").write_text("blk")
        enable.write_text("1")
        try:
            before = counted(disk)
            subprocess.run(work(tmp_path, mount), check=True)
            after = counted(disk)
            enable.write_text("0")
            text.write_bytes((TRACEFS / "trace").read_bytes())
        finally:
            enable.write_text("0")
            (TRACEFS / "current_tracer").write_text("nop")
            (TRACEFS / "trace").write_text("")
    meta = import_blocks([text], "ftrace", tmp_path / "t", None, lambda _what, _share: None)
    assert meta["imported"]["not_understood"] == meta["lost"] == 0
    rows = Trace.open(tmp_path / "t").table("block_ios").to_pylist()
    for op in ("read", "write", "discard"):
        found = [row["bytes"] for row in rows if row["op"] == op]
        assert sum(found) == 512 * (after[op, "sectors"] - before[op, "sectors"]), op
    # The trace has a flush of a thread as an empty write; the disk does one flush for several.
    reads = sum(row["op"] == "read" for row in rows)
    assert reads == after["read", "requests"] - before["read", "requests"]


def counted(disk: str) -> dict[tuple[str, str], int]:
    """Return the disk's counts of requests and sectors (Documentation/block/stat.rst)."""
    fields = list(map(int, Path(f"/sys/block/{disk}/stat").read_text().split()))
    places = {"read": 0, "write": 4, "discard": 11}
    return {
        (op, what): fields[at + more]
        for op, at in places.items()
        for what, more in (("requests", 0), ("sectors", 2))
    }
