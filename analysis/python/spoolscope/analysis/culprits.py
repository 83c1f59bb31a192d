"""Victims and culprits: which thread made which call wait, for how long and how; their chains.

Every instant of a sleep is charged to the most direct claim on it (see ``claims``), and of a wait
for a CPU to the thread that had it, so the edges of one victim never overlap and add up to at most
the time it was off the CPU. If the culprit of an edge was itself waiting, the chain follows that,
up to ``MAX_HOPS``.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from spoolscope.analysis.claims import MECHANISMS, N_LAYERS, make_claims
from spoolscope.analysis.cpu_holders import add_cpu_waits
from spoolscope.analysis.overlay import insert, layers, overlaps
from spoolscope.traces.files import replacing
from spoolscope.traces.output import place_of
from spoolscope.traces.scratch import scratch

MAX_HOPS = 4
BATCH = 200_000
"""Number of sleeps that are charged at a time."""

_NO_PIECES = """
CREATE OR REPLACE TEMP TABLE sleep_pieces (
    id BIGINT, from_ns BIGINT, to_ns BIGINT, culprit_pid INTEGER, culprit_tid INTEGER,
    culprit_comm VARCHAR, culprit_seq BIGINT, via_tid INTEGER, mechanism VARCHAR,
    evidence VARCHAR)
"""

# The claimed culprits, as numbers.
_CLAIMS = f"""
SELECT rowid AS row, id, layer, from_ns, to_ns, coalesce(tid, -1) AS tid, coalesce(seq, -1) AS seq,
    coalesce(list_position({list(MECHANISMS)}, mechanism), 0) AS mechanism,
    coalesce(evidence = 'inferred', false) AS inferred
FROM claims WHERE from_ns < to_ns
"""

_PIECES = """
INSERT INTO sleep_pieces
SELECT p.id, p.from_ns, p.to_ns, c.pid, c.tid, c.comm, c.seq, c.via_tid, c.mechanism,
    CASE WHEN p.inferred THEN 'inferred' ELSE c.evidence END
FROM rows p JOIN claims c ON c.rowid = p.row
"""

_FIRST_HOP = """
CREATE OR REPLACE TEMP TABLE hops AS
SELECT row_number() OVER (ORDER BY p.from_ns, s.tid) AS edge_id, CAST(1 AS INTEGER) AS hop,
    CAST(NULL AS BIGINT) AS parent_id, p.from_ns, p.to_ns, s.pid AS victim_pid,
    s.tid AS victim_tid, s.comm AS victim_comm, s.seq AS victim_seq, s.syscall AS victim_syscall,
    s.path_id AS victim_path_id, s.cause, p.mechanism, p.culprit_pid, p.culprit_tid,
    p.culprit_comm, p.culprit_seq, p.via_tid, p.evidence
FROM sleep_pieces p JOIN all_sleeps s USING (id)
WHERE s.shown AND s.seq IS NOT NULL AND p.culprit_tid != s.tid
"""

# Sleeps of culprits, and of threads that worked for them, during the sleeps that they caused.
_ASLEEP = """
CREATE OR REPLACE TEMP TABLE asleep AS
SELECT p.rowid AS piece, s.tid, p.from_ns, p.to_ns FROM sleep_pieces p JOIN all_sleeps s USING (id)
WHERE s.tid IN (SELECT via_tid FROM sleep_pieces)
"""

# Sleeps of the culprit of an edge, or of the thread that worked for it, during that edge; also
# sleeps without a further culprit.
_NEXT_HOP = """
INSERT INTO hops
WITH parents AS (
    SELECT edge_id, via_tid, from_ns, to_ns FROM hops WHERE hop = {hop} AND via_tid IS NOT NULL
), met AS ({met}),
whole AS (
    SELECT m.parent_id, m.from_ns, m.to_ns, s.pid, s.tid, s.comm, s.seq, s.syscall, s.path_id,
        s.cause, p.culprit_tid != s.tid AS by_other, p.mechanism, p.culprit_pid, p.culprit_tid,
        p.culprit_comm, p.culprit_seq, p.via_tid, p.evidence
    FROM met m JOIN sleep_pieces p ON p.rowid = m.piece JOIN all_sleeps s USING (id)
)
SELECT (SELECT max(edge_id) FROM hops) + row_number() OVER (ORDER BY from_ns, parent_id),
    {hop} + 1, parent_id, from_ns, to_ns, pid, tid, comm, seq, syscall, path_id, cause,
    CASE WHEN by_other THEN mechanism END, CASE WHEN by_other THEN culprit_pid END,
    CASE WHEN by_other THEN culprit_tid END, CASE WHEN by_other THEN culprit_comm END,
    CASE WHEN by_other THEN culprit_seq END, CASE WHEN by_other THEN via_tid END,
    coalesce(evidence, 'recorded')
