"""One trace with all kinds of rows, and a browser for reports."""

import os
import shutil
from pathlib import Path

import pytest

from spoolscope.traces.schema import TABLES

DRIVER = Path("/usr/bin/chromedriver")
MS = 1_000_000
NOW = 1_700_000_000_000_000_000 + 5 * MS
WAIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
XFS_WAIT = "schedule < xlog_wait_on_iclog < xfs_log_force_seq < xfs_file_fsync"
NOBODY_KNOWS = "schedule < something_new < ext4_file_write_iter"
IN_FLIGHT = 1 << 3
EXT4, XFS, BTRFS = 1, 2, 3
SPOOLS = [
    {"mount": f"/srv/mail{dev}", "fstype": fstype, "options": "rw", "source": f"/dev/loop{dev}",
     "dev": dev, "size_bytes": 1 << 30, "features": None}
    for dev, fstype in ((EXT4, "ext4"), (XFS, "xfs"), (BTRFS, "btrfs"))
]  # fmt: skip
ESCAPE = "a\x1b]0;title\x07\nb"
# Calls that no replay makes, or with threads, results or names that it cannot have.
ODD = {"ioctl": {"cmd": 0x1234}, "bind": {"errno": 22, "ret": -1}, "a_call_of_tomorrow": {}}


@pytest.fixture(scope="session")
def ibis(require) -> None:
    """Require the library in which the questions to a fleet are written."""
    try:
        import ibis  # noqa: F401
    except ImportError:
        require("ibis", "no ibis: pip install -e .[fleet]")


@pytest.fixture
def kitchen_sink(builder) -> Path:
    """Return a trace with every table filled and every number in its meta above zero."""
    b = builder
    paths = {name: b.path_id(name) for name in ("box", "box/new", "box/new/1", ESCAPE, "é\ud7ff")}
    for number, name in enumerate(("outside", "key", "value")):
        b.add("paths", path_id=100 + number, path=name,
               kind=("outside", "text", "text")[number], spool=None)  # fmt: skip
    for at, name in enumerate(("x", "y")):
        b.add("paths", path_id=200 + at, path=name, kind="spool", spool=1 + at)
    for tid, comm in ((100, "lmtp"), (101, ESCAPE), (102, "imap")):
        b.add("threads", tid=tid, pid=tid, comm=comm, kind="task", uid=5, gid=5, umask=0o22,
               cgroup="/mail", cgroup_id=9, exe="/usr/bin/lmtp", exe_ino=4, n_calls=40)  # fmt: skip
    b.add("threads", tid=7, pid=7, comm="jbd2/loop0-8", kind="kernel")
    b.add("task_events", ts_ns=NOW, pid=102, tid=102, event="fork", parent_tid=100, comm="")
    common = {"dev": EXT4, "ino": 8, "obj_mode": 0o100600, "obj_size": 10, "path_base": 1}
    for n in range(20):
        at = n * 20 * MS
        tid = 100 + n % 3
        b.call("openat", at, path="box/new/1", tid=tid, ret=3, flags=0o102, **common)
        b.call("write", at + MS, tid=tid, fd=3, ret=10, size=10, offset=0, **common)
        b.call("fsync", at + 2 * MS, 1000, ((WAIT, MS), (NOBODY_KNOWS, MS)), tid=tid, fd=3,
               runq_ns=500, preempted_ns=500, **common)  # fmt: skip
        b.call("close", at + 7 * MS, tid=tid, fd=3, **common)
    b.call("fsync", 411 * MS, 1000, ((XFS_WAIT, MS),), fd=9, dev=XFS, ino=8, path_id=200)
    b.call("stat", 412 * MS, path=ESCAPE, tid=101, errno=2, ret=-1, path_base=1)
    b.call("stat", 413 * MS, path="é\ud7ff", tid=102, errno=2, ret=-1, path_base=1)
    b.call("rename", 414 * MS, path="box/new/1", path2_id=101, path_base=1, path2_base=1)
    for name, columns in ODD.items():
        b.call(name, 415 * MS, path="box", **({"ret": 0} | columns))
    b.call("fcntl", 420 * MS, 1000, path="box/new/1", cmd=7, lock_type=1, flags_seen=IN_FLIGHT)
    b.call("unlink", 421 * MS, path="box/gone", tid=999, comm="stranger", path_base=1)
    b.commit(2 * MS, MS, dev=EXT4, trigger="call", trigger_pid=100, trigger_tid=100, trigger_seq=2,
             trigger_comm="lmtp", locking_ns=1, flushing_ns=1, logging_ns=MS - 2)  # fmt: skip
    b.commit(411 * MS, MS, kind="xfs_log_force", dev=XFS)
    b.commit(430 * MS, MS, kind="btrfs_commit", dev=BTRFS)
    b.sleep(2 * MS, MS, "io_schedule < jbd2_journal_commit_transaction")
    b.lock_wait(100, 40 * MS, MS, "rwsem_write", dev=EXT4, ino=8, owner_pid=101, owner_tid=101)
    b.block_io(2 * MS, 1000, MS, sync=True, fua=True, preflush=True)
    _fill(b, paths["box/new/1"])
    return b.write(
        complete=False, lost=5, shed=3, spools=SPOOLS, compat_calls=4, calls_unjudged=6,
        calls_in_flight=1, paths_unresolved=2, bytes_unread=100, closed=False, ended="disk full",
        lost_records={"2": 7}, requests_unfinished=1, requests_not_completed=2, records_rescued=1,
        snapshot={"kind": "touched", "directories": 3, "directories_missed": 1}, tree=True,
        frozen={"why": "a call took 1.2 s", "at_ns": 10**9, "window_ns": 10**9}, segment=3,
        overhead_ppm={"median": 1, "p95": 2, "n": 3}, max_overhead_ppm=10_000, clock_drift_ns=5,
        snapshot_ns=NOW - 5 * MS, version="0", key_id="0", recorder_cpu_ns=5, sample_hz=199,
        io_limits=[{"cgroup": "/mail", "dev": EXT4, "write_iops": 40}],
        programs={"attached": ["on_enter"], "missing": {"on_jbd2_start": "no such function"}},
        block_trace={"lost": 2, "events": 9}, filter={"pids": [1], "comms": [], "units": ["x"]},
    )  # fmt: skip


