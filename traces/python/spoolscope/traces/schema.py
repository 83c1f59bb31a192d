"""The tables of a trace: every column with its unit and one sentence of meaning.

FORMAT.md is generated from this registry; ``info --columns`` prints it.
Integers are signed, times are nanoseconds, and no logical timestamp type is used:
Spark refuses nanosecond timestamps and reads uint64 as decimal.
"""

from dataclasses import dataclass

import pyarrow as pa

SCHEMA = "spoolscope/1"

I16, I32, I64, F64 = pa.int16(), pa.int32(), pa.int64(), pa.float64()
STR = pa.string()
SYMBOL = pa.dictionary(pa.int32(), pa.string())
BOOL = pa.bool_()
PATH, COMM, PROGRAM, GROUP = "path", "comm", "program", "group"


@dataclass(frozen=True)
class Column:
    """One column: Parquet type, unit ("" if it has none) and meaning.

    ``private`` says what kind of name its text is, PATH, COMM, PROGRAM or GROUP; "" if it is
    none of a person's or a host's but one of few fixed words.
    """

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    nullable: bool = False
    private: str = ""


@dataclass(frozen=True)
class Table:
    """One table of a trace; ``sorted_by`` names the column its rows are sorted by."""

    name: str
    row: str
    columns: tuple[Column, ...]
    sorted_by: str = ""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.columns])


_TS = Column("ts_ns", I64, "ns", "Start, since the epoch (CLOCK_REALTIME at start of recording).")
_PID = Column("pid", I32, "", "Process id.")
_TID = Column("tid", I32, "", "Thread id.")
_COMM = Column("comm", SYMBOL, "", "Name of the thread at that time.", private=COMM)
_CALL_SEQ = Column(
    "seq", I64, "", "seq of the thread's call this belongs to; null outside calls.", nullable=True
)

SYSCALLS = Table(
    "syscalls",
    "one system call of a traced thread, written when it returned",
    (
        _TS,
        Column("dur_ns", I64, "ns", "Time from entry to return."),
        Column("seq", I64, "", "Counter per tid from 0, going on when the tid is given out again: (tid, seq) names one call; a hole is a lost record."),
        _PID,
        _TID,
        Column("cpu", I16, "", "CPU it returned on."),
        _COMM,
        Column("syscall", SYMBOL, "", "Name of the call, without prefix."),
        Column("fd", I32, "", "File descriptor argument.", nullable=True),
        Column("fd2", I32, "", "Second descriptor: dup2 target, output side.", nullable=True),
        Column("dirfd", I32, "", "Directory the path is relative to; -100 is AT_FDCWD.", nullable=True),
        Column("dirfd2", I32, "", "Directory the second path is relative to.", nullable=True),
        Column("path_id", I64, "", "Object's path (paths.path_id), resolved through fd, dirfd and cwd.", nullable=True),
        Column("path2_id", I64, "", "Second path, symlink target or xattr name.", nullable=True),
        Column("path_base", I16, "", "How the path was given: 0 none, 1 absolute, 2 to cwd, 3 to dirfd."),
        Column("path2_base", I16, "", "How the second path was given."),
        Column("flags", I32, "", "Flags argument (open, *at, rename, mmap, splice, fallocate mode).", nullable=True),
        Column("mode", I32, "", "Mode argument (permissions, access mode, mmap protection).", nullable=True),
        Column("cmd", I32, "", "fcntl command, flock operation, lseek whence or advice.", nullable=True),
        Column("offset", I64, "bytes", "Offset argument, or the file position before a plain read or write; lock start.", nullable=True),
        Column("size", I64, "bytes", "Bytes asked for; lock length.", nullable=True),
        Column("arg", I64, "", "Further argument: uid | gid << 32 of chown, device of mknod, address of mmap.", nullable=True),
        Column("lock_type", I16, "", "fcntl locks: l_type | l_whence << 8.", nullable=True),
        Column("ret", I64, "", "Return value; -1 on failure."),
        Column("errno", I16, "", "Error number; 0 is success."),
        Column("dev", I64, "", "Device of the object, major << 20 | minor.", nullable=True),
        Column("ino", I64, "", "Inode of the object, where the kernel told it.", nullable=True),
        Column("obj_mode", I32, "", "File type and permissions of the object (st_mode).", nullable=True),
        Column("obj_size", I64, "bytes", "Size of the object after the call.", nullable=True),
        Column("oncpu_ns", I64, "ns", "Part of dur_ns running on a CPU."),
        Column("blocked_ns", I64, "ns", "Part of dur_ns asleep: switched out until woken."),
        Column("runq_ns", I64, "ns", "Part of dur_ns woken but waiting for a CPU."),
        Column("preempted_ns", I64, "ns", "Part of dur_ns pushed off the CPU while runnable."),
        Column("flags_seen", I32, "", "Remarks of the recorder (enum spsc_call_flags)."),
    ),
    sorted_by="ts_ns",
)