FROM whole
"""

# Where the kernel names only the holder's process, the holder's call is the one that it was in for
# most of the time. (Not materialized, all calls would be grouped before the few are chosen.)
_EDGES = """
CREATE OR REPLACE TEMP TABLE edges AS
WITH unsaid AS (
    SELECT edge_id, culprit_tid AS tid, from_ns, to_ns FROM hops
    WHERE culprit_tid IS NOT NULL AND culprit_seq IS NULL
), candidates AS (
    SELECT tid, seq, ts_ns AS from_ns, ts_ns + dur_ns AS to_ns FROM syscalls
    WHERE tid IN (SELECT tid FROM unsaid)
), during AS (
    SELECT edge_id, arg_max(seq, to_ns - from_ns) AS seq FROM ({met}) GROUP BY edge_id
), whole AS (
    SELECT h.* REPLACE (coalesce(h.culprit_seq, d.seq) AS culprit_seq)
    FROM hops h LEFT JOIN during d USING (edge_id)
), wanted AS (
    SELECT DISTINCT culprit_tid AS tid, culprit_seq AS seq FROM whole
    WHERE culprit_seq IS NOT NULL
), meant AS MATERIALIZED (
    SELECT tid, seq, syscall, path_id, comm FROM syscalls SEMI JOIN wanted USING (tid, seq)
), calls AS (
    SELECT tid, seq, any_value(syscall) AS syscall, any_value(path_id) AS path_id,
        any_value(comm) AS comm
    FROM meant GROUP BY tid, seq
), names AS (
    SELECT tid, any_value(comm) AS comm FROM threads GROUP BY tid
)
SELECT edge_id, hop, parent_id, w.from_ns, w.to_ns, victim_pid, victim_tid, victim_comm,
    victim_seq, victim_syscall, victim_path_id, cause, mechanism, culprit_pid, culprit_tid,
    coalesce(c.comm, culprit_comm, n.comm) AS culprit_comm, culprit_seq,
    c.syscall AS culprit_syscall, c.path_id AS culprit_path_id, evidence
FROM whole w LEFT JOIN calls c ON c.tid = w.culprit_tid AND c.seq = w.culprit_seq
LEFT JOIN names n ON n.tid = w.culprit_tid
ORDER BY edge_id
"""

_SUMMARY = """
SELECT victim_comm, victim_syscall, cause, mechanism, coalesce(culprit_comm, 'unknown'),
    CASE WHEN count(DISTINCT culprit_pid) = 1 THEN any_value(culprit_pid) END,
    coalesce(culprit_syscall, '-'), count(*), CAST(sum(to_ns - from_ns) AS BIGINT),
    max(to_ns - from_ns), bool_and(evidence = 'recorded')
FROM edges WHERE hop = 1 GROUP BY victim_comm, victim_syscall, cause, mechanism, culprit_comm,
    culprit_syscall