def _fill(builder, path_id: int) -> None:
    """Add a row to every empty table."""
    now = NOW
    more = {
        "samples": {"ts_ns": now, "pid": 100, "tid": 100, "seq": 2, "cpu": 0, "stack_id": 1},
        "journal_events": {"ts_ns": now, "event": "checkpoint", "pid": 7, "tid": 7, "comm": "j"},
        "block_stages": {"ts_ns": now, "op": "write", "rwbs": "WS", "tid": 7, "bytes": 4096},
        "user_calls": {"ts_ns": now, "pid": 100, "tid": 100, "seq": 2, "user_stack_id": 0},
        "user_stacks": {"user_stack_id": 0, "function": ESCAPE, "file": ESCAPE, "offset": 7},
        "faults": {"ts_ns": now, "pid": 100, "tid": 100, "path_id": path_id, "dev": 1, "ino": 8},
        "uring_ops": {"ts_ns": now, "pid": 100, "tid": 100, "op": "openat", "path_id": path_id},
        "open_files": {"pid": 100, "fd": 9, "path_id": path_id, "dev": 1, "ino": 8,
                       "obj_mode": 0o100600, "description": 1, "size": 10},
        "held_locks": {"ts_ns": now, "pid": 100, "kind": "posix", "path_id": path_id, "dev": 1,
                       "ino": 8, "start": 0},
        "mappings": {"ts_ns": now, "pid": 100, "path_id": path_id, "dev": 1, "ino": 8,
                     "address": 4096, "length": 4096},
        "tree": {"path_id": path_id, "dev": 1, "ino": 8, "mode": 0o100600, "size": 10, "nlink": 1},
        "xattrs": {"path_id": path_id, "name_id": 101, "length": 5},
        "missed_names": {"path_id": 0, "dev": 1, "ino": 3, "directory": True},
        "losses": {"kind": "ring", "pid": 100, "tid": 100, "first_seq": 60, "last_seq": 64,
                   "after_ns": now, "before_ns": now + 1, "n": 5},
        "sheds": {"ts_ns": now, "level": "stacks", "overhead_ppm": 20_000},
    }  # fmt: skip
    for table, row in more.items():
        builder.add(table, **row)
    builder.add("losses", kind="waits", pid=0, tid=0, n=7)
    assert [name for name in TABLES if not builder.rows[name]] == []


@pytest.fixture
def browser(require, request):
    """Return a headless Chromium that logs its console and may not reach any network."""
    require("chromium")
    if not DRIVER.exists():
        require("chromium", f"no program {DRIVER}")
    return request.getfixturevalue("chrome")


@pytest.fixture(scope="session")
def chrome(tmp_path_factory):
    """Start one browser for all tests; it takes four seconds."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    options.add_argument("--headless=new")
    options.add_argument("--disable-gpu")
    options.add_argument("--window-size=1400,1000")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=str(DRIVER))
    chrome = webdriver.Chrome(options=options, service=service)
    yield chrome
    chrome.quit()


@pytest.fixture
def open_report(browser):
    """Return ``open_report(report)``: open it, and wait until its figures are drawn."""
    return lambda report: _open_report(browser, report)


def _open_report(browser, report):
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get("about:blank")
    for kind in ("performance", "browser"):
        browser.get_log(kind)
    browser.get(report.path.as_uri())
    expected = len([figure for figure in report.page.figures if not figure.folded])
    drawn = "return document.querySelectorAll('.plot .main-svg .xy, .plot .cartesianlayer').length"
    WebDriverWait(browser, 30).until(lambda b: b.execute_script(drawn) >= expected)
