"""The tables of a trace: every column with its unit and a sentence on its meaning.

FORMAT.md is generated from this registry; ``info --columns`` prints it.
Integers are signed, times are nanoseconds, and no logical timestamp type is used:
Spark refuses nanosecond timestamps and reads uint64 as decimal.
"""

from spoolscope.traces.columns import (
    BOOL,
    CALL_SEQ,
    COMM,
    GROUP,
    I16,
    I32,
    I64,
    NAME,
    PATH,
    PID,
    PROGRAM,
    STR,
    SYMBOL,
    TID,
    TS,
    Column,
    Table,
)
from spoolscope.traces.evidence import (
    BLOCK_IOS,
    BLOCK_STAGES,
    COMMITS,
    FAULTS,
    JOURNAL_EVENTS,
    URING_OPS,
    USER_CALLS,
    USER_STACKS,
    WAITS,
)

SCHEMA = "spoolscope/1"

# Locks and mappings are read right before the cut; later changes are not applied to them.
READ_AT = Column("ts_ns", I64, "ns", "When its reading began, shortly before meta.snapshot_ns; since the epoch.")

SYSCALLS = Table(
    "syscalls",
    "one system call of a traced thread, written when it returned",
    (
        TS,
        Column("dur_ns", I64, "ns", "Time from entry to return."),
        Column("seq", I64, "", "Counter per tid from 0, going on when the tid is given out again: (tid, seq) names one call; a hole is a lost record."),
        PID,
        TID,
        Column("cpu", I16, "", "CPU it returned on."),
        NAME,
        Column("syscall", SYMBOL, "", "Name of the call, without prefix."),
        Column("fd", I32, "", "File descriptor argument.", nullable=True),
        Column("fd2", I32, "", "Second descriptor: dup2 target, output side, what is cloned.", nullable=True),
        Column("dirfd", I32, "", "Directory the path is relative to; -100 is AT_FDCWD.", nullable=True),
        Column("dirfd2", I32, "", "Directory the second path is relative to.", nullable=True),
        Column("path_id", I64, "", "Object's path (paths.path_id), resolved through fd, dirfd and cwd.", nullable=True),
        Column("path2_id", I64, "", "Second path, symlink target (of readlink in imported traces only) or xattr name.", nullable=True),
        Column("given_id", I64, "", "The path as it was given, where that is another: with '..' in it, or '/' or '/.' at its end.", nullable=True),
        Column("given2_id", I64, "", "The second path as it was given, likewise.", nullable=True),
        Column("path_base", I16, "", "How the path was given: 0 none, 1 absolute or from outside the spools, 2 to cwd, 3 to dirfd."),
        Column("path2_base", I16, "", "How the second path was given."),
        Column("flags", I32, "", "Flags argument (open, *at, rename, mmap, splice, fallocate mode).", nullable=True),
        Column("mode", I32, "", "Mode argument (permissions, access mode, mmap protection); what an access ACL that is set comes to.", nullable=True),
        Column("cmd", I32, "", "Command of fcntl and ioctl, flock operation, lseek whence or advice.", nullable=True),
        Column("offset", I64, "bytes", "Offset argument, or what its pointer pointed to (sendfile, copy_file_range, splice, FICLONERANGE: of `fd`); the file position before a plain read or write; lock start.", nullable=True),
        Column("size", I64, "bytes", "Bytes asked for; lock length.", nullable=True),
        Column("arg", I64, "", "Further argument: uid | gid << 32 of chown, device of mknod, address of mmap, offset in `fd2` of copy_file_range, splice and FICLONERANGE.", nullable=True),
        Column("lock_type", I16, "", "fcntl locks: l_type | l_whence << 8. Of a range that counts from the position the offset is that from the beginning (SEEK_SET).", nullable=True),
        Column("ret", I64, "", "Return value; -1 on failure."),
        Column("errno", I16, "", "Error number; 0 is success."),
        Column("dev", I64, "", "Device of the object, major << 20 | minor.", nullable=True),
        Column("ino", I64, "", "Inode of the object, where the kernel names it.", nullable=True),
        Column("obj_mode", I32, "", "File type and permissions of the object (st_mode).", nullable=True),
        Column("obj_size", I64, "bytes", "Size of the object after the call.", nullable=True),
        Column("oncpu_ns", I64, "ns", "Part of dur_ns running on a CPU."),
        Column("blocked_ns", I64, "ns", "Part of dur_ns asleep: switched out until woken."),
        Column("runq_ns", I64, "ns", "Part of dur_ns woken but waiting for a CPU."),
        Column("preempted_ns", I64, "ns", "Part of dur_ns pushed off the CPU while runnable."),
        Column("stolen_ns", I64, "ns", "Part of oncpu_ns for which the host of a virtual machine had taken the CPU away (steal); known up to a tick late. Null where the kernel does not tell.", nullable=True),
        Column("flags_seen", I32, "", "Remarks of the recorder (enum spsc_call_flags)."),
    ),
    sorted_by="ts_ns",
)

