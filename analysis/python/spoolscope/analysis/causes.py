"""The closed list of causes: what the time of a call can go into, and what is known of each."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """One cause of waiting, or one class of what runs on a CPU.

    Attributes:
        label: Short name for tables.
        group: journal, device, read, lock, machine or cpu; one hue in figures.
        meaning: One sentence.
        objects: What calls wait for, as in "waits for journal commits".
        at_disk: Requests to a disk are under way: the process that keeps it busy is to blame.
        ends_with_request: The wait ends when one request does.
        of_commit: A commit of the journal has to end.
    """

    label: str
    group: str
    meaning: str
    objects: str = ""
    at_disk: bool = False
    ends_with_request: bool = False
    of_commit: bool = False


def _request(label: str, group: str, meaning: str, objects: str) -> Cause:
    return Cause(label, group, meaning, objects, at_disk=True, ends_with_request=True)


CAUSES: dict[str, Cause] = {
    "journal_commit": Cause(
        "journal commit",
        "journal",
        "A commit of the journal or log had to reach the disk first.",
        "journal commits",
        ends_with_request=True,
        of_commit=True,
    ),
    "log_space": _request(
        "journal full",
        "journal",
        "The journal or its reservation was full; space had to be freed.",
        "space in the journal",
    ),
    "txn_lock": Cause(
        "transaction lock",
        "journal",
        "The running transaction was closed to new changes.",
        "the running transaction",
        of_commit=True,
    ),
    "shadow": Cause(
        "block in commit",
        "journal",
        "The block was held by the transaction being committed.",
        "blocks held by a commit",
        of_commit=True,
    ),
    "ordered_data": _request(
        "ordered data",
        "journal",
        "File data had to be written before its metadata.",
        "ordered data",
    ),
    "writeback": _request(
        "writeback",
        "device",
        "Dirty data, or a block that was to change, was being written.",
        "writeback",
    ),
    "flush": _request(
        "cache flush",
        "device",
        "The disk was emptying its write cache.",
        "the disk's cache flush",
    ),
    "dir_lock": Cause(
        "directory lock",
        "lock",
        "Another call was changing the same directory.",
        "directory locks",
    ),
    "lookup_io": _request(
        "lookup read",
        "read",
        "A directory block was read to find a name.",
        "directory reads",
    ),
    "readdir_io": _request(
        "listing read",
        "read",
        "A directory block was read to list names.",
        "directory reads",
    ),
    "inode_io": _request(
        "inode read",
        "read",
        "An inode or its block map was read or freed.",
        "inode reads",
    ),
    "alloc_io": _request(
        "allocator",
        "read",
        "Free space had to be found: read, locked by others, or reclaimed.",
        "the allocator",
    ),
    "quota": Cause(
        "quota",
        "lock",
        "Quota had to be read, locked, written or made room for.",
        "quota",
    ),
    "block_queue": Cause(
        "block queue",
        "device",
        "The request queue of the disk was full or frozen.",
        "the request queue",
        at_disk=True,
    ),
    "block_device": _request(
        "device",
        "device",
        "The disk was reading or writing data of the call.",
        "the device",
    ),
    "device_layer": Cause(
        "device layer",
        "device",
        "md or device-mapper was busy itself: stripes, bitmap, superblock, thin pool, encryption.",
        "md and device-mapper",
        at_disk=True,
    ),
    "io_throttle": Cause(
        "I/O throttle",
        "device",
        "A limit (wbt, iocost, io.max) held I/O back.",
        "I/O limits",
    ),
    "dirty_throttle": Cause(
        "dirty throttle",
        "device",
        "Writers were slowed until dirty data was written.",
        "dirty data to be written",
        at_disk=True,
    ),
    "server": Cause(
        "server",
        "device",
        "A server had to answer (NFS, 9p, SMB, Ceph), or a program that serves (FUSE, autofs).",
        "a server's answers",
    ),
    "frozen": Cause(
        "frozen",
        "lock",
        "The filesystem was, or was to be, frozen for a snapshot.",
        "a frozen filesystem",
    ),
    "scanner": Cause(
        "scanner",
        "lock",
        "A program that watches files (fanotify) had to permit the call.",
        "permission by a scanner",
    ),
    "file_lock": Cause(
        "file lock",
        "lock",
        "A program held a lock on the file (fcntl, flock).",
        "file locks",
    ),
    "inode_lock": Cause(
        "inode lock",
        "lock",
        "Another call held the inode, tree, page or open file.",
        "inode and tree locks",
    ),
    "process": Cause(
        "process start",
        "machine",
        "vfork: the child had to run a program; exec: others had to let go or a CPU to take over.",
        "processes to start",
    ),
    "memory": Cause(
        "memory",
        "machine",
        "Memory had to be reclaimed, or its map was locked.",
        "memory",
    ),
    "runq": Cause("run queue", "machine", "Woken, but no CPU was free.", "a CPU"),
    "preempt": Cause("preempted", "machine", "Pushed off the CPU while running."),
    "steal": Cause(
        "steal",
        "machine",
        "Running, but the host of the virtual machine had taken the CPU away.",
        "CPUs that the host had taken",
    ),
    "cpu": Cause("CPU", "machine", "Running on a CPU."),
    "unexplained": Cause(
        "unexplained",
        "machine",
        "Blocked, and no rule knows the stack.",
        "unnamed reasons",
    ),
}
"""Every cause, in the order in which tables and stacked bars show them."""

BETWEEN_PROGRAMS = ("file_lock", "process")
"""Waits of programs for programs. Postfix processes idle in a file lock for minutes, a parent in
vfork for as long as its child needs to run a program, and the work of the other one counts in its
own calls: these waits are recorded, summed and listed, but not charged to the filesystem in
headlines, drawings and comparisons."""

MACHINE = {
    "cpu": "oncpu_ns - coalesce(stolen_ns, 0)",
    "steal": "coalesce(stolen_ns, 0)",
    "runq": "runq_ns",
    "preempt": "preempted_ns",
}
"""What of a call was not asleep, and how its row tells (SQL); older traces know of no steal."""

BLOCKED_CAUSES = tuple(c for c in CAUSES if c not in MACHINE and c != "unexplained")
"""Causes that a rule may give."""

JOURNAL_WAITS = tuple(c for c in CAUSES if CAUSES[c].of_commit)
"""Causes of a wait that is a wait for a commit."""

AT_DISK = tuple(c for c in CAUSES if CAUSES[c].at_disk)
ENDS_WITH_REQUEST = tuple(c for c in CAUSES if CAUSES[c].ends_with_request)


def charged(causes: Mapping[str, float]) -> dict[str, float]:
    """Return {cause: ns} without the waits of programs for programs."""
    return {cause: ns for cause, ns in causes.items() if cause not in BETWEEN_PROGRAMS}
