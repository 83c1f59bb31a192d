"""Possible culprits of a sleep: claims, from recorded events of locks, journals and disks.

A claim states that during an interval of a sleep some thread had what the sleeper waited for. Its
layer ranks how direct that is: the thread held the very lock; a commit waited for its handle or
data; it asked for the commit; its request kept the disk busy; last, it woke the sleeper. Within a
layer the claims of one sleep do not overlap.
"""

import duckdb

from spoolscope.analysis.causes import AT_DISK, COMMIT_ENDS, JOURNAL_WORK, one_of
from spoolscope.analysis.commit_parts import PART
from spoolscope.analysis.overlay import insert, layers, one_at_a_time, overlaps
from spoolscope.analysis.services import DEVICE, DISK_FLUSH, FLUSH, same_disk
from spoolscope.analysis.throttle import name_limits
from spoolscope.traces.calls import of_kind

MECHANISMS = (
    "lock_holder",
    "file_lock",
    "handle_holder",
    "ordered_data",
    "commit_trigger",
    "device",
    "waker",
    "cpu",
)
"""Ways in which a culprit kept its victim waiting: it held the contended lock; the file lock; a
handle of the transaction that had to be closed; it wrote the data that a commit had to write first;
it asked for the commit; its request was the oldest at the disk; it woke the victim; it had the CPU
that the victim was ready for (see ``cpu_holders``, which needs no claims)."""

HOW = {
    "lock_holder": "held by",
    "file_lock": "held by",
    "handle_holder": "with an open handle of",
    "ordered_data": "with data of",
    "commit_trigger": "asked for by",
    "device": "behind a request of",
    "waker": "until woken by",
    "cpu": "on a CPU that was with",
}
"""The words before the culprit's name in a sentence, by mechanism."""

N_LAYERS = 6
LOCK, PHASE, COMMIT, DISK, WAKER, NOBODY = range(N_LAYERS)

MAX_PASSED_ON = 3

_FILE_LOCKS = ("posix_lock", "flock")

# Every sleep whose cause is known, of calls and of the kernel threads that work for the spool.
_KERNEL_SLEEPS = """
CREATE OR REPLACE TEMP TABLE kernel_sleeps AS
WITH journals AS (
    SELECT tid, any_value(dev) AS dev, any_value(comm) AS comm FROM commits
    WHERE kind = 'jbd2_commit' GROUP BY tid
), kernel AS (
    SELECT tid, any_value(comm) AS comm FROM threads WHERE kind = 'kernel' GROUP BY tid
)
SELECT s.ts_ns, s.dur_ns, s.pid, s.tid, s.seq, coalesce(j.comm, t.comm) AS comm, j.dev, k.cause,
    k.filesystem, s.waker, s.waker_pid, s.waker_tid, s.waker_comm, s.waker_seq, true AS placed
FROM segments s JOIN stack_causes k USING (stack_id) LEFT JOIN kernel t ON t.tid = s.tid
LEFT JOIN journals j ON j.tid = s.tid
WHERE s.seq IS NULL AND s.state = 'blocked' AND s.dur_ns > 0
"""
_SLEEPS = """
CREATE OR REPLACE TEMP TABLE all_sleeps AS
SELECT row_number() OVER (ORDER BY from_ns, tid) AS id, * FROM (
    SELECT ts_ns AS from_ns, ts_ns + dur_ns AS to_ns, pid, tid, seq, comm, syscall, dev, path_id,
        cause, filesystem, waker, waker_pid, waker_tid, waker_comm, waker_seq, shown
    FROM named_waits WHERE placed AND dur_ns > 0
    UNION ALL
    SELECT ts_ns, ts_ns + dur_ns, pid, tid, seq, comm, NULL, dev, NULL, cause, filesystem, waker,
        waker_pid, waker_tid, waker_comm, waker_seq, true
    FROM kernel_sleeps
)
"""

