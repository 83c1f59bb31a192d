"""Why one candidate is faster: what its calls waited for, from the runs' own traces."""

from collections.abc import Mapping
from dataclasses import dataclass

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.latency import class_of
from spoolscope.analysis.wording import duration

Table = dict[tuple[str, str], float]
"""Time by (family of calls, cause), in ns, mean of a candidate's runs."""

_FAMILY = {
    "sync": "fsync/fdatasync",
    "list": "directory listing",
    "lock": "file locking",
    "other": "the other calls",
}
_COMMIT = {"xfs": "log writes", "btrfs": "log commits"}
_PHRASES = {
    "journal_commit": "waits {time} {more} for journal commits",
    "log_space": "waits {time} {more} for space in the journal",
    "txn_lock": "waits {time} {more} for the running transaction",
    "shadow": "waits {time} {more} for blocks held by a commit",
    "ordered_data": "waits {time} {more} for ordered data",
    "writeback": "waits {time} {more} for writeback",
    "flush": "waits {time} {more} for the disk's cache flush",
    "dir_lock": "waits {time} {more} for directory locks",
    "lookup_io": "waits {time} {more} for directory reads",
    "readdir_io": "waits {time} {more} for directory reads",
    "inode_io": "waits {time} {more} for inode reads",
    "alloc_io": "waits {time} {more} for the allocator",
    "block_queue": "waits {time} {more} for the request queue",
    "block_device": "waits {time} {more} for the device",
    "io_throttle": "is throttled {time} {more} by I/O limits",
    "dirty_throttle": "is throttled {time} {more} for dirty data",
    "file_lock": "waits {time} {more} for file locks",
    "inode_lock": "waits {time} {more} for inode and tree locks",
    "memory": "waits {time} {more} for memory",
    "runq": "waits {time} {more} for a CPU",
    "preempt": "is pushed off the CPU {time} {more}",
    "cpu": "spends {time} {more} on the CPU",
    "unexplained": "waits {time} {more} for unnamed reasons",
}


@dataclass(frozen=True)
class Reason:
    """One difference: ``delta_ns`` is candidate minus reference; ``text`` says it."""

    family: str
    cause: str
    delta_ns: float
    candidate_ns: float
    reference_ns: float
    text: str


def by_family(by_syscall: Mapping[str, Mapping[str, int]]) -> Table:
    """Add {call: {cause: ns}} up to (family, cause)."""
    table: Table = {}
    for syscall, causes in by_syscall.items():
        for cause, ns in causes.items():
            key = (class_of(syscall), cause)
            table[key] = table.get(key, 0.0) + ns
    return table


def mean_table(tables: list[Table]) -> Table:
    """Return the mean of the tables of a candidate's runs."""
    keys = {key for table in tables for key in table}
    return {key: sum(t.get(key, 0.0) for t in tables) / len(tables) for key in keys}


def reasons(
    candidate: Table, reference: Table, *, name: str, fstype: str, limit: int = 4
) -> list[Reason]:
    """Return the largest differences between two candidates, the largest first.

    Differences below 2 % of the larger total are left out: they explain nothing.
    """
    keys = set(candidate) | set(reference)
    deltas = {key: candidate.get(key, 0.0) - reference.get(key, 0.0) for key in keys}
    least = 0.02 * max(sum(candidate.values()), sum(reference.values()), 1.0)
    chosen = sorted((k for k in keys if abs(deltas[k]) >= least), key=lambda k: -abs(deltas[k]))
    return [
        Reason(
            family=family,
            cause=cause,
            delta_ns=deltas[family, cause],
            candidate_ns=candidate.get((family, cause), 0.0),
            reference_ns=reference.get((family, cause), 0.0),
            text=_text(family, cause, deltas[family, cause], name, fstype),
        )
        for family, cause in chosen[:limit]
    ]


def cause_deltas(candidate: Table, reference: Table) -> dict[str, float]:
    """Return candidate minus reference by cause, in the order of the closed list."""
    deltas = dict.fromkeys(CAUSES, 0.0)
    for table, sign in ((candidate, 1), (reference, -1)):
        for (_, cause), ns in table.items():
            deltas[cause] += sign * ns
    return {cause: ns for cause, ns in deltas.items() if ns}


def family_label(family: str) -> str:
    """Return the words for a family of calls."""
    return _FAMILY.get(family, family)


def _text(family: str, cause: str, delta: float, name: str, fstype: str) -> str:
    phrase = _PHRASES[cause]
    if cause == "journal_commit":
        phrase = phrase.replace("journal commits", _COMMIT.get(fstype, "journal commits"))
    said = phrase.format(time=duration(abs(delta)), more="more" if delta > 0 else "less")
    return f"{family_label(family)} on {name} {said}"