SEGMENTS = Table(
    "segments",
    "one interval off the CPU, of a call or of a watched kernel thread",
    (
        _TS,
        Column("dur_ns", I64, "ns", "Length of the interval."),
        _PID,
        _TID,
        _CALL_SEQ,
        Column("state", SYMBOL, "", "blocked, runq or preempted; the rest of a call is oncpu."),
        Column("stack_id", I64, "", "Kernel stack at switch-out (stacks.stack_id).", nullable=True),
        Column("waker_pid", I32, "", "Process that woke it (blocked rows).", nullable=True),
        Column("waker_tid", I32, "", "Thread that woke it.", nullable=True),
        Column("waker_comm", SYMBOL, "", "Name of the waker.", nullable=True, private=COMM),
        Column("waker", SYMBOL, "", "Context of the waking: task, irq or idle.", nullable=True),
        Column("waker_seq", I64, "", "seq of the waker's own call, if it was in one.", nullable=True),
    ),
    sorted_by="ts_ns",
)

STACKS = Table(
    "stacks",
    "one frame of a kernel stack",
    (
        Column("stack_id", I64, "", "Id of the stack, from 1."),
        Column("depth", I16, "", "0 is the innermost frame."),
        Column("address", I64, "", "Address as signed 64-bit."),
        Column("symbol", SYMBOL, "", "Function name without offset; hexadecimal address if unknown."),
    ),
)

PATHS = Table(
    "paths",
    "one name",
    (
        Column("path_id", I64, "", "Id, from 0."),
        Column("path", STR, "", "Path below the spool mount without leading '/', or text; bytes outside UTF-8 and '%' as %XX.", private=PATH),
        Column("kind", SYMBOL, "", "spool (below a spool mount), outside, or text (symlink target, xattr name)."),
        Column("spool", I16, "", "Index into meta.spools; null unless kind is spool.", nullable=True),
    ),
)

THREADS = Table(
    "threads",
    "one life of a thread; a tid that was given out again has a row for each",
    (
        _TID,
        _PID,
        Column("parent_tid", I32, "", "Thread that forked it; null if before the trace.", nullable=True),
        Column("parent_pid", I32, "", "Process that forked it.", nullable=True),
        Column("start_ns", I64, "ns", "Fork time since the epoch; null if alive at start.", nullable=True),
        Column("end_ns", I64, "ns", "Exit time since the epoch; null if alive at the end.", nullable=True),
        Column("exit_code", I32, "", "As in wait(2); null if alive at the end.", nullable=True),
        Column("comm", SYMBOL, "", "Last name.", private=COMM),
        Column("kind", SYMBOL, "", "task, or kernel (a watched kernel thread)."),
        Column("uid", I32, "", "User id when first seen."),
        Column("gid", I32, "", "Group id when first seen."),
        Column("umask", I32, "", "umask when first seen."),
        Column("cwd_id", I64, "", "Working directory when first seen (paths.path_id).", nullable=True),
        Column("cgroup_id", I64, "", "cgroup v2 id."),
        Column("cgroup", SYMBOL, "", "Path of its cgroup v2 below the root, private parts hidden; null unknown.", nullable=True, private=GROUP),
        Column("exe_ino", I64, "", "Inode of the program it ran last; tells equal names apart."),
        Column("exe", SYMBOL, "", "Path of that program as given to exec (there at start: /proc/PID/exe), private parts hidden; null unknown.", nullable=True, private=PROGRAM),
        Column("shares_files", BOOL, "", "Shares the fd table of its parent."),
        Column("shares_fs", BOOL, "", "Shares cwd and umask of its parent."),
        Column("n_calls", I64, "", "Calls the kernel side counted; more than in syscalls means loss.", nullable=True),
    ),
)

TASK_EVENTS = Table(
    "task_events",
    "one event in a thread's life",
    (
        _TS,
        _PID,
        _TID,
        Column("event", SYMBOL, "", "seen, fork, exec, exit, end, comm or watched."),
        Column("parent_tid", I32, "", "fork: the forking thread.", nullable=True),
        _COMM,
    ),
    sorted_by="ts_ns",
)

