"""Reasons why one candidate is faster: the causes of its calls' time, from the runs' traces."""

from collections.abc import Mapping
from dataclasses import dataclass

from spoolscope.analysis.causes import BETWEEN_PROGRAMS, CAUSES, COMMIT_ENDS
from spoolscope.analysis.latency import class_of
from spoolscope.analysis.wording import duration
from spoolscope.traces.filesystems import FILESYSTEMS

Table = dict[tuple[str, str], float]
"""Time by (family of calls, cause), in ns, mean of a candidate's runs."""

_FAMILY = {
    "sync": "fsync/fdatasync",
    "list": "directory listing",
    "lock": "file locking",
    "other": "other calls",
}


@dataclass(frozen=True)
class Reason:
    """One difference: ``delta_ns`` is candidate minus reference; ``text`` is the sentence."""

    family: str
    cause: str
    delta_ns: float
    candidate_ns: float
    reference_ns: float
    text: str


def by_family(by_syscall: Mapping[str, Mapping[str, int]]) -> Table:
    """Sum up {call: {cause: ns}} by (family, cause)."""
    table: Table = {}
    for syscall, causes in by_syscall.items():
        for cause, ns in causes.items():
            key = (class_of(syscall), cause)
            table[key] = table.get(key, 0.0) + ns
    return table


def without(
    by_syscall: Mapping[str, Mapping[str, int]], taken: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Return {call: {cause: ns}} less the time that others took."""
    return {
        call: {cause: ns - taken.get(call, {}).get(cause, 0) for cause, ns in causes.items()}
        for call, causes in by_syscall.items()
    }


def mean_table(tables: list[Table]) -> Table:
    """Return the mean of the tables of a candidate's runs."""
    keys = {key for table in tables for key in table}
    return {key: sum(t.get(key, 0.0) for t in tables) / len(tables) for key in keys}


def reasons(
    candidate: Table, reference: Table, *, name: str, against: str, fstype: str, limit: int = 4
) -> list[Reason]:
    """Return the largest differences between ``name`` and ``against``, the largest first.

    Differences below 2 % of the larger total are left out: they explain nothing. So are waits
    of programs for programs, which follow from the others.
    """
    keys = {k for k in set(candidate) | set(reference) if k[1] not in BETWEEN_PROGRAMS}
    deltas = {key: candidate.get(key, 0.0) - reference.get(key, 0.0) for key in keys}
    where = f"on {name} than on {against}"
    totals = (sum(t.get(key, 0.0) for key in keys) for t in (candidate, reference))
    least = 0.02 * max(*totals, 1.0)
    chosen = sorted((k for k in keys if abs(deltas[k]) >= least), key=lambda k: -abs(deltas[k]))
    return [
        Reason(
            family=family,
            cause=cause,
            delta_ns=deltas[family, cause],
            candidate_ns=candidate.get((family, cause), 0.0),
            reference_ns=reference.get((family, cause), 0.0),
            text=f"{_text(family, cause, deltas[family, cause], fstype)} {where}",
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


def doing(cause: str, fstype: str = "") -> str:
    """Return what calls do in a cause, e.g. "waiting for journal commits"."""
    return CAUSES[cause].state or f"waiting for {_object(cause, fstype)}"


def _object(cause: str, fstype: str) -> str:
    objects = CAUSES[cause].objects
    kind = FILESYSTEMS.get(fstype) if cause in COMMIT_ENDS else None
    return objects if kind is None else kind.commits


def _text(family: str, cause: str, delta: float, fstype: str) -> str:
    time, more = duration(abs(delta)), "more" if delta > 0 else "less"
    change = CAUSES[cause].change or f"waits {{time}} {{more}} for {_object(cause, fstype)}"
    return f"{family_label(family)} {change.format(time=time, more=more)}"