# Claims are made for a batch of sleeps: the table sleeps, all between the variables since and
# until.
_BATCH = """
CREATE OR REPLACE TEMP TABLE sleeps AS
SELECT * FROM all_sleeps WHERE id BETWEEN {first} AND {last};
SET VARIABLE since = (SELECT min(from_ns) FROM sleeps);
SET VARIABLE until = (SELECT max(to_ns) FROM sleeps)
"""
_MEANWHILE = "from_ns < getvariable('until') AND to_ns > getvariable('since')"

_COLUMNS = "pid, tid, comm, seq, via_tid, mechanism, evidence"

# The owners of a lock while a thread waited for it: each other wait for that lock that ended
# meanwhile made its thread the next owner.
_TURNS = f"""
CREATE OR REPLACE TEMP TABLE lock_turns AS
WITH held AS (
    SELECT row_number() OVER (ORDER BY ts_ns, tid) AS wait, *, ts_ns AS from_ns,
        ts_ns + dur_ns AS to_ns
    FROM waits WHERE dur_ns > 0 AND (owner_pid IS NOT NULL OR address IS NOT NULL)
), contended AS (
    SELECT wait, tid, address, from_ns, to_ns FROM held WHERE address IS NOT NULL
        AND kind NOT IN ('iclog', 'cil', 'log_space')
), taken AS (
    SELECT address, pid, tid, seq, to_ns - 1 AS from_ns, to_ns FROM held
    WHERE address IS NOT NULL
), owners AS (
    SELECT wait, from_ns, owner_pid AS pid, owner_tid AS tid, owner_comm AS comm,
        owner_seq AS seq, CASE WHEN owner_shares THEN 'inferred' ELSE 'recorded' END AS evidence
    FROM held
    UNION ALL
    SELECT wait, to_ns, pid, tid, NULL, seq, 'inferred' FROM ({
    overlaps(
        "contended",
        "taken",
        "l.address = r.address AND l.tid != r.tid",
        "l.wait, r.pid, r.tid, r.seq",
    )
})
), turns AS (
    SELECT *, coalesce(lead(from_ns) OVER (PARTITION BY wait ORDER BY from_ns),
        9223372036854775807) AS until_ns
    FROM owners
)
SELECT row_number() OVER (ORDER BY t.from_ns, h.tid) AS turn, h.tid AS victim, h.dev, h.ino,
    t.from_ns, least(t.until_ns, h.to_ns) AS to_ns, t.pid, coalesce(t.tid, t.pid) AS tid, t.comm,
    t.seq, coalesce(t.tid, t.pid) AS via_tid,
    CASE WHEN h.kind IN {_FILE_LOCKS} THEN 'file_lock' ELSE 'lock_holder' END AS mechanism,
    t.evidence
FROM turns t JOIN held h USING (wait) WHERE t.pid IS NOT NULL
"""

# The kernel lets a request for a file lock wait behind another waiting request: while that one
# waited, its own blocker was to blame.
_PASSED_ON = f"""
WITH passing AS (
    SELECT * FROM lock_turns WHERE mechanism = 'file_lock'
), waiting AS (
    SELECT pid AS waiter, dev, ino, ts_ns AS from_ns, ts_ns + dur_ns AS to_ns, owner_pid FROM waits
    WHERE kind IN {_FILE_LOCKS} AND dur_ns > 0 AND owner_pid IS NOT NULL
), one AS ({one_at_a_time("waiting", "waiter, dev, ino", "owner_pid")}),
met AS ({
    overlaps(
        "passing",
        "one",
        "l.pid = r.waiter AND l.dev = r.dev AND l.ino = r.ino AND l.victim != r.owner_pid",
        "l.turn, r.owner_pid",
    )
})
SELECT turn AS id, 0 AS layer, 1 AS claim, from_ns, to_ns FROM passing
UNION ALL SELECT turn, 1, owner_pid, from_ns, to_ns FROM met
"""