COMMITS = Table(
    "commits",
    "one journal commit, log write or transaction commit",
    (
        _TS,
        Column("dur_ns", I64, "ns", "Start to end."),
        Column("dev", I64, "", "Device, major << 20 | minor; null if unknown.", nullable=True),
        Column("kind", SYMBOL, "", "jbd2_commit, xfs_log_write, btrfs_log_commit or btrfs_commit."),
        Column("txn_id", I64, "", "Transaction id, LSN, generation or inode, by kind."),
        Column("locking_ns", I64, "ns", "Waiting for running handles (jbd2).", nullable=True),
        Column("flushing_ns", I64, "ns", "Writing ordered data (jbd2); until the tree blocks were written (btrfs).", nullable=True),
        Column("logging_ns", I64, "ns", "Writing the log (jbd2); from writing tree blocks to the end (btrfs).", nullable=True),
        Column("handles", I32, "", "Handles that the commit had to wait for while locking (jbd2).", nullable=True),
        Column("holder_pid", I32, "", "Process whose handle ended last of these.", nullable=True),
        Column("holder_tid", I32, "", "Thread whose handle ended last.", nullable=True),
        Column("holder_seq", I64, "", "seq of the call it was open in.", nullable=True),
        Column("holder_comm", SYMBOL, "", "Name of that thread.", nullable=True, private=COMM),
        Column("holder_ns", I64, "ns", "How long after the start of locking that handle ended.", nullable=True),
        Column("tid", I32, "", "Thread that did the commit."),
        Column("comm", SYMBOL, "", "Name of that thread.", private=COMM),
        Column("trigger", SYMBOL, "", "What caused it: call, timer, checkpoint or unknown."),
        Column("trigger_pid", I32, "", "Process that triggered it.", nullable=True),
        Column("trigger_tid", I32, "", "Thread that triggered it.", nullable=True),
        Column("trigger_seq", I64, "", "seq of the triggering call.", nullable=True),
        Column("trigger_comm", SYMBOL, "", "Name of the triggering thread.", nullable=True, private=COMM),
        Column("trigger_stack_id", I64, "", "Kernel stack of the trigger.", nullable=True),
        Column("blocks", I64, "", "Blocks logged (jbd2) or bytes (xfs), null if unknown.", nullable=True),
    ),
    sorted_by="ts_ns",
)

JOURNAL_EVENTS = Table(
    "journal_events",
    "one thing that a journal or log did besides its commits",
    (
        _TS,
        Column("dur_ns", I64, "ns", "Length, where it has one.", nullable=True),
        Column("dev", I64, "", "Device, major << 20 | minor.", nullable=True),
        Column("event", SYMBOL, "", "handle, checkpoint, checkpoint_written, log_tail, lock_stall (jbd2); log_force, cil_push, ail_pinned, ail_locked, ail_flushing (xfs); sync_fs, tree_write, ordered_extent (btrfs)."),
        Column("id", I64, "", "Transaction id (jbd2), LSN or checkpoint sequence (xfs), generation (btrfs), inode (ordered_extent).", nullable=True),
        Column("amount", I64, "", "checkpoint_written, log_tail: blocks; ordered_extent: bytes; checkpoint: its result; handle: 1 if a commit waited for it.", nullable=True),
        _PID,
        _TID,
        _COMM,
        _CALL_SEQ,
        Column("stack_id", I64, "", "log_force: who called for it, as a stack of one frame.", nullable=True),
    ),
    sorted_by="ts_ns",
)

WAITS = Table(
    "waits",
    "one wait for a lock, a file lock, a page or room in a log",
    (
        _TS,
        Column("dur_ns", I64, "ns", "Length; null if the thread was not seen to sleep for it.", nullable=True),
        _PID,
        _TID,
        _CALL_SEQ,
        Column("kind", SYMBOL, "", "mutex, rwsem_read, rwsem_write, semaphore, rt_mutex, percpu_rwsem, posix_lock, flock, writeback, dirty_limit, log_space, iclog or cil."),
        Column("object", SYMBOL, "", "What it belongs to: inode, tree_block (btrfs), mmap, rename (of the filesystem) or other."),
        Column("address", I64, "", "Kernel address of the lock or log; equal within a recording.", nullable=True),
        Column("dev", I64, "", "Device of the object, major << 20 | minor.", nullable=True),
        Column("ino", I64, "", "Inode, or byte address of the tree block.", nullable=True),
        Column("owner_pid", I32, "", "Process that had it when the wait began.", nullable=True),
        Column("owner_tid", I32, "", "Thread that had it; null for file locks, which processes have.", nullable=True),
        Column("owner_comm", SYMBOL, "", "Name of that thread.", nullable=True, private=COMM),
        Column("owner_seq", I64, "", "seq of the call that thread was in.", nullable=True),
        Column("owner_shares", BOOL, "", "Readers had it, of whom the owner is the last to come; it may have left."),
    ),
    sorted_by="ts_ns",
)

