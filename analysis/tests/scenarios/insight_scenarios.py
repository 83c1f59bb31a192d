"""For each rule of insights a trace in which it must fire, and a similar one in which not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spoolscope_testing.trace_builder import MS, TraceBuilder

SECOND = 1000 * MS
COMMIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
FLUSH = "schedule < submit_bio_wait < blkdev_issue_flush < ext4_sync_file"
FULL = "schedule < __jbd2_log_wait_for_space < add_transaction_credits < start_this_handle"
DIR_LOCK = "schedule < rwsem_down_write_slowpath < down_write < filename_create < do_linkat"
LOOKUP = "io_schedule < out_of_line_wait_on_bit < __ext4_find_entry < ext4_lookup < walk_component"
INODE = "io_schedule < out_of_line_wait_on_bit < __ext4_get_inode_loc < __ext4_iget < ext4_lookup"
READ = "io_schedule < folio_wait_bit_common < filemap_get_pages < filemap_read"
FILE_LOCK = "schedule < locks_lock_inode_wait < fcntl_setlk < do_fcntl"
FILE = "schedule < rwsem_down_write_slowpath < down_write < ext4_buffered_write_iter < vfs_write"
LOCKED = "schedule < wait_transaction_locked < add_transaction_credits < start_this_handle"
MD = "schedule < md_write_start < raid1_make_request < md_handle_request"
DIRTY = "io_schedule_timeout < balance_dirty_pages < balance_dirty_pages_ratelimited_flags"
FROZEN = "schedule < percpu_rwsem_wait < __percpu_down_read < mnt_want_write < path_openat"
SCANNED = "schedule < fanotify_get_response < fanotify_handle_event < fsnotify < path_openat"
QUOTA = "io_schedule < __wait_on_bit_lock < out_of_line_wait_on_bit_lock < ext4_quota_write"
SERVER = "schedule < request_wait_answer < fuse_simple_request < fuse_lookup_name < fuse_lookup"
RECLAIM = "io_schedule < folio_wait_bit_common < shrink_folio_list < try_to_free_pages"
ATIME = f"{LOCKED} < ext4_dirty_inode < generic_update_time < touch_atime < filemap_read"
MTIME = f"{LOCKED} < ext4_dirty_inode < generic_update_time < file_update_time < vfs_write"
ICLOG = "schedule < xlog_state_get_iclog_space < xlog_write < xlog_cil_commit < xfs_create"
XFS_FORCE = "schedule < xlog_wait_on_iclog < xfs_log_force_seq < xfs_file_fsync"
JOURNAL_WRITES = "io_schedule < wait_on_buffer < jbd2_journal_commit_transaction < kjournald2"
BTRFS = "schedule < wait_for_commit < btrfs_commit_transaction < btrfs_sync_file"
BTRFS_LOG = "schedule < wait_log_commit < btrfs_sync_log < btrfs_sync_file"

Scene = Callable[[TraceBuilder], Any]


@dataclass(frozen=True)
class Pair:
    """A trace in which a rule must fire, and a similar one in which it must not fire."""

    fires: Scene
    alike: Scene


def spool(builder: TraceBuilder, fstype: str, options: str = "rw,noatime") -> None:
    """Set the filesystem."""
    builder.meta["spools"] = [{"mount": "/spool", "fstype": fstype, "options": options, "dev": 1}]


def waits(frames: str, call: str = "openat", n: int = 10, **columns: Any) -> Scene:
    """Return a scene of calls that wait 10 ms each, with 1 ms on the CPU."""

    def scene(builder: TraceBuilder) -> None:
        for k in range(n):
            builder.call(call, k * 20 * MS, MS, ((frames, 10 * MS),), **columns)

    return scene


def on(fstype: str, scene: Scene, options: str = "rw,noatime") -> Scene:
    """Return a scene on another filesystem."""

    def set_up(builder: TraceBuilder) -> None:
        spool(builder, fstype, options)
        scene(builder)

    return set_up


def by(tid: int, comm: str, seq: int = 0) -> dict[str, Any]:
    """Return the columns of a commit with a call as its trigger."""
    return {
        "trigger": "call", "trigger_pid": tid, "trigger_tid": tid, "trigger_seq": seq,
        "trigger_comm": comm,
    }  # fmt: skip


def commits(askers: list[int]) -> Scene:
    """Return a scene of commits, each with the process of that number as trigger; lmtp waits."""

    def scene(builder: TraceBuilder) -> None:
        seqs: dict[int, int] = {}
        for k, tid in enumerate(askers):
            at, seq = k * 20 * MS, seqs.get(tid, 0)
            seqs[tid] = seq + 1
            name = f"p{tid}"
            builder.call("fsync", at, 1000, ((COMMIT, 10 * MS),), tid, name, f"{name}.db")
            builder.call("fsync", at + 1, 1000, ((COMMIT, 10 * MS),), 100, "lmtp", f"u/new/{k}")
            builder.commit(at, 10 * MS, **by(tid, name, seq))

    return scene


def commit_with(busy: Scene | None = None, frames: str = COMMIT, **columns: Any) -> Scene:
    """Return a scene in which calls wait for commits of 10 ms, which by default write their log."""

    def scene(builder: TraceBuilder) -> None:
        for k in range(10):
            at = k * 20 * MS
            builder.call("fsync", at, MS, ((frames, 10 * MS),))
            builder.commit(at, 10 * MS, **columns)
        (busy or commit_sleeps("blocked", JOURNAL_WRITES))(builder)

    return scene


def requests(op: str) -> Scene:
    """Return a scene of requests of 9 ms by the journal's thread during ``commit_with``."""

    def scene(builder: TraceBuilder) -> None:
        commit_sleeps("blocked", JOURNAL_WRITES)(builder)
        for k in range(10):
            builder.block_io(k * 20 * MS + 1, 0, 9 * MS, op=op)

    return scene


