"""Time in calls as a tree: process, call, cause."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb

from spoolscope.analysis.bins import OTHERS
from spoolscope.analysis.causes import BETWEEN_PROGRAMS
from spoolscope.analysis.process_parts import part_names

PROCESSES = 12
"""Number of parts (see ``process_parts``) that are shown; the others are one."""
LEAST = 0.003
"""Calls and causes below this share of all time are merged within their process or call."""
OTHER_CALLS, OTHER_CAUSES = "(other calls)", "(other causes)"


@dataclass(frozen=True)
class Node:
    """A part of the time: its place in the tree from the top, its time, and its calls.

    ``n`` is None for a cause: a call has several.
    """

    path: tuple[str, ...]
    ns: int
    n: int | None


def time_tree(con: duckdb.DuckDBPyConnection) -> list[Node]:
    """Return the parts, each after its parent (needs the tables of ``in_bins``).

    The first has the path () and is all time except waits of programs for programs; the children of
    a part add up to it.
    """
    names = part_names(con)
    times = {
        (names[part], call, cause): ns
        for part, call, cause, ns in con.execute(
            "SELECT part, syscall, cause, CAST(sum(ns) AS BIGINT) FROM bin_times GROUP BY ALL"
        ).fetchall()
        if cause not in BETWEEN_PROGRAMS
    }
    calls = {
        (names[part], call): n
        for part, call, n in con.execute(
            "SELECT part, syscall, CAST(sum(n) AS BIGINT) FROM bin_calls GROUP BY ALL"
        ).fetchall()
    }
    total = sum(times.values())
    largest = _largest(((name, ns) for (name, _, _), ns in times.items()), PROCESSES)
    named = {name: name if name in largest else OTHERS for name, _ in calls}
    by_call: dict[tuple[str, str], int] = defaultdict(int)
    for (name, call, _), ns in times.items():
        by_call[named[name], call] += ns

    def placed(name: str, call: str) -> tuple[str, str]:
        small = by_call[named[name], call] < LEAST * total
        return named[name], OTHER_CALLS if small else call

    ns_of: dict[tuple[str, ...], int] = defaultdict(int)
    n_of: dict[tuple[str, ...], int] = defaultdict(int)
    for (name, call, cause), ns in times.items():
        ns_of[(*placed(name, call), cause)] += ns
    for (name, call), n in calls.items():
        place = placed(name, call)
        for depth in range(3):
            n_of[place[:depth]] += n
    return _nodes(_folded(ns_of, LEAST * total), n_of)


def _largest(rows: Iterable[tuple[str, int]], most: int) -> set[str]:
    sums: dict[str, int] = defaultdict(int)
    for name, ns in rows:
        sums[name] += ns
    return set(sorted(sums, key=lambda name: (-sums[name], name))[:most])


def _folded(ns_of: Mapping[tuple[str, ...], int], least: float) -> dict[tuple[str, ...], int]:
    """Merge the small causes of a call."""
    found: dict[tuple[str, ...], int] = defaultdict(int)
    for path, ns in ns_of.items():
        found[path if ns >= least else (*path[:-1], OTHER_CAUSES)] += ns
    return found


def _nodes(ns_of: Mapping[tuple[str, ...], int], n_of: Mapping[tuple[str, ...], int]) -> list[Node]:
    sums: dict[tuple[str, ...], int] = defaultdict(int)
    for path, ns in ns_of.items():
        for depth in range(len(path) + 1):
            sums[path[:depth]] += ns
    nodes = [Node(path, ns, n_of.get(path)) for path, ns in sums.items() if ns]
    return sorted(nodes, key=lambda node: (len(node.path), -node.ns, node.path))
