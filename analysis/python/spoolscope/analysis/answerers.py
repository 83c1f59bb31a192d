"""Waits that are neither the filesystem's nor its disk's doing, and the programs that end them."""

from dataclasses import dataclass

import duckdb


@dataclass(frozen=True)
class Elsewhere:
    """The words for one cause of this kind.

    Attributes:
        kind: Of the finding.
        culprit: Its words where no program of this machine is known.
        mechanism: What it does to the calls, which waited ``{waited}``.
        remedy: What to try.
        by_program: A program of this machine ends such waits.
    """

    kind: str
    culprit: str
    mechanism: str
    remedy: str
    by_program: bool = True


ELSEWHERE = {
    "server": Elsewhere(
        "slow_server",
        "A server",
        "answered what the filesystem asked of it: calls waited {waited} for answers",
        "Look at what that server waits for itself, and at the way to it: here a lookup or a read "
        "that no cache holds is a request to it.",
    ),
    "frozen": Elsewhere(
        "frozen_filesystem",
        "A snapshot",
        "froze the filesystem (fsfreeze, or LVM): calls waited {waited} for the thaw",
        "Freeze it for less long, or when there is less mail: between freeze and thaw only the "
        "snapshot itself has to be made.",
    ),
    "scanner": Elsewhere(
        "scanner",
        "A program that watches files",
        "has to permit calls (fanotify): they waited {waited} for that",
        "Take the spool out of what it watches, or have it look at files without holding calls up.",
    ),
    "device_layer": Elsewhere(
        "device_layer",
        "md or device-mapper, below the filesystem,",
        "was busy itself: calls waited {waited} for it",
        "Look at /proc/mdstat and dmsetup status: a resync or reshape, a stripe cache or bitmap "
        "chunk that is too small, a thin pool that is full.",
        by_program=False,
    ),
    "quota": Elsewhere(
        "quota",
        "Quota",
        "had to be read, written or locked first: calls waited {waited} for it",
        "Count mail in the mail server instead, or have fewer writers share one quota.",
        by_program=False,
    ),
}

_WAKERS = f"""
SELECT cause, waker_pid, any_value(waker_comm), CAST(sum(dur_ns) AS BIGINT) AS ns
FROM named_waits
WHERE shown AND waker = 'task' AND waker_pid > 0 AND waker_comm IS NOT NULL
    AND cause IN {tuple(c for c, about in ELSEWHERE.items() if about.by_program)}
    AND waker_tid NOT IN (SELECT tid FROM threads WHERE kind = 'kernel')
    AND waker_comm NOT LIKE 'kworker/%'
GROUP BY cause, waker_pid ORDER BY ns DESC, waker_pid
"""


@dataclass(frozen=True)
class Answerer:
    """The process that ended most of the time of a cause.

    Attributes:
        cause: A key of ``ELSEWHERE``.
        pid: The process; ``comm`` its name.
        ns: Waits that it ended.
    """

    cause: str
    pid: int
    comm: str
    ns: int


def answerers(con: duckdb.DuckDBPyConnection) -> tuple[Answerer, ...]:
    """Return the one of each cause that has one (needs ``named_waits``)."""
    first: dict[str, Answerer] = {}
    for cause, pid, comm, ns in con.execute(_WAKERS).fetchall():
        first.setdefault(cause, Answerer(cause, pid, comm, ns))
    return tuple(first.values())