ORDER BY 9 DESC, 1, 2, 3, 4, 5 LIMIT {limit}
"""


@dataclass(frozen=True)
class Culprit:
    """Edges of one kind: victims' and culprits' names, mechanism, and the time in sum.

    Attributes:
        victim: Name of the process that waited, in the call ``victim_call``, for ``cause``.
        mechanism: One of ``claims.MECHANISMS``.
        culprit: Name of the process that it waited for; culprit_pid if there was only one.
        culprit_call: The call that it was in; "-" if it was in no recorded call.
        n: Number of edges, ns their length in sum; max_ns of the longest.
        recorded: True if the recorder saw every edge; else some are inferred.
    """

    victim: str
    victim_call: str
    cause: str
    mechanism: str
    culprit: str
    culprit_pid: int | None
    culprit_call: str
    n: int
    ns: int
    max_ns: int
    recorded: bool


@dataclass(frozen=True)
class Link:
    """One hop of a chain: the sleeper, its call, the cause, and the culprit if there is another.

    ``ns`` is how much of the hop before it slept for that cause.
    """

    comm: str
    pid: int
    syscall: str
    cause: str
    mechanism: str | None
    culprit: str | None
    culprit_pid: int | None
    culprit_call: str
    ns: int


@dataclass(frozen=True)
class Origin:
    """Time that calls waited for others, by the cause at the end of their chains.

    Attributes:
        cause: Cause of the calls' waits.
        origin: The cause for which the last culprit of the chain slept at that time; the same as
            ``cause`` if it did not sleep, or its sleep is not known.
        ns: Time of these waits.
    """

    cause: str
    origin: str
    ns: int


def find_culprits(con: duckdb.DuckDBPyConnection) -> None:
    """Create the table ``edges``.

    Hop 1 holds the edges of calls. A row of a higher hop is a sleep of its parent's culprit during
    that edge, with its cause and culprit; the culprit is null if it is no other thread.
    """
    ((n,),) = con.execute("SELECT count(*) FROM all_sleeps").fetchall()
    con.execute(_NO_PIECES)
    for first in range(1, n + 1, BATCH):
        make_claims(con, first, first + BATCH - 1)
        _charge(con)
    add_cpu_waits(con, above=n)
    for statement in (_FIRST_HOP, _ASLEEP):
        con.execute(statement)
    for hop in range(1, MAX_HOPS):
        met = overlaps("parents", "asleep", "l.via_tid = r.tid", "l.edge_id AS parent_id, r.piece")
        con.execute(_NEXT_HOP.format(hop=hop, met=met))
    met = overlaps("unsaid", "candidates", "l.tid = r.tid", "l.edge_id, r.seq")
    con.execute(_EDGES.format(met=met))


def _charge(con: duckdb.DuckDBPyConnection) -> None:
    """Add each instant to ``sleep_pieces`` once; neighbours with one culprit are one piece."""
    claims = con.execute(_CLAIMS).fetchnumpy()
    pieces = layers(claims | {"claim": np.arange(1, len(claims["id"]) + 1)}, N_LAYERS)
    claim = np.select([held > 0 for held in pieces.held], pieces.held) - 1
    begins = np.ones(len(claim), bool)
    begins[1:] = np.diff(pieces.id) != 0
    for who in ("tid", "seq", "mechanism"):
        begins[1:] |= np.diff(claims[who][claim]) != 0
    rows = np.flatnonzero(begins)
    found = {
        "id": pieces.id[rows],
        "from_ns": pieces.from_ns[rows],
        "to_ns": pieces.to_ns[np.append(rows, len(claim))[1:] - 1],
        "row": claims["row"][claim[rows]],
        "inferred": np.logical_or.reduceat(claims["inferred"][claim], rows),
    }
    insert(con, _PIECES, found)


def culprits(con: duckdb.DuckDBPyConnection, limit: int = 100) -> list[Culprit]:
    """Return the edges in sums, the largest first (needs the table ``edges``)."""
    return [Culprit(*row) for row in con.execute(_SUMMARY.format(limit=limit)).fetchall()]


# The next hops of an edge never overlap: the chain ends in the parts that they leave uncovered.
_ORIGINS = """
WITH RECURSIVE chains AS (
    SELECT edge_id, cause, cause AS origin, to_ns - from_ns AS ns FROM edges WHERE hop = 1
    UNION ALL
    SELECT e.edge_id, c.cause, e.cause, e.to_ns - e.from_ns
    FROM edges e JOIN chains c ON e.parent_id = c.edge_id
), further AS (
    SELECT parent_id, sum(to_ns - from_ns) AS ns FROM edges WHERE parent_id IS NOT NULL
    GROUP BY parent_id
)
SELECT cause, origin, CAST(sum(c.ns - coalesce(f.ns, 0)) AS BIGINT) AS here_ns
FROM chains c LEFT JOIN further f ON f.parent_id = c.edge_id
GROUP BY cause, origin HAVING here_ns > 0 ORDER BY here_ns DESC, cause, origin
"""


def origins(con: duckdb.DuckDBPyConnection) -> list[Origin]:
    """Return where the waits for others began, the longest first (needs the table ``edges``)."""
    return [Origin(*row) for row in con.execute(_ORIGINS).fetchall()]


_LONGEST = """
WITH RECURSIVE tree AS (
    SELECT edge_id FROM (SELECT edge_id FROM edges WHERE hop = 1
        ORDER BY to_ns - from_ns DESC, edge_id LIMIT {limit})
    UNION ALL SELECT e.edge_id FROM edges e JOIN tree t ON e.parent_id = t.edge_id
)
SELECT parent_id, edge_id, victim_comm, victim_pid, coalesce(victim_syscall, '-'), cause,
    mechanism, culprit_comm, culprit_pid, coalesce(culprit_syscall, '-'), to_ns - from_ns
FROM edges WHERE edge_id IN (SELECT edge_id FROM tree) ORDER BY to_ns - from_ns DESC, edge_id
"""


def longest_chains(con: duckdb.DuckDBPyConnection, limit: int = 10) -> list[list[Link]]:
    """Return the longest edges, each followed along its longest part (needs ``edges``)."""
    children: dict[int | None, list[tuple[int, Link]]] = {}
    for parent, edge, *rest in con.execute(_LONGEST.format(limit=limit)).fetchall():
        children.setdefault(parent, []).append((edge, Link(*rest)))
    found = []
    for edge, link in children.get(None, []):
        chain = [link]
        while edge in children:
            edge, link = children[edge][0]  # the longest one
            chain.append(link)
        found.append(chain)
    return found


def write_edges(con: duckdb.DuckDBPyConnection, file: Path, *, private: bool = False) -> int:
    """Write the table ``edges`` as Parquet and return its number of rows.

    Args:
        con: Connection that has the table.
        file: File to write.
        private: It holds real names: only its owner may read it.
    """
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        made = Path(place) / "edges.parquet"
        quoted = str(made).replace("'", "''")
        command = f"COPY edges TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)"
        ((n,),) = con.execute(command).fetchall()
        with made.open("rb") as source, replacing(place_of(file), private=private) as target:
            shutil.copyfileobj(source, target)
    return int(n)
