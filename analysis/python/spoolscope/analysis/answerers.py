"""Programs of this machine whose answers end waits: servers, thawing programs, scanners."""

from dataclasses import dataclass

import duckdb

from spoolscope.analysis.causes import ANSWERED, one_of

_WAKERS = f"""
SELECT cause, waker_pid, any_value(waker_comm), CAST(sum(dur_ns) AS BIGINT) AS ns
FROM named_waits
WHERE shown AND waker = 'task' AND waker_pid > 0 AND waker_comm IS NOT NULL
    AND {one_of("cause", ANSWERED)}
    AND waker_tid NOT IN (SELECT tid FROM threads WHERE kind = 'kernel')
    AND waker_comm NOT LIKE 'kworker/%'
GROUP BY cause, waker_pid ORDER BY ns DESC, waker_pid
"""


@dataclass(frozen=True)
class Answerer:
    """The process that ended most of the time of a cause.

    Attributes:
        cause: One of ``causes.ANSWERED``.
        pid: The process; ``comm`` its name.
        ns: Length of the waits that it ended, in sum.
    """

    cause: str
    pid: int
    comm: str
    ns: int


def answerers(con: duckdb.DuckDBPyConnection) -> tuple[Answerer, ...]:
    """Return the answerer of each cause that has one (needs ``named_waits``)."""
    first: dict[str, Answerer] = {}
    for cause, pid, comm, ns in con.execute(_WAKERS).fetchall():
        first.setdefault(cause, Answerer(cause, pid, comm, ns))
    return tuple(first.values())