_PASS_ON = """
CREATE OR REPLACE TEMP TABLE lock_turns AS
SELECT row_number() OVER (ORDER BY c.from_ns, t.victim) AS turn, t.victim, t.dev, t.ino,
    c.from_ns, c.to_ns, CAST(coalesce(c.blocker, t.pid) AS INTEGER) AS pid,
    CAST(coalesce(c.blocker, t.tid) AS INTEGER) AS tid,
    CASE WHEN c.blocker IS NULL THEN t.comm END AS comm,
    CASE WHEN c.blocker IS NULL THEN t.seq END AS seq,
    CAST(coalesce(c.blocker, t.via_tid) AS INTEGER) AS via_tid, t.mechanism, t.evidence
FROM (SELECT * REPLACE (nullif(blocker, 0) AS blocker) FROM rows) c
JOIN lock_turns t ON t.turn = c.id AND t.mechanism = 'file_lock'
UNION ALL SELECT * FROM lock_turns WHERE mechanism != 'file_lock'
"""

_LOCK_CLAIMS = f"""
INSERT INTO claims SELECT id, {LOCK}, from_ns, to_ns, {_COLUMNS} FROM (
    WITH now AS (SELECT * FROM lock_turns WHERE {_MEANWHILE}),
    one AS ({one_at_a_time("now", "victim", "turn")})
    SELECT * FROM ({
    overlaps(
        "sleeps",
        "one",
        "l.tid = r.victim",
        "l.id, r.pid, r.tid, r.comm, r.seq, r.via_tid, r.mechanism, r.evidence",
    )
}))
"""

# A handle that goes on in the next transaction leaves this one without an event: it let the commit
# go on when it began to wait for that. The data that a commit has to write first, for which it
# waits even while it writes the log, is charged to the process that wrote most since the commit
# before.
_PHASES = f"""
CREATE OR REPLACE TEMP TABLE guilty_phases AS
WITH each AS (
    SELECT commit_id, dev, tid AS committer, from_ns AS begun_ns,
        greatest(from_ns - 30000000000,
            lag(from_ns, 1, 0) OVER (PARTITION BY dev ORDER BY from_ns)) AS since_ns,
        to_ns - coalesce(logging_ns, 0) - coalesce(flushing_ns, 0) - coalesce(locking_ns, 0)
            AS locking_at_ns,
        to_ns - coalesce(logging_ns, 0) - coalesce(flushing_ns, 0) AS flushing_at_ns,
        flushing_ns, holder_pid, holder_tid, holder_comm, holder_seq, holder_ns
    FROM commit_spans WHERE kind = 'jbd2_commit'
), restarts AS (
    SELECT ts_ns, dev, pid, tid, comm, seq FROM named_waits
    WHERE cause = 'txn_lock' AND stack_id IN (
        SELECT stack_id FROM stacks WHERE symbol LIKE 'jbd2!_!_journal!_restart%' ESCAPE '!')
), data AS (
    SELECT commit_id, flushing_at_ns AS from_ns, flushing_at_ns + flushing_ns AS to_ns FROM each
    WHERE flushing_ns > 0
    UNION ALL
    SELECT commit_id, from_ns, to_ns FROM commit_parts WHERE part = {PART["ordered_data"]}
), flushing AS (
    SELECT commit_id, dev, since_ns AS from_ns, flushing_at_ns AS to_ns FROM each
    JOIN (SELECT commit_id, sum(to_ns - from_ns) AS data_ns FROM data GROUP BY commit_id)
        USING (commit_id)
    WHERE data_ns >= 100000
), writes AS (
    SELECT dev, pid, tid, comm, seq, ret, ts_ns AS from_ns, ts_ns + 1 AS to_ns FROM syscalls
    WHERE ret > 0 AND syscall IN {of_kind("write")}
        AND EXISTS (SELECT 1 FROM flushing)
), wrote AS (
    SELECT commit_id, pid, arg_max(tid, from_ns) AS tid, arg_max(comm, from_ns) AS comm,
        arg_max(seq, from_ns) AS seq, sum(ret) AS bytes FROM ({
    overlaps(
        "flushing",
        "writes",
        "l.dev = r.dev",
        "l.commit_id, r.pid, r.tid, r.comm, r.seq, r.ret",
    )
}) GROUP BY commit_id, pid
), most AS (
    SELECT commit_id, arg_max(pid, bytes) AS pid, arg_max(tid, bytes) AS tid,
        arg_max(comm, bytes) AS comm, arg_max(seq, bytes) AS seq FROM wrote GROUP BY commit_id
), guilty AS (
    SELECT dev, committer, locking_at_ns AS from_ns,
        locking_at_ns + least(holder_ns, flushing_at_ns - locking_at_ns) AS to_ns,
        holder_pid AS pid, holder_tid AS tid, holder_comm AS comm, holder_seq AS seq,
        holder_tid AS via_tid, 'handle_holder' AS mechanism, 'recorded' AS evidence
    FROM each WHERE holder_tid IS NOT NULL
    UNION ALL
    SELECT e.dev, e.committer, locking_at_ns, r.ts_ns, r.pid, r.tid, r.comm, r.seq, r.tid,
        'handle_holder', 'inferred'
    FROM each e ASOF JOIN restarts r ON e.flushing_at_ns >= r.ts_ns
    WHERE r.ts_ns > locking_at_ns AND coalesce(r.dev = e.dev, true)
        AND r.tid IS DISTINCT FROM holder_tid
    UNION ALL
    SELECT e.dev, e.committer, d.from_ns, d.to_ns, m.pid, m.tid, m.comm, m.seq,
        e.committer, 'ordered_data', 'inferred'
    FROM each e JOIN most m USING (commit_id) JOIN data d USING (commit_id)
)
SELECT * FROM ({one_at_a_time("guilty", "dev", "tid, mechanism")}) ORDER BY from_ns
"""

