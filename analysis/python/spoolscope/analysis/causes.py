"""The closed list of causes: what the time of a call can go into, with all facts on each.

Code that treats causes differently looks at their attributes here: a new cause is one entry.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spoolscope.analysis.inks import (
    BLUE,
    DARK,
    GREEN,
    GREY,
    ORANGE,
    PLAIN,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    Ink,
)


@dataclass(frozen=True)
class Cause:
    """One cause of waiting, or one class of what runs on a CPU.

    Attributes:
        label: Short name for tables.
        group: journal, device, read, lock, machine or cpu; one hue in figures.
        meaning: One sentence.
        objects: The thing that calls wait for, as in "waits for journal commits".
        ink: Its colour and pattern.
        state: Activity of calls that do not wait for anything: "running on the CPU".
        change: The same for a difference, which is ``{time}`` ``{more}`` (more or less).
        machine: SQL on a row of ``syscalls`` for this time, ns; set if the call was not asleep.
        at_disk: Requests to a disk are under way: the process that keeps it busy is to blame.
        ends_with_request: The wait ends when one request does.
        of_commit: A commit of the journal has to end.
        of_journal: The journal has to make progress: what keeps it from that is to blame.
        in_commit: Activity of a commit whose thread sleeps for this cause (``commit_parts.PARTS``).
        between_programs: A program waits for a program.
        answered: A program of this machine may have to end the wait by its answer.
    """

    label: str
    group: str
    meaning: str
    objects: str = ""
    ink: Ink = PLAIN
    state: str = ""
    change: str = ""
    machine: str = ""
    at_disk: bool = False
    ends_with_request: bool = False
    of_commit: bool = False
    of_journal: bool = False
    in_commit: str = "other"
    between_programs: bool = False
    answered: bool = False

    @property
    def doing(self) -> str:
        """State of calls in this cause, e.g. "waiting for journal commits"."""
        return self.state or f"waiting for {self.objects}"


def _request(
    label: str, group: str, meaning: str, objects: str, ink: Ink, in_commit: str = "other"
) -> Cause:
    return Cause(
        label,
        group,
        meaning,
        objects,
        ink,
        at_disk=True,
        ends_with_request=True,
        in_commit=in_commit,
    )


CAUSES: dict[str, Cause] = {
    "journal_commit": Cause(
        "journal commit",
        "journal",
        "A commit of the journal or log had to reach the disk first.",
        "journal commits",
        ends_with_request=True,
        of_commit=True,
        ink=Ink(VERMILLION),
        of_journal=True,
        in_commit="log_write",
    ),
    "log_space": Cause(
        "journal full",
        "journal",
        "The journal or its reservation was full; space had to be freed.",
        "space in the journal",
        ink=Ink(VERMILLION, "/"),
        at_disk=True,
        ends_with_request=True,
        of_journal=True,
    ),
    "txn_lock": Cause(
        "transaction lock",
        "journal",
        "The running transaction was closed to new changes.",
        "the running transaction",
        of_commit=True,
        ink=Ink(VERMILLION, "|"),
        of_journal=True,
        in_commit="handles",
    ),
    "shadow": Cause(
        "block in commit",
        "journal",
        "The block was held by the transaction being committed.",
        "blocks held by a commit",
        of_commit=True,
        ink=Ink(VERMILLION, "\\"),
        of_journal=True,
    ),
    "ordered_data": _request(
        "ordered data",
        "journal",
        "File data had to be written before its metadata.",
        "ordered data",
        ink=Ink(ORANGE, "/"),
        in_commit="ordered_data",
    ),
    "writeback": _request(
        "writeback",
        "device",
        "Dirty data, or a block that was to change, was being written.",
        "writeback",
        ink=Ink(ORANGE),
        in_commit="log_write",
    ),
    "flush": _request(
        "cache flush",
        "device",
        "The disk was emptying its write cache.",
        "the disk's cache flush",
        ink=Ink(YELLOW),
        in_commit="cache_flush",
    ),
    "dir_lock": Cause(
        "directory lock",
        "lock",
        "Another call was changing the same directory.",
        "directory locks",
        ink=Ink(PURPLE),
    ),
    "lookup_io": _request(
        "lookup read",
        "read",
        "A directory block was read to find a name.",
        "directory reads",
        ink=Ink(SKY),
    ),
    "readdir_io": _request(
        "listing read",
        "read",
        "A directory block was read to list names.",
        "directory reads",
        ink=Ink(SKY, "/"),
    ),
    "inode_io": _request(
        "inode read",
        "read",
        "An inode or its block map was read or freed.",
        "inode reads",
        ink=Ink(SKY, "|"),
    ),
    "alloc_io": _request(
        "allocator",
        "read",
        "Free space had to be found: read, locked by others, or reclaimed.",
        "the allocator",
        ink=Ink(SKY, "\\"),
    ),
    "quota": Cause(
        "quota",
        "lock",
        "Quota had to be read, locked, written or made room for.",
        "quota",
        ink=Ink(PURPLE, "x"),
    ),
    "block_queue": Cause(
        "block queue",
        "device",
        "The request queue of the disk was full or frozen.",
        "the request queue",
        at_disk=True,
        ink=Ink(BLUE, "/"),
    ),
    "block_device": _request(
        "device",
        "device",
        "The disk was reading or writing data of the call.",
        "the device",
        ink=Ink(BLUE),
        in_commit="log_write",
    ),
    "device_layer": Cause(
        "device layer",
        "device",
        "md or device-mapper was busy itself: stripes, bitmap, superblock, thin pool, encryption.",
        "md and device-mapper",
        at_disk=True,
        ink=Ink(BLUE, "-"),
    ),
    "io_throttle": Cause(
        "I/O throttle",
        "device",
        "A limit (wbt, iocost, io.max) held I/O back.",
        "I/O limits",
        ink=Ink(BLUE, "|"),
    ),
    "dirty_throttle": Cause(
        "dirty throttle",
        "device",
        "Writers were slowed until dirty data was written.",
        "dirty data to be written",
        at_disk=True,
        ink=Ink(BLUE, "\\"),
    ),
    "server": Cause(
        "server",
        "device",
        "A server had to answer (NFS, 9p, SMB, Ceph), or a program that serves (FUSE, autofs).",
        "a server's answers",
        ink=Ink(BLUE, "x"),
        answered=True,
    ),
    "frozen": Cause(
        "frozen",
        "lock",
        "The filesystem was, or was to be, frozen for a snapshot.",
        "a frozen filesystem",
        ink=Ink(PURPLE, "-"),
        answered=True,
    ),
    "scanner": Cause(
        "scanner",
        "lock",
        "A program that watches files (fanotify) had to permit the call.",
        "permission by a scanner",
        ink=Ink(PURPLE, "\\"),
        answered=True,
    ),
    "file_lock": Cause(
        "file lock",
        "lock",
        "A program held a lock on the file (fcntl, flock).",
        "file locks",
        ink=Ink(PURPLE, "|"),
        between_programs=True,
    ),
    "inode_lock": Cause(
        "inode lock",
        "lock",
        "Another call held the inode, tree, page or open file.",
        "inode and tree locks",
        ink=Ink(PURPLE, "/"),
    ),
    "process": Cause(
        "other programs",
        "machine",
        "Waits for other programs (vfork, exec, wait, pipes, futexes), or a CPU to move to.",
        "other programs",
        ink=Ink(GREY, "\\"),
        between_programs=True,
    ),
    "memory": Cause(
        "memory",
        "machine",
        "Memory had to be reclaimed, or its map was locked.",
        "memory",
        ink=Ink(GREY, "|"),
    ),
    "runq": Cause(
        "run queue",
        "machine",
        "Woken, but no CPU was free.",
        "a CPU",
        ink=Ink(GREY),
        machine="runq_ns",
    ),
    "preempt": Cause(
        "preempted",
        "machine",
        "Pushed off the CPU while running.",
        ink=Ink(GREY, "/"),
        state="pushed off the CPU",
        change="is pushed off the CPU for {time} {more}",
        machine="preempted_ns",
    ),
    "steal": Cause(
        "steal",
        "machine",
        "Running, but the host of the virtual machine had taken the CPU away.",
        "CPUs that the host had taken",
        ink=Ink(GREEN, "/"),
        machine="coalesce(stolen_ns, 0)",
    ),
    "cpu": Cause(
        "CPU",
        "machine",
        "Running on a CPU.",
        ink=Ink(GREEN),
        state="running on the CPU",
        change="runs {time} {more} on the CPU",
        machine="oncpu_ns - coalesce(stolen_ns, 0)",
    ),
    "unexplained": Cause(
        "unexplained",
        "machine",
        "Blocked, and no rule knows the stack, or a lock that is not about files.",
        "unnamed reasons",
        ink=Ink(DARK, "|"),
    ),
}
"""Every cause, in the order in which tables and stacked bars show them."""


def _those(attribute: str) -> tuple[str, ...]:
    return tuple(name for name, cause in CAUSES.items() if getattr(cause, attribute))


BETWEEN_PROGRAMS = _those("between_programs")
"""Waits of programs for programs. Postfix processes idle in a file lock for minutes, a parent in
vfork until its child runs a program, and the other program's work counts in its own calls. So these
waits are recorded, summed and listed, but not charged to the filesystem in headlines, drawings and
comparisons."""

MACHINE = {name: CAUSES[name].machine for name in ("cpu", "steal", "runq", "preempt")}
"""Causes in which a call is not asleep, with SQL for their time; older traces have no steal."""

BLOCKED_CAUSES = tuple(c for c in CAUSES if c not in MACHINE)
"""Causes that a rule may give."""

JOURNAL_WAITS, JOURNAL_WORK = _those("of_commit"), _those("of_journal")
"""Causes of a wait for a commit; causes of a wait for a commit or for room in the journal."""

AT_DISK, ENDS_WITH_REQUEST = _those("at_disk"), _those("ends_with_request")

COMMIT_ENDS = tuple(c for c in JOURNAL_WAITS if CAUSES[c].ends_with_request)
"""Causes of a wait for the very end of a commit, when its last request is complete."""

ANSWERED = _those("answered")


def charged(causes: Mapping[str, float]) -> dict[str, float]:
    """Return {cause: ns} without the waits of programs for programs."""
    return {cause: ns for cause, ns in causes.items() if cause not in BETWEEN_PROGRAMS}


def one_of(column: str, causes: Iterable[str]) -> str:
    """Return the SQL condition that a column has one of some causes."""
    return "{} IN ({})".format(column, ", ".join(f"'{cause}'" for cause in causes))