def commit_sleeps(state: str, frames: str | None) -> Scene:
    """Return a scene in which the journal's thread is off the CPU for all of each commit."""

    def scene(builder: TraceBuilder) -> None:
        for k in range(10):
            builder.sleep(k * 20 * MS, 10 * MS, frames, state=state)

    return scene


def log_commits(n: int) -> Scene:
    """Return a scene of waits of 10 ms, each for so many successive commits of the log."""

    def scene(builder: TraceBuilder) -> None:
        for k in range(10):
            at = k * 20 * MS
            builder.call("fsync", at, MS, ((BTRFS_LOG, 10 * MS),))
            for m in range(n):
                length = 10 * MS // n
                builder.commit(at + m * length, length, "btrfs_log_commit", logging_ns=MS)
        requests("write")(builder)

    return scene


def ordered(writer: int) -> Scene:
    """Return a scene of commits that write data of a process for 9 ms."""

    def scene(builder: TraceBuilder) -> None:
        for k in range(10):
            at = k * 40 * MS
            builder.call("write", at, 1000, tid=writer, comm="copier", ret=1 << 20, dev=1)
            builder.call("fsync", at + 20 * MS, MS, ((COMMIT, 10 * MS),))
            builder.commit(
                at + 20 * MS, 10 * MS, dev=1, locking_ns=0, flushing_ns=9 * MS, logging_ns=MS
            )

    return scene


