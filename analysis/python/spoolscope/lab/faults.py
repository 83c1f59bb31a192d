"""The injected faults, and the right explanation of each."""

from dataclasses import dataclass, field
from typing import Any

MS = 1_000_000
MIB = 1 << 20
LOGGED_NS = 1
"""The shortest delay, which puts a request into the disk's log."""

Role = dict[str, Any]


@dataclass(frozen=True)
class Delay:
    """A delay of the slow disk; ``where`` is all, journal or data (all but the journal).

    Only the journal of ext3 and ext4 has a place.
    """

    kind: str
    delay_ns: int
    where: str = "all"


@dataclass(frozen=True)
class Fault:
    """One fault under one load.

    The truth is the disk's log of delayed requests; if there are culprits, only of their requests
    while at work. Without delays it is the log of the culprits, and without culprits that of the
    deliveries. For a limit on requests, the truth is the time of the deliveries until the disk had
    all requests for their writes: the delay is there only to log them.

    Attributes:
        name: Name on the command line.
        injects: One sentence on the fault and the load.
        right: Causes that are right for it.
        roles: Processes that run (see ``lab.load``).
        delays: Delays of the disk.
        culprits: Roles that cause the fault; their own calls are not judged.
        filesystems: Filesystems on which it is tried.
        elsewhere: Further filesystems, on request only: those that few kernels have.
        mkfs: Further options for mkfs, by filesystem; ``mount`` likewise for mount.
        fill: Initial content of the filesystem (see ``lab.fill``); only what its warming reads is
            cached.
        limit: Limit of the victims' control group: kind and number (see ``lab.limits``).
        until_asked: The truth is that for a limit on requests.
        remark: Known reasons for wrong answers.
    """

    name: str
    injects: str
    right: frozenset[str]
    roles: tuple[Role, ...]
    delays: tuple[Delay, ...] = ()
    culprits: tuple[str, ...] = ()
    filesystems: tuple[str, ...] = ("ext4",)
    elsewhere: tuple[str, ...] = ()
    mkfs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    mount: dict[str, str] = field(default_factory=dict)
    fill: str = "nothing"
    limit: tuple[str, int] | None = None
    until_asked: bool = False
    remark: str = ""


ALL = ("ext4", "xfs", "btrfs")
FLUSHING = ("reiserfs", "f2fs", "nilfs2")
FEW = ("jfs", *FLUSHING)
ONE: Role = {"role": "deliver", "n": 1}
FOUR: Role = {"role": "deliver", "n": 4, "think_ms": 5}
_EMPTY: Role = {"size": 0, "index": False}
_HOLDER: Role = {"role": "hold_handle", "n": 1, "think_ms": 300, "after_ms": 300}


def _causes(*causes: str) -> frozenset[str]:
    return frozenset(causes)


