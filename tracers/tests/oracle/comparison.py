"""Comparison of a trace with strace's log, call by call."""

import difflib
from typing import Any

from expected import Expected

from spoolscope.traces.trace import Trace

WORD_32 = {"fd", "fd2", "dirfd", "dirfd2", "flags", "mode", "cmd", "obj_mode", "lock_type"}
SHOWN = 12


def rows_by_thread(trace: Trace) -> dict[int, list[dict[str, Any]]]:
    """Return the trace's calls by thread, in order, with paths as text."""
    paths = trace.table("paths").to_pylist()
    texts = {row["path_id"]: row["path"] for row in paths}
    threads: dict[int, list[dict[str, Any]]] = {}
    for row in trace.table("syscalls").to_pylist():
        row["path"] = _text(texts, row["path_id"])
        row["path2"] = _text(texts, row["path2_id"])
        threads.setdefault(row["tid"], []).append(row)
    for rows in threads.values():
        rows.sort(key=lambda row: row["seq"])
    return threads


def differences(
    expected: dict[int, list[Expected]], recorded: dict[int, list[dict[str, Any]]]
) -> list[str]:
    """Return one text for every call that is missing, added or different."""
    found = []
    for tid, wanted in expected.items():
        rows = recorded.get(tid, [])
        found += _missing_or_added(tid, wanted, rows)
        names = [e.line.name for e in wanted]
        matcher = difflib.SequenceMatcher(None, names, [r["syscall"] for r in rows], False)
        for block in matcher.get_matching_blocks():
            for i in range(block.size):
                found += _different(tid, wanted[block.a + i], rows[block.b + i])
    return found


def summary(found: list[str]) -> str:
    """Return the first differences and their number."""
    head = f"{len(found)} differences between the trace and strace"
    more = [f"... and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return "\n".join([head, *found[:SHOWN], *more])


def _missing_or_added(tid: int, wanted: list[Expected], rows: list[dict[str, Any]]) -> list[str]:
    names, have = [e.line.name for e in wanted], [r["syscall"] for r in rows]
    found = []
    for tag, a1, a2, b1, b2 in difflib.SequenceMatcher(None, names, have, False).get_opcodes():
        if tag != "equal":
            found += [f"tid {tid}: not in the trace: {_short(e)}" for e in wanted[a1:a2]]
            found += [f"tid {tid}: only in the trace: {_brief(r)}" for r in rows[b1:b2]]
    return found


def _different(tid: int, wanted: Expected, row: dict[str, Any]) -> list[str]:
    wrong = [
        f"{name} {row[name]!r} instead of {value!r}"
        for name, value in wanted.fields.items()
        if not _same(name, row[name], value)
    ]
    return [f"tid {tid} seq {row['seq']}: {', '.join(wrong)}: {_short(wanted)}"] if wrong else []


def _same(name: str, recorded: Any, expected: Any) -> bool:
    if isinstance(recorded, int) and isinstance(expected, int):
        mask = 0xFFFF_FFFF if name in WORD_32 else 0xFFFF_FFFF_FFFF_FFFF
        return recorded & mask == expected & mask
    return bool(recorded == expected)


def _text(texts: dict[int, str], path_id: int | None) -> str | None:
    # A path outside the spool has its leading '/', one below it has none.
    return None if path_id is None else texts[path_id].lstrip("/")


def _short(wanted: Expected) -> str:
    shown = {k: v for k, v in wanted.fields.items() if k != "syscall"}
    return f"{wanted.line.name} {shown}"


def _brief(row: dict[str, Any]) -> str:
    keys = ("syscall", "fd", "path", "path2", "ret", "errno")
    return str({k: row[k] for k in keys if row[k] is not None})