def listing(order: list[int], stack: str = INODE) -> Scene:
    """Return a scene in which a process lists a directory and opens files by these inodes."""

    def scene(builder: TraceBuilder) -> None:
        builder.call("getdents64", 0, 1000, path="u/cur", comm="backup")
        for k, ino in enumerate(order):
            builder.call(
                "openat", (k + 1) * MS, 1000, ((stack, MS // 2),), path=f"u/cur/{ino}", ino=ino,
                comm="backup",
            )  # fmt: skip

    return scene


def hashed(n: int = 200) -> list[int]:
    """Return inode numbers in the order of a hash."""
    return sorted(range(1, n + 1), key=lambda k: k * 2654435761 % 2**32)


def tree(builder: TraceBuilder, directory: str, n: int) -> None:
    """Put names into the snapshot."""
    for k in range(n):
        builder.rows["tree"].append({"path_id": builder.path_id(f"{directory}/{k}"), "ino": k + 9})


def lists(n_names: int) -> Scene:
    """Return a scene in which a directory of that many names is listed again and again."""

    def scene(builder: TraceBuilder) -> None:
        tree(builder, "u/cur", n_names)
        for k in range(10):
            builder.call("getdents64", k * 20 * MS, 5 * MS, path="u/cur", comm="imap")

    return scene


def lookups(n_names: int, features: list[str]) -> Scene:
    """Return a scene of lookups that wait for reads of their directory."""

    def scene(builder: TraceBuilder) -> None:
        spool(builder, "ext3")
        builder.meta["spools"][0]["features"] = features
        tree(builder, "shared", n_names)
        waits(LOOKUP, path="shared/1")(builder)

    return scene


def directory_syncs(renamed: bool) -> Scene:
    """Return a scene of new files that are synced, perhaps renamed, then their directory."""

    def scene(builder: TraceBuilder) -> None:
        for k in range(10):
            at, name = k * 50 * MS, f"u/new/{k}"
            builder.call("openat", at, 1000, path=name, flags=65)
            builder.call("fsync", at + MS, MS, ((COMMIT, 10 * MS),), path=name, obj_mode=0o100600)
            if renamed:
                builder.call("rename", at + 20 * MS, 1000, path=name, path2_id=0)
            builder.call(
                "fsync", at + 30 * MS, MS, ((COMMIT, 10 * MS),), path="u/new", obj_mode=0o40700
            )

    return scene


def synced_writes(size: int, files: int) -> Scene:
    """Return a scene of 100 writes, each synced, to one of some files."""

    def scene(builder: TraceBuilder) -> None:
        for k in range(100):
            path = f"log.{k % files}"
            builder.call("write", k * 20 * MS, 1000, path=path, ret=size, comm="statsd")
            builder.call("fsync", k * 20 * MS + 1, MS, ((COMMIT, MS),), path=path, comm="statsd")

    return scene


def locked(path: str) -> Scene:
    """Return a scene in which two processes wait for the lock of a file that a third holds."""

    def scene(builder: TraceBuilder) -> None:
        builder.thread(9, "holder")
        for k in range(10):
            at = k * 40 * MS
            builder.call("fsync", at, MS, ((COMMIT, 30 * MS),), tid=9, comm="holder", path="x")
            for tid in (1, 2):
                builder.call("fcntl", at, 1000, ((FILE_LOCK, 30 * MS),), tid, "imap", path)
                builder.lock_wait(tid, at, 30 * MS, "posix_lock", owner_pid=9, dev=1, ino=5)

    return scene


def dotlocks(tried_in_vain: int) -> Scene:
    """Return a scene of processes that make a lock file; some of them must retry."""

    def scene(builder: TraceBuilder) -> None:
        path = "mbox/u.lock"
        for k in range(10):
            at = k * 100 * MS
            builder.call("openat", at, 1000, tid=9, comm="holder", path=path, flags=193)
            builder.call("fsync", at + MS, MS, ((COMMIT, 60 * MS),), tid=9, comm="holder", path="u")
            for m in range(tried_in_vain):
                builder.call(
                    "openat", at + (10 + m) * MS, 1000, path=path, flags=193, errno=17, ret=-1
                )
            builder.call("unlink", at + 70 * MS, 1000, tid=9, comm="holder", path=path)
            builder.call("openat", at + 80 * MS, 1000, path=path, flags=193)
            builder.call("unlink", at + 81 * MS, 1000, path=path)

    return scene


def seconds_of(rates: list[int], took_ns: int = 40 * MS) -> Scene:
    """Return a scene of requests by second, with calls that wait for them."""

    def scene(builder: TraceBuilder) -> None:
        for second, rate in enumerate(rates):
            for k in range(rate):
                builder.block_io(second * SECOND + k * SECOND // rate, 0, took_ns)
            builder.call("pread64", second * SECOND, MS, ((READ, took_ns),))
        builder.meta["duration_ns"] = len(rates) * SECOND

    return scene


def ready(holder: str | None) -> Scene:
    """Return a scene of calls that wait 10 ms for a CPU of ``holder``, or of many processes."""

    def scene(builder: TraceBuilder) -> None:
        for k in range(10):
            builder.call("write", k * 20 * MS, MS, tid=k + 1, comm="imap", runq_ns=10 * MS)
            if holder is not None:
                builder.held(99, 0, 10 * MS, comm=holder)

    return scene


def faults(absent: bool) -> Scene:
    """Return a scene of page faults of 10 ms."""

    def scene(builder: TraceBuilder) -> None:
        builder.call("read", 0, 20 * MS)
        builder.thread(100, "imapd")
        for k in range(10):
            builder.rows["faults"].append(
                {"ts_ns": k * 20 * MS, "dur_ns": 10 * MS, "pid": 100, "tid": 100, "absent": absent,
                 "path_id": builder.path_id("cyrus.cache"), "major": absent}
            )  # fmt: skip

    return scene


def both(*scenes: Scene) -> Scene:
    """Return a scene of several."""

    def scene(builder: TraceBuilder) -> None:
        for one in scenes:
            one(builder)

    return scene


def held_back(builder: TraceBuilder) -> None:
    """Let a limit hold back the requests that calls wait for."""
    for k in range(10):
        builder.call("pread64", k * 20 * MS, MS, ((READ, 10 * MS),), dev=1 << 20)
        builder.block_io(
            k * 20 * MS + 9 * MS, 0, MS // 2, op="read", dev=1 << 20, held_back=True, cgroup="/mail"
        )


def disk_of(name: str) -> Scene:
    """Return a scene in which the disk serves one process while others wait for it."""

    def scene(builder: TraceBuilder) -> None:
        for k in range(10):
            builder.call("pread64", k * 20 * MS, MS, ((READ, 9 * MS),), dev=1)
            builder.block_io(k * 20 * MS, 0, 9 * MS, op="read", pid=9, tid=9, comm=name, dev=1)

    return scene


PAIRS: dict[str, Pair] = {
    "forced_commits": Pair(commits([1] * 90 + [2] * 10), commits([1, 2, 3, 4] * 25)),
    "full_journal": Pair(waits(FULL, "rename"), waits(LOCKED, "rename")),
    "commit_flush": Pair(
        commit_with(requests("flush")), commit_with(requests("write"))
    ),
    "held_transaction": Pair(
        commit_with(
            locking_ns=9 * MS, flushing_ns=0, logging_ns=MS, handles=1, holder_pid=9, holder_tid=9,
            holder_comm="expunge", holder_ns=9 * MS,
        ),
        commit_with(
            locking_ns=0, flushing_ns=0, logging_ns=10 * MS, handles=1, holder_pid=9, holder_tid=9,
            holder_comm="expunge", holder_ns=1,
        ),
    ),
    "neighbours_data": Pair(ordered(9), ordered(100)),
    "timer_commits": Pair(commit_with(trigger="timer"), commit_with(trigger="call")),
    "commit_without_cpu": Pair(
        commit_with(commit_sleeps("runq", None)),
        commit_with(),
    ),
    "data_journal": Pair(
        on("ext4", commit_with(requests("write")), "rw,data=journal"),
        on("ext4", commit_with(requests("write")), "rw,data=ordered"),
    ),
    "sync_price": Pair(commits([1, 2, 3, 4] * 25), commits([1] * 90 + [2] * 10)),
    "linear_directory": Pair(lookups(2000, []), lookups(2000, ["dir_index"])),
    "hash_order": Pair(listing(hashed()), listing(sorted(hashed()))),
    "busy_directory": Pair(waits(DIR_LOCK, path="q/1"), waits(FILE, "write", path="q/1")),
    "absent_names": Pair(
        waits(LOOKUP, "stat", path="u/.forward", errno=2), waits(LOOKUP, "stat", path="u/there")
    ),
    "large_listing": Pair(lists(6000), lists(50)),
    "cold_inodes": Pair(waits(INODE, "stat", path="u/1"), waits(READ, "read", path="u/1")),
    "directory_syncs": Pair(directory_syncs(renamed=False), directory_syncs(renamed=True)),
    "small_appends": Pair(synced_writes(200, 1), synced_writes(200, 100)),
    "atime_writes": Pair(waits(ATIME, "read"), waits(MTIME, "write")),
    "file_lock": Pair(locked("u/dovecot.index.log"), locked("pid/unix.smtp")),
    "dotlock": Pair(dotlocks(20), dotlocks(0)),
    "busy_file": Pair(waits(FILE, "write", path="log"), waits(DIR_LOCK, path="log")),
    "log_buffers": Pair(
        on("xfs", waits(ICLOG, path="u/1")), on("xfs", waits(XFS_FORCE, "fsync", path="u/1"))
    ),
    "full_commits": Pair(
        on("btrfs", commit_with(frames=BTRFS, kind="btrfs_commit", **by(100, "lmtp"))),
        on("btrfs", commit_with(frames=BTRFS_LOG, kind="btrfs_log_commit", logging_ns=MS,
                                **by(100, "lmtp"))),
    ),
    "log_tree_queue": Pair(on("btrfs", log_commits(2)), on("btrfs", log_commits(1))),
    "slow_disk": Pair(
        both(waits(READ, "read"), lambda b: [b.block_io(k * 40 * MS, 0, 20 * MS, op="read")
                                             for k in range(9)]),
        both(waits(READ, "read"), lambda b: [b.block_io(k * 40 * MS, 0, MS, op="read")
                                             for k in range(9)]),
    ),
    "busy_disk": Pair(disk_of("backup"), disk_of("kworker/1:1")),
    "io_limit": Pair(held_back, waits(READ, "pread64")),
    "rate_ceiling": Pair(seconds_of([100] * 12), seconds_of([100, 160, 90, 140, 70, 120] * 2)),
    "credits_spent": Pair(seconds_of([200] * 6 + [60] * 6), seconds_of([100] * 12)),
    "saturated_disk": Pair(
        seconds_of([120, 150, 110, 140], 9 * MS), seconds_of([120, 150, 110, 140], MS)
    ),
    "disk_errors": Pair(
        both(waits(READ, "read"), lambda b: b.block_io(0, 0, MS, error=-5)),
        both(waits(READ, "read"), lambda b: b.block_io(0, 0, MS, op="discard", error=-95)),
    ),
    "device_layer": Pair(waits(MD, "write"), waits(READ, "read")),
    "dirty_limit": Pair(waits(DIRTY, "write"), waits(FILE, "write")),
    "memory": Pair(waits(RECLAIM, "read"), waits(READ, "read")),
    "mapped_reads": Pair(faults(absent=True), faults(absent=False)),
    "busy_cpu": Pair(ready("cc1"), ready("imap")),
    "host_steal": Pair(
        lambda b: b.call("read", 0, 10 * MS, stolen_ns=5 * MS), lambda b: b.call("read", 0, 10 * MS)
    ),
    "too_few_cpus": Pair(ready(None), ready("cc1")),
    "recorder_cost": Pair(ready("spoolscope-reco"), ready("spooler")),
    "frozen_filesystem": Pair(waits(FROZEN), waits(LOCKED)),
    "scanner": Pair(waits(SCANNED), waits(SERVER)),
    "quota": Pair(waits(QUOTA, "write"), waits(READ, "read")),
    "slow_server": Pair(waits(SERVER), waits(SCANNED)),
    "no_space": Pair(
        lambda b: b.call("write", 0, MS, errno=28, ret=-1),
        lambda b: b.call("write", 0, MS, errno=11, ret=-1),
    ),
}  # fmt: skip
"""The pairs by kind of the rule."""