FAULTS = {
    fault.name: fault
    for fault in (
        Fault(
            "slow-flush",
            "Every cache flush of the disk takes 20 ms; a process delivers.",
            # The commit of the journal waits for the flush, and the caller for the commit.
            _causes("flush", "journal_commit"),
            (ONE,),
            (Delay("flush", 20 * MS),),
            filesystems=ALL,
            elsewhere=FLUSHING,
        ),
        Fault(
            "slow-flush-crowd",
            "The same; four processes deliver.",
            _causes("flush", "journal_commit"),
            (FOUR,),
            (Delay("flush", 20 * MS),),
            filesystems=ALL,
            elsewhere=FLUSHING,
        ),
        Fault(
            "slow-journal",
            "Every write to the journal takes 20 ms; a process delivers.",
            _causes("journal_commit"),
            (ONE,),
            (Delay("write", 20 * MS, "journal"),),
        ),
        Fault(
            "slow-journal-crowd",
            "The same; four processes deliver.",
            # A call that wants to change a block waits while that is written to the journal.
            _causes("journal_commit", "shadow"),
            (FOUR,),
            (Delay("write", 20 * MS, "journal"),),
        ),
        Fault(
            "slow-data",
            "Every write outside the journal takes 20 ms; a process delivers.",
            _causes("writeback", "ordered_data"),
            (ONE,),
            (Delay("write", 20 * MS, "data"),),
        ),
        Fault(
            "slow-write",
            "Every write takes 10 ms; a process delivers.",
            _causes("writeback", "ordered_data", "journal_commit"),
            (ONE,),
            (Delay("write", 10 * MS),),
            filesystems=ALL,
            elsewhere=FEW,
        ),
        Fault(
            "slow-read",
            "Every read takes 10 ms; a process fetches messages that no cache holds.",
            _causes("block_device", "lookup_io", "inode_io", "readdir_io", "alloc_io"),
            ({"role": "fetch", "n": 1, "messages": 1200},),
            (Delay("read", 10 * MS),),
            filesystems=ALL,
            elsewhere=FEW,
            fill="messages",
        ),
        Fault(
            "slow-allocation",
            "Every read takes 20 ms; a process makes folders all over the disk.",
            # Free space of a block group is in its bitmaps.
            _causes("alloc_io"),
            ({"role": "make_folders", "n": 1},),
            (Delay("read", 20 * MS),),
            # Without these features the bitmaps of an unused group are on the disk.
            mkfs={"ext4": ("-b", "1024", "-g", "512", "-O", "^metadata_csum,^uninit_bg")},
        ),
        Fault(
            "held-directory",
            "A process removes files from a directory, 40 ms for each inode that is read; two "
            "others put empty files into it.",
            # Pages that are dirty would hold some calls back on their own.
            _causes("dir_lock"),
            (
                {"role": "hold_directory", "n": 1, "files": 4000, "step": 64, "after_ms": 300},
                {"role": "drop", "n": 2, "think_ms": 1, "size": 0},
            ),
            (Delay("read", 40 * MS),),
            culprits=("hold_directory",),
            filesystems=ALL,
            elsewhere=("jfs", "f2fs", "nilfs2"),
            mount={"ext4": "noatime,inode_readahead_blks=0"},
            fill="shared",
        ),
        Fault(
            "held-lock",
            "A process holds the lock of a file for 40 ms at a time; two others append to it.",
            _causes("file_lock"),
            ({"role": "hold_lock", "n": 1, "hold_ms": 40}, {"role": "append_locked", "n": 2}),
            culprits=("hold_lock",),
            filesystems=ALL,
            elsewhere=FEW,
        ),
        Fault(
            "held-handle",
            "A process cuts files to nothing inside transactions, 40 ms for each block of extents "
            "that is read; one creates and syncs empty files, one creates without a sync.",
            # Calls that change something wait for the lock; syncs wait for the commit.
            _causes("txn_lock", "journal_commit"),
            (_HOLDER, ONE | _EMPTY, {"role": "drop", "n": 1, "size": 0}),
            (Delay("read", 40 * MS),),
            culprits=("hold_handle",),
            mkfs={"ext4": ("-b", "1024", "-J", "size=32")},
            fill="fragments",
        ),
        Fault(
            "held-handle-crowd",
            "The same; four processes create, sync and rename empty files.",
            _causes("txn_lock", "journal_commit"),
            (_HOLDER, FOUR | _EMPTY),
            (Delay("read", 40 * MS),),
            culprits=("hold_handle",),
            mkfs={"ext4": ("-b", "1024", "-J", "size=32")},
            fill="fragments",
        ),
        Fault(
            "full-journal",
            "Writes outside a journal of 1 MiB take 10 ms; a process creates and renames.",
            # A checkpoint also locks the blocks that it writes: a call that changes one waits.
            _causes("log_space", "writeback"),
            ({"role": "rename", "n": 1},),
            (Delay("write", 10 * MS, "data"),),
            mkfs={"ext4": ("-b", "1024", "-J", "size=1")},
            remark="While a write is slow, a call that was woken may wait for a CPU: that is not "
            "named so.",
        ),
        Fault(
            "full-journal-crowd",
            "The same; two processes create and rename.",
            _causes("log_space", "writeback"),
            ({"role": "rename", "n": 2},),
            (Delay("write", 10 * MS, "data"),),
            mkfs={"ext4": ("-b", "1024", "-J", "size=1")},
            remark="Between two slow writes the process that empties the journal waits for a CPU, "
            "the other one for the directory that it holds: on a busy machine that is not named.",
        ),
        Fault(
            "cpu-hog",
            "A real-time process takes a CPU for 20 ms at a time; another one writes there.",
            _causes("runq", "preempt"),
            (
                {"role": "hog", "n": 1, "burst_ms": 20, "think_ms": 40, "cpu": 1},
                {"role": "rewrite", "n": 1, "cpu": 1},
            ),
            culprits=("hog",),
            filesystems=ALL,
        ),
        Fault(
            "throttled",
            "A control group may write 10 times a second; a process in it delivers.",
            _causes("io_throttle"),
            (ONE | {"index": False},),
            # The journal of ext4 has a thread of its own, which has no limit.
            (Delay("write", LOGGED_NS, "data"),),
            limit=("write_iops", 10),
            until_asked=True,
            filesystems=ALL,
            remark="A request that was let go has to be handed on before the disk is asked: on a "
            "machine with too much to do that takes time, which is no limit's and is not named so.",
        ),
        Fault(
            "small-memory",
            "A control group has 12 MiB, writes take 5 ms; a process in it writes pages all over.",
            # Reclaim that waits for one of the slow writes is a wait for that write.
            _causes("memory", "dirty_throttle", "writeback"),
            ({"role": "scatter", "n": 1, "pages": 16384},),
            (Delay("write", 5 * MS),),
            limit=("memory_bytes", 12 * MIB),
            remark="The log of the disk says when a write was slow, not which call waited for it: "
            "on a busy machine some calls wait for a CPU meanwhile.",
        ),
    )
}
"""The faults in the order of the table."""
