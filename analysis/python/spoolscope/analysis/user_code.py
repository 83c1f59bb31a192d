"""Program code that made the calls: their time by function of a program, and by stack."""

from dataclasses import asdict, dataclass, field
from typing import Any

import duckdb

LISTED = 50

# The first function outside the C library; without a symbol, its file and offset.
_ASKED = """
CREATE OR REPLACE TEMP TABLE asked_by AS
WITH named AS (
    SELECT user_stack_id, depth, regexp_extract(file, '[^/]*$') AS program,
        coalesce(function, regexp_extract(file, '[^/]*$') || '+0x' || to_hex("offset")) AS name
    FROM user_stacks
), askers AS (
    SELECT user_stack_id, arg_min(name, depth) AS function, arg_min(program, depth) AS program
    FROM named WHERE NOT regexp_matches(program, '^(libc|ld-linux|libpthread|ld|ld-musl)[-.].*')
    GROUP BY user_stack_id
), stacks AS (
    SELECT user_stack_id, string_agg(name, ' < ' ORDER BY depth) AS stack, count(*) AS depth
    FROM named GROUP BY user_stack_id
)
SELECT s.user_stack_id, coalesce(a.function, '(unknown)') AS function,
    coalesce(a.program, '(unknown)') AS program, s.stack, s.depth
FROM stacks s LEFT JOIN askers a USING (user_stack_id);
CREATE OR REPLACE TEMP TABLE user_times AS
SELECT u.user_stack_id, c.syscall, c.dur_ns FROM user_calls u
JOIN shown_calls c ON c.tid = u.tid AND c.seq = u.seq AND c.ts_ns = u.ts_ns
"""

_BY_FUNCTION = f"""
SELECT a.function, a.program, count(*), CAST(sum(t.dur_ns) AS BIGINT) AS ns, max(t.dur_ns),
    mode(t.syscall)
FROM user_times t JOIN asked_by a USING (user_stack_id)
GROUP BY ALL ORDER BY ns DESC, a.function LIMIT {LISTED}
"""

_BY_STACK = f"""
SELECT a.stack, a.depth, count(*), CAST(sum(t.dur_ns) AS BIGINT) AS ns, max(t.dur_ns),
    mode(t.syscall)
FROM user_times t JOIN asked_by a USING (user_stack_id)
GROUP BY a.stack, a.depth ORDER BY ns DESC, a.stack LIMIT {LISTED}
"""


@dataclass(frozen=True)
class UserFunction:
    """Calls made by one function of a program.

    Attributes:
        function: Its name, or file and offset if it has no symbol.
        program: Name of its file.
        n: Calls; time_ns their time, max_ns the longest, syscall the most frequent.
    """

    function: str
    program: str
    n: int
    time_ns: int
    max_ns: int
    syscall: str


@dataclass(frozen=True)
class UserStack:
    """Calls made from one ``stack``, innermost frame first; other fields as above."""

    stack: str
    depth: int
    n: int
    time_ns: int
    max_ns: int
    syscall: str


@dataclass(frozen=True)
class UserCode:
    """Calls by the program code that made them.

    Attributes:
        functions: Functions, the largest time first, at most LISTED; likewise ``stacks``.
        unknown: Calls of processes that had ended before their symbols were read.
    """

    functions: list[UserFunction] = field(default_factory=list)
    stacks: list[UserStack] = field(default_factory=list)
    unknown: int = 0

    @property
    def short(self) -> bool:
        """True if most of the calls were made from stacks of no more than three frames."""
        short = sum(stack.n for stack in self.stacks if stack.depth <= _SHORT)
        return short * 2 > sum(stack.n for stack in self.stacks)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``explain --json`` prints."""
        return asdict(self)


_SHORT = 3


def study_user_code(con: duckdb.DuckDBPyConnection, meta: dict[str, Any]) -> UserCode | None:
    """Sum up the time of calls by the code that made them; None if that was not recorded.

    Args:
        con: Needs ``shown_calls``.
        meta: The trace's meta.json.
    """
    counts = meta.get("user_stacks")
    if not counts:
        return None
    con.execute(_ASKED)
    return UserCode(
        [UserFunction(*row) for row in con.execute(_BY_FUNCTION).fetchall()],
        [UserStack(*row) for row in con.execute(_BY_STACK).fetchall()],
        int(counts["unknown"]),
    )