_PHASE_CLAIMS = f"""
INSERT INTO claims SELECT id, {PHASE}, from_ns, to_ns, {_COLUMNS} FROM (
    WITH hurt AS (SELECT * FROM sleeps WHERE cause IN {JOURNAL_WORK} AND filesystem = 'ext4'),
    now AS (SELECT * FROM guilty_phases WHERE {_MEANWHILE})
    SELECT * FROM ({
    overlaps(
        "hurt",
        "now",
        "(l.dev IS NULL OR r.dev IS NULL OR l.dev = r.dev) AND (l.seq IS NOT NULL "
        "OR l.tid = r.committer)",
        "l.id, r.pid, r.tid, r.comm, r.seq, r.via_tid, r.mechanism, r.evidence",
    )
}))
"""

_ASKED = """
CREATE OR REPLACE TEMP TABLE asked AS
SELECT l.filesystem, l.dev, l.from_ns, l.to_ns, t.pid, t.tid AS asker, t.seq,
    coalesce(s.trigger_comm, t.comm) AS comm, s.tid AS via_tid
FROM leading_commits l JOIN commit_triggers t USING (commit_id)
JOIN commit_spans s USING (commit_id)
WHERE t.tid IS NOT NULL ORDER BY l.from_ns
"""

_COMMIT_CLAIMS = f"""
INSERT INTO claims SELECT id, {COMMIT}, from_ns, to_ns, {_COLUMNS} FROM (
    WITH hurt AS (SELECT * FROM sleeps WHERE cause IN {JOURNAL_WORK} AND seq IS NOT NULL),
    now AS (SELECT * FROM asked WHERE {_MEANWHILE})
    SELECT * FROM ({
    overlaps(
        "hurt",
        "now",
        "l.filesystem = r.filesystem AND (l.filesystem = 'btrfs' OR l.dev IS NULL "
        "OR r.dev IS NULL OR l.dev = r.dev)",
        "l.id, r.pid, r.asker AS tid, r.comm, r.seq, r.via_tid, "
        "'commit_trigger' AS mechanism, 'recorded' AS evidence",
    )
}))
"""