SEGMENTS = Table(
    "segments",
    "one interval off the CPU, of a call or of a watched kernel thread",
    (
        TS,
        Column("dur_ns", I64, "ns", "Length of the interval."),
        PID,
        TID,
        CALL_SEQ,
        Column("state", SYMBOL, "", "blocked, runq or preempted; the rest of a call is oncpu."),
        Column("stack_id", I64, "", "Kernel stack at switch-out (stacks.stack_id).", nullable=True),
        Column("waker_pid", I32, "", "Process that woke it (blocked rows).", nullable=True),
        Column("waker_tid", I32, "", "Thread that woke it.", nullable=True),
        Column("waker_comm", SYMBOL, "", "Name of the waker.", nullable=True, private=COMM),
        Column("waker", SYMBOL, "", "Context of the waking: task, irq or idle.", nullable=True),
        Column("waker_seq", I64, "", "seq of the waker's own call, if it was in one.", nullable=True),
        Column("held_pid", I32, "", "runq and preempted rows: process that had the CPU meanwhile, of several the one that had it longest at a time; null if it was idle, or nobody knows.", nullable=True),
        Column("held_tid", I32, "", "Its thread that had it then.", nullable=True),
        Column("held_comm", SYMBOL, "", "Name of that thread.", nullable=True, private=COMM),
        Column("held_after_ns", I64, "ns", "From ts_ns until the process first had the CPU.", nullable=True),
        Column("held_ns", I64, "ns", "Part of dur_ns for which it had it, all in all.", nullable=True),
        Column("dir_id", I64, "", "Directory that a walk along a path had reached (paths.path_id): while a name is looked up, the one that is searched.", nullable=True),
        Column("name_id", I64, "", "Name that was being looked up in it (paths.path_id).", nullable=True),
        Column("name_of", SYMBOL, "", "String that this name stands in: path or path2 of the call, or link, the body of a symlink, then the name is unknown.", nullable=True),
    ),
    sorted_by="ts_ns",
)

SAMPLES = Table(
    "samples",
    "one look at a call that was running, at meta.sample_hz on every CPU",
    (
        TS,
        PID,
        TID,
        CALL_SEQ,
        Column("cpu", I16, "", "CPU it ran on."),
        Column("stack_id", I64, "", "Kernel stack (stacks.stack_id); null if it was not in the kernel.", nullable=True),
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
        TID,
        PID,
        Column("parent_tid", I32, "", "Thread that forked it; null if before the trace.", nullable=True),
        Column("parent_pid", I32, "", "Process that forked it.", nullable=True),
        Column("start_ns", I64, "ns", "Fork time since the epoch; null if alive at start.", nullable=True),
        Column("end_ns", I64, "ns", "Exit time since the epoch; null if alive at the end.", nullable=True),
        Column("exit_code", I32, "", "As in wait(2); null if alive at the end.", nullable=True),
        Column("comm", SYMBOL, "", "Last name.", private=COMM),
        Column("kind", SYMBOL, "", "task, or kernel (a watched kernel thread)."),
        Column("uid", I32, "", "User id when first seen."),
        Column("gid", I32, "", "Group id when first seen."),
        Column("umask", I32, "", "umask before its first recorded call."),
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
        TS,
        PID,
        TID,
        Column("event", SYMBOL, "", "seen, fork, exec, exit, end, comm or watched."),
        Column("parent_tid", I32, "", "fork: the forking thread.", nullable=True),
        NAME,
    ),
    sorted_by="ts_ns",
)