BLOCK_IOS = Table(
    "block_ios",
    "one block request",
    (
        _TS,
        Column("queue_ns", I64, "ns", "Accounted or inserted until handed to the driver."),
        Column("device_ns", I64, "ns", "Handed to the driver until complete."),
        Column("dev", I64, "", "Disk, major << 20 | minor."),
        Column("sector", I64, "512 B", "First sector."),
        Column("bytes", I64, "bytes", "Length."),
        Column("op", SYMBOL, "", "read, write, flush, discard, zeroes or other."),
        Column("sync", BOOL, "", "REQ_SYNC."),
        Column("meta", BOOL, "", "REQ_META."),
        Column("fua", BOOL, "", "REQ_FUA."),
        Column("preflush", BOOL, "", "REQ_PREFLUSH."),
        Column("error", I32, "", "0, or a negative error number."),
        _PID,
        _TID,
        _COMM,
        _CALL_SEQ,
    ),
    sorted_by="ts_ns",
)

FAULTS = Table(
    "faults",
    "one page fault on a file of the spool: what is read and written through mmap",
    (
        _TS,
        Column("dur_ns", I64, "ns", "From the first step of the fault that is seen to the last, e.g. the page mapped after it was read; null if only one is seen.", nullable=True),
        _PID,
        _TID,
        _CALL_SEQ,
        Column("path_id", I64, "", "Path of the file (paths.path_id), from its inode.", nullable=True),
        Column("dev", I64, "", "Device, major << 20 | minor."),
        Column("ino", I64, "", "Inode."),
        Column("page", I64, "pages", "Page touched, from the beginning of the file; null where the kernel only says which pages it mapped.", nullable=True),
        Column("first_page", I64, "pages", "First of the pages around it that were mapped if they were in the cache; touching them later is no fault.", nullable=True),
        Column("n_pages", I32, "pages", "How many.", nullable=True),
        Column("absent", BOOL, "", "The page was not in the page cache: it was read for this fault."),
        Column("major", BOOL, "", "Counted as major (getrusage): absent, or tried again after letting go of locks, e.g. to wait for a page being read."),
        Column("write", BOOL, "", "A clean page became dirty. Writes to pages already dirty are not seen."),
    ),
    sorted_by="ts_ns",
)

OPEN_FILES = Table(
    "open_files",
    "one descriptor open on the spool when recording began",
    (
        _PID,
        Column("fd", I32, "", "Descriptor."),
        Column("path_id", I64, "", "Path (paths.path_id)."),
        Column("flags", I32, "", "Open flags."),
        Column("offset", I64, "bytes", "File position."),
        Column("dev", I64, "", "Device, major << 20 | minor."),
        Column("ino", I64, "", "Inode."),
        Column("obj_mode", I32, "", "File type and permissions."),
    ),
)

TREE = Table(
    "tree",
    "one name of the spool when recording began",
    (
        Column("path_id", I64, "", "Path (paths.path_id)."),
        Column("target_id", I64, "", "Target text of a symlink.", nullable=True),
        Column("dev", I64, "", "Device, major << 20 | minor."),
        Column("ino", I64, "", "Inode; equal numbers are hard links."),
        Column("mode", I32, "", "st_mode."),
        Column("uid", I32, "", "Owner."),
        Column("gid", I32, "", "Group."),
        Column("nlink", I32, "", "Number of hard links."),
        Column("size", I64, "bytes", "st_size."),
        Column("mtime_ns", I64, "ns", "Modification time since the epoch."),
    ),
)

LOSSES = Table(
    "losses",
    "one stretch of lost records",
    (
        Column(
            "kind",
            SYMBOL,
            "",
            "syscall (located by seq), shed (left out on purpose, see sheds), or the kind of"
            " record lost.",
        ),
        _PID,
        _TID,
        Column("first_seq", I64, "", "First missing seq; null if not a call.", nullable=True),
        Column("last_seq", I64, "", "Last missing seq.", nullable=True),
        Column("after_ns", I64, "ns", "End of the last record before the hole.", nullable=True),
        Column("before_ns", I64, "ns", "Start of the first record after it.", nullable=True),
        Column("n", I64, "", "Records lost."),
    ),
)

SHEDS = Table(
    "sheds",
    "one change of what is left out to keep to --max-overhead",
    (
        Column("ts_ns", I64, "ns", "When; since the epoch."),
        Column(
            "level",
            SYMBOL,
            "",
            "From here on left out: nothing, stacks (of waits), 7/8 data (also of each thread's"
            " reads and writes), 63/64 data. Calls on names and metadata never are.",
        ),
        Column("overhead_ppm", I32, "1e-6", "Share of all CPUs the recording took before."),
    ),
)

TABLES = {
    t.name: t
    for t in (
        SYSCALLS,
        SEGMENTS,
        STACKS,
        PATHS,
        THREADS,
        TASK_EVENTS,
        COMMITS,
        JOURNAL_EVENTS,
        WAITS,
        BLOCK_IOS,
        FAULTS,
        OPEN_FILES,
        TREE,
        LOSSES,
        SHEDS,
    )
}