_DISK_CLAIMS = f"""
INSERT INTO claims SELECT id, {DISK}, from_ns, to_ns, {_COLUMNS} FROM (
    WITH hurt AS (
        SELECT * FROM sleeps
        WHERE cause IN {AT_DISK} OR (seq IS NULL AND {one_of("cause", COMMIT_ENDS)})
    ), busy AS (
        SELECT * FROM services WHERE part IN ('{DEVICE}', '{FLUSH}', '{DISK_FLUSH}')
            AND tid IS NOT NULL AND {_MEANWHILE}
    ), oldest AS ({one_at_a_time("busy", "disk", "tid, seq, part")}),
    met AS ({
    overlaps(
        "hurt",
        "oldest",
        same_disk("l.dev", "r.disk"),
        "l.id, r.pid, r.tid, r.comm, r.seq, r.tid AS via_tid, 'device' AS mechanism, "
        "'inferred' AS evidence",
    )
})
    {one_at_a_time("met", "id", "tid, seq")}
)
"""

# A kernel thread that wakes the threads that wait for its work is no culprit.
_WAKER_CLAIMS = f"""
INSERT INTO claims SELECT id, {WAKER}, from_ns, to_ns, waker_pid, waker_tid, waker_comm,
    waker_seq, waker_tid, 'waker', 'recorded'
FROM sleeps WHERE waker = 'task' AND waker_tid IS NOT NULL AND waker_tid != tid
    AND cause NOT IN {AT_DISK} AND waker_comm NOT LIKE 'kworker/%'
    AND waker_tid NOT IN (SELECT tid FROM threads WHERE kind = 'kernel')
"""

# A claim without a culprit on every sleep, so that unclaimed parts appear, too.
_NOBODY = f"""
INSERT INTO claims (id, layer, from_ns, to_ns) SELECT id, {NOBODY}, from_ns, to_ns FROM sleeps
"""

_CLAIMS = """
CREATE OR REPLACE TEMP TABLE claims (
    id BIGINT, layer INTEGER, from_ns BIGINT, to_ns BIGINT, pid INTEGER,
    tid INTEGER, comm VARCHAR, seq BIGINT, via_tid INTEGER, mechanism VARCHAR, evidence VARCHAR)
"""


def find_sleeps(con: duckdb.DuckDBPyConnection) -> None:
    """Create ``kernel_sleeps``, and ``all_sleeps``, numbered by ``id`` from 1."""
    con.execute(_KERNEL_SLEEPS)
    name_limits(con, "kernel_sleeps")
    con.execute(_SLEEPS)


def find_turns(con: duckdb.DuckDBPyConnection) -> None:
    """Create ``lock_turns``: the owners of locks while others waited for them."""
    con.execute(_TURNS)
    for _ in range(MAX_PASSED_ON):
        turns = layers(con.execute(_PASSED_ON).fetchnumpy(), 2)
        if not len(turns.id):
            break
        cut = {"id": turns.id, "from_ns": turns.from_ns, "to_ns": turns.to_ns}
        insert(con, _PASS_ON, cut | {"blocker": turns.held[1]})


def find_phases(con: duckdb.DuckDBPyConnection) -> None:
    """Create ``guilty_phases``: the phases of commits with the threads that made them long."""
    con.execute(_PHASES)


def find_askers(con: duckdb.DuckDBPyConnection) -> None:
    """Create ``asked``: the commits with the calls that asked for them, in order of time."""
    con.execute(_ASKED)


def make_claims(con: duckdb.DuckDBPyConnection, first: int, last: int) -> None:
    """Create ``sleeps``, those with these ids, and ``claims`` on them."""
    con.execute(_BATCH.format(first=first, last=last))
    for statement in (
        _CLAIMS, _LOCK_CLAIMS, _PHASE_CLAIMS, _COMMIT_CLAIMS, _DISK_CLAIMS, _WAKER_CLAIMS, _NOBODY,
    ):  # fmt: skip
        con.execute(statement)
