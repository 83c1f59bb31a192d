"""Kernel stacks of a trace: their cause, and clusters of unknown ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import duckdb
import pyarrow as pa

from spoolscope.analysis.stack_rules import Rule, bare, classify, of_use

# Frames of going to sleep and of recording it: they do not show the reason.
_PLUMBING = (
    "bpf_*",
    "__bpf_*",
    "__traceiter_*",
    "__schedule",
    "schedule*",
    "io_schedule*",
    "preempt_schedule*",
    "__cond_resched",
    "do_syscall_64",
    "do_syscall_x64",
    "x64_sys_call",
    "entry_SYSCALL_64*",
    "el0*",
    "invoke_syscall*",
    "__x64_sys_*",
    "__arm64_sys_*",
    "ret_from_fork*",
)

Frames = tuple[str, ...]


@dataclass(frozen=True)
class UnknownStack:
    """A cluster of waits whose stack no rule knows.

    Attributes:
        frames: Function names, innermost first, without scheduler and system-call entry frames.
        ns: Blocked time of the cluster.
        n: Number of waits.
        share: Part of all blocked time.
        syscalls: The calls that waited there.
    """

    frames: Frames
    ns: int
    n: int
    share: float
    syscalls: tuple[str, ...]

    @property
    def rule(self) -> str:
        """A rule to start from, for a file given with ``--rules``."""
        names = " < ".join(self.frames[:2]) or "FRAME"
        return f'{{ cause = "CAUSE", stack = "{names}" }},'


def read_stacks(con: duckdb.DuckDBPyConnection) -> dict[int, Frames]:
    """Return every stack of the trace, innermost frame first."""
    rows = con.execute(
        "SELECT stack_id, list(symbol ORDER BY depth) FROM stacks GROUP BY stack_id"
    ).fetchall()
    return {stack_id: tuple(symbols) for stack_id, symbols in rows}


def label_stacks(con: duckdb.DuckDBPyConnection, rules: Sequence[Rule]) -> None:
    """Create the table ``stack_causes(stack_id, cause, filesystem)``; unknown stacks are absent."""
    known: dict[Frames, Rule | None] = {}
    rows: list[tuple[int, str, str]] = []
    stacks = read_stacks(con)
    rules = of_use({frame for frames in stacks.values() for frame in frames}, rules)
    for stack_id, frames in stacks.items():
        if frames not in known:
            known[frames] = classify(frames, rules)
        if (rule := known[frames]) is not None:
            rows.append((stack_id, rule.cause, rule.filesystem))
    ids, causes, filesystems = zip(*rows, strict=True) if rows else ((), (), ())
    table = pa.table(
        {
            "stack_id": pa.array(ids, pa.int64()),
            "cause": pa.array(causes, pa.string()),
            "filesystem": pa.array(filesystems, pa.string()),
        }
    )
    con.register("stack_causes_arrow", table)
    con.execute("CREATE OR REPLACE TEMP TABLE stack_causes AS SELECT * FROM stack_causes_arrow")
    con.unregister("stack_causes_arrow")


def telling(frames: Sequence[str]) -> Frames:
    """Return the frames that show why a task slept, without suffixes."""
    names = (bare(frame) for frame in frames)
    return tuple(n for n in names if not any(fnmatchcase(n, p) for p in _PLUMBING))


def unknown_stacks(con: duckdb.DuckDBPyConnection, limit: int = 20) -> list[UnknownStack]:
    """Cluster the unexplained waits by stack, largest share first (needs ``named_waits``)."""
    rows = con.execute(
        "SELECT stack_id, CAST(sum(dur_ns) AS BIGINT), count(*), list(DISTINCT syscall) "
        "FROM named_waits WHERE shown AND cause = 'unexplained' GROUP BY stack_id"
    ).fetchall()
    ((blocked,),) = con.execute(
        "SELECT coalesce(sum(dur_ns), 0) FROM named_waits WHERE shown"
    ).fetchall()
    stacks = read_stacks(con) if rows else {}
    clusters: dict[Frames, tuple[int, int, set[str]]] = {}
    for stack_id, ns, n, syscalls in rows:
        frames = telling(stacks.get(stack_id, ()))
        ns_before, n_before, names = clusters.get(frames, (0, 0, set()))
        clusters[frames] = (ns_before + ns, n_before + n, names | set(syscalls))
    found = [
        UnknownStack(frames, ns, n, ns / blocked if blocked else 0.0, tuple(sorted(names)))
        for frames, (ns, n, names) in clusters.items()
    ]
    return sorted(found, key=lambda cluster: -cluster.ns)[:limit]