OPEN_FILES = Table(
    "open_files",
    "one descriptor open on the spool at meta.snapshot_ns",
    (
        PID,
        Column("fd", I32, "", "Descriptor."),
        Column("path_id", I64, "", "Path (paths.path_id)."),
        Column("flags", I32, "", "Open flags."),
        Column("offset", I64, "bytes", "File position."),
        Column("dev", I64, "", "Device, major << 20 | minor."),
        Column("ino", I64, "", "Inode."),
        Column("obj_mode", I32, "", "File type and permissions."),
        Column("description", I64, "", "Equal numbers share one open file, with its position.", nullable=True),
        Column("size", I64, "bytes", "Size of the object; null if it was not seen.", nullable=True),
        Column("deleted", BOOL, "", "It has no name any more; path_id was its last.", nullable=True),
    ),
)

HELD_LOCKS = Table(
    "held_locks",
    "one lock on a file of the spool that was held, or waited for, at ts_ns; calls that returned"
    " since may be in it or not",
    (
        READ_AT,
        Column("pid", I32, "", "Process that asked for it; null for ofd, which belongs to an open file.", nullable=True),
        Column("kind", SYMBOL, "", "posix (fcntl, lockf), ofd (F_OFD_SETLK), flock or lease."),
        Column("exclusive", BOOL, "", "For writing (F_WRLCK, LOCK_EX), not for reading."),
        Column("waiting", BOOL, "", "Not held yet: the call that asks for it waits."),
        Column("path_id", I64, "", "Path of the file (paths.path_id), from its inode.", nullable=True),
        Column("dev", I64, "", "Device, major << 20 | minor."),
        Column("ino", I64, "", "Inode."),
        Column("start", I64, "bytes", "First byte locked; 0 for flock and lease."),
        Column("length", I64, "bytes", "Bytes locked; null to the end of the file, however far that is.", nullable=True),
    ),
)

MAPPINGS = Table(
    "mappings",
    "one mapping of a file of the spool at ts_ns; calls that returned since may be in it or not",
    (
        READ_AT,
        PID,
        Column("path_id", I64, "", "Path of the file (paths.path_id), from its inode.", nullable=True),
        Column("dev", I64, "", "Device, major << 20 | minor."),
        Column("ino", I64, "", "Inode."),
        Column("address", I64, "", "Where it begins in the memory of the process."),
        Column("length", I64, "bytes", "Its length, whole pages."),
        Column("offset", I64, "bytes", "Where it begins in the file."),
        Column("prot", I32, "", "As in mmap: 1 read, 2 write, 4 execute."),
        Column("shared", BOOL, "", "MAP_SHARED: what is written gets into the file."),
    ),
)

TREE = Table(
    "tree",
    "one name of the spool at meta.snapshot_ns; attributes as the walk met it",
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
        Column("btime_ns", I64, "ns", "Time of birth since the epoch; null where the filesystem keeps none.", nullable=True),
        Column("blocks", I64, "512 B", "Space in use.", nullable=True),
        Column("extents", I32, "", "Stretches of data of a file with holes; null if it has no hole.", nullable=True),
    ),
)

MISSED_NAMES = Table(
    "missed_names",
    "one name of the spool at meta.snapshot_ns that calls tell of and no walk met, so that its"
    " attributes are not known",
    (
        Column("path_id", I64, "", "Path (paths.path_id)."),
        Column("dev", I64, "", "Device, major << 20 | minor.", nullable=True),
        Column("ino", I64, "", "Inode; null if no call showed it.", nullable=True),
        Column("directory", BOOL, "", "It is known to be a directory."),
    ),
)

XATTRS = Table(
    "xattrs",
    "one extended attribute of a name in tree, as the walk met it; its value is never recorded",
    (
        Column("path_id", I64, "", "Path (paths.path_id)."),
        Column("name_id", I64, "", "Its name, with its namespace (paths.path_id, kind text)."),
        Column("length", I64, "bytes", "Length of its value."),
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
        PID,
        TID,
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
        SAMPLES,
        STACKS,
        PATHS,
        THREADS,
        TASK_EVENTS,
        COMMITS,
        JOURNAL_EVENTS,
        WAITS,
        BLOCK_IOS,
        BLOCK_STAGES,
        USER_CALLS,
        USER_STACKS,
        FAULTS,
        URING_OPS,
        OPEN_FILES,
        HELD_LOCKS,
        MAPPINGS,
        TREE,
        XATTRS,
        MISSED_NAMES,
        LOSSES,
        SHEDS,
    )
}
